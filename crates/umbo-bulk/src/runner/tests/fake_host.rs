//! A dispatcher that can be gone at any call, and its store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::sync::watch;
use umbo_api::loads::{LoadMode, LoadSpec};
use umbo_loads::digest::{PartDigest, hex};
use umbo_loads::layout::PartRecord;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Condition, Durability, FencingToken, ManualClock,
    MemoryStore, Mutation, Outcome, Page, RangeRequest, ScanPage, ScanRequest, Store, StoreError,
    WriteError, WriteRequest,
};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, ShardId, Timestamp, Version, limits};

use super::super::*;
use super::keys::*;
use crate::runner::host::{RowCounts, WriteAnswers};
use crate::runner::journal::json_row;

pub(super) const ID: &str = "load";
pub(super) const ROWS: NamespaceId = NamespaceId(3);
/// Rows of a load of mode replace.
pub(super) const BUILT: NamespaceId = NamespaceId(6);
pub(super) const CONTENT: NamespaceId = NamespaceId(4);
pub(super) const REPORT: NamespaceId = NamespaceId(5);
pub(super) const SHARDS: u16 = 4;

#[derive(Debug)]
pub(super) struct FakeHost {
    pub(super) store: MemoryStore,
    pub(super) clock: Arc<ManualClock>,
    pub(super) load: Mutex<LoadRecord>,
    /// Calls until the dispatcher is gone.
    pub(super) calls_left: AtomicI64,
    /// Requests to shards; every so many of them is refused.
    pub(super) requests: AtomicU64,
    pub(super) refused_each: u64,
    /// The key of a row of a part.
    pub(super) key_of: fn(u16, u32) -> u32,
    /// The run whose requests are held, and how many of them pass before; 0 where they go on.
    pub(super) held: watch::Sender<(u32, u64)>,
    /// Requests of that run that came to be held.
    pub(super) waiting: watch::Sender<u64>,
    pub(super) is_alone: AtomicBool,
    pub(super) is_ending: AtomicBool,
    pub(super) reason: Mutex<Option<String>>,
    /// Rows a second that its quota allows, where it has one, and until when they are used up.
    pub(super) quota: Mutex<Option<(u32, tokio::time::Instant)>>,
    /// Bytes of parts that were charged because the parts have inflated to them.
    pub(super) inflated: AtomicU64,
    /// Chunks of long values that were stored, in that order.
    pub(super) chunks: Mutex<Vec<u32>>,
    /// Whether its shards give up the bytes of long values before they are whole.
    pub(super) gives_up: AtomicBool,
    /// The longest value that its quota lets be stored.
    pub(super) longest_value: AtomicU64,
    /// Told when something has changed.
    pub(super) changed: tokio::sync::Notify,
    /// The keys of rows that were given to shards, in that order.
    pub(super) applied_keys: Mutex<Vec<(ShardId, Key)>>,
}

impl FakeHost {
    pub(super) async fn with_load(refused_each: u64) -> Arc<Self> {
        Self::with_load_of(refused_each, LoadMode::Merge, 0.1).await
    }

    pub(super) async fn with_load_of(
        refused_each: u64,
        mode: LoadMode,
        max_reject_ratio: f64,
    ) -> Arc<Self> {
        let host = Self::uploading(refused_each, mode, max_reject_ratio, scattered);
        for part in 0..PARTS {
            host.upload(part).await;
        }
        host.seal();
        Arc::new(host)
    }

