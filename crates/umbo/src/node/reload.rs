//! What a running node can reload: the map.

use std::path::Path;
use std::sync::Arc;

use umbo_shard::Node;
use umbo_store_redb::RedbStore;

use super::peers;
use crate::cli_error::CliError;
use crate::map_file;
use crate::reload_watch::{Reloadable, note};
use crate::settings::Settings;

/// What a reload replaces.
pub(super) struct NodeReload {
    pub(super) node: Arc<Node>,
    pub(super) store: Arc<RedbStore>,
}

impl Reloadable for NodeReload {
    async fn reload(&self, settings: &Settings) {
        if let Some(path) = &settings.cluster.map {
            let replaced = self.replace_map(settings, Path::new(path)).await;
            note("map of the cluster", Some(replaced));
        }
    }
}

impl NodeReload {
    /// Uses the map in a file from now on. The store is first, so that the version is on the disk, and the
    /// shards that the map gives away are closed and stamped, before any dispatcher gets the map.
    async fn replace_map(&self, settings: &Settings, path: &Path) -> Result<(), CliError> {
        let map = Arc::new(map_file::read(path)?);
        peers::refuse_older_map(settings, &map, self.node.name()).await?;
        let opened = self.store.follow(&map).await.map_err(CliError::start)?;
        self.node
            .replace_map(Arc::clone(&map))
            .map_err(CliError::start)?;
        self.node.note_followed(Arc::clone(&map));
        for report in opened {
            if let Some(reason) = report.unavailable {
                let (shard, version) = (report.shard, map.version());
                tracing::warn!(
                    shard = shard.0,
                    version,
                    reason,
                    "the map gives this node a shard that does not open; \
                    after a failed read it is tried again every ten seconds, otherwise at the next reload (SIGHUP)"
                );
            }
        }
        Ok(())
    }
}
