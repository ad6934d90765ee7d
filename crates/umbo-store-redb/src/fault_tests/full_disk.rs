//! A full disk: what makes room goes on, what stores rows is refused until there is room, and nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_store::{
    ByKey as _, CallContext, Change, DeleteRangeRequest, Durability, ManualClock, Outcome,
    RecordsCopy, ShardState, SortRange, Store, StoreError, StoreReport, WriteError,
};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, ShardId, Timestamp};

use super::small_disk::SmallDisk;
use super::{NAMESPACE, config, fencing, get, keep, put, put_request};
use crate::opener::Opener;
use crate::{Config, RedbStore};

const DISK_LEN: u64 = 24 << 20;
/// Least waste of a file that is compacted, and half of the file at least.
const WORTH_IT: u64 = 4 << 20;

/// A store of one shard on a small disk, with the rows that it has acknowledged.
struct FullDisk {
    store: RedbStore,
    disk: Arc<SmallDisk>,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
    kept: BTreeMap<String, String>,
}

impl FullDisk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(SmallDisk::new(DISK_LEN));
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
        let store = open(config(folder.path()), &disk, &clock);
        Self {
            store,
            disk,
            clock,
            folder,
            kept: BTreeMap::new(),
        }
    }

    /// Puts rows until the disk is full, and lets another program take the rest of it.
    async fn fill(&mut self) {
        for number in 0.. {
            let key = format!("key-{number:06}");
            if self.kept.contains_key(&key) {
                continue;
            }
            let value = value(number);
            match put(&self.store, &key, &value, Durability::Sync).await {
                Ok(_) => self.kept.insert(key, value),
                Err(refused) => {
                    assert_full(&refused);
                    break;
                }
            };
        }
        assert!(self.kept.len() > 100, "{}", self.kept.len());
        self.disk.fill();
        assert_full(&self.put("refused").await.unwrap_err());
        assert!(matches!(self.state(), ShardState::ReadOnly(_)));
    }

    fn state(&self) -> ShardState {
        self.store.status().remove(0).state
    }

    async fn put(&mut self, key: &str) -> Result<(), WriteError> {
        let value = value(key.len());
        put(&self.store, key, &value, Durability::Sync).await?;
        self.kept.insert(key.to_owned(), value);
        Ok(())
    }

    async fn delete(&mut self, key: &str) {
        let mut request = put_request(NAMESPACE, key, "", Durability::Sync);
        request.mutations[0].change = Change::Delete;
        let call = CallContext::internal();
        self.store
            .write_rows(&call, request)
            .await
            .remove(0)
            .unwrap();
        self.kept.remove(key);
    }

    async fn delete_some(&mut self, count: usize) {
        let keys: Vec<_> = self.kept.keys().take(count).cloned().collect();
        for key in keys {
            self.delete(&key).await;
        }
    }

    /// Checks that the rows are those that were acknowledged, here and after a kill.
    async fn check(&self) {
        for store in [&self.store, &self.killed()] {
            for (key, value) in &self.kept {
                assert_eq!(get(store, key).await.as_deref(), Some(&**value), "{key}");
            }
            assert_eq!(store.status()[0].rows, self.kept.len() as u64);
        }
    }

    fn killed(&self) -> RedbStore {
        let folder = tempfile::tempdir().unwrap().keep();
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
        let disk = Arc::new(SmallDisk::new(u64::MAX / 2));
        open(config(&folder), &disk, &self.clock)
    }

    /// Tries a write until it succeeds.
    async fn put_in_the_end(&mut self, key: &str) {
        while let Err(refused) = self.put(key).await {
            assert_full(&refused);
            tokio::task::yield_now().await;
        }
    }
}

fn open(config: Config, disk: &Arc<SmallDisk>, clock: &Arc<ManualClock>) -> RedbStore {
    let opener: Arc<dyn Opener> = Arc::<SmallDisk>::clone(disk);
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    RedbStore::open_with(config, &clock, &opener).unwrap()
}

fn value(number: usize) -> String {
    format!("{number}-").repeat(1_000 + number % 7 * 1_000)
}

fn assert_full(refused: &WriteError) {
    let WriteError::Store(StoreError::Full { outcome, .. }) = refused else {
        panic!("{refused}");
    };
    assert_eq!(*outcome, Outcome::NotApplied);
}

#[tokio::test]
async fn rows_are_removed_from_a_full_disk_and_writes_come_back() {
    let mut full = FullDisk::new();
    full.fill().await;
    let reserved = full.disk.reserved_bytes();
    assert!(reserved >= 512 << 10, "writes have used the reserve");
    full.delete_some(30).await;
    full.check().await;
    full.put_in_the_end("again").await;
    full.check().await;
    // Again and again, with nothing free beside: the reserve is never used up.
    for _ in 0..5 {
        full.fill().await;
        full.delete_some(20).await;
        full.put_in_the_end("again").await;
    }
    full.check().await;
}

