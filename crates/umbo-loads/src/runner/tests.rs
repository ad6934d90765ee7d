//! Runs that end at any call of their dispatcher, before it or after it has had its effect, and those that continue.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use umbo_api::loads::{LoadMode, LoadSpec};
use umbo_store::{
    Atomicity, CallContext, Condition, Durability, ManualClock, MemoryStore, Mutation, Outcome,
    Page, RangeRequest, ScanPage, ScanPosition, ScanRequest, SortRange, Store, StoreError,
    WriteError, WriteRequest,
};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, ShardId, Timestamp, Version, limits};

use super::*;
use crate::digest::{PartDigest, hex};
use crate::host::{RowCounts, WriteAnswers};
use crate::journal::json_row;
use crate::layout::{PartProgress, PartRecord};
use crate::limits::BATCH_ROWS_MAX;
use crate::stored_rows::{all_rows, whole};

const ID: &str = "load";
const ROWS: NamespaceId = NamespaceId(3);
/// Rows of a load of mode replace.
const BUILT: NamespaceId = NamespaceId(6);
const CONTENT: NamespaceId = NamespaceId(4);
const REPORT: NamespaceId = NamespaceId(5);
const SHARDS: u16 = 4;
const PARTS: u16 = 3;
/// Of each part: two batches, the second of them short.
const PART_ROWS: u32 = BATCH_ROWS_MAX as u32 + 100;
/// Lines of each part that are no rows: the last ones.
const BAD_LINES: u32 = 3;
/// Keys come again in the next part, and now and then within one.
const KEYS: u32 = 5_000;

#[derive(Debug)]
struct FakeHost {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    load: Mutex<LoadRecord>,
    /// Calls until the dispatcher is gone.
    calls_left: AtomicI64,
    /// Requests to shards; every so many of them is refused.
    requests: AtomicU64,
    refused_each: u64,
    /// The key of a row of a part.
    key_of: fn(u16, u32) -> u32,
    /// The keys of rows that were given to shards, in that order.
    applied_keys: Mutex<Vec<(ShardId, Key)>>,
}

impl FakeHost {
    async fn with_load(refused_each: u64) -> Arc<Self> {
        Self::with_load_of(refused_each, LoadMode::Merge, 0.1).await
    }

    async fn with_load_of(refused_each: u64, mode: LoadMode, max_reject_ratio: f64) -> Arc<Self> {
        let host = Self::uploading(refused_each, mode, max_reject_ratio, scattered);
        for part in 0..PARTS {
            host.upload(part).await;
        }
        host.seal();
        Arc::new(host)
    }

