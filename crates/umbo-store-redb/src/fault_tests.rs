//! Behaviour of the engine when its disk fails, with faults injected between redb and its files.

mod async_writes;
mod bad_sectors;
mod datasets;
mod faulty_files;
mod full_disk;
mod group_commit;
mod hung_disk;
mod log;
mod opening;
mod reads;
mod small_disk;
mod writes;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, DIGEST_LEN, DeleteRangeRequest, Deleted,
    Durability, Idempotency, ManualClock, Mutation, RecordsCopy, RecordsKeeper as _,
    RecordsRevision, ShardState, SortRange, Store, StoreError, StoreReport, WriteError,
    WriteRequest, Written,
};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, Timestamp, Value, Version};

use crate::opener::Opener;
use crate::{Config, RedbStore};
use faulty_files::FaultyFiles;

const NAMESPACE: NamespaceId = NamespaceId(7);

/// A store of one shard on files whose operations fail on command.
struct Rig {
    store: RedbStore,
    files: Arc<FaultyFiles>,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(edit: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(FaultyFiles::default());
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
        let mut config = config(folder.path());
        edit(&mut config);
        let dyn_clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let opener: Arc<dyn Opener> = Arc::<FaultyFiles>::clone(&files);
        let store = RedbStore::open_with(config, &dyn_clock, &opener).unwrap();
        Self {
            store,
            files,
            clock,
            folder,
        }
    }

    /// Makes a store with free pages in its file, which redb would sync to make it grow.
    async fn with_room() -> Self {
        Self::new().and_room().await
    }

    /// Makes the file larger than its rows.
    async fn and_room(self) -> Self {
        let rig = self;
        for value in ["x".repeat(200_000), String::new()] {
            rig.put("room", &value).await.unwrap();
        }
        rig
    }

    /// Copies the files as they are, as a kill leaves them.
    fn copied_files(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        folder
    }

    /// Opens a copy of the files as they are, as after a kill.
    fn copy(&self) -> (RedbStore, tempfile::TempDir) {
        let folder = self.copied_files();
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        (
            RedbStore::open(config(folder.path()), clock).unwrap(),
            folder,
        )
    }

    /// Closes the store and opens it again, without a page in its cache.
    async fn reopen(&mut self, edit: impl FnOnce(&mut Config)) {
        self.store.close().await;
        let mut config = config(self.folder.path());
        edit(&mut config);
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        let opener: Arc<dyn Opener> = Arc::<FaultyFiles>::clone(&self.files);
        self.store = RedbStore::open_with(config, &clock, &opener).unwrap();
    }

    fn state(&self) -> ShardState {
        self.store.status().remove(0).state
    }

    async fn put(&self, key: &str, value: &str) -> Result<Written, WriteError> {
        put(&self.store, key, value, Durability::Sync).await
    }

    async fn get(&self, key: &str) -> Option<String> {
        get(&self.store, key).await
    }
}

fn config(folder: &Path) -> Config {
    Config {
        folder: folder.to_owned(),
        shards: Some(1),
        cache_bytes: 4 << 20,
        ..Config::default()
    }
}

async fn put(
    store: &RedbStore,
    key: &str,
    value: &str,
    durability: Durability,
) -> Result<Written, WriteError> {
    put_in(store, NAMESPACE, key, value, durability).await
}

/// Puts a row as a load does.
async fn load_in(
    store: &RedbStore,
    namespace: NamespaceId,
    key: &str,
    value: &str,
) -> Result<Written, WriteError> {
    let mut request = put_request(namespace, key, value, Durability::Sync);
    request.mutations[0].condition = Condition::Unwritten(None);
    let call = CallContext::internal();
    store.write_rows(&call, request).await.remove(0)
}

async fn put_in(
    store: &RedbStore,
    namespace: NamespaceId,
    key: &str,
    value: &str,
    durability: Durability,
) -> Result<Written, WriteError> {
    let request = put_request(namespace, key, value, durability);
    let call = CallContext::internal();
    store.write_rows(&call, request).await.remove(0)
}

fn put_request(
    namespace: NamespaceId,
    key: &str,
    value: &str,
    durability: Durability,
) -> WriteRequest {
    let value = Value::new(Bytes::copy_from_slice(value.as_bytes()), "", "").unwrap();
    WriteRequest {
        namespace,
        epoch: 0,
        mutations: vec![Mutation {
            key: Key::new(key.to_owned(), "").unwrap(),
            change: Change::Put {
                value,
                expires_at: None,
            },
            condition: Condition::Always,
        }],
        atomicity: Atomicity::None,
        durability,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    }
}

/// Names a write, so that it is made once until then.
fn once(request: WriteRequest, id: [u8; DIGEST_LEN], keep_until: Timestamp) -> WriteRequest {
    let lines = (0..).take(request.mutations.len()).collect();
    WriteRequest {
        idempotency: Some(Idempotency {
            id,
            request: id,
            keep_until,
            keeps_refusals: true,
            lines,
        }),
        ..request
    }
}

/// Sends a request for one write.
async fn send(store: &RedbStore, request: &WriteRequest) -> Result<Written, WriteError> {
    let call = CallContext::internal();
    store.write_rows(&call, request.clone()).await.remove(0)
}

/// Removes up to ten rows of a partition.
async fn remove(store: &RedbStore, partition: PartitionKey) -> Result<Deleted, StoreError> {
    let request = DeleteRangeRequest {
        namespace: NAMESPACE,
        epoch: 0,
        partition,
        range: SortRange::default(),
        rows_max: 10,
        durability: Durability::Sync,
    };
    let call = CallContext::internal();
    store.remove_rows(&call, request).await
}

/// Makes a commit of the file: the log takes no removals of ranges.
async fn commit_file(store: &RedbStore) {
    let none = PartitionKey::new("none").unwrap();
    assert_eq!(remove(store, none).await.unwrap().rows, 0);
}

/// Records of a control plane that has fenced a namespace.
fn fencing(namespace: NamespaceId) -> RecordsCopy {
    RecordsCopy {
        revision: RecordsRevision {
            epoch: 1,
            number: 1,
        },
        fenced: vec![namespace.into()],
        ..RecordsCopy::default()
    }
}

async fn keep(store: &RedbStore, copy: RecordsCopy) {
    for (_, kept) in store.keep_records(Arc::new(copy)).await {
        kept.unwrap();
    }
}

async fn get(store: &RedbStore, key: &str) -> Option<String> {
    get_in(store, NAMESPACE, key).await
}

async fn get_in(store: &RedbStore, namespace: NamespaceId, key: &str) -> Option<String> {
    let key = Key::new(key.to_owned(), "").unwrap();
    let row = store
        .get_row(&CallContext::internal(), namespace, &key)
        .await
        .unwrap()?;
    Some(String::from_utf8(row.value.bytes.to_vec()).unwrap())
}
