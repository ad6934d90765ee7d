//! The store contract on a real node of Cassandra, and once more with every value compressed.

mod calls;
mod node;
mod processes;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use umbo_store::suite::{Engine, Restart};
use umbo_store::{ManualClock, Store, contract_suite, restart_suite};
use umbo_store_cassandra::{CassandraSettings, CassandraStore};

use crate::node::{Node, Ports};

/// Numbers of stores: the rows of each are apart, in the same tables.
static INSTANCES: AtomicU32 = AtomicU32::new(1);

/// A fresh store in the node that all tests share.
struct OnCassandra {
    clock: Arc<ManualClock>,
    settings: CassandraSettings,
    store: Arc<CassandraStore>,
}

/// Returns host and port of the node that all tests share. The first of them starts it.
fn address() -> String {
    static NODE: OnceLock<(Node, TempDir)> = OnceLock::new();
    let begin = || {
        let folder = TempDir::new().expect("there is room for a folder");
        let mut node = Node::begin((1, 1), Ports::free(), folder.path());
        node.wait(folder.path(), &[]);
        (node, folder)
    };
    NODE.get_or_init(begin).0.address()
}

/// Returns the settings of rows that no other test has.
async fn settings() -> CassandraSettings {
    let address = tokio::task::spawn_blocking(address).await;
    CassandraSettings {
        contact_points: vec![address.expect("the node serves")],
        data_center: "datacenter1".to_owned(),
        keyspace: "umbo".to_owned(),
        replication: 1,
        credentials: None,
        tls: None,
        instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
        shards: 4,
        buckets: 8,
        request_timeout: Duration::from_secs(30),
    }
}

async fn open(settings: &CassandraSettings, clock: &Arc<ManualClock>) -> Arc<CassandraStore> {
    let store = CassandraStore::open(settings, Arc::clone(clock) as _).await;
    Arc::new(store.expect("the node serves"))
}

#[async_trait]
impl Engine for OnCassandra {
    async fn create(clock: Arc<ManualClock>) -> Self {
        let settings = settings().await;
        let store = open(&settings, &clock).await;
        Self {
            clock,
            settings,
            store,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }
}

#[async_trait]
impl Restart for OnCassandra {
    async fn reopen(self) -> Self {
        let Self {
            clock,
            settings,
            store,
        } = self;
        drop(store);
        let store = open(&settings, &clock).await;
        Self {
            clock,
            settings,
            store,
        }
    }
}

contract_suite!(OnCassandra);
restart_suite!(OnCassandra);

mod compressed {
    use umbo_store::suite::Compressed;

    use super::{OnCassandra, contract_suite, restart_suite};

    contract_suite!(Compressed<OnCassandra>);
    restart_suite!(Compressed<OnCassandra>);
}
