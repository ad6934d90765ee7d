//! The remote store passes the contract suite.

use std::sync::Arc;
use std::time::Duration;

use umbo_store::suite::Engine;
use umbo_store::{ManualClock, Store};
use umbo_store_remote::{RemoteSettings, RemoteStore};

use crate::cluster::Cluster;

struct Remote {
    store: Arc<RemoteStore>,
    _cluster: Cluster,
}

#[async_trait::async_trait]
impl Engine for Remote {
    async fn create(clock: Arc<ManualClock>) -> Self {
        let cluster = Cluster::on_loopback(3, clock);
        let settings = RemoteSettings {
            probe_interval: Duration::from_millis(5),
            // No connection is given up for the slowness of a machine.
            probe_timeout: Duration::from_mins(1),
            ..RemoteSettings::default()
        };
        let store = cluster.connect(settings).await;
        Self {
            store,
            _cluster: cluster,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::<RemoteStore>::clone(&self.store)
    }
}

umbo_store::contract_suite!(Remote);

mod compressed {
    umbo_store::contract_suite!(umbo_store::suite::Compressed<super::Remote>);
}
