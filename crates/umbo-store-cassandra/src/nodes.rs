//! The nodes of the cluster, as the connections of the driver show them.

use scylla::cluster::Node;
use scylla::cluster::metadata::Strategy;
use umbo_store::NodeStatus;

use crate::engine::BucketEngine;

impl BucketEngine {
    /// Returns the nodes of the data center, by host.
    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter();
        let mut nodes: Vec<_> = nodes
            .filter(|node| self.is_ours(node))
            .map(|node| NodeStatus {
                name: node.address.ip().to_string(),
                address: node.address.to_string(),
                failure: (!node.is_connected()).then(|| "there is no connection to it".to_owned()),
                map_version: None,
                shards: Vec::new(),
                in_flight: None,
                clock_ahead: None,
                program_version: None,
            })
            .collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        nodes
    }

    /// Returns why no row can be read or written, or `None` if enough nodes are connected for the rows of some tokens.
    pub(crate) fn lack_of_quorum(&self) -> Option<String> {
        let state = self.session.get_cluster_state();
        let strategy = &state.get_keyspace(&self.keyspace)?.strategy;
        let copies = match strategy {
            Strategy::NetworkTopologyStrategy {
                datacenter_repfactors,
            } => *datacenter_repfactors.get(&self.data_center)?,
            Strategy::SimpleStrategy { replication_factor } => *replication_factor,
            _ => return None,
        };
        let quorum = copies / 2 + 1;
        let connected = state.get_nodes_info().iter();
        let connected = connected.filter(|node| self.is_ours(node) && node.is_connected());
        let connected = connected.count();
        (connected < quorum).then(|| {
            format!(
                "nodes of data center '{}' that are connected: {connected}; each of {copies} copies is on another \
                 node, and {quorum} have to answer",
                self.data_center
            )
        })
    }

    fn is_ours(&self, node: &Node) -> bool {
        node.datacenter.as_ref() == Some(&self.data_center)
    }
}
