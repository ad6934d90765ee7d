//! The map in effect, and its nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_types::{ShardId, Timestamp};

use crate::node::{Node, StoreContext};

/// A map and its nodes. Replaced as a whole; a node of two maps is the same object in both.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) map: ClusterMap,
    /// In order of their names.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Indexed by shard number.
    by_shard: Vec<Arc<Node>>,
}

impl Topology {
    /// Makes the topology of a map. Nodes of the previous one whose address has not changed are kept.
    pub(crate) fn new(map: ClusterMap, before: &[Arc<Node>], common: &Arc<StoreContext>) -> Self {
        let mut nodes = BTreeMap::new();
        for named in map.nodes() {
            let known = before.iter().find(|known| known.place == *named);
            let node = known.cloned();
            let node = node.unwrap_or_else(|| Node::new(named.clone(), Arc::clone(common)));
            nodes.insert(named.name().to_owned(), node);
        }
        let of_shard = |shard| {
            let owner = map.node_of(ShardId(shard));
            let owner = owner.expect("a map names a node for every shard");
            Arc::clone(&nodes[owner.name()])
        };
        Self {
            by_shard: (0..map.shards()).map(of_shard).collect(),
            nodes: nodes.into_values().collect(),
            map,
        }
    }

    /// Returns the node that has a shard.
    pub(crate) fn node_of(&self, shard: ShardId) -> &Arc<Node> {
        &self.by_shard[usize::from(shard.0)]
    }

    /// Returns the median of the times of day of this process, `own`, and of all nodes; the later one of two.
    pub(crate) fn median_time(&self, own: Timestamp) -> Timestamp {
        let told = self.nodes.iter().filter_map(|node| node.told_time(own));
        let mut times: Vec<_> = told.chain([own]).collect();
        let middle = times.len() / 2;
        *times.select_nth_unstable(middle).1
    }

    /// Returns the first shard of a node, to name in its errors.
    pub(crate) fn first_shard_of(&self, node: &Arc<Node>) -> ShardId {
        let at = self.by_shard.iter().position(|it| Arc::ptr_eq(it, node));
        ShardId(at.unwrap_or(0) as u16)
    }
}
