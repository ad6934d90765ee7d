//! A disk that hangs delays the reads of its own shard only, and blocks no thread that other shards need.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use umbo_store::{
    ByKey as _, CallContext, Durability, Mutation, RowBatch, RowRef, RowSink, ScanRequest,
    ShardState, Store, StoreError, StoreReport,
};
use umbo_types::limits::SLOTS;
use umbo_types::{Key, PartitionKey, ShardId};

use super::faulty_files::FileOperation;
use super::{NAMESPACE, Rig, put_request};

const ROWS: usize = 200;
/// More than there are threads of the runtime, and more than may wait for one disk.
const READERS: usize = 60;

fn key(row: usize) -> Key {
    Key::new(format!("key-{row}"), "").unwrap()
}

/// Values larger than the cache, so that reads reach the file.
async fn filled() -> Rig {
    let mut rig = Rig::with(|config| config.shards = Some(2));
    rig.files.tell_waiting();
    for row in 0..ROWS {
        let value = "x".repeat(20_000);
        rig.put(&format!("key-{row}"), &value).await.unwrap();
    }
    let cold = |config: &mut crate::Config| {
        config.shards = Some(2);
        config.cache_bytes = 128 << 10;
    };
    rig.reopen(cold).await;
    rig
}

/// Releases the hanging reads if a test fails: the runtime waits for them.
struct ReleaseOnDrop(Arc<Rig>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.files.release();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_takes_no_thread_from_other_shards() {
    let rig = Arc::new(filled().await);
    let map = rig.store.shard_map();
    let of_shard = |shard: u16| -> Vec<usize> {
        let located = |row: usize| map.locate(NAMESPACE, &key(row).partition);
        let rows = 0..ROWS;
        rows.filter(|&row| located(row) == ShardId(shard)).collect()
    };
    let (hung, other) = (of_shard(0), of_shard(1));
    rig.files.hang("shard-000.redb", FileOperation::Read);
    let _released = ReleaseOnDrop(Arc::clone(&rig));
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (rig, row) = (Arc::clone(&rig), hung[reader % hung.len()]);
        readers.spawn(async move {
            let call = CallContext::internal();
            rig.store.get_row(&call, NAMESPACE, &key(row)).await
        });
    }
    // The other shard is still readable, from tasks of the same runtime.
    for &row in &other {
        let rig = Arc::clone(&rig);
        let read = tokio::spawn(async move {
            let call = CallContext::internal();
            rig.store.get_row(&call, NAMESPACE, &key(row)).await
        });
        assert!(read.await.unwrap().unwrap().is_some());
    }
    // Reads beyond the limit are refused, and the state of the shard reports the stuck disk.
    let refused = loop {
        // Some rows are in the cache.
        if let Err(refused) = readers.join_next().await.unwrap().unwrap() {
            break refused;
        }
    };
    let StoreError::Unavailable { shard, reason, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(shard, ShardId(0));
    assert!(reason.contains("shard-000.redb") && reason.contains("does not answer"));
    rig.files.advance(Duration::from_secs(2));
    let states: Vec<_> = rig
        .store
        .status()
        .into_iter()
        .map(|shard| shard.state)
        .collect();
    assert!(matches!(states[0], ShardState::ReadOnly(_)), "{states:?}");
    assert_eq!(states[1], ShardState::Available);
    // Once the disk answers, the waiting reads complete.
    rig.files.release();
    let mut answered = 0;
    while let Some(read) = readers.join_next().await {
        answered += usize::from(read.unwrap().is_ok());
    }
    assert!(answered > 0);
    let call = CallContext::internal();
    let read = rig.store.get_row(&call, NAMESPACE, &key(hung[0])).await;
    assert!(read.unwrap().is_some());
    assert_eq!(rig.state(), ShardState::Available);
}

/// A shard's apply that waits for its disk keeps its place among the applies of the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_in_an_apply_keeps_no_other_shard_from_applying() {
    let rig = Arc::new(Rig::with(|config| {
        config.shards = Some(2);
        config.has_log = true;
    }));
    for row in 0..20 {
        rig.put(&format!("key-{row}"), "").await.unwrap();
    }
    rig.files.hang("shard-000.redb", FileOperation::Sync);
    let _released = ReleaseOnDrop(Arc::clone(&rig));
    fill(&rig, ShardId(0), 1_500).await;
    while rig.files.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    // More rows than a memtable has: when one is full, its rows are applied at once even without a place.
    fill(&rig, ShardId(1), 20_000).await;
    let status = rig.store.status().remove(1);
    assert_eq!(status.state, ShardState::Available);
    let applies = status.commits - status.syncs;
    assert!(
        applies > 2,
        "none waits until a memtable is full: {status:?}"
    );
    // The log of the hanging shard still takes rows.
    fill(&rig, ShardId(0), 500).await;
    rig.files.release();
    let rows: u64 = rig.store.status().iter().map(|shard| shard.rows).sum();
    assert_eq!(rows, 20 + 2_000 + 20_000);
}

