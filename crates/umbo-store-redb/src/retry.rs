//! Opening again the shards whose file failed to open, while the store serves.
//!
//! A disk may fail just when the store opens its files. The invariant: only a file that existed is tried again. A
//! missing file may be about to be copied; its operator then starts or reloads the server.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::committer::limits::RETRY_AFTER;
use crate::config::ClusterMember;
use crate::error::OpenError;
use crate::member_folder::open_files;
use crate::opened_shard::{OpenedShard, open_shard};
use crate::report::ShardOpening;
use crate::running::{RunningStore, serve};
use crate::store::RedbStore;

impl RedbStore {
    /// Opens every ten seconds the shards that failed to open because the system or their disk failed, in an
    /// endless loop.
    pub async fn retry_opening(&self) {
        loop {
            tokio::time::sleep(RETRY_AFTER).await;
            if let Err(error) = self.open_failed().await {
                tracing::error!(%error, "shards that failed to open could not be tried again");
            }
        }
    }

    /// Opens the shards that failed to open, if they may open now. Returns a report of each that it tried.
    pub(crate) async fn open_failed(&self) -> Result<Vec<ShardOpening>, OpenError> {
        let mut running = self.running.lock().await;
        let shards = self.shards.iter().map(ArcSwap::load);
        let files: Vec<_> = shards.filter_map(|shard| shard.retriable()).collect();
        let Some(mut manifest) = running.manifest.clone().filter(|_| !files.is_empty()) else {
            return Ok(Vec::new());
        };
        let (config, clock) = (self.config.clone(), Arc::clone(&self.clock));
        let map = running.map.clone();
        let runner = self.opener.runner();
        let opening = runner.off_runtime(move || match &config.cluster {
            None => Ok((
                runner.each(files, |file| open_shard(file, &*clock)),
                manifest,
            )),
            Some(member) => {
                let member = ClusterMember {
                    map: map.unwrap_or_else(|| Arc::clone(&member.map)),
                    node: member.node.clone(),
                    create_missing: Vec::new(),
                    accept: Vec::new(),
                };
                let opened = open_files(files, &config, &member, &mut manifest, &*clock)?;
                Ok::<_, OpenError>((opened, manifest))
            }
        });
        let (opened, manifest) = opening.await.ok_or_else(|| self.closed())??;
        running.manifest = Some(manifest);
        self.begin(opened, &mut running)
    }

    /// Begins to serve shards that were opened.
    pub(crate) fn begin(
        &self,
        opened: Vec<OpenedShard>,
        running: &mut RunningStore,
    ) -> Result<Vec<ShardOpening>, OpenError> {
        let mut reports = Vec::new();
        for shard in opened {
            let id = usize::from(shard.report.shard.0);
            reports.push(shard.report.clone());
            let served = serve(&self.config, &self.clock, shard, (&self.map, running))?;
            self.shards[id].store(Arc::new(served));
        }
        Ok(reports)
    }
}
