//! Going by a newer map of the cluster while the store serves.
//!
//! Shards that the map has given away are closed in order, so that their files can be copied; those
//! that it has given to this node are opened; all others are not touched. The invariants: a shard
//! that has moved away and come back in between is opened anew, so that a file which stayed behind
//! is refused; the manifest knows the new version before the first file is let go.

use std::sync::Arc;

use arc_swap::ArcSwap;
use umbo_routing::ClusterMap;
use umbo_types::ShardId;

use crate::config::ClusterMember;
use crate::error::OpenError;
use crate::member_folder::{check_folder, open_files, shard_files};
use crate::report::ShardReport;
use crate::running::{Served, serve, wait_for};
use crate::store::{RedbStore, elsewhere};

impl RedbStore {
    /// Goes by a newer map, or once more by the same one: a shard that did not open is tried again.
    /// Returns what became of each shard that was opened, or tried. A map that does not follow
    /// changes nothing.
    ///
    /// Blocks while shards are closed and opened, so it is not for a thread of the runtime. Requests
    /// for a shard that leaves are refused from the beginning; writes that it has taken are brought
    /// to the disk.
    pub fn follow(&self, map: &Arc<ClusterMap>) -> Result<Vec<ShardReport>, OpenError> {
        let mut running = self.running.blocking_lock();
        let config = &self.config;
        let (Some(mut manifest), Some(before)) = (running.manifest.clone(), &config.cluster) else {
            return Err(match &config.cluster {
                Some(_) => OpenError::Closed {
                    folder: config.folder.clone(),
                },
                None => OpenError::LoneFolder {
                    folder: config.folder.clone(),
                    cluster: map.cluster_id().to_owned(),
                },
            });
        };
        let current = running.map.as_ref().unwrap_or(&before.map);
        current.check_successor(map)?;
        let member = ClusterMember {
            map: Arc::clone(map),
            node: before.node.clone(),
            create_missing: Vec::new(),
            accept: Vec::new(),
        };
        check_folder(config, &member, &manifest)?;
        if manifest.note_held(map.version(), &[]) {
            manifest.write(&config.folder)?;
        }
        let stays = |id: ShardId| {
            let is_open = matches!(**self.shards[usize::from(id.0)].load(), Served::Open(_));
            is_open && current.place_of(id) == map.place_of(id)
        };
        let leaving: Vec<_> = (0..map.shards())
            .map(ShardId)
            .filter(|&id| !stays(id))
            .collect();
        let mut committers = Vec::new();
        for &id in &leaving {
            let served = ArcSwap::swap(
                &self.shards[usize::from(id.0)],
                Arc::new(elsewhere(Some(&member), id)),
            );
            served.close();
            committers.extend(running.committers.remove(&id));
        }
        committers.into_iter().for_each(wait_for);
        let mut files = shard_files(config, &member, &self.opener);
        files.retain(|file| leaving.contains(&file.shard()));
        let opened = open_files(files, config, &member, &mut manifest, &*self.clock)?;
        running.manifest = Some(manifest);
        running.map = Some(Arc::clone(map));
        let mut reports = Vec::new();
        for shard in opened {
            let id = usize::from(shard.report.shard.0);
            reports.push(shard.report.clone());
            let served = serve(config, &self.clock, shard, &mut running)?;
            self.shards[id].store(Arc::new(served));
        }
        Ok(reports)
    }
}
