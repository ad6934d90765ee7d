//! The start of a store: its nodes, and the task that fetches newer maps.

use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_types::Clock;

use crate::map_keeper;
use crate::settings::RemoteSettings;
use crate::store::RemoteStore;

impl RemoteStore {
    /// Begins to connect to the nodes of a map. Does not wait for them: calls for a node wait until it is
    /// connected, or cannot be.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn connect(settings: RemoteSettings, map: ClusterMap, clock: Arc<dyn Clock>) -> Arc<Self> {
        let store = Self::new(settings, map, clock);
        store.spawn(map_keeper::keep(Arc::downgrade(&store)));
        store
    }
}
