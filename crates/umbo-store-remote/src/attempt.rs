//! One request to one node: sending it, its answer, and the handling of its failure.
//!
//! Owns the rule of repetition: a request that certainly had no effect is repeated a bounded number of times;
//! a read that may have been begun is repeated within the retry budget; a write that may have been begun is
//! never repeated, and its outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use umbo_protocol::{AnswerPart, Ask, NodeError, Outcome, RequestRef, WriteAnswer};
use umbo_store::{CallContext, StoreError};
use umbo_types::{NamespaceId, ShardId};

use crate::connection::{PendingReply, SendRefusal};
use crate::counters::count;
use crate::in_flight::ReplyEvent;
use crate::node::Node;
use crate::store::RemoteStore;
use crate::unknown_shard::{SHARD_UNKNOWN, of_shard};

/// Most times that a request is sent.
const TRIES_MAX: u32 = 8;
/// Half of the wait before a refused request is repeated for the first time; each wait is twice the one before.
const REPEAT_AFTER: Duration = Duration::from_millis(4);

/// Kind of a request, which decides whether it may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// The request may be repeated.
    Read,
    /// The request must not be repeated once the node may have begun it.
    Write,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// There is no connection.
    Disconnected,
    /// The connection was lost before the request was sent, or takes none.
    NotSent,
    /// The connection was lost after the request was sent.
    Lost(String),
    /// There is too much in flight.
    Busy,
    /// The deadline has passed.
    Late,
    /// The node does not own the shard, by a map of this version.
    NotOwner(u64),
    /// The node places the dataset otherwise: it has not learned of it yet. Nothing was begun.
    Misplaced(String),
    /// The node is shutting down.
    Stopping,
    /// The store of the node failed.
    Store(StoreError),
}

impl From<NodeError> for AttemptError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotOwner { map_version, .. } => Self::NotOwner(map_version),
            NodeError::Misplaced { reason, .. } => Self::Misplaced(reason),
            NodeError::Store(StoreError::Closing) => Self::Stopping,
            NodeError::Store(error) => Self::Store(error),
            error @ (NodeError::BadRequest(_) | NodeError::Unsupported) => {
                Self::Store(StoreError::Unavailable {
                    shard: SHARD_UNKNOWN,
                    reason: error.to_string(),
                    outcome: umbo_store::Outcome::NotApplied,
                })
            }
        }
    }
}