#[tokio::test]
async fn ranges_and_namespaces_are_removed_from_a_full_disk() {
    let mut full = FullDisk::new();
    let other = NamespaceId(9);
    let call = CallContext::internal();
    for number in 0..200 {
        let mut request = put_request(NAMESPACE, "range", &value(number), Durability::Sync);
        request.mutations[0].key = Key::new("range", format!("{number:04}")).unwrap();
        full.store
            .write_rows(&call, request)
            .await
            .remove(0)
            .unwrap();
        let request = put_request(other, &number.to_string(), &value(number), Durability::Sync);
        full.store
            .write_rows(&call, request)
            .await
            .remove(0)
            .unwrap();
    }
    full.fill().await;
    let mut removed = 0;
    loop {
        let request = DeleteRangeRequest {
            namespace: NAMESPACE,
            epoch: 0,
            partition: PartitionKey::new("range").unwrap(),
            range: SortRange::default(),
            rows_max: 1_000,
            durability: Durability::Sync,
        };
        let deleted = full.store.remove_rows(&call, request).await.unwrap();
        removed += deleted.rows;
        if deleted.resume_after.is_none() {
            break;
        }
    }
    assert_eq!(removed, 200);
    let copy = RecordsCopy {
        content: Bytes::from_static(b"records"),
        ..fencing(other)
    };
    keep(&full.store, copy).await;
    while full.store.status()[0].purging > 0 {
        tokio::task::yield_now().await;
    }
    full.put_in_the_end("again").await;
    full.check().await;
}

#[tokio::test]
async fn what_expires_makes_room_on_a_full_disk() {
    let mut full = FullDisk::new();
    let call = CallContext::internal();
    for number in 0..200 {
        let mut request = put_request(
            NAMESPACE,
            &format!("expiring-{number}"),
            &value(number),
            Durability::Sync,
        );
        if let Change::Put { expires_at, .. } = &mut request.mutations[0].change {
            *expires_at = Some(Timestamp::from_millis(60_000));
        }
        full.store
            .write_rows(&call, request)
            .await
            .remove(0)
            .unwrap();
    }
    full.fill().await;
    full.clock.advance(Duration::from_secs(100));
    while full.store.status()[0].reclaimed < 200 {
        tokio::task::yield_now().await;
    }
    full.put_in_the_end("again").await;
    full.check().await;
}

#[tokio::test]
async fn freed_room_is_given_back_while_the_shard_serves() {
    let mut full = FullDisk::new();
    full.fill().await;
    let used = full.disk.used();
    full.delete_some(full.kept.len() / 2).await;
    let kept = full.kept.keys().next().unwrap().clone();
    let live: usize = full
        .kept
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    // The first may come before all are removed. The last of them may leave too little for another one.
    let is_shrunk = || {
        let left = full.disk.used();
        let is_worth_it = left - live as u64 >= WORTH_IT.max(left / 2);
        left <= used * 2 / 3 || (full.store.status()[0].compactions > 0 && !is_worth_it)
    };
    while !is_shrunk() {
        assert!(get(&full.store, &kept).await.is_some(), "reads go on");
        tokio::task::yield_now().await;
    }
    // The file shrinks, and reads go on, before the compaction is counted; a write is done after that, on the same thread.
    full.put_in_the_end("again").await;
    assert!(full.store.status()[0].compactions > 0);
    full.check().await;
}

#[tokio::test]
async fn a_store_opens_on_a_full_disk_and_makes_room() {
    let mut full = FullDisk::new();
    full.fill().await;
    for _ in 0..2 {
        full.store.close().await;
        full.store = open(config(full.folder.path()), &full.disk, &full.clock);
        full.check().await;
        // Closing the file may have shortened it.
        full.fill().await;
    }
    full.delete_some(30).await;
    full.put_in_the_end("again").await;
    full.check().await;
}

#[tokio::test]
async fn reads_wait_for_the_end_of_a_pause() {
    let mut full = FullDisk::new();
    full.put("kept").await.unwrap();
    let served = full.store.served(ShardId(0));
    let shard = Arc::clone(served.open(ShardId(0)).unwrap());
    let before = shard.pause();
    let key = Key::new("kept", "").unwrap();
    let call = CallContext::internal();
    let mut read = std::pin::pin!(full.store.get_row(&call, NAMESPACE, &key));
    for _ in 0..3 {
        assert!(poll_once(read.as_mut()).is_none(), "it waits");
    }
    shard.resume(before);
    assert!(read.await.unwrap().is_some());
}

/// Polls a future once.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
