//! The store under test with its clock, and short words for what the cases do with it.
//!
//! Every chunk that is read here is checked against the promises that hold for any chunk: limits,
//! order, and a position that goes on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_types::{Clock, Key, NamespaceId, Row, ShardId, Timestamp, Value, Version};

use crate::suite::seen::{Seen, check_limits};
use crate::suite::{Engine, Restart};
use crate::{
    Atomicity, ByKey as _, CallContext, Change, Condition, DeleteRangeRequest, Deleted, Durability,
    ManualClock, Mutation, RangeRequest, ScanRequest, ShardStatus, SortRange, Store, StoreError,
    WriteError, WriteRequest, Written,
};

/// Namespace of most cases.
pub(super) const NS: NamespaceId = NamespaceId(7);
/// Time of day when a case begins.
pub(super) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// A call without a caller.
pub(super) static CALL: CallContext = CallContext::internal();
/// Far more steps than any walk here needs.
const STEPS_MAX: usize = 100_000;

pub(super) type WriteResult = Result<Written, WriteError>;

/// A fresh store on a clock of its own.
pub(super) struct TestSubject<E> {
    engine: E,
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Arc<dyn Store>,
}

pub(super) fn key(partition: impl AsRef<[u8]>, sort: impl AsRef<[u8]>) -> Key {
    let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    Key::new(copy(partition.as_ref()), copy(sort.as_ref())).expect("the case keeps to the limits")
}

pub(super) fn value(bytes: impl AsRef<[u8]>) -> Value {
    Value {
        bytes: Bytes::copy_from_slice(bytes.as_ref()),
        ..Value::default()
    }
}

pub(super) fn put(key: &Key, bytes: impl AsRef<[u8]>) -> Mutation {
    put_until(key, bytes, None)
}

pub(super) fn put_until(
    key: &Key,
    bytes: impl AsRef<[u8]>,
    expires_at: Option<Timestamp>,
) -> Mutation {
    Mutation {
        key: key.clone(),
        change: Change::Put {
            value: value(bytes),
            expires_at,
        },
        condition: Condition::Always,
    }
}

pub(super) fn delete(key: &Key) -> Mutation {
    Mutation {
        key: key.clone(),
        change: Change::Delete,
        condition: Condition::Always,
    }
}

impl Mutation {
    pub(super) fn when(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }
}

/// Returns a request for all rows of a partition in chunks of any size.
pub(super) fn whole(partition: impl AsRef<[u8]>) -> RangeRequest {
    RangeRequest {
        namespace: NS,
        partition: key(partition, "").partition,
        range: SortRange::default(),
        reverse: false,
        rows_max: u32::MAX,
        bytes_max: u32::MAX,
        keys_only: false,
    }
}

/// Returns a request for all rows of a namespace in chunks of any size.
pub(super) fn everything(namespace: NamespaceId) -> ScanRequest {
    ScanRequest {
        namespace,
        slots: 0..=umbo_types::limits::SLOTS - 1,
        after: None,
        rows_max: u32::MAX,
        bytes_max: u32::MAX,
        keys_only: false,
    }
}

