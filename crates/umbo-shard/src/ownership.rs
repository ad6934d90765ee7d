//! Which shards a node answers for: those that its map names and that it has opened.
//!
//! The invariant: a shard that the map has given away is refused from the moment the map is in
//! effect, and one that it has given to this node is not served before its file is open; nor is one
//! that was away between two maps, whose open file is an old one.

use std::sync::Arc;

use umbo_protocol::NodeError as Refused;
use umbo_routing::{ClusterMap, SuccessionError};
use umbo_store::{Outcome, StoreError};
use umbo_types::{NamespaceId, PartitionKey, ShardId};

/// Says why a node cannot be, or cannot go by a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The map names no such node.
    #[error("the map of cluster '{cluster_id}' (version {version}) has no node '{node}'")]
    NotInMap {
        /// The cluster.
        cluster_id: String,
        /// Version of its map.
        version: u64,
        /// The name of the node.
        node: String,
    },
    /// The map does not follow the one in effect.
    #[error(transparent)]
    NoSuccessor(#[from] SuccessionError),
}

/// The map in effect, and what it means for one node.
#[derive(Debug)]
pub(crate) struct Ownership {
    map: Arc<ClusterMap>,
    /// By number of the shard.
    standings: Box<[Standing]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Served,
    Unopened,
    Elsewhere,
}

impl Ownership {
    /// Says what a map means for a node whose store goes by the map `followed`, and has opened
    /// these shards under it.
    pub(crate) fn new(
        map: Arc<ClusterMap>,
        node: &str,
        followed: &ClusterMap,
        opened: &[ShardId],
    ) -> Self {
        let own = map.shards_of(node);
        let is_open = |shard: ShardId| {
            opened.contains(&shard) && map.place_of(shard) == followed.place_of(shard)
        };
        let standing = |shard| match (own.contains(&shard), is_open(shard)) {
            (true, true) => Standing::Served,
            (true, false) => Standing::Unopened,
            (false, _) => Standing::Elsewhere,
        };
        let standings = (0..map.shards()).map(|id| standing(ShardId(id))).collect();
        Self { map, standings }
    }

    pub(crate) fn map(&self) -> &Arc<ClusterMap> {
        &self.map
    }

    /// Returns the shards that the map gives to the node and that it has not opened.
    pub(crate) fn unopened(&self) -> impl Iterator<Item = ShardId> {
        let all = (0..).map(ShardId).zip(&self.standings);
        all.filter_map(|(id, standing)| (*standing == Standing::Unopened).then_some(id))
    }

    /// Says whether the map gives a shard to the node.
    pub(crate) fn is_own(&self, shard: ShardId) -> bool {
        let standing = self.standings.get(usize::from(shard.0));
        standing.is_some_and(|&standing| standing != Standing::Elsewhere)
    }

    /// Returns the shard of a partition, or why it is not served here.
    pub(crate) fn locate(
        &self,
        namespace: NamespaceId,
        partition: &PartitionKey,
    ) -> Result<ShardId, Refused> {
        let shard = self.map.shard_map().locate(namespace, partition);
        self.check(shard).map(|()| shard)
    }

    /// Says why a shard is not served here.
    pub(crate) fn check(&self, shard: ShardId) -> Result<(), Refused> {
        match self.standings.get(usize::from(shard.0)) {
            Some(Standing::Served) => Ok(()),
            Some(Standing::Unopened) => Err(Refused::Store(StoreError::Unavailable {
                shard,
                reason: UNOPENED.to_owned(),
                outcome: Outcome::NotApplied,
            })),
            Some(Standing::Elsewhere) => Err(Refused::NotOwner {
                shard,
                map_version: self.map.version(),
            }),
            None => Err(Refused::BadRequest(format!("there is no shard {shard}"))),
        }
    }
}

/// What is said of a shard that a new map has given to a running node.
pub(crate) const UNOPENED: &str = "the map has given it to this node, which has not opened it yet";

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_routing::ClusterNode;

    fn nodes(names: &[&str]) -> Vec<ClusterNode> {
        let node = |name: &&str| ClusterNode::new(name, &format!("{name}:1")).unwrap();
        names.iter().map(node).collect()
    }

    fn standings(map: &ClusterMap, followed: &ClusterMap, opened: &[u16]) -> Vec<Standing> {
        let opened: Vec<_> = opened.iter().copied().map(ShardId).collect();
        let ownership = Ownership::new(Arc::new(map.clone()), "b", followed, &opened);
        ownership.standings.to_vec()
    }

    #[test]
    fn a_shard_is_served_where_its_open_file_is_the_last() {
        use Standing::{Elsewhere, Served, Unopened};
        let first = ClusterMap::create("eu", nodes(&["a", "b"]), 4).unwrap();
        let second = first.plan(nodes(&["a"])).unwrap().map;
        let third = second.plan(nodes(&["a", "b"])).unwrap().map;
        let (none, own) = (&[][..], &[2, 3][..]);
        assert_eq!(
            standings(&first, &first, own),
            [Elsewhere, Elsewhere, Served, Served]
        );
        assert_eq!(standings(&second, &first, own), [Elsewhere; 4]);
        // Back from elsewhere: what is open is what the node had before.
        let not_yet = [Elsewhere, Elsewhere, Unopened, Unopened];
        assert_eq!(standings(&third, &first, own), not_yet);
        assert_eq!(standings(&third, &second, none), not_yet);
        assert_eq!(
            standings(&third, &third, own),
            [Elsewhere, Elsewhere, Served, Served]
        );
    }
}