    /// A load that takes parts.
    pub(super) fn uploading(
        refused_each: u64,
        mode: LoadMode,
        max_reject_ratio: f64,
        key_of: fn(u16, u32) -> u32,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
        let wall: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let now = clock.wall();
        let spec = LoadSpec {
            mode,
            max_reject_ratio,
            ..LoadSpec::default()
        };
        let load = LoadRecord::create(&spec, ("a", ROWS.0), (4, 5), (BUILT.0, 2), "x", now);
        let mut load = load.unwrap();
        if mode == LoadMode::Replace {
            load.step(&LoadStep::Confirm, now).unwrap();
        }
        load.step(&LoadStep::TakePart, now).unwrap();
        Self {
            store: MemoryStore::new(SHARDS, wall).unwrap(),
            clock,
            load: Mutex::new(load),
            calls_left: AtomicI64::new(i64::MAX),
            requests: AtomicU64::new(0),
            refused_each,
            key_of,
            held: watch::channel((0, 0)).0,
            waiting: watch::channel(0).0,
            is_alone: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            reason: Mutex::default(),
            quota: Mutex::default(),
            inflated: AtomicU64::new(0),
            chunks: Mutex::default(),
            gives_up: AtomicBool::new(false),
            longest_value: AtomicU64::new(u64::MAX),
            changed: tokio::sync::Notify::new(),
            applied_keys: Mutex::default(),
        }
    }

    pub(super) fn seal(&self) {
        let (step, now) = (LoadStep::Seal(PARTS.into()), self.lives_from(ShardId(0)));
        self.load.lock().unwrap().step(&step, now).unwrap();
    }

    /// Stores a part, in pieces that are shorter than they might be.
    pub(super) async fn upload(&self, part: u16) {
        let mut text = Vec::new();
        for row in 0..PART_ROWS {
            let line = format!(
                "{{\"pk\":\"p{}\",\"v\":\"{part}-{row}\"}}\n",
                (self.key_of)(part, row)
            );
            text.extend_from_slice(line.as_bytes());
        }
        for _ in 0..BAD_LINES {
            text.extend_from_slice(b"{}\n");
        }
        self.store_part(part, &text, "").await;
    }

    /// Stores the bytes of a part, in a coding.
    pub(super) async fn store_part(&self, part: u16, text: &[u8], coding: &str) {
        let (upload, len) = (u64::from(part) + 1, text.len() as u64);
        let mut digest = PartDigest::default();
        digest.update(text);
        for (number, bytes) in text.chunks(40_000).enumerate() {
            let at = number as u64 * 40_000;
            let mut piece = json_row(
                layout::piece_key(upload, at, bytes.len() as u64),
                &(),
                Condition::Always,
            );
            if let umbo_store::Change::Put { value, .. } = &mut piece.change {
                value.bytes = bytes.to_vec().into();
            }
            self.commit(CONTENT, vec![piece], None).await;
        }
        let record = PartRecord {
            upload,
            len,
            sha256: hex(&digest.finish()),
            content_type: "application/x-ndjson".to_owned(),
            coding: coding.to_owned(),
        };
        let key = layout::part_key(layout::PARTS, part);
        let row = json_row(key, &record, Condition::Always);
        self.commit(REPORT, vec![row], None).await;
    }

    pub(super) async fn commit(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> WriteAnswers {
        let request = WriteRequest {
            namespace,
            epoch: 0,
            mutations,
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version(1),
            idempotency: None,
            not_before: None,
            run,
        };
        self.store
            .write_rows(&CallContext::internal(), request)
            .await
    }

    /// Holds a request of the run that is held, as one of a process that is stopped.
    async fn hold(&self, run: Option<FencingToken>) {
        let mut held = self.held.subscribe();
        let (number, passed) = *held.borrow_and_update();
        if number == 0 || run.is_none_or(|run| run.number != number) {
            return;
        }
        self.waiting.send_modify(|waiting| *waiting += 1);
        if *self.waiting.borrow() > passed {
            held.wait_for(|(number, _)| *number == 0).await.unwrap();
        }
    }

    /// Refuses rows while earlier ones have used the quota up.
    fn charge(&self, rows: u32) -> Result<(), HostError> {
        let mut quota = self.quota.lock().unwrap();
        let Some((rows_a_second, used_until)) = &mut *quota else {
            return Ok(());
        };
        let now = tokio::time::Instant::now();
        let after = used_until.saturating_duration_since(now);
        if !after.is_zero() {
            let reason = "the quota is used up".to_owned();
            return Err(HostError::Wait { after, reason });
        }
        *used_until = now + Duration::from_secs(rows.into()) / *rows_a_second;
        Ok(())
    }

    /// Forgets how many runs have ended without getting on: they ended by chance.
    pub(super) async fn forgive(self: &Arc<Self>) {
        let run = RunRecord {
            fruitless: 0,
            ..self.journal().await
        };
        let row = json_row(layout::run_key(), &run, Condition::Always);
        self.commit(REPORT, vec![row], None).await;
    }

    /// A dispatcher that is gone does nothing more.
    pub(super) fn is_there(&self) -> Result<(), HostError> {
        match self.calls_left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Ok(()),
            _ => Err(HostError::Gone),
        }
    }

