//! `umbo cluster promote-home`: makes another shard the home of Umbo's own records, after the current one is
//! lost.
//!
//! Takes the newest copy of the records that any node keeps. Writes the next map, with the shard as the home under the
//! next epoch. Founds the home there once the shard's node uses that map. The order is safe to interrupt: every
//! dispatcher refuses a home that was not founded, and founding it again changes nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};
use umbo_api::time_to_live;
use umbo_control::promote;
use umbo_routing::ClusterMap;
use umbo_store::{
    NodeStatus, RecordsCopy, RecordsKeeper, ShardState, ShardStatus, Store, StoreReport,
};
use umbo_store_remote::RemoteStore;
use umbo_types::{Clock, NamespaceId, ShardId};

use super::plan::write;
use crate::cli_error::{CliError, Exit, usage};
use crate::map_file;
use crate::output::{joined, note};
use crate::server::{SystemClock, remote_settings};
use crate::settings::{ClusterSection, LoadedSettings};

/// Longest wait for all nodes to connect and to report their shards.
const GATHER_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which nodes and the new home are asked again.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `umbo cluster promote-home`.
#[derive(Debug, Args)]
pub(crate) struct PromoteHome {
    /// Newest map
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// Shard that becomes the home; the current home is allowed if it was created empty
    #[arg(long, value_name = "SHARD", required_unless_present = "resume")]
    shard: Option<u16>,
    /// Write the next map to this file, for all nodes and dispatchers
    #[arg(long, value_name = "FILE", required_unless_present_any = ["dry_run", "resume"])]
    out: Option<PathBuf>,
    /// Continue without these nodes, whose copies of the records may be newer than all others
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    without: Vec<String>,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Only found the home that the map already names, after an interrupted run
    #[arg(long, conflicts_with_all = ["shard", "out", "dry_run"])]
    resume: bool,
    /// How long to wait for the node of the new home to use the next map (like 30s, 10m)
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = time_to_live::span
    )]
    wait: Duration,
}

/// The records that the nodes hold.
struct GatheredRecords {
    copy: Arc<RecordsCopy>,
    /// Highest id of a namespace that has rows in any shard.
    namespace_max: NamespaceId,
    /// Shards that did not report their namespaces.
    silent_shards: Vec<ShardId>,
}

impl PromoteHome {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let cluster = LoadedSettings::of_file(None)?.settings.cluster;
        let map = map_file::read(&self.map)?;
        let promoted = match self.shard {
            Some(shard) => map
                .promote_home(ShardId(shard))
                .map_err(|error| usage!("{error}"))?,
            None => map.clone(),
        };
        let found = self.gather(&cluster, &map).await?;
        let (home, revision) = (promoted.home(), found.copy.revision);
        note!(
            "the newest copy of the records has revision {} of epoch {}; no id of a namespace up to {} is \
             given again",
            revision.number,
            revision.epoch,
            found.namespace_max.0
        );
        if !found.silent_shards.is_empty() {
            let shards = joined(&found.silent_shards);
            note!("shards that did not report their namespaces: {shards}");
        }
        let node = promoted.node_of(home.shard).map_or("", |node| node.name());
        note!(
            "shard {} on node '{node}' becomes the home of the records in epoch {}, by version {} of the map",
            home.shard,
            home.epoch,
            promoted.version()
        );
        if self.dry_run {
            return Ok(());
        }
        if let Some(out) = &self.out {
            write(out, &promoted)?;
            note!(
                "give {} to all nodes and dispatchers now; waiting for node '{node}'",
                out.display()
            );
        }
        let revision = self.found(&cluster, &promoted, &found).await?;
        note!(
            "shard {} is the home of the records, at revision {revision} of epoch {}",
            home.shard,
            home.epoch
        );
        Ok(())
    }

    /// Asks all nodes for their copy of the records and for the namespaces of their shards.
    async fn gather(
        &self,
        cluster: &ClusterSection,
        map: &ClusterMap,
    ) -> Result<GatheredRecords, CliError> {
        let clock = Arc::new(SystemClock);
        let store = RemoteStore::connect(remote_settings(cluster), map.clone(), clock);
        let end = Instant::now() + GATHER_TIMEOUT;
        let is_said = |status: &ShardStatus| !matches!(status.state, ShardState::Unavailable(_));
        while !store.status().iter().all(is_said) && Instant::now() < end {
            sleep(LOOK_INTERVAL).await;
        }
        let (nodes, shards) = (store.nodes(), store.status());
        let copy = store.kept_records().await;
        store.close().await;
        self.refuse_silent(&nodes)?;
        let newer = nodes
            .iter()
            .find(|node| node.map_version > Some(map.version()));
        if let Some(node) = newer {
            return Err(CliError::NewerMap {
                node: node.name.clone(),
                address: node.address.clone(),
                version: node.map_version.unwrap_or_default(),
                own: map.version(),
                file: self.map.display().to_string(),
            });
        }
        let copy = copy.map_err(CliError::start)?.ok_or_else(|| {
            let message = "no node that answers keeps a copy of Umbo's own records";
            CliError::told(Exit::NotFound, message)
        })?;
        let silent = shards.iter().filter(|status| !is_said(status));
        let ids = shards.iter().map(|status| status.namespace_max);
        Ok(GatheredRecords {
            copy,
            namespace_max: ids.max().unwrap_or(NamespaceId::SYSTEM),
            silent_shards: silent.map(|status| status.shard).collect(),
        })
    }

    fn refuse_silent(&self, nodes: &[NodeStatus]) -> Result<(), CliError> {
        let silent = nodes
            .iter()
            .filter(|node| node.failure.is_some() && !self.without.contains(&node.name));
        let silent: Vec<_> = silent.map(|node| &*node.name).collect();
        if silent.is_empty() {
            return Ok(());
        }
        let message = format!(
            "no answer from {}: records that only they keep would be lost",
            silent.join(", ")
        );
        Err(CliError::told(Exit::Unreachable, message).advising("silent-nodes"))
    }

    /// Writes the records into the new home, as soon as its node uses the map.
    async fn found(
        &self,
        cluster: &ClusterSection,
        map: &ClusterMap,
        found: &GatheredRecords,
    ) -> Result<u64, CliError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let settings = remote_settings(cluster);
        let remote = RemoteStore::connect(settings, map.clone(), Arc::clone(&clock));
        let store: Arc<dyn Store> = remote;
        let end = Instant::now() + self.wait;
        loop {
            match promote(&store, &clock, &found.copy, found.namespace_max).await {
                Ok(revision) => {
                    store.close().await;
                    return Ok(revision.number);
                }
                Err(error) if Instant::now() >= end => {
                    store.close().await;
                    let message = format!("the new home of the records is not founded: {error}");
                    return Err(
                        CliError::told(Exit::Unreachable, message).advising("home-not-founded")
                    );
                }
                Err(_) => sleep(LOOK_INTERVAL).await,
            }
        }
    }
}
