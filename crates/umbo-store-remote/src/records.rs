//! Copies of Umbo's own records: sends them to every node of the map, and fetches them.
//!
//! Does not interpret the records. The invariant: a shard is answered `Ok` only if its own node has confirmed
//! this copy or a newer one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use umbo_protocol::{Ask, Outcome, ShardResult};
use umbo_store::{CallContext, RecordsCopy, StoreError};
use umbo_types::ShardId;

use crate::attempt::{AccessKind, AttemptError};
use crate::node::Node;
use crate::store::RemoteStore;
use crate::unknown_shard::{SHARD_UNKNOWN, of_shard};

/// Longest wait for one node. A node whose disk hangs must not delay the answers of the others.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

impl RemoteStore {
    /// Sends a copy to every node. Returns an answer for each shard of the map, in order.
    pub(crate) async fn hand_records(
        &self,
        copy: Arc<RecordsCopy>,
    ) -> Vec<(ShardId, Result<(), StoreError>)> {
        copy.place_datasets(self.shard_map());
        self.note_records(&copy);
        let topology = Arc::clone(&self.topology());
        let ask = Ask::KeepRecords(copy);
        let asked = topology.nodes.iter().map(|node| self.ask_node(node, &ask));
        let mut shards = Vec::new();
        for (node, answered) in topology.nodes.iter().zip(join_all(asked).await) {
            let told = answered.and_then(|outcome| match outcome {
                Outcome::RecordsKept(told) => Ok(told),
                _ => Err(unusable("its node sent an answer of another kind")),
            });
            for shard in topology.map.shards_of(node.name()) {
                shards.push((shard, result_of(shard, &told)));
            }
        }
        shards.sort_unstable_by_key(|(shard, _)| *shard);
        shards
    }

    /// Sends the last copy once more to a node that lacks a part of it, because its folder is new or has lost its copy.
    /// Does nothing while another request does so.
    pub(crate) async fn hand_last_records(&self, node: &Arc<Node>) {
        let Ok(_one) = node.handing_records.try_lock() else {
            return;
        };
        let Some(copy) = self.last_records() else {
            return;
        };
        let call = CallContext::internal();
        let ask = Ask::KeepRecords(copy);
        // Regardless of the result, the request that met the node is repeated, and refused again if this was in vain.
        let _ = timeout(NODE_TIMEOUT, self.attempt(node, &call, &ask)).await;
    }

    /// Returns the newest copy that a node keeps.
    pub(crate) async fn newest_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        let nodes = self.topology().nodes.clone();
        let asked = nodes
            .iter()
            .map(|node| self.ask_node(node, &Ask::KeptRecords));
        let (mut newest, mut failure): (Option<Arc<RecordsCopy>>, _) = (None, None);
        for answered in join_all(asked).await {
            match answered {
                Ok(Outcome::KeptRecords(None)) => {}
                Ok(Outcome::KeptRecords(Some(copy))) => {
                    if newest
                        .as_ref()
                        .is_none_or(|other| other.revision < copy.revision)
                    {
                        newest = Some(copy);
                    }
                }
                Ok(_) => failure = Some(unusable("its node sent an answer that is not a copy")),
                Err(error) => failure = Some(error),
            }
        }
        match (newest, failure) {
            (Some(copy), _) => {
                copy.place_datasets(self.shard_map());
                Ok(Some(copy))
            }
            // A node that cannot be asked may have one.
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// Asks a node, and repeats the request if it had no effect or only reads; both requests may be repeated.
    async fn ask_node(&self, node: &Arc<Node>, ask: &Ask) -> Result<Outcome, StoreError> {
        let call = CallContext::internal();
        let shard = self.topology().first_shard_of(node);
        let answered = async {
            let mut tries = 0;
            loop {
                let error = match self.attempt(node, &call, ask).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(error) => error,
                };
                let target = (shard, AccessKind::Read);
                Box::pin(self.settle(error, node, &call, target, &mut tries)).await?;
            }
        };
        let late = |_| unusable(&format!("node {} did not answer in time", node.name()));
        let answered = timeout(NODE_TIMEOUT, answered).await;
        answered
            .map_err(late)
            .flatten()
            .map_err(|error| of_shard(error, shard))
    }
}

/// Returns the answer of a node for one of the shards that it has by the map.
fn result_of(
    shard: ShardId,
    told: &Result<Vec<ShardResult>, StoreError>,
) -> Result<(), StoreError> {
    let results = told.as_ref().map_err(|error| at(error, shard))?;
    let result = results.iter().find(|(other, _)| *other == shard);
    let (_, result) =
        result.ok_or_else(|| at(&unusable("its node's answer does not contain it"), shard))?;
    result
        .clone()
        .map_err(|error| match AttemptError::from(error) {
            AttemptError::Store(error) => of_shard(error, shard),
            other => at(&unusable(&format!("{other:?}")), shard),
        })
}

/// Returns the error of a node as an error of one of its shards.
fn at(error: &StoreError, at: ShardId) -> StoreError {
    match error.clone() {
        StoreError::Unavailable {
            reason, outcome, ..
        } => StoreError::Unavailable {
            shard: at,
            reason,
            outcome,
        },
        error => error,
    }
}

/// The error for a copy that may or may not have been kept.
fn unusable(reason: &str) -> StoreError {
    StoreError::Unavailable {
        shard: SHARD_UNKNOWN,
        reason: reason.to_owned(),
        outcome: umbo_store::Outcome::Unknown,
    }
}
