//! `umbo shard reclaim`: takes shards back that were given to another node and never opened there.
//!
//! Two nodes must never serve one shard, so this asks the other node whether it does. If that does not prove
//! that the file was never opened there, an operator has to confirm it: a copy of the file still opens there
//! under the map that gave it away.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_store::{CallContext, ScanRequest, Store as _, StoreError, StoreReport};
use umbo_store_redb::{GivenShard, given_shards, reclaim_shard};
use umbo_store_remote::RemoteStore;
use umbo_types::limits::SLOTS;
use umbo_types::{Clock as _, Deadline, NamespaceId, ShardId};

use crate::cli_error::{CliError, Exit, usage};
use crate::connection::block_on;
use crate::map_file;
use crate::output::note;
use crate::server::{SystemClock, remote_settings};
use crate::settings::LoadedSettings;

/// Longest wait for the node that a shard was given to.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Arguments of `umbo shard reclaim`.
#[derive(Debug, Args)]
pub(super) struct Reclaim {
    /// Newest map, which has the shards on this node again; 'umbo cluster plan --move' makes it
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// Data folder of the node that gave the shards away, which must not be running
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The shards to take back
    #[arg(long, value_name = "SHARDS", required = true, value_delimiter = ',')]
    shards: Vec<u16>,
    /// Confirm that no other node has opened the files, and that their copies there are removed
    #[arg(long)]
    never_opened: bool,
}

/// Answer of the node that a shard was given to.
enum Successor {
    /// The node serves the shard.
    Serves,
    /// The node answers, and does not serve the shard.
    DoesNotServe(String),
    /// The node does not answer, or its address is not known.
    Silent,
}

impl Reclaim {
    pub(super) fn run(self) -> Result<(), CliError> {
        let map = Arc::new(map_file::read(&self.map)?);
        let given = given_shards(&self.data, &map)?;
        let find = |&shard: &u16| {
            let found = given.iter().find(|one| one.shard == ShardId(shard));
            found.ok_or_else(|| {
                usage!("shard {shard} was not given away: its file in {} has no stamp, or there is none", self.data.display())
            })
        };
        let meant: Vec<_> = self.shards.iter().map(find).collect::<Result<_, _>>()?;
        for one in &meant {
            let GivenShard {
                shard,
                node,
                moves,
                map_version,
                ..
            } = one;
            note!(
                "shard {shard} was given to node '{node}' as move {moves}, by version {map_version} of the map"
            );
            match block_on(ask(one, &map))? {
                Successor::Serves => {
                    let message = format!(
                        "node '{node}' serves shard {shard}, so its file there is the newest and this one is not"
                    );
                    return Err(
                        CliError::told(Exit::Precondition, message).advising("served-there")
                    );
                }
                Successor::DoesNotServe(reason) => {
                    note!("node '{node}' does not serve it now: {reason}");
                }
                Successor::Silent => note!("node '{node}' does not answer"),
            }
        }
        if !self.never_opened {
            let message = "nothing was taken back: if another node opens its copy later, two nodes would serve \
                           the shard";
            return Err(CliError::told(Exit::Precondition, message).advising("not-reclaimed"));
        }
        for one in meant {
            reclaim_shard(&self.data, &map, one.shard)?;
            note!(
                "shard {} belongs to this node again under version {} of the map",
                one.shard,
                map.version()
            );
        }
        Ok(())
    }
}

/// Asks the node that a shard was given to whether it serves the shard, by a scan of the first namespace for one row.
async fn ask(given: &GivenShard, map: &ClusterMap) -> Result<Successor, CliError> {
    let Some(alone) = map_of_successor(given, map) else {
        return Ok(Successor::Silent);
    };
    let cluster = LoadedSettings::of_file(None)?.settings.cluster;
    let clock = Arc::new(SystemClock);
    let store = RemoteStore::connect(remote_settings(&cluster), alone, clock.clone());
    let deadline = Deadline::after(clock.monotonic(), ANSWER_TIMEOUT);
    let call = CallContext::internal_until(deadline);
    let request = ScanRequest {
        namespace: NamespaceId(1),
        slots: 0..=SLOTS - 1,
        after: None,
        rows_max: 1,
        bytes_max: 1,
        keys_only: true,
    };
    let read = timeout(ANSWER_TIMEOUT, store.scan(&call, given.shard, &request)).await;
    let is_connected = store.nodes().iter().all(|node| node.failure.is_none());
    store.close().await;
    Ok(match read {
        Ok(Err(StoreError::Unavailable { reason, .. })) if is_connected => {
            Successor::DoesNotServe(reason)
        }
        Ok(Ok(_) | Err(_)) if is_connected => Successor::Serves,
        _ => Successor::Silent,
    })
}

/// Returns a map that gives every slot to the node that the shard was given to, so that the node is asked regardless of
/// the map in effect. Returns `None` if its address is not known.
fn map_of_successor(given: &GivenShard, map: &ClusterMap) -> Option<ClusterMap> {
    let known = map.node(&given.node);
    let address = known.map_or(&*given.address, ClusterNode::address);
    let node = ClusterNode::new(&given.node, address).ok()?;
    let alone = ClusterMap::create(map.cluster_id(), vec![node], map.shards()).ok()?;
    // As new as the map in effect, so that no newer one is fetched and used.
    let version = format!("version = {}\n", map.version());
    let text = alone.to_toml().replacen("version = 1\n", &version, 1);
    ClusterMap::parse(&text).ok()
}