impl RemoteStore {
    /// Asks the node of a shard until it answers, or until the request fails.
    pub(crate) async fn ask(
        &self,
        call: &CallContext,
        shard: ShardId,
        kind: AccessKind,
        ask: &Ask,
    ) -> Result<Outcome, StoreError> {
        self.check_open()?;
        let mut tries = 0;
        loop {
            let node = Arc::clone(self.topology().node_of(shard));
            match self.attempt(&node, call, ask).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => {
                    call.note_unserved();
                    // Boxed, because this branch is rare and makes the future large.
                    let target = (shard, kind);
                    Box::pin(self.settle(failure, &node, call, target, &mut tries)).await?;
                    call.note_retry();
                }
            }
        }
    }

    /// Asks a node once.
    pub(crate) async fn attempt(
        &self,
        node: &Node,
        call: &CallContext,
        ask: &Ask,
    ) -> Result<Outcome, AttemptError> {
        let mut reply = self.send(node, call, ask)?;
        let answer = match reply.event().await {
            ReplyEvent::Answered(answer) => answer,
            ReplyEvent::Lost { was_sent: true } => return Err(AttemptError::Lost(reply.loss())),
            ReplyEvent::Lost { was_sent: false } => return Err(AttemptError::NotSent),
        };
        call.note_shared_time(answer.service_time, answer.busy_time);
        match answer.outcome {
            Outcome::Failed(error) => Err(error.into()),
            outcome => match refusal_of_all(&outcome) {
                Some(refusal) => Err(refusal),
                None => Ok(outcome),
            },
        }
    }

    fn send(
        &self,
        node: &Node,
        call: &CallContext,
        ask: &Ask,
    ) -> Result<PendingReply, AttemptError> {
        let connection = node.connection().ok_or(AttemptError::Disconnected)?;
        if call
            .deadline
            .is_some_and(|deadline| deadline.has_passed(self.common.clock.monotonic()))
        {
            return Err(AttemptError::Late);
        }
        let traceparent = call.traceparent.as_deref();
        let caller = call.caller.as_ref().filter(|_| traceparent.is_some());
        let request = RequestRef {
            id: 0,
            deadline_ns: None,
            criticality: call.criticality,
            caller: caller.map_or(&[], |caller| caller.as_str().as_bytes()),
            price: call.price,
            traceparent: traceparent.map_or(&[], str::as_bytes),
            placed_as: call.placed_as.or_else(|| self.placed_as(ask)),
            ask,
        };
        let taken = connection.ask(request, call.deadline);
        taken.map_err(|refused| match refused {
            SendRefusal::Busy => AttemptError::Busy,
            SendRefusal::NotInUse => AttemptError::NotSent,
        })
    }

    /// Returns the namespace as which the dataset of an operation is placed.
    fn placed_as(&self, ask: &Ask) -> Option<NamespaceId> {
        let placements = self.shard_map().placements();
        ask.dataset().map(|dataset| placements.of(dataset))
    }

    /// Handles a failed attempt: returns the node to repeat it at, after the necessary wait, or the error.
    pub(crate) async fn settle(
        &self,
        failure: AttemptError,
        node: &Arc<Node>,
        call: &CallContext,
        (shard, kind): (ShardId, AccessKind),
        tries: &mut u32,
    ) -> Result<(), StoreError> {
        *tries += 1;
        let unavailable = |reason: String, outcome| StoreError::Unavailable {
            shard,
            reason: format!("node {}: {reason}", node.name()),
            outcome,
        };
        let not_applied = umbo_store::Outcome::NotApplied;
        let is_last = *tries >= TRIES_MAX;
        match failure {
            AttemptError::Late => Err(StoreError::DeadlinePassed { shard }),
            AttemptError::Busy => Err(StoreError::NodeBusy { shard }),
            AttemptError::Store(error) => Err(of_shard(error, shard)),
            AttemptError::Disconnected => {
                self.wait_for(node, call).await;
                match node.failure() {
                    None if !is_last => Ok(()),
                    reason => Err(unavailable(reason.unwrap_or_default(), not_applied)),
                }
            }
            AttemptError::Lost(reason) if kind == AccessKind::Write => {
                Err(unavailable(reason, umbo_store::Outcome::Unknown))
            }
            AttemptError::Lost(reason) if is_last || !self.common.retries.take() => {
                Err(unavailable(reason, not_applied))
            }
            AttemptError::NotSent
            | AttemptError::Stopping
            | AttemptError::NotOwner(_)
            | AttemptError::Misplaced(_)
                if is_last =>
            {
                Err(unavailable(exhausted(&failure), not_applied))
            }
            AttemptError::Misplaced(_) => {
                count(&self.common.counters.retries);
                self.hand_last_records(node).await;
                sleep(pause(*tries)).await;
                Ok(())
            }
            AttemptError::NotOwner(version) => {
                count(&self.common.counters.retries);
                node.goes_by(version);
                self.next_map(version, pause(*tries)).await;
                Ok(())
            }
            AttemptError::Lost(_) | AttemptError::NotSent | AttemptError::Stopping => {
                count(&self.common.counters.retries);
                if node.is_reachable() {
                    sleep(pause(*tries)).await;
                }
                Ok(())
            }
        }
    }

    /// Waits while a node is expected back, but ends shortly before the deadline, so that the rows of other
    /// nodes can still be returned.
    async fn wait_for(&self, node: &Node, call: &CallContext) {
        if node.is_reachable() {
            return;
        }
        match call.deadline {
            None => node.reachable().await,
            Some(deadline) => {
                let left = deadline.remaining(self.common.clock.monotonic());
                let back = node.reachable();
                let _ = tokio::time::timeout(short_of(left), back).await;
            }
        }
    }
}

/// Returns why no row was begun, if the node says so of each: it is not the owner of their shard, or it stops.
fn refusal_of_all(outcome: &Outcome) -> Option<AttemptError> {
    let (first, is_of_all) = match outcome {
        Outcome::MultiGot(rows) => {
            let first = rows.first()?.as_ref().err()?;
            let is_it = |row: &AnswerPart| row.as_ref().err() == Some(first);
            (first, rows.iter().all(is_it))
        }
        Outcome::Written(rows) => {
            let first = rows.first()?.as_ref().err()?;
            let is_it = |row: &WriteAnswer| row.as_ref().err() == Some(first);
            (first, rows.iter().all(is_it))
        }
        _ => return None,
    };
    match AttemptError::from(first.clone()) {
        AttemptError::Store(_) => None,
        refusal => is_of_all.then_some(refusal),
    }
}

/// Returns a time somewhat shorter than `left`.
fn short_of(left: Duration) -> Duration {
    left.saturating_sub((left / 10).min(Duration::from_millis(50)))
}

fn pause(tries: u32) -> Duration {
    REPEAT_AFTER * (1 << tries.min(TRIES_MAX))
}

fn exhausted(failure: &AttemptError) -> String {
    match failure {
        AttemptError::NotOwner(version) => {
            format!("it does not own the shard, by version {version} of the map")
        }
        AttemptError::Misplaced(reason) => reason.clone(),
        AttemptError::Stopping => "it is stopping".to_owned(),
        _ => "its connections are lost repeatedly".to_owned(),
    }
}