impl<E: Engine> TestSubject<E> {
    pub(super) async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let engine = E::create(Arc::clone(&clock)).await;
        let store = engine.store();
        Self {
            engine,
            clock,
            store,
        }
    }

    /// Returns a request of one or more mutations as most cases want it.
    pub(super) fn request(&self, mutations: Vec<Mutation>) -> WriteRequest {
        WriteRequest {
            namespace: NS,
            epoch: 0,
            mutations,
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version::proposed_at(self.clock.wall()),
            idempotency: None,
            not_before: None,
            run: None,
        }
    }

    /// Returns the status of the shards once `is_so` holds for it, or after a minute: if the shards are on
    /// other machines, their status arrives a moment later.
    pub(super) async fn told(&self, is_so: impl Fn(&[ShardStatus]) -> bool) -> Vec<ShardStatus> {
        let telling = async {
            while !is_so(&self.store.status()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_mins(1), telling).await;
        self.store.status()
    }

    pub(super) async fn write(&self, mutations: Vec<Mutation>) -> Vec<WriteResult> {
        let asked = mutations.len();
        let answers = self.store.write_rows(&CALL, self.request(mutations)).await;
        assert_eq!(answers.len(), asked, "one answer a mutation");
        answers
    }

    pub(super) async fn write_atomic(&self, mutations: Vec<Mutation>) -> Vec<WriteResult> {
        let request = WriteRequest {
            atomicity: Atomicity::Partition,
            ..self.request(mutations)
        };
        self.store.write_rows(&CALL, request).await
    }

    pub(super) async fn write_one(&self, mutation: Mutation) -> WriteResult {
        let mut answers = self.write(vec![mutation]).await;
        answers.pop().expect("one answer a mutation")
    }

    pub(super) async fn put(&self, key: &Key, bytes: impl AsRef<[u8]>) -> Written {
        applied(self.write_one(put(key, bytes)).await)
    }

    pub(super) async fn delete(&self, key: &Key) -> Written {
        applied(self.write_one(delete(key)).await)
    }

    pub(super) async fn get(&self, key: &Key) -> Option<Row> {
        self.get_in(NS, key).await
    }

    pub(super) async fn get_in(&self, namespace: NamespaceId, key: &Key) -> Option<Row> {
        served(self.store.get_row(&CALL, namespace, key).await)
    }

    /// Returns the value that a reader sees.
    pub(super) async fn value(&self, key: &Key) -> Option<Bytes> {
        self.get(key).await.map(|row| row.value.bytes)
    }

    /// Reads one chunk and checks what holds for every chunk.
    pub(super) async fn chunk(&self, request: &RangeRequest) -> (Vec<Seen>, Option<Bytes>) {
        let page = served(self.store.range_of(&CALL, request).await);
        let rows: Vec<Seen> = page.rows.iter().map(Seen::new).collect();
        check_limits(&rows, request.rows_max, request.bytes_max);
        let is_after = |one: &[u8], other: &[u8]| {
            if request.reverse {
                one < other
            } else {
                one > other
            }
        };
        for pair in rows.windows(2) {
            assert!(is_after(&pair[1].sort, &pair[0].sort), "rows out of order");
        }
        for row in &rows {
            assert!(row.partition.is_empty(), "the partition is known");
            assert!(request.range.contains(&row.sort), "a row out of the range");
        }
        if let Some(last) = &page.resume_after {
            assert!(request.range.contains(last), "resumes out of the range");
            if let Some(row) = rows.last() {
                assert!(!is_after(&row.sort, last), "would give a row again");
            }
        }
        (rows, page.resume_after)
    }

    /// Reads a range to its end, chunk by chunk.
    pub(super) async fn walk(&self, request: &RangeRequest) -> Vec<Seen> {
        let mut request = request.clone();
        let mut rows = Vec::new();
        for _ in 0..STEPS_MAX {
            let (chunk, resume_after) = self.chunk(&request).await;
            rows.extend(chunk);
            match resume_after {
                Some(last) => request.range = request.range.beyond(&last, request.reverse),
                None => return rows,
            }
        }
        panic!("the walk never ends");
    }

    /// Returns the shards that have any of the slots of a scan.
    pub(super) fn shards_of(&self, request: &ScanRequest) -> Vec<ShardId> {
        self.store.shard_map().owners_of(request.slots.clone())
    }

    /// Reads one chunk of a scan of a shard and checks what holds for every chunk.
    pub(super) async fn scan_chunk(
        &self,
        shard: ShardId,
        request: &ScanRequest,
    ) -> (Vec<Seen>, Option<Key>) {
        let page = served(self.store.scan(&CALL, shard, request).await);
        let rows: Vec<Seen> = page.rows.iter().map(Seen::new).collect();
        check_limits(&rows, request.rows_max, request.bytes_max);
        let map = self.store.shard_map();
        for row in &rows {
            let partition = key(&row.partition, "").partition;
            let slot = map.slot(request.namespace, &partition);
            assert!(request.slots.contains(&slot.index()), "not in the segment");
        }
        if let Some(last) = &page.resume_after {
            let owner = map.locate(request.namespace, &last.partition);
            assert_eq!(shard, owner, "the position is of another shard");
        }
        (rows, page.resume_after)
    }

    /// Reads a scan to its end, shard by shard and chunk by chunk.
    pub(super) async fn scan(&self, request: &ScanRequest) -> Vec<Seen> {
        let mut rows = Vec::new();
        for shard in self.shards_of(request) {
            let mut request = request.clone();
            let mut steps = 0;
            loop {
                let (chunk, resume_after) = self.scan_chunk(shard, &request).await;
                rows.extend(chunk);
                if resume_after.is_none() {
                    break;
                }
                request.after = resume_after;
                steps += 1;
                assert!(steps < STEPS_MAX, "the scan never ends");
            }
        }
        rows
    }

    /// Returns a request to remove rows of a partition.
    #[expect(clippy::unused_self, reason = "reads as the other requests do")]
    pub(super) fn removal(&self, partition: &str, range: SortRange) -> DeleteRangeRequest {
        DeleteRangeRequest {
            namespace: NS,
            epoch: 0,
            partition: key(partition, "").partition,
            range,
            rows_max: 1_000,
            durability: Durability::Sync,
        }
    }

    /// Removes a range to its end, step by step, and returns the sums.
    pub(super) async fn remove(&self, mut request: DeleteRangeRequest) -> Deleted {
        let mut sum = Deleted::default();
        for _ in 0..STEPS_MAX {
            let step = served(self.store.remove_rows(&CALL, request.clone()).await);
            assert!(step.rows <= request.rows_max.into(), "too many rows a step");
            sum.rows += step.rows;
            sum.bytes += step.bytes;
            match step.resume_after {
                Some(last) => request.range = request.range.beyond(&last, false),
                None => return sum,
            }
        }
        panic!("the removal never ends");
    }
}

impl<E: Restart> TestSubject<E> {
    /// Ends the store as a crash would and opens what it left. The clock stays.
    pub(super) async fn restart(self) -> Self {
        let Self {
            engine,
            clock,
            store,
        } = self;
        drop(store);
        let engine = engine.reopen().await;
        let store = engine.store();
        Self {
            engine,
            clock,
            store,
        }
    }

    /// Closes the store and opens it again.
    pub(super) async fn close_and_restart(self) -> Self {
        self.store.close().await;
        self.restart().await
    }
}

/// Returns what a mutation came to that nothing should have hindered.
pub(super) fn applied(answer: WriteResult) -> Written {
    match answer {
        Ok(written) => written,
        Err(error) => panic!("a write failed: {error}"),
    }
}

pub(super) fn served<T>(answer: Result<T, StoreError>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(error) => panic!("the store failed: {error}"),
    }
}
