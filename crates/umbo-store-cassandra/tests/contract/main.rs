//! The store contract on a real node of Cassandra, and once more with every value compressed.

mod calls;
#[path = "../three_nodes/cluster.rs"]
mod cluster;
mod fast;
mod node;
mod processes;
mod shared_time;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use umbo_store::suite::{Engine, Restart};
use umbo_store::{ManualClock, Store, contract_suite, restart_suite};
use umbo_store_cassandra::{CassandraSettings, CassandraStore};

use crate::cluster::Cluster;

/// Numbers of stores: the rows of each are apart, in the same tables.
static INSTANCES: AtomicU32 = AtomicU32::new(1);

/// How long a node is lost, and the pause before.
const LOST_FOR: Duration = Duration::from_secs(8);

/// A fresh store in the nodes that all tests share.
struct OnCassandra {
    clock: Arc<ManualClock>,
    settings: CassandraSettings,
    store: Arc<CassandraStore>,
}

/// Returns the addresses of the nodes that all tests share: one, or as many as `UMBO_TEST_NODES` says. The first test
/// starts them. With `UMBO_TEST_NODES_LOST`, one of three then stands still in turn with another that is dead.
fn addresses() -> Vec<String> {
    static CLUSTER: OnceLock<Arc<Mutex<Cluster>>> = OnceLock::new();
    let begin = || {
        let nodes =
            std::env::var("UMBO_TEST_NODES").map_or(1, |nodes| nodes.parse().expect("a number"));
        let cluster = Arc::new(Mutex::new(Cluster::start(nodes)));
        if std::env::var_os("UMBO_TEST_NODES_LOST").is_some() {
            let lost = Arc::clone(&cluster);
            std::thread::spawn(move || lose_nodes(&lost));
        }
        cluster
    };
    let cluster = CLUSTER.get_or_init(begin).lock();
    cluster.expect("it is whole").addresses()
}

/// Loses one node of three after the other, until the tests end.
fn lose_nodes(cluster: &Mutex<Cluster>) {
    let with = || cluster.lock().expect("it is whole");
    loop {
        std::thread::park_timeout(LOST_FOR);
        with().stop(1);
        std::thread::park_timeout(LOST_FOR);
        with().go_on(1);
        std::thread::park_timeout(LOST_FOR);
        with().kill(2);
        std::thread::park_timeout(LOST_FOR);
        with().begin(2);
        with().wait(2);
    }
}

/// Returns the settings of rows that no other test has.
async fn settings() -> CassandraSettings {
    let addresses = tokio::task::spawn_blocking(addresses).await;
    let contact_points = addresses.expect("the nodes serve");
    CassandraSettings {
        replication: contact_points.len() as u8,
        contact_points,
        data_center: "datacenter1".to_owned(),
        keyspace: "umbo".to_owned(),
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
