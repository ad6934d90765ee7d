//! Following a newer map of the cluster while the store serves.
//!
//! Shards that the map has given away are closed properly and stamped with their new owner, so that their files can be
//! copied. Shards that it has given to this node are opened. All other shards are not touched. The invariants: the
//! manifest has the new version before the first file is closed; a file has its stamp before the map counts as
//! followed; a shard that has moved away and come back in between is opened again.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::MutexGuard;
use umbo_routing::ClusterMap;
use umbo_types::ShardId;

use crate::claim::Last;
use crate::config::ClusterMember;
use crate::error::OpenError;
use crate::folder_check::check_folder;
use crate::hand_over::give_files;
use crate::manifest::Manifest;
use crate::member_folder::{open_files, shard_files};
use crate::report::ShardOpening;
use crate::running::{RunningStore, ServedShard};
use crate::store::{RedbStore, elsewhere};

/// The state of a store after it has closed the shards that a newer map has given away.
struct Parted<'a> {
    running: MutexGuard<'a, RunningStore>,
    member: ClusterMember,
    manifest: Manifest,
    /// Shards that are closed, or never were open.
    closed: Vec<ShardId>,
}

impl RedbStore {
    /// Follows a newer map, or the same one again: then shards that did not open are tried again. Returns a
    /// report of each shard that it tried to open. A map that is not a successor changes nothing.
    ///
    /// Requests for a shard that leaves are refused from the beginning; accepted writes are brought to the
    /// disk. If this future is dropped before its end, shards stay closed; following the same map again opens
    /// them.
    pub async fn follow(&self, map: &Arc<ClusterMap>) -> Result<Vec<ShardOpening>, OpenError> {
        let Parted {
            mut running,
            member,
            mut manifest,
            closed,
        } = self.part(map).await?;
        let (config, clock) = (self.config.clone(), Arc::clone(&self.clock));
        let mut files = shard_files(&config, &member, Some(&manifest), &self.opener, &self.kept);
        files.retain(|file| closed.contains(&file.shard()));
        let opening = self.opener.runner().off_runtime(move || {
            let opened = open_files(files, &config, &member, &mut manifest, &*clock)?;
            Ok::<_, OpenError>((opened, manifest))
        });
        let (opened, manifest) = opening.await.ok_or_else(|| self.closed())??;
        running.manifest = Some(manifest);
        running.map = Some(Arc::clone(map));
        self.begin(opened, &mut running)
    }

    /// Gives away the shards that a newer map has given to other nodes, as [`Self::follow`] does, and opens
    /// nothing: for a store that is closed next. A map that is not a successor changes nothing.
    pub async fn give_away(&self, map: &Arc<ClusterMap>) -> Result<(), OpenError> {
        let Parted {
            mut running,
            manifest,
            ..
        } = self.part(map).await?;
        running.manifest = Some(manifest);
        Ok(())
    }

    pub(crate) fn closed(&self) -> OpenError {
        OpenError::Closed {
            folder: self.config.folder.clone(),
        }
    }

    async fn part(&self, map: &Arc<ClusterMap>) -> Result<Parted<'_>, OpenError> {
        let mut running = self.running.lock().await;
        let config = &self.config;
        let (Some(mut manifest), Some(before)) = (running.manifest.clone(), &config.cluster) else {
            return Err(match &config.cluster {
                Some(_) => self.closed(),
                None => OpenError::LoneFolder {
                    folder: config.folder.clone(),
                    cluster: map.cluster_id().to_owned(),
                },
            });
        };
        let current = Arc::clone(running.map.as_ref().unwrap_or(&before.map));
        current.check_successor(map)?;
        let member = ClusterMember {
            map: Arc::clone(map),
            node: before.node.clone(),
            create_missing: Vec::new(),
            accept: Vec::new(),
        };
        check_folder(config, &member, &manifest)?;
        if manifest.note_version(map.version()) {
            manifest.write(&config.folder)?;
        }
        let is_open = |id: ShardId| {
            matches!(
                **self.shards[usize::from(id.0)].load(),
                ServedShard::Open(_)
            )
        };
        let is_own = |map: &ClusterMap, id| {
            map.place_of(id)
                .is_some_and(|place| place.node == member.node)
        };
        let closed: Vec<_> = (0..map.shards())
            .map(ShardId)
            .filter(|&id| !is_open(id) || current.place_of(id) != map.place_of(id))
            .collect();
        let mut committers = Vec::new();
        let mut given = Vec::new();
        for &id in &closed {
            // A file that was open until now is the newest of its shard, wherever the shard moves.
            if is_open(id) {
                given.push((id, Last::Certain));
            } else if is_own(&current, id) && !is_own(map, id) && manifest.has_held(id) {
                given.push((id, Last::ByRecords));
            }
            let served = ArcSwap::swap(
                &self.shards[usize::from(id.0)],
                Arc::new(elsewhere(Some(&member), id)),
            );
            served.close();
            committers.extend(running.committers.remove(&id));
        }
        for committer in committers {
            committer.ended().await;
        }
        let (config, opener) = (config.clone(), Arc::clone(&self.opener));
        let giving = self.opener.runner().off_runtime(move || {
            give_files(&config, &member, &mut manifest, &opener, &given)?;
            Ok::<_, OpenError>((member, manifest))
        });
        let (member, manifest) = giving.await.ok_or_else(|| self.closed())??;
        Ok(Parted {
            running,
            member,
            manifest,
            closed,
        })
    }
}
