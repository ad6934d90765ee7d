//! `umbo cluster plan`: the first map of a cluster, or the next one for a changed set of nodes.
//!
//! Writes nothing but the file of `--out`, and only if that file is new or holds the map before this one, so
//! that no map in use is lost.

use std::path::{Path, PathBuf};

use clap::Args;
use umbo_routing::{ClusterMap, ClusterMapError, ClusterNode, SHARDS_MAX};
use umbo_types::ShardId;

use super::report;
use crate::cli_error::{CliError, usage};
use crate::command::kv::file_name::write_whole;
use crate::map_file;
use crate::output::{self, Format};

/// Default number of shards of each node in a new cluster: enough to divide a cluster of several times its
/// size evenly.
const SHARDS_PER_NODE: usize = 8;
/// Name that stands for standard output.
const STDOUT: &str = "-";

/// Arguments of `umbo cluster plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Map in effect; without it, the first map of a new cluster is proposed
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// All nodes of the next map, like a=shard-a:7411,b=shard-b:7411; a node of the current map needs no
    /// address
    #[arg(
        long,
        value_name = "NAME[=HOST:PORT]",
        required_unless_present = "moves",
        value_delimiter = ','
    )]
    nodes: Vec<String>,
    /// Move only these shards, like 3=b,7=a, and balance nothing
    #[arg(
        long = "move",
        value_name = "SHARD=NODE",
        requires = "map",
        value_delimiter = ','
    )]
    moves: Vec<String>,
    /// Shards of a new cluster, fixed for its life [default: 8 for each node]
    #[arg(long, value_name = "NUMBER", conflicts_with = "map")]
    shards: Option<u16>,
    /// Name of a new cluster, fixed for its life [default: one drawn at random]
    #[arg(long, value_name = "NAME", conflicts_with = "map")]
    cluster_id: Option<String>,
    /// Write the map to this file, or to standard output if it is '-'
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl PlanArgs {
    pub(super) fn run(self, format: Format) -> Result<(), CliError> {
        let before = self.map.as_deref().map(map_file::read).transpose()?;
        let nodes = self.nodes(before.as_ref()).map_err(usage)?;
        let (map, moves) = match &before {
            None => (self.first_map(nodes)?, Vec::new()),
            Some(map) => {
                let plan = if self.moves.is_empty() {
                    map.plan(nodes).map_err(usage)?
                } else {
                    let moves = self.moves(map)?;
                    map.plan_moves(nodes, &moves).map_err(usage)?
                };
                (plan.map, plan.moves)
            }
        };
        let proposal = report::Proposal::new(before.as_ref(), &map, &moves);
        if write_out(self.out.as_deref(), &map)? {
            return Ok(());
        }
        proposal.print(format, self.out.as_deref())
    }

    /// Returns the shards to move by hand, and their new nodes.
    fn moves(&self, map: &ClusterMap) -> Result<Vec<(ShardId, String)>, CliError> {
        let one = |text: &String| {
            let parsed = text.split_once('=');
            let parsed = parsed.and_then(|(shard, node)| Some((shard.trim().parse().ok()?, node)));
            let Some((shard, node)) = parsed else {
                return Err(usage!(
                    "'{text}' is not a move like 3=b: a shard and its new node"
                ));
            };
            if shard >= map.shards() {
                return Err(CliError::shard_not_found(shard, map.shards().into()));
            }
            Ok((ShardId(shard), node.trim().to_owned()))
        };
        self.moves.iter().map(one).collect()
    }

    fn nodes(&self, before: Option<&ClusterMap>) -> Result<Vec<ClusterNode>, ClusterMapError> {
        if let (Some(map), true) = (before, self.nodes.is_empty()) {
            return Ok(map.nodes().to_vec());
        }
        let node = |text: &String| {
            let (name, address) = text.split_once('=').unwrap_or((text, ""));
            let known = before.and_then(|map| map.node(name));
            match known {
                Some(known) if address.is_empty() => Ok(known.clone()),
                _ => ClusterNode::new(name.trim(), address.trim()),
            }
        };
        self.nodes.iter().map(node).collect()
    }

    fn first_map(&self, nodes: Vec<ClusterNode>) -> Result<ClusterMap, CliError> {
        let shards_max = usize::from(SHARDS_MAX);
        let shards = (nodes.len() * SHARDS_PER_NODE).min(shards_max);
        let shards = self.shards.unwrap_or(shards as u16);
        let id = match &self.cluster_id {
            Some(id) => id.clone(),
            None => format!("umbo-{:08x}", getrandom::u32().map_err(CliError::start)?),
        };
        ClusterMap::create(&id, nodes, shards).map_err(usage)
    }
}

fn usage(error: impl std::fmt::Display) -> CliError {
    usage!("{error}")
}

/// Writes a map to the target of `--out`. Returns whether the target is standard output.
pub(super) fn write_out(out: Option<&Path>, map: &ClusterMap) -> Result<bool, CliError> {
    match out {
        Some(path) if path == Path::new(STDOUT) => {
            output::write_bytes(map.to_toml().as_bytes())?;
            return Ok(true);
        }
        Some(path) => write(path, map)?,
        None => {}
    }
    Ok(false)
}

/// Replaces the map's file atomically, also across a crash.
pub(super) fn write(path: &Path, map: &ClusterMap) -> Result<(), CliError> {
    if path.try_exists().unwrap_or(true) {
        let there = map_file::read(path)?;
        there
            .check_successor(map)
            .map_err(|error| map_file::no_successor(path, &error))?;
    }
    write_whole(path, map.to_toml().as_bytes()).map_err(CliError::file("write", path))
}