    /// A load that takes parts.
    fn uploading(
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
            applied_keys: Mutex::default(),
        }
    }

    fn seal(&self) {
        let mut load = self.load.lock().unwrap();
        load.step(&LoadStep::Seal(PARTS.into()), self.now())
            .unwrap();
    }

    /// Stores a part, in pieces that are shorter than they might be.
    async fn upload(&self, part: u16) {
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
        let (upload, len) = (u64::from(part) + 1, text.len() as u64);
        let mut digest = PartDigest::default();
        digest.update(&text);
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
            self.commit(CONTENT, vec![piece]).await;
        }
        let record = PartRecord {
            upload,
            len,
            sha256: hex(&digest.finish()),
            content_type: "application/x-ndjson".to_owned(),
            coding: String::new(),
        };
        let key = layout::part_key(layout::PARTS, part);
        let row = json_row(key, &record, Condition::Always);
        self.commit(REPORT, vec![row]).await;
    }

    async fn commit(&self, namespace: NamespaceId, mutations: Vec<Mutation>) -> WriteAnswers {
        let request = WriteRequest {
            namespace,
            epoch: 0,
            mutations,
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version(1),
            idempotency: None,
        };
        self.store.write(&CallContext::internal(), request).await
    }

    /// A dispatcher that is gone does nothing more.
    fn is_there(&self) -> Result<(), HostError> {
        match self.calls_left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Ok(()),
            _ => Err(HostError::Gone),
        }
    }

    fn state(&self) -> LoadState {
        self.load.lock().unwrap().state
    }

    /// Runs the load until it has ended or the dispatcher is gone after some calls.
    async fn run(self: &Arc<Self>, calls: i64, number: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        work(&Host::new(host), ID, number).await;
        self.calls_left.store(i64::MAX, Ordering::SeqCst);
    }

    /// Returns the rows by key.
    async fn rows(&self) -> BTreeMap<u32, String> {
        self.rows_of(ROWS).await
    }

    async fn rows_of(&self, namespace: NamespaceId) -> BTreeMap<u32, String> {
        let mut rows = BTreeMap::new();
        let call = CallContext::internal();
        for key in 0..KEYS {
            let key_of_row = Key::new(format!("p{key}"), "").unwrap();
            let found = self.store.get(&call, namespace, &key_of_row).await.unwrap();
            if let Some(row) = found {
                let text = String::from_utf8(row.value.bytes.to_vec()).unwrap();
                rows.insert(key, text);
            }
        }
        rows
    }

    /// Returns what is reported of a part.
    async fn progress(self: &Arc<Self>, part: u16) -> PartProgress {
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        let key = layout::part_key(layout::PROGRESS, part);
        let found = read_json(&Host::new(host), REPORT, &key).await;
        found.unwrap().unwrap().0
    }

    /// Returns how many rejects are reported.
    async fn rejects(self: &Arc<Self>) -> u64 {
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        let partition = layout::report_partition(layout::REJECTS);
        let mut rejects = 0;
        let request = whole(REPORT, partition, SortRange::default());
        let listed = all_rows(&Host::new(host), request, |_| rejects += 1).await;
        listed.unwrap();
        rejects
    }

    /// Holds that no bytes of parts and of sorted runs are left.
    async fn assert_no_content(&self) {
        for shard in (0..SHARDS).map(ShardId) {
            let request = ScanRequest {
                namespace: CONTENT,
                slots: 0..=4_095,
                shard: Some(shard),
                after: None,
                rows_max: 100,
                bytes_max: limits::CHUNK_BYTES_MAX,
                keys_only: true,
            };
            let left = self.store.scan(&CallContext::internal(), &request).await;
            assert_eq!(left.unwrap().rows.len(), 0, "{shard:?}");
        }
    }

    async fn journal(self: &Arc<Self>) -> RunRecord {
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        let found = read_json(&Host::new(host), REPORT, &layout::run_key()).await;
        found.unwrap().unwrap().0
    }
}

fn scattered(part: u16, row: u32) -> u32 {
    (row * 7 + u32::from(part) * 1_000) % KEYS
}

/// Of as many digits each, so that their texts are in order too.
fn in_order(part: u16, row: u32) -> u32 {
    1_000 + (u32::from(part) * PART_ROWS + row) / 4
}

/// In order within a part, from the beginning in each.
fn in_order_by_part(part: u16, row: u32) -> u32 {
    in_order(0, row) + u32::from(part)
}

/// The last row with a key, in the order of parts and rows.
fn expected() -> BTreeMap<u32, String> {
    expected_of(scattered)
}

fn expected_of(key_of: fn(u16, u32) -> u32) -> BTreeMap<u32, String> {
    let parts = (0..PARTS).flat_map(|part| (0..PART_ROWS).map(move |row| (part, row)));
    parts
        .map(|(part, row)| (key_of(part, row), format!("{part}-{row}")))
        .collect()
}

#[async_trait]
impl LoadHost for FakeHost {
    fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    fn monotonic(&self) -> Instant {
        self.clock.monotonic()
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
        let now = self.now();
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
        let page = self.store.range(&CallContext::internal(), request).await;
        Ok(page.unwrap())
    }

    async fn write(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
    ) -> Result<WriteAnswers, HostError> {
        self.is_there()?;
        let answers = self.commit(namespace, mutations).await;
        self.is_there()?;
        Ok(answers)
    }

