//! A map for other nodes, with the fewest moves.
//!
//! A move costs an operator the copy of a whole file while its shard is down, so evenness comes
//! first and the number of moves second; which shards move is decided last, so that the nodes come
//! close in slots too.

use std::collections::BTreeMap;

use umbo_types::ShardId;

use super::{ClusterMap, ClusterMapError, ClusterNode, ShardPlace, enough_shards, sorted};

/// A map that succeeds another, and what has to be done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The map to be.
    pub map: ClusterMap,
    /// Which files go where, in order of shards.
    pub moves: Vec<Move>,
}

/// A shard that changes its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// Name of the node that has it.
    pub from: String,
    /// Name of the node that is to have it.
    pub to: String,
}

impl ClusterMap {
    /// Proposes the map of the next version for other nodes: the numbers of shards of any two
    /// nodes differ by at most 1, and no other such map takes fewer moves. The map itself where
    /// nothing would change.
    ///
    /// A node keeps its shards as far as it can; those that leave it are the last ones. Each goes
    /// to the node that is short of shards and has the fewest slots then.
    pub fn plan(&self, nodes: Vec<ClusterNode>) -> Result<Plan, ClusterMapError> {
        let nodes = sorted(nodes)?;
        enough_shards(self.places.len(), &nodes)?;
        let mut kept = self.kept(&nodes);
        let mut places = self.places.clone();
        let mut moves = Vec::new();
        let mut homeless: Vec<ShardId> = self.homeless(&kept);
        // Large shards first, so that the small ones even out what is left.
        homeless.sort_by_key(|&shard| (std::cmp::Reverse(self.slots_of(shard)), shard));
        for shard in homeless {
            let receiver = kept
                .iter_mut()
                .filter(|node| node.shards.len() < node.wanted);
            let receiver = receiver
                .min_by_key(|node| (node.slots, node.name))
                .expect("what the nodes want together is the number of shards");
            receiver.shards.push(shard);
            receiver.slots += self.slots_of(shard);
            let place = &mut places[usize::from(shard.0)];
            moves.push(Move {
                shard,
                from: place.node.clone(),
                to: receiver.name.to_owned(),
            });
            *place = ShardPlace {
                from: Some(std::mem::replace(&mut place.node, receiver.name.to_owned())),
                node: receiver.name.to_owned(),
                moves: place.moves + 1,
            };
        }
        moves.sort_by_key(|one| one.shard);
        if moves.is_empty() && nodes == self.nodes {
            let map = self.clone();
            return Ok(Plan { map, moves });
        }
        if self.version >= super::VERSION_MAX {
            return Err(ClusterMapError::LastVersion);
        }
        let map = Self {
            version: self.version + 1,
            nodes,
            places,
            ..self.clone()
        };
        Ok(Plan { map, moves })
    }

    /// Returns what each node is left with: no more than an even share.
    fn kept<'a>(&self, nodes: &'a [ClusterNode]) -> Vec<Kept<'a>> {
        let mut had: BTreeMap<&str, Vec<ShardId>> = BTreeMap::new();
        for (shard, place) in self.each_place() {
            had.entry(&place.node).or_default().push(shard);
        }
        let share = self.places.len() / nodes.len();
        let mut one_more = self.places.len() % nodes.len();
        let mut kept: Vec<_> = nodes
            .iter()
            .map(|node| {
                let shards = had.remove(node.name()).unwrap_or_default();
                Kept {
                    name: node.name(),
                    wanted: share,
                    slots: 0,
                    shards,
                }
            })
            .collect();
        // Where shards do not divide evenly, some nodes have one more: first of all those that
        // would otherwise have to give one away, each of which saves a move.
        kept.sort_by_key(|node| std::cmp::Reverse(node.shards.len()));
        for node in &mut kept {
            if one_more > 0 {
                node.wanted += 1;
                one_more -= 1;
            }
            node.shards.truncate(node.wanted);
            node.slots = node.shards.iter().map(|&shard| self.slots_of(shard)).sum();
        }
        kept
    }

    fn homeless(&self, kept: &[Kept<'_>]) -> Vec<ShardId> {
        let all = self.each_place().map(|(shard, _)| shard);
        all.filter(|shard| !kept.iter().any(|node| node.shards.contains(shard)))
            .collect()
    }
}

/// What a node is left with, and what it is to have.
struct Kept<'a> {
    name: &'a str,
    wanted: usize,
    slots: u32,
    shards: Vec<ShardId>,
}