    pub(super) fn state(&self) -> LoadState {
        self.load.lock().unwrap().state
    }

    /// Runs the load until it has ended or the dispatcher is gone after some calls.
    pub(super) async fn run(self: &Arc<Self>, calls: i64, number: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        work(&Host::new(host), ID, number).await;
        self.calls_left.store(i64::MAX, Ordering::SeqCst);
    }

    /// Returns the rows by key.
    pub(super) async fn rows(&self) -> BTreeMap<u32, String> {
        self.rows_of(ROWS).await
    }

    pub(super) async fn rows_of(&self, namespace: NamespaceId) -> BTreeMap<u32, String> {
        let mut rows = BTreeMap::new();
        let call = CallContext::internal();
        for key in 0..KEYS {
            let key_of_row = Key::new(format!("p{key}"), "").unwrap();
            let found = self
                .store
                .get_row(&call, namespace, &key_of_row)
                .await
                .unwrap();
            if let Some(row) = found {
                let text = String::from_utf8(row.value.bytes.to_vec()).unwrap();
                rows.insert(key, text);
            }
        }
        rows
    }

    /// Holds that no bytes of parts and of sorted runs are left.
    pub(super) async fn assert_no_content(&self) {
        for shard in (0..SHARDS).map(ShardId) {
            let request = ScanRequest {
                namespace: CONTENT,
                slots: 0..=4_095,
                after: None,
                rows_max: 100,
                bytes_max: limits::CHUNK_BYTES_MAX,
                keys_only: true,
            };
            let left = self
                .store
                .scan(&CallContext::internal(), shard, &request)
                .await;
            assert_eq!(left.unwrap().rows.len(), 0, "{shard:?}");
        }
    }

    pub(super) async fn journal(self: &Arc<Self>) -> RunRecord {
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        let found = read_json(&Host::new(host), REPORT, &layout::run_key()).await;
        found.unwrap().map(|(run, _)| run).unwrap_or_default()
    }
}

/// Returns which chunk of a value is stored by a mutation.
fn chunk_of(mutation: &Mutation) -> Option<u32> {
    match &mutation.change {
        umbo_store::Change::Upload(umbo_store::UploadStep::Append { index, .. }) => Some(*index),
        _ => None,
    }
}

#[async_trait]
impl LoadHost for FakeHost {
    fn lives_from(&self, _: ShardId) -> Timestamp {
        self.clock.wall()
    }

    fn monotonic(&self) -> Instant {
        self.clock.monotonic()
    }

    fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::SeqCst)
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    fn loads(&self) -> Vec<(String, Arc<LoadRecord>)> {
        self.load(ID)
            .map(|load| (ID.to_owned(), load))
            .into_iter()
            .collect()
    }

    fn load(&self, _: &str) -> Option<Arc<LoadRecord>> {
        Some(Arc::new(self.load.lock().unwrap().clone()))
    }

    async fn step(&self, _: &str, step: LoadStep) -> Result<(), HostError> {
        self.is_there()?;
        let now = self.lives_from(ShardId(0));
        let stepped = self.load.lock().unwrap().step(&step, now);
        stepped.map(drop).map_err(|_| HostError::Gone)?;
        self.is_there()
    }

    async fn forget_loads(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn shard_of(&self, _: NamespaceId, partition: &PartitionKey) -> ShardId {
        let last = partition.as_bytes().last().copied().unwrap_or_default();
        ShardId(u16::from(last) % SHARDS)
    }

    async fn read(&self, request: &RangeRequest) -> Result<Page, HostError> {
        self.is_there()?;
        let page = self.store.range_of(&CallContext::internal(), request).await;
        Ok(page.unwrap())
    }

    async fn write(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> Result<WriteAnswers, HostError> {
        self.is_there()?;
        let answers = self.commit(namespace, mutations, run).await;
        self.is_there()?;
        Ok(answers)
    }

    async fn apply(
        &self,
        load: &LoadRecord,
        shard: ShardId,
        mut mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> Result<WriteAnswers, HostError> {
        self.is_there()?;
        let keys = mutations.iter().map(|row| (shard, row.key.clone()));
        self.applied_keys.lock().unwrap().extend(keys);
        // No client writes here, and this store is told of no datasets.
        for mutation in &mut mutations {
            mutation.condition = Condition::Always;
        }
        self.hold(run).await;
        // Others go on meanwhile.
        tokio::task::yield_now().await;
        self.charge(mutations.len() as u32)?;
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        if number.is_multiple_of(self.refused_each) {
            return Err(HostError::Wait {
                after: Duration::from_millis(1),
                reason: "no room".to_owned(),
            });
        }
        let mut answers = WriteAnswers::new();
        let is_cut = number.is_multiple_of(self.refused_each - 1);
        let taken = if is_cut {
            mutations.len() / 2
        } else {
            mutations.len()
        };
        let (mut first, rest) = (mutations, taken);
        let rest = first.split_off(rest);
        let chunks: Vec<_> = first.iter().filter_map(chunk_of).collect();
        if self.gives_up.load(Ordering::SeqCst) && chunks.iter().any(|chunk| *chunk > 0) {
            return Ok(first.iter().map(|_| Err(WriteError::UploadGone)).collect());
        }
        answers.extend(self.commit(load.rows_id(ROWS), first, run).await);
        if answers.iter().all(Result::is_ok) {
            self.chunks.lock().unwrap().extend(chunks);
        }
        // A commit that had no room for more.
        let refused = || StoreError::Io {
            shard,
            reason: "a commit failed".to_owned(),
            outcome: Outcome::NotApplied,
        };
        answers.extend(rest.iter().map(|_| Err(WriteError::Store(refused()))));
        self.is_there()?;
        Ok(answers)
    }

    async fn activate(&self, _: &str) -> Result<(), HostError> {
        Err(HostError::Gone)
    }

    fn shards(&self) -> Vec<ShardId> {
        (0..SHARDS).map(ShardId).collect()
    }

    async fn scan(
        &self,
        dataset: NamespaceId,
        shard: ShardId,
        after: Option<&Key>,
    ) -> Result<ScanPage, HostError> {
        self.is_there()?;
        let request = ScanRequest {
            namespace: dataset,
            slots: 0..=4_095,
            after: after.cloned(),
            rows_max: 100,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let page = self
            .store
            .scan(&CallContext::internal(), shard, &request)
            .await;
        Ok(page.unwrap())
    }

    async fn charge_inflated(&self, _: &LoadRecord, bytes: u64) -> Result<(), HostError> {
        self.charge(1)?;
        self.inflated.fetch_add(bytes, Ordering::SeqCst);
        Ok(())
    }

    fn live_dataset(&self, _: &LoadRecord) -> Result<NamespaceId, HostError> {
        Ok(ROWS)
    }

    fn is_blocked(&self, _: &LoadRecord, _: &Key) -> bool {
        false
    }

    fn never_stores(&self, _: &LoadRecord, _: &Key, len: usize) -> Option<String> {
        let max = self.longest_value.load(Ordering::SeqCst);
        (len as u64 > max).then(|| "the quota is too low".to_owned())
    }

    fn default_ttl(&self, _: &LoadRecord) -> Option<Duration> {
        None
    }

    fn waits_for(&self, _: NamespaceId, reason: Option<String>) {
        *self.reason.lock().unwrap() = reason;
    }

    fn got_on(&self, _: NamespaceId) {}

    fn counted(&self, _: RowCounts) {}

    fn ended(&self, _: bool) {}
}