/// Puts new rows into a shard, in batches.
async fn fill(rig: &Rig, shard: ShardId, rows: usize) {
    let map = rig.store.shard_map();
    let is_there = |name: &String| {
        let partition = PartitionKey::new(name.clone()).unwrap();
        map.locate(NAMESPACE, &partition) == shard
    };
    let names = (0..).map(|number| format!("of-{rows}-{number}"));
    let partition = names.take(1_000).find(is_there).unwrap();
    for first in (0..rows).step_by(500) {
        let mut request = put_request(NAMESPACE, &partition, "x", Durability::Sync);
        let put = request.mutations.remove(0);
        let sorts = (first..first + 500).map(|number| format!("{number:06}"));
        request.mutations.extend(sorts.map(|sort| Mutation {
            key: Key::new(partition.clone(), sort).unwrap(),
            ..put.clone()
        }));
        let call = CallContext::internal();
        for written in rig.store.write_rows(&call, request).await {
            written.unwrap();
        }
    }
}

/// Takes rows, and records how many it had to forget. The disk hangs once it has the first.
struct ForgetfulSink {
    rig: Arc<Rig>,
    rows: RowBatch,
    forgotten: usize,
}

impl RowSink for ForgetfulSink {
    fn reserve(&mut self, _rows: usize, _bytes: usize) {}

    fn push(&mut self, row: RowRef<'_>) {
        if self.rows.is_empty() && self.forgotten == 0 {
            self.rig.files.hang("shard-000.redb", FileOperation::Read);
        }
        self.rows.push(row);
    }

    fn clear(&mut self) {
        self.forgotten += self.rows.len();
        self.rows = RowBatch::default();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_that_waits_for_the_disk_midway_hands_on_each_row_once() {
    let rig = Arc::new(filled().await);
    let call = CallContext::internal();
    let request = ScanRequest {
        namespace: NAMESPACE,
        slots: 0..=SLOTS - 1,
        after: None,
        rows_max: 20,
        bytes_max: u32::MAX,
        keys_only: false,
    };
    let all = rig.store.scan(&call, ShardId(0), &request).await.unwrap();
    let released = ReleaseOnDrop(Arc::clone(&rig));
    let walking = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move {
            let call = CallContext::internal();
            let mut sink = ForgetfulSink {
                rig: Arc::clone(&rig),
                rows: RowBatch::default(),
                forgotten: 0,
            };
            let page = rig.store.scan_into(&call, ShardId(0), &request, &mut sink);
            (page.await, sink)
        }
    });
    while rig.files.hanging() == 0 {
        assert!(!walking.is_finished(), "it did not wait for the disk");
        tokio::task::yield_now().await;
    }
    drop(released);
    let (page, sink) = walking.await.unwrap();
    let page = page.unwrap();
    assert!(page.rows.is_empty() && sink.forgotten > 0);
    assert_eq!(sink.rows, all.rows);
    assert_eq!(
        (page.resume_after, page.touched),
        (all.resume_after, all.touched)
    );
}
