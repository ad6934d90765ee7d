//! The map of a cluster: which node has which shard, and where the node is found.
//!
//! Owns what a map says and the checks that make it one; its text, its plan for other nodes and
//! its succession are the files below. Names are resolved by whoever connects. The invariants: a
//! map covers every slot once and names one node for every shard; the slots of a shard are fixed
//! for the life of a cluster, because a shard is one file.
//!
//! A shard that has moved carries how often it has (`moves`) and who had it before (`from`). A
//! node writes the same count into the shard's file, so that a file which stayed behind is told
//! from the one that went on.

mod error;
mod node;
mod plan;
mod succession;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use umbo_types::ShardId;

pub use self::error::ClusterMapError;
pub use self::node::ClusterNode;
pub use self::plan::{Move, Plan};
pub use self::succession::{Succession, SuccessionError};
use crate::shard_map::{ShardMap, SlotRange};

/// Highest version of a map: what a whole number of its text may be.
const VERSION_MAX: u64 = i64::MAX as u64;

/// Which node has which shard. Cheap to share behind an `Arc`; never changed, only succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMap {
    cluster_id: String,
    version: u64,
    nodes: Vec<ClusterNode>,
    shard_map: Arc<ShardMap>,
    /// By number of the shard.
    places: Vec<ShardPlace>,
    /// How many each shard owns, by its number.
    slots: Vec<u32>,
}

/// Where a shard is and was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPlace {
    /// Name of the node that has it.
    pub node: String,
    /// How often it has changed its node, 0 where it was created.
    pub moves: u32,
    /// Name of the node that had it before; none exactly where it has never moved. That node may
    /// have left the cluster since.
    pub from: Option<String>,
}

/// What a map is made of, before it is checked.
struct Parts {
    cluster_id: String,
    version: u64,
    nodes: Vec<ClusterNode>,
    /// Slots of each shard that is named.
    ranges: Vec<SlotRange>,
    /// Each shard that is named, in order of naming.
    places: Vec<(ShardId, ShardPlace)>,
}

impl ClusterMap {
    /// Most shards of a cluster: each costs its node a thread and a file.
    pub const SHARDS_MAX: u16 = 512;
    /// Most nodes of a cluster.
    pub const NODES_MAX: usize = 512;

    /// Makes the first map of a cluster, version 1: slots evenly among `shards` shards, shards
    /// evenly among the nodes. The shards of a node follow one another.
    pub fn create(
        cluster_id: &str,
        nodes: Vec<ClusterNode>,
        shards: u16,
    ) -> Result<Self, ClusterMapError> {
        let shard_map = ShardMap::even(shards)?;
        let nodes = sorted(nodes)?;
        enough_shards(shards.into(), &nodes)?;
        let node_of = |shard: u16| usize::from(shard) * nodes.len() / usize::from(shards);
        let place = |shard| ShardPlace {
            node: nodes[node_of(shard)].name().to_owned(),
            moves: 0,
            from: None,
        };
        Self::check(Parts {
            cluster_id: cluster_id.to_owned(),
            version: 1,
            places: (0..shards).map(|id| (ShardId(id), place(id))).collect(),
            ranges: shard_map.ranges(),
            nodes,
        })
    }

    /// Returns the name of the cluster, by which its files and nodes know one another.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Returns the version, from 1. Of two maps of a cluster the one with the higher version
    /// counts.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the nodes, in order of their names.
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// Returns the node of this name, if there is one.
    pub fn node(&self, name: &str) -> Option<&ClusterNode> {
        let at = self.nodes.binary_search_by(|node| node.name().cmp(name));
        at.ok().map(|at| &self.nodes[at])
    }

    /// Returns the number of shards; they are counted from 0.
    pub fn shards(&self) -> u16 {
        self.places.len() as u16
    }

    /// Returns the node that has a shard; none where there is no such shard.
    pub fn node_of(&self, shard: ShardId) -> Option<&ClusterNode> {
        self.node(&self.place_of(shard)?.node)
    }

    /// Returns where a shard is and was; none where there is no such shard.
    pub fn place_of(&self, shard: ShardId) -> Option<&ShardPlace> {
        self.places.get(usize::from(shard.0))
    }

    /// Returns the shards of a node, in order; none where there is no such node.
    pub fn shards_of(&self, node: &str) -> Vec<ShardId> {
        let of_node = self.each_place().filter(|(_, place)| place.node == node);
        of_node.map(|(shard, _)| shard).collect()
    }

    /// Returns which shard owns which slot; the same for all versions of a cluster's map.
    pub fn shard_map(&self) -> &Arc<ShardMap> {
        &self.shard_map
    }

