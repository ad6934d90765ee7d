//! The redb engine passes the contract suite, also across restarts.

use std::sync::Arc;

use tempfile::TempDir;
use umbo_store::suite::{Engine, Restart};
use umbo_store::{ManualClock, Store};
use umbo_store_redb::{Config, RedbStore};

struct Redb {
    store: Arc<RedbStore>,
    clock: Arc<ManualClock>,
    folder: TempDir,
}

impl Redb {
    fn open(folder: TempDir, clock: Arc<ManualClock>) -> Self {
        let config = Config {
            folder: folder.path().to_owned(),
            shards: Some(3),
            cache_bytes: 16 << 20,
            ..Config::default()
        };
        let store = RedbStore::open(config, Arc::<ManualClock>::clone(&clock)).expect("a store");
        Self {
            store: Arc::new(store),
            clock,
            folder,
        }
    }
}

#[async_trait::async_trait]
impl Engine for Redb {
    async fn create(clock: Arc<ManualClock>) -> Self {
        Self::open(tempfile::tempdir().expect("a folder"), clock)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::<RedbStore>::clone(&self.store)
    }
}

#[async_trait::async_trait]
impl Restart for Redb {
    async fn reopen(self) -> Self {
        let store = Arc::into_inner(self.store).expect("nobody else holds the store");
        drop(store);
        Self::open(self.folder, self.clock)
    }
}

umbo_store::contract_suite!(Redb);
umbo_store::restart_suite!(Redb);

mod compressed {
    umbo_store::contract_suite!(umbo_store::suite::Compressed<super::Redb>);
    umbo_store::restart_suite!(umbo_store::suite::Compressed<super::Redb>);
}
