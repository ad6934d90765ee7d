//! Two pods on one store, of which each sees other shards.

use async_trait::async_trait;
use umbo_routing::ShardMap;
use umbo_store::{
    DeleteRangeRequest, Deleted, ManualClock, MemoryStore, Outcome, Page, PurgeProgress, ScanPage,
    ScanRequest, ShardStatus, Written,
};
use umbo_types::{Row, Timestamp};

use super::*;

/// A store of which only some shards can be reached.
#[derive(Debug)]
struct Partial {
    inner: Arc<MemoryStore>,
    reached: Vec<u16>,
    /// Whether whoever else runs gets a turn before each answer.
    has_turns: bool,
}

impl Partial {
    async fn turn(&self) {
        if self.has_turns {
            tokio::task::yield_now().await;
        }
    }

    fn check(&self, partition: &PartitionKey) -> Result<(), StoreError> {
        let shard = self
            .inner
            .shard_map()
            .locate(NamespaceId::SYSTEM, partition);
        if self.reached.contains(&shard.0) {
            return Ok(());
        }
        Err(StoreError::Unavailable {
            shard,
            reason: "cut off".to_owned(),
            outcome: Outcome::NotApplied,
        })
    }
}

#[async_trait]
impl Store for Partial {
    fn shard_map(&self) -> Arc<ShardMap> {
        self.inner.shard_map()
    }

    async fn get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.turn().await;
        self.check(&key.partition)?;
        self.inner.get(call, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        self.inner.multi_get(call, namespace, keys).await
    }