    /// Returns how many slots a shard owns; 0 where there is no such shard.
    pub fn slots_of(&self, shard: ShardId) -> u32 {
        self.slots.get(usize::from(shard.0)).copied().unwrap_or(0)
    }

    fn each_place(&self) -> impl Iterator<Item = (ShardId, &ShardPlace)> {
        (0..).map(ShardId).zip(&self.places)
    }

    /// Checks everything that a map promises.
    fn check(parts: Parts) -> Result<Self, ClusterMapError> {
        node::check_name("cluster_id", &parts.cluster_id)?;
        if parts.version == 0 || parts.version > VERSION_MAX {
            return Err(ClusterMapError::BadVersion(parts.version));
        }
        let nodes = sorted(parts.nodes)?;
        let places = in_order(parts.places)?;
        for (shard, place) in (0..).map(ShardId).zip(&places) {
            check_place(shard, place, &nodes)?;
            if !parts.ranges.iter().any(|range| range.shard == shard) {
                return Err(ClusterMapError::NoSlots(shard));
            }
        }
        let shard_map = Arc::new(ShardMap::from_ranges(&parts.ranges)?);
        Ok(Self {
            cluster_id: parts.cluster_id,
            version: parts.version,
            nodes,
            shard_map,
            slots: count_slots(&parts.ranges, places.len()),
            places,
        })
    }
}

/// Counts the slots of shards `0..shards` in ranges that are a shard map.
fn count_slots(ranges: &[SlotRange], shards: usize) -> Vec<u32> {
    let mut slots = vec![0; shards];
    for range in ranges {
        slots[usize::from(range.shard.0)] += u32::from(range.last - range.first) + 1;
    }
    slots
}

fn sorted(mut nodes: Vec<ClusterNode>) -> Result<Vec<ClusterNode>, ClusterMapError> {
    if nodes.is_empty() || nodes.len() > ClusterMap::NODES_MAX {
        return Err(ClusterMapError::NodeCount(nodes.len()));
    }
    nodes.sort_by(|one, other| one.name().cmp(other.name()));
    if let Some(pair) = nodes
        .windows(2)
        .find(|pair| pair[0].name() == pair[1].name())
    {
        return Err(ClusterMapError::DuplicateNode(pair[0].name().to_owned()));
    }
    let mut by_address = BTreeMap::new();
    for node in &nodes {
        if let Some(one) = by_address.insert(node.address(), node.name()) {
            return Err(ClusterMapError::OneAddress {
                one: one.to_owned(),
                other: node.name().to_owned(),
                address: node.address().to_owned(),
            });
        }
    }
    Ok(nodes)
}

fn enough_shards(shards: usize, nodes: &[ClusterNode]) -> Result<(), ClusterMapError> {
    if shards < nodes.len() {
        let nodes = nodes.len();
        return Err(ClusterMapError::FewShards { shards, nodes });
    }
    Ok(())
}

/// Puts shards in order of their numbers, which must be 0, 1, 2 and so on.
fn in_order(mut named: Vec<(ShardId, ShardPlace)>) -> Result<Vec<ShardPlace>, ClusterMapError> {
    if named.is_empty() || named.len() > usize::from(ClusterMap::SHARDS_MAX) {
        return Err(ClusterMapError::ShardCount(named.len()));
    }
    named.sort_by_key(|(shard, _)| *shard);
    let mut places = Vec::with_capacity(named.len());
    for (expected, (shard, place)) in (0..).map(ShardId).zip(named) {
        if shard < expected {
            return Err(ClusterMapError::DuplicateShard(shard));
        }
        if shard > expected {
            return Err(ClusterMapError::MissingShard(expected));
        }
        places.push(place);
    }
    Ok(places)
}

fn check_place(
    shard: ShardId,
    place: &ShardPlace,
    nodes: &[ClusterNode],
) -> Result<(), ClusterMapError> {
    if !nodes.iter().any(|node| node.name() == place.node) {
        let names: Vec<_> = nodes.iter().map(ClusterNode::name).collect();
        return Err(ClusterMapError::UnknownNode {
            shard,
            node: place.node.clone(),
            nearest: error::nearest(&place.node, &names).map(str::to_owned),
        });
    }
    match &place.from {
        None if place.moves == 0 => Ok(()),
        Some(from) if place.moves > 0 && *from != place.node => node::check_name("from", from),
        _ => Err(ClusterMapError::BadHistory {
            shard,
            moves: place.moves,
        }),
    }
}

#[cfg(test)]
mod tests;
