//! The map of a cluster: the node of each shard, and the address of each node.
//!
//! Owns the content of a map and its validation; its text, its plan for a changed set of nodes and its
//! succession are in the files below. The code that connects resolves the names. The invariants: a map covers
//! every slot once and has one node for every shard; the slots of a shard are fixed for the life of a
//! cluster, because a shard is one file.
//!
//! A shard that has moved has a count of moves (`moves`) and its previous node (`from`). A node writes the
//! same count into the shard's file, so that a file which stayed behind is distinguished from the newest one.
//! The map also contains the home shard, where Umbo's own records are changed.

mod error;
mod home;
mod limits;
mod node;
mod plan;
mod succession;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use umbo_types::ShardId;

pub use self::error::ClusterMapError;
pub use self::limits::SHARDS_MAX;
use self::limits::{NODES_MAX, VERSION_MAX};
pub use self::node::ClusterNode;
pub use self::plan::{Move, Plan};
pub use self::succession::{Succession, SuccessionError};
use crate::home::RecordsHome;
use crate::shard_map::{ShardMap, SlotRange};

/// The node of each shard. Cheap to share behind an `Arc`; never changed, only succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMap {
    cluster_id: String,
    version: u64,
    nodes: Vec<ClusterNode>,
    shard_map: Arc<ShardMap>,
    /// Indexed by shard number.
    places: Vec<ShardPlace>,
    /// Number of slots of each shard, indexed by shard number.
    slots: Vec<u32>,
    /// The shard where Umbo's own records are changed.
    home: RecordsHome,
}

/// The current and the previous node of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPlace {
    /// Name of the node that has it.
    pub node: String,
    /// How often it has moved; 0 on the node of its creation.
    pub moves: u32,
    /// Name of the previous node, or `None` if the shard has never moved. That node may have left the cluster
    /// since.
    pub from: Option<String>,
}

/// The content of a map before validation.
struct UncheckedMap {
    cluster_id: String,
    version: u64,
    nodes: Vec<ClusterNode>,
    /// Slots of each listed shard.
    ranges: Vec<SlotRange>,
    /// Each listed shard, in order of the list.
    places: Vec<(ShardId, ShardPlace)>,
    /// The shard where Umbo's own records are changed.
    home: RecordsHome,
}

impl ClusterMap {
    /// Makes the first map of a cluster, version 1: slots evenly divided among `shards` shards, shards evenly
    /// among the nodes. The shards of a node are consecutive.
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
        Self::check(UncheckedMap {
            cluster_id: cluster_id.to_owned(),
            version: 1,
            places: (0..shards).map(|id| (ShardId(id), place(id))).collect(),
            ranges: shard_map.ranges(),
            nodes,
            home: RecordsHome::default(),
        })
    }

    /// Returns the name of the cluster, which its files and nodes carry.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Returns the version, from 1. Of two maps of a cluster the one with the higher version is valid.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the nodes, in order of their names.
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// Returns the node of this name, if any.
    pub fn node(&self, name: &str) -> Option<&ClusterNode> {
        let at = self.nodes.binary_search_by(|node| node.name().cmp(name));
        at.ok().map(|at| &self.nodes[at])
    }

    /// Returns the number of shards; they are counted from 0.
    pub fn shards(&self) -> u16 {
        self.places.len() as u16
    }

    /// Returns the node of a shard, or `None` if there is no such shard.
    pub fn node_of(&self, shard: ShardId) -> Option<&ClusterNode> {
        self.node(&self.place_of(shard)?.node)
    }

    /// Returns the current and previous node of a shard, or `None` if there is no such shard.
    pub fn place_of(&self, shard: ShardId) -> Option<&ShardPlace> {
        self.places.get(usize::from(shard.0))
    }

    /// Returns the shards of a node, in order; empty if there is no such node.
    pub fn shards_of(&self, node: &str) -> Vec<ShardId> {
        let of_node = self.each_place().filter(|(_, place)| place.node == node);
        of_node.map(|(shard, _)| shard).collect()
    }

    /// Returns the owner of each slot; the same for all versions of a cluster's map.
    pub fn shard_map(&self) -> &Arc<ShardMap> {
        &self.shard_map
    }

    /// Returns the number of slots of a shard; 0 if there is no such shard.
    pub fn slots_of(&self, shard: ShardId) -> u32 {
        self.slots.get(usize::from(shard.0)).copied().unwrap_or(0)
    }

    fn each_place(&self) -> impl Iterator<Item = (ShardId, &ShardPlace)> {
        (0..).map(ShardId).zip(&self.places)
    }

    /// Checks all invariants of a map.
    fn check(parts: UncheckedMap) -> Result<Self, ClusterMapError> {
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
        check_home(parts.home, places.len())?;
        let shard_map = Arc::new(ShardMap::from_ranges(&parts.ranges)?);
        Ok(Self {
            cluster_id: parts.cluster_id,
            version: parts.version,
            nodes,
            shard_map,
            slots: count_slots(&parts.ranges, places.len()),
            places,
            home: parts.home,
        })
    }
}

/// Counts the slots of shards `0..shards` in valid ranges.
fn count_slots(ranges: &[SlotRange], shards: usize) -> Vec<u32> {
    let mut slots = vec![0; shards];
    for range in ranges {
        slots[usize::from(range.shard.0)] += u32::from(range.last - range.first) + 1;
    }
    slots
}

fn sorted(mut nodes: Vec<ClusterNode>) -> Result<Vec<ClusterNode>, ClusterMapError> {
    if nodes.is_empty() || nodes.len() > NODES_MAX {
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

/// Sorts shards by their numbers, which must be 0, 1, 2 and so on.
fn in_order(mut named: Vec<(ShardId, ShardPlace)>) -> Result<Vec<ShardPlace>, ClusterMapError> {
    if named.is_empty() || named.len() > usize::from(SHARDS_MAX) {
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

/// Checks that a home is one of `shards` shards, with an epoch that the text format can hold.
fn check_home(home: RecordsHome, shards: usize) -> Result<(), ClusterMapError> {
    if usize::from(home.shard.0) >= shards {
        return Err(ClusterMapError::UnknownHome {
            shard: home.shard,
            shards,
        });
    }
    if home.epoch == 0 || home.epoch > VERSION_MAX {
        return Err(ClusterMapError::BadEpoch(home.epoch));
    }
    Ok(())
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