    async fn apply(
        &self,
        load: &LoadRecord,
        shard: ShardId,
        mut mutations: Vec<Mutation>,
    ) -> Result<WriteAnswers, HostError> {
        self.is_there()?;
        let keys = mutations.iter().map(|row| (shard, row.key.clone()));
        self.applied_keys.lock().unwrap().extend(keys);
        // No client writes here, and this store is told of no datasets.
        for mutation in &mut mutations {
            mutation.condition = Condition::Always;
        }
        // Others go on meanwhile.
        tokio::task::yield_now().await;
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
        answers.extend(self.commit(load.rows_id(ROWS), first).await);
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
        after: Option<&ScanPosition>,
    ) -> Result<ScanPage, HostError> {
        self.is_there()?;
        let request = ScanRequest {
            namespace: dataset,
            slots: 0..=4_095,
            shard: Some(shard),
            after: after.cloned(),
            rows_max: 100,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let page = self.store.scan(&CallContext::internal(), &request).await;
        Ok(page.unwrap())
    }

    fn live_dataset(&self, _: &LoadRecord) -> Result<NamespaceId, HostError> {
        Ok(ROWS)
    }

    fn is_blocked(&self, _: &LoadRecord, _: &Key) -> bool {
        false
    }

    fn default_expiry(&self, _: &LoadRecord) -> Option<Timestamp> {
        None
    }

    fn waits_for(&self, _: NamespaceId, _: Option<String>) {}

    fn counted(&self, _: RowCounts) {}

    fn ended(&self, _: bool) {}
}

/// Never.
const NONE: u64 = u64::MAX;

#[tokio::test]
async fn the_bytes_of_applied_parts_are_removed() {
    let host = FakeHost::with_load(NONE).await;
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Live);
    assert_eq!(host.rows().await, expected());
    host.assert_no_content().await;
}

#[tokio::test]
async fn a_load_ends_alike_wherever_its_runs_end() {
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        // Some requests are refused, and some are taken in half.
        let host = FakeHost::with_load(random.u64(9..14)).await;
        let mut runs = 0;
        while host.state() != LoadState::Live {
            runs += 1;
            assert!(runs < 200, "{:?}", host.load.lock().unwrap());
            assert_ne!(host.state(), LoadState::Failed);
            // Later runs have more calls, so that one comes to the end.
            host.run(random.i64(1..40 + 20 * runs), random.u64(1..))
                .await;
        }
        assert!(runs > 1, "no run has ended early");
        assert_eq!(host.rows().await, expected(), "seed {seed}");
        let journal = host.journal().await;
        assert_counts(&journal, seed);
    }
}

/// Holds the counts of a load that has ended against what its parts have.
fn assert_counts(journal: &RunRecord, seed: u64) {
    let rows = u64::from(PARTS) * u64::from(PART_ROWS);
    let rejected = u64::from(PARTS) * u64::from(BAD_LINES);
    let found = (journal.rows, journal.applied, journal.rejected);
    assert_eq!(found, (rows + rejected, rows, rejected), "seed {seed}");
    assert_eq!(journal.shards.values().sum::<u64>(), rows);
}

#[tokio::test]
async fn a_version_is_built_alike_wherever_its_runs_end() {
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        let refused_each = random.u64(9..14);
        let host = FakeHost::with_load_of(refused_each, LoadMode::Replace, 0.1).await;
        let mut runs = 0;
        while host.state() != LoadState::Ready {
            runs += 1;
            assert!(runs < 200, "{:?}", host.load.lock().unwrap());
            assert_ne!(host.state(), LoadState::Failed);
            host.run(random.i64(1..40 + 20 * runs), random.u64(1..))
                .await;
        }
        assert!(runs > 1, "no run has ended early");
        assert_eq!(host.rows_of(BUILT).await, expected(), "seed {seed}");
        assert_counts(&host.journal().await, seed);
        for part in 0..PARTS {
            let progress = host.progress(part).await;
            let rows = u64::from(PART_ROWS + BAD_LINES);
            let found = (progress.rows, progress.rejected);
            assert_eq!(found, (rows, u64::from(BAD_LINES)), "part {part}");
        }
        assert_eq!(
            host.rejects().await,
            u64::from(PARTS) * u64::from(BAD_LINES)
        );
    }
}

#[tokio::test]
async fn rows_out_of_order_are_sorted_first_and_no_bytes_of_them_are_left() {
    let host = FakeHost::with_load_of(NONE, LoadMode::Replace, 0.1).await;
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Ready);
    assert_eq!(host.rows_of(BUILT).await, expected());
    // More runs than are merged at a time, so each shard has had its rows in order a few times.
    let keys = host.applied_keys.lock().unwrap().clone();
    for shard in 0..SHARDS {
        let of_shard: Vec<_> = keys.iter().filter(|(of, _)| of.0 == shard).collect();
        let descents = of_shard.windows(2).filter(|two| two[0].1 > two[1].1);
        let descents = descents.count();
        assert!((1..4).contains(&descents), "shard {shard}: {descents}");
    }
    host.assert_no_content().await;
}

