//! The next map for a changed set of nodes, with the fewest moves.
//!
//! For a move an operator has to copy a whole file while its shard is down. So an even number of shards per
//! node comes first, the number of moves second; the choice of the shards that move comes last, and balances
//! the slots.

use std::collections::BTreeMap;

use umbo_types::ShardId;

use super::{
    ClusterMap, ClusterMapError, ClusterNode, ShardPlace, check_place, enough_shards, sorted,
};

/// The next map, and the moves that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The next map.
    pub map: ClusterMap,
    /// The files to copy, in order of shards.
    pub moves: Vec<Move>,
}

/// A shard that moves to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// Name of its current node.
    pub from: String,
    /// Name of its next node.
    pub to: String,
}

impl ClusterMap {
    /// Proposes the map of the next version for a changed set of nodes: the numbers of shards of any two
    /// nodes differ by at most 1, and no other such map needs fewer moves. Returns the map itself if nothing
    /// changes.
    ///
    /// A node keeps as many of its shards as possible, the first ones. Each other shard goes to a node with
    /// too few shards; of these nodes it goes to the one with the fewest slots at that time.
    pub fn plan(&self, nodes: Vec<ClusterNode>) -> Result<Plan, ClusterMapError> {
        let nodes = sorted(nodes)?;
        enough_shards(self.places.len(), &nodes)?;
        let mut kept = self.kept(&nodes);
        let mut places = self.places.clone();
        let mut moves = Vec::new();
        let mut homeless: Vec<ShardId> = self.homeless(&kept);
        // Large shards first, so that the small ones balance the rest.
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
        self.successor(nodes, places, moves)
    }

    /// Proposes the map of the next version that has these shards, and no others, moved to the named nodes:
    /// to undo a move, or to distribute shards by hand. Returns the map itself if nothing changes.
    pub fn plan_moves(
        &self,
        nodes: Vec<ClusterNode>,
        named: &[(ShardId, String)],
    ) -> Result<Plan, ClusterMapError> {
        let nodes = sorted(nodes)?;
        let mut places = self.places.clone();
        let mut moves = Vec::new();
        for (at, (shard, to)) in named.iter().enumerate() {
            if named[..at].iter().any(|(before, _)| before == shard) {
                return Err(ClusterMapError::DuplicateShard(*shard));
            }
            let Some(place) = places.get_mut(usize::from(shard.0)) else {
                return Err(ClusterMapError::MissingShard(*shard));
            };
            if place.node == *to {
                continue;
            }
            moves.push(Move {
                shard: *shard,
                from: place.node.clone(),
                to: to.clone(),
            });
            *place = ShardPlace {
                from: Some(std::mem::replace(&mut place.node, to.clone())),
                node: to.clone(),
                moves: place.moves + 1,
            };
        }
        for (shard, place) in (0..).map(ShardId).zip(&places) {
            check_place(shard, place, &nodes)?;
        }
        moves.sort_by_key(|one| one.shard);
        self.successor(nodes, places, moves)
    }

    fn successor(
        &self,
        nodes: Vec<ClusterNode>,
        places: Vec<ShardPlace>,
        moves: Vec<Move>,
    ) -> Result<Plan, ClusterMapError> {
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

    /// Returns the shards that each node keeps: no more than an even share.
    fn kept<'a>(&self, nodes: &'a [ClusterNode]) -> Vec<KeptShards<'a>> {
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
                KeptShards {
                    name: node.name(),
                    wanted: share,
                    slots: 0,
                    shards,
                }
            })
            .collect();
        // If shards do not divide evenly, some nodes have one more. Nodes that would otherwise have to give
        // a shard away come first: each of them saves a move.
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

    fn homeless(&self, kept: &[KeptShards<'_>]) -> Vec<ShardId> {
        let all = self.each_place().map(|(shard, _)| shard);
        all.filter(|shard| !kept.iter().any(|node| node.shards.contains(shard)))
            .collect()
    }
}

/// The shards that a node keeps, and its target number.
struct KeptShards<'a> {
    name: &'a str,
    wanted: usize,
    slots: u32,
    shards: Vec<ShardId>,
}
