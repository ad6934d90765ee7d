//! The nodes of the cluster: as the connections of the driver show them, and as each tells of itself.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use scylla::cluster::Node;
use scylla::cluster::metadata::Strategy;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::Statement;
use scylla::value::CqlTimestamp;
use umbo_store::NodeStatus;
use umbo_types::Timestamp;

use crate::engine::{BucketEngine, lock};
use crate::error::ClusterError;
use crate::node_report::{NodeReport, ahead_of};

/// How often each node is asked of itself: a clock that jumps is wrong in fast writes for so long.
const ASKED_EVERY: Duration = Duration::from_secs(30);

/// Asks the nodes until the store is dropped.
pub(crate) async fn ask_nodes(engine: Weak<BucketEngine>) {
    let mut agreed = true;
    while let Some(engine_now) = engine.upgrade() {
        let schemas = engine_now.schemas();
        if agreed && schemas > 1 {
            tracing::warn!(
                schemas,
                "the nodes of the cluster do not agree on its schema: nodetool describecluster"
            );
        }
        agreed = schemas <= 1;
        drop(engine_now);
        tokio::time::sleep(ASKED_EVERY).await;
        if let Some(engine) = engine.upgrade() {
            engine.ask_all().await;
        }
    }
}

impl BucketEngine {
    /// Returns the nodes of the data center, by host.
    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        let state = self.session.get_cluster_state();
        let reports = lock(&self.reports);
        let nodes = state.get_nodes_info().iter();
        let mut nodes: Vec<_> = nodes
            .filter(|node| self.is_ours(node))
            .map(|node| {
                let report = reports.get(&at(node));
                NodeStatus {
                    name: node.address.ip().to_string(),
                    address: node.address.to_string(),
                    failure: (!node.is_connected())
                        .then(|| "there is no connection to it".to_owned()),
                    map_version: None,
                    shards: Vec::new(),
                    in_flight: None,
                    clock_ahead: report.map(|report| report.clock_ahead),
                    program_version: report.map(|report| report.release.clone()),
                }
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

    /// Asks all nodes of themselves, and sets the clock of fast writes by theirs.
    pub(crate) async fn ask_all(&self) {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter();
        let nodes = nodes.filter(|node| self.is_ours(node) && node.is_connected());
        let asked = nodes.map(|node| async move { (node, self.ask(node).await) });
        let mut ahead = Vec::new();
        for (node, answer) in join_all(asked).await {
            match answer {
                Ok(report) => {
                    ahead.push(report.clock_ahead);
                    lock(&self.reports).insert(at(node), report);
                }
                Err(error) => {
                    tracing::debug!(node = %node.address, %error, "a node tells nothing of itself");
                }
            }
        }
        ahead.sort_unstable();
        if let Some(&median) = ahead.get(ahead.len() / 2) {
            self.clock_ahead.store(median, Ordering::Relaxed);
        }
    }

    async fn ask(&self, node: &Arc<Node>) -> Result<NodeReport, ClusterError> {
        let text = "select release_version, cast(schema_version as text), totimestamp(now()) from system.local";
        let mut question = Statement::new(text);
        question.set_is_idempotent(true);
        let target = NodeIdentifier::Node(Arc::clone(node));
        let target = SingleTargetLoadBalancingPolicy::new(target, None);
        question.set_load_balancing_policy(Some(target));
        let asked = self.clock.wall();
        let answer = self.session.query_unpaged(question, ()).await?;
        let around = (asked, self.clock.wall());
        let answer = answer.into_rows_result()?;
        let (release, schema, now) = answer.first_row::<(String, String, CqlTimestamp)>()?;
        Ok(NodeReport {
            release,
            schema,
            clock_ahead: ahead_of(Timestamp::from_millis(now.0.max(0).cast_unsigned()), around),
        })
    }

    /// Returns how many schemas the connected nodes have.
    fn schemas(&self) -> usize {
        let state = self.session.get_cluster_state();
        let reports = lock(&self.reports);
        let nodes = state.get_nodes_info().iter();
        let connected = nodes.filter(|node| self.is_ours(node) && node.is_connected());
        let schemas = connected.filter_map(|node| Some(&reports.get(&at(node))?.schema));
        schemas.collect::<HashSet<_>>().len()
    }

    fn is_ours(&self, node: &Node) -> bool {
        node.datacenter.as_ref() == Some(&self.data_center)
    }
}

fn at(node: &Node) -> SocketAddr {
    SocketAddr::new(node.address.ip(), node.address.port())
}
