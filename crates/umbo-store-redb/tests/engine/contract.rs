//! The redb engine passes the contract suite, also across restarts.

use std::sync::Arc;

use tempfile::TempDir;
use umbo_store::suite::{Engine, Restart};
use umbo_store::{ManualClock, Store};
use umbo_store_redb::{Config, RedbStore};

/// An engine with a log, or without one.
struct Redb<const HAS_LOG: bool> {
    store: Arc<RedbStore>,
    clock: Arc<ManualClock>,
    folder: TempDir,
}

type Plain = Redb<false>;

impl<const HAS_LOG: bool> Redb<HAS_LOG> {
    fn open(folder: TempDir, clock: Arc<ManualClock>) -> Self {
        let config = Config {
            folder: folder.path().to_owned(),
            shards: Some(3),
            has_log: HAS_LOG,
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
impl<const HAS_LOG: bool> Engine for Redb<HAS_LOG> {
    async fn create(clock: Arc<ManualClock>) -> Self {
        Self::open(tempfile::tempdir().expect("a folder"), clock)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::<RedbStore>::clone(&self.store)
    }
}

#[async_trait::async_trait]
impl<const HAS_LOG: bool> Restart for Redb<HAS_LOG> {
    async fn reopen(self) -> Self {
        let store = Arc::into_inner(self.store).expect("nobody else holds the store");
        drop(store);
        Self::open(self.folder, self.clock)
    }
}

umbo_store::contract_suite!(Plain);
umbo_store::restart_suite!(Plain);

mod logged {
    type Logged = super::Redb<true>;
    umbo_store::contract_suite!(Logged);
    umbo_store::restart_suite!(Logged);
}

mod compressed {
    umbo_store::contract_suite!(umbo_store::suite::Compressed<super::Plain>);
    umbo_store::restart_suite!(umbo_store::suite::Compressed<super::Plain>);
}