#[tokio::test]
async fn a_version_with_too_many_rejects_is_never_ready() {
    let host = FakeHost::with_load_of(NONE, LoadMode::Replace, 0.0).await;
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Failed);
    let reason = host.load.lock().unwrap().reason.clone().unwrap();
    assert!(reason.contains("max_reject_ratio"), "{reason}");
    assert!(
        host.rows().await.is_empty(),
        "the live rows are as they were"
    );
}

#[tokio::test]
async fn a_run_that_was_overtaken_fails_no_load() {
    let host = FakeHost::with_load(NONE).await;
    let as_host: Arc<dyn LoadHost> = Arc::<FakeHost>::clone(&host);
    let shared = Host::new(as_host);
    let mut old = Journal::take_over(&shared, REPORT, 1).await.unwrap();
    let mut new = Journal::take_over(&shared, REPORT, 2).await.unwrap();
    let failed = fail(&shared, ID, &mut old, "bytes are missing").await;
    assert_eq!(failed, Err(Stop::LetGo));
    assert_eq!(host.state(), LoadState::Sealed);
    let failed = fail(&shared, ID, &mut new, "bytes are missing").await;
    assert_eq!((failed, host.state()), (Ok(()), LoadState::Failed));
}

#[tokio::test]
async fn a_version_is_built_while_parts_arrive_wherever_its_runs_end() {
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        let key_of = [in_order, in_order_by_part, scattered][seed as usize % 3];
        let refused_each = random.u64(9..14);
        let host = FakeHost::uploading(refused_each, LoadMode::Replace, 0.1, key_of);
        let host = Arc::new(host);
        let mut runs = 0;
        let mut parts: Vec<u16> = (0..PARTS).collect();
        random.shuffle(&mut parts);
        while host.state() != LoadState::Ready {
            if random.bool()
                && let Some(part) = parts.pop()
            {
                host.upload(part).await;
                if parts.is_empty() {
                    host.seal();
                }
            }
            runs += 1;
            assert!(runs < 200, "{:?}", host.load.lock().unwrap());
            assert_ne!(host.state(), LoadState::Failed);
            host.run(random.i64(1..40 + 20 * runs), random.u64(1..))
                .await;
        }
        assert_eq!(
            host.rows_of(BUILT).await,
            expected_of(key_of),
            "seed {seed}"
        );
        assert_counts(&host.journal().await, seed);
    }
}

#[tokio::test]
async fn rows_in_order_are_applied_before_the_seal_and_others_after_it() {
    for (key_of, parts_before_seal) in [
        (in_order as fn(_, _) -> _, 2),
        (in_order_by_part, 1),
        (scattered, 0),
    ] {
        let host = Arc::new(FakeHost::uploading(NONE, LoadMode::Replace, 0.1, key_of));
        host.upload(1).await;
        host.run(i64::MAX, 1).await;
        assert_eq!(host.journal().await.part, 0, "the first part is not there");
        host.upload(0).await;
        host.run(i64::MAX, 1).await;
        let run = host.journal().await;
        assert_eq!((run.part, run.runner), (parts_before_seal, 0), "{run:?}");
        assert_eq!(host.state(), LoadState::Uploading);
        assert!(run.runs.is_empty(), "{run:?}");
        host.upload(2).await;
        host.seal();
        host.run(i64::MAX, 1).await;
        assert_eq!(host.state(), LoadState::Ready);
        assert_eq!(host.rows_of(BUILT).await, expected_of(key_of));
        assert_counts(&host.journal().await, 0);
        host.assert_no_content().await;
    }
}

#[tokio::test]
async fn a_part_that_comes_while_the_load_is_sealed_without_it_is_in_no_version() {
    let host = Arc::new(FakeHost::uploading(NONE, LoadMode::Replace, 0.1, in_order));
    for part in 0..=PARTS {
        host.upload(part).await;
    }
    // The run ends once it has begun to apply rows of all parts.
    host.run(40, 1).await;
    assert_eq!(host.state(), LoadState::Uploading);
    host.seal();
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Failed);
    let reason = host.load.lock().unwrap().reason.clone().unwrap();
    assert!(reason.starts_with("part 3 came"), "{reason}");
}

#[tokio::test]
async fn rows_of_mode_merge_are_not_applied_before_the_seal() {
    let host = Arc::new(FakeHost::uploading(NONE, LoadMode::Merge, 0.1, in_order));
    host.upload(0).await;
    host.run(i64::MAX, 1).await;
    assert!(host.rows().await.is_empty());
}