    async fn range(&self, call: &CallContext, request: &RangeRequest) -> Result<Page, StoreError> {
        self.check(&request.partition)?;
        self.inner.range(call, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.inner.scan(call, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        self.turn().await;
        match self.check(&request.mutations[0].key.partition) {
            Ok(()) => self.inner.write(call, request).await,
            Err(error) => vec![Err(error.into())],
        }
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.inner.delete_range(call, request).await
    }

    async fn purge(
        &self,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError> {
        self.inner.purge(namespace, rows_max).await
    }

    fn status(&self) -> Vec<ShardStatus> {
        self.inner.status()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Returns the records as pods see them that reach these shards of five.
fn pods<const N: usize>(reached: [&[u16]; N]) -> [Arc<SystemRecords>; N] {
    pods_by(&Arc::new(ManualClock::new(Timestamp(1_000_000))), reached)
}

fn pods_by<const N: usize>(
    clock: &Arc<ManualClock>,
    reached: [&[u16]; N],
) -> [Arc<SystemRecords>; N] {
    let inner = Arc::new(MemoryStore::new(5, Arc::<ManualClock>::clone(clock)).unwrap());
    reached.map(|reached| pod(&inner, clock, reached, true))
}

fn pod(
    inner: &Arc<MemoryStore>,
    clock: &Arc<ManualClock>,
    reached: &[u16],
    has_turns: bool,
) -> Arc<SystemRecords> {
    let store = Partial {
        inner: Arc::clone(inner),
        reached: reached.to_vec(),
        has_turns,
    };
    let clock = Arc::<ManualClock>::clone(clock);
    Arc::new(SystemRecords::new(Arc::new(store), clock))
}

/// Counts a record up, and returns what it is then.
async fn count_up(records: &SystemRecords) -> Result<u64, Failure> {
    let content = records.update("counter", "c", |current| {
        let last = current.map_or(0, |bytes| bytes.as_ref().get_u64());
        Ok(Some(Bytes::copy_from_slice(&(last + 1).to_be_bytes())))
    });
    Ok(content.await?.expect("it is there").as_ref().get_u64())
}

#[tokio::test]
async fn pods_that_see_different_shards_never_draw_the_same_number() {
    let [one, other] = pods([&[0, 1, 2], &[2, 3, 4]]);
    let mut drawn = Vec::new();
    for _ in 0..20 {
        let (first, second) = tokio::join!(count_up(&one), count_up(&other));
        drawn.extend([first, second].into_iter().flatten());
    }
    // Where each sees three of five, only one at a time can get more than half; some get through.
    assert!(!drawn.is_empty());
    let mut distinct = drawn.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), drawn.len(), "{drawn:?}");
}

#[tokio::test]
async fn a_pod_that_sees_half_of_the_shards_changes_nothing() {
    let [most, few, all] = pods([&[0, 1, 2, 3], &[3, 4], &[0, 1, 2, 3, 4]]);
    assert_eq!(count_up(&most).await.unwrap(), 1);
    let refused = count_up(&few).await.unwrap_err();
    assert!(
        matches!(refused, Failure::Store(StoreError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(count_up(&all).await.unwrap(), 2);
    // Whoever loads repairs the copy that was cut off.
    all.load("counter").await.unwrap();
    assert_eq!(
        few.load("counter").await.unwrap()["c"].as_ref().get_u64(),
        2
    );
}

#[test]
fn of_copies_of_one_generation_the_most_frequent_counts() {
    let copy = |generation, content: &'static [u8]| Copy {
        version: Version::default(),
        generation,
        content: Some(Bytes::from_static(content)),
    };
    let newest = |copies: &[Copy]| newest_of(copies).unwrap().content.unwrap();
    assert_eq!(
        &newest(&[copy(2, b"a"), copy(2, b"b"), copy(2, b"b")])[..],
        b"b"
    );
    assert_eq!(
        &newest(&[copy(2, b"a"), copy(3, b"c"), copy(2, b"a")])[..],
        b"c"
    );
    assert_eq!(&newest(&[copy(2, b"a"), copy(2, b"b")])[..], b"a");
    assert!(newest_of(&[]).is_none());
}

#[tokio::test]
async fn a_change_under_way_is_not_overtaken_by_who_loads() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let inner = Arc::new(MemoryStore::new(5, Arc::<ManualClock>::clone(&clock)).unwrap());
    // The one that loads is quicker than the one that changes, copy by copy.
    let [one, other] = [true, false].map(|it| pod(&inner, &clock, &[0, 1, 2, 3, 4], it));
    for last in 0..20 {
        assert_eq!(count_up(&one).await.unwrap(), last * 2 + 1);
        let mut changes = 0;
        let is_over = std::cell::Cell::new(false);
        let change = async {
            let update = one.update("counter", "c", |current| {
                changes += 1;
                let last = current.map_or(0, |bytes| bytes.as_ref().get_u64());
                Ok(Some(Bytes::copy_from_slice(&(last + 1).to_be_bytes())))
            });
            update.await.unwrap();
            is_over.set(true);
        };
        let loading = async {
            while !is_over.get() {
                other.load("counter").await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(loading, change);
        assert_eq!(
            changes, 1,
            "it was carried out by another one, and begun again"
        );
    }
}

#[tokio::test]
async fn a_change_that_was_left_is_brought_to_its_end() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let [all, two, rest] = pods_by(&clock, [&[0, 1, 2, 3, 4], &[0, 1], &[2, 3, 4]]);
    assert_eq!(count_up(&all).await.unwrap(), 1);
    let copies = two.find("counter", "c").await.unwrap();
    let next = Copy {
        version: Version::default(),
        generation: 2,
        content: Some(Bytes::copy_from_slice(&2_u64.to_be_bytes())),
    };
    for (replica, found) in two.replicas.iter().zip(copies) {
        if let Ok(found) = found {
            let written = two.write(replica, ("counter", "c"), found.as_ref(), &next);
            written.await.unwrap();
        }
    }
    let seen = async |records: &SystemRecords| {
        let records = records.load("counter").await.unwrap();
        records["c"].as_ref().get_u64()
    };
    // It counts from the start; whoever began it may still be about to write the others.
    assert_eq!(seen(&all).await, 2);
    assert_eq!(seen(&rest).await, 1);
    clock.advance(LEFT_AFTER);
    assert_eq!(seen(&all).await, 2);
    assert_eq!(seen(&rest).await, 2);
}
