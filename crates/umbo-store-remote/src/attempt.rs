//! One request to one node: sent, hedged where it is slow, answered; and what to do where it fails.
//!
//! Owns what may be repeated. The rule: a request that certainly had no effect is repeated a
//! bounded number of times; a read that may have been begun is repeated within the budget; a write
//! that may have been begun never is, and its outcome is unknown.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;
use umbo_protocol::{Answer, Ask, NodeError, Outcome, RequestRef};
use umbo_store::{CallContext, StoreError};
use umbo_types::ShardId;

use crate::asked::Asked;
use crate::connection::NotTaken;
use crate::counters::count;
use crate::node::{Lane, Node};
use crate::store::RemoteStore;
use crate::waiting::{Event, Kind};

/// Stands for the shard of a request where an error does not know it.
pub(crate) const SHARD_UNKNOWN: ShardId = ShardId(u16::MAX);
/// Most times that a request is sent.
const TRIES_MAX: u32 = 8;
/// Wait before a request is repeated that a node did not want, doubled each time.
const REPEAT_AFTER: Duration = Duration::from_millis(4);

/// Why an attempt came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection.
    Away,
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
    /// The node is stopping.
    Stopping,
    /// The node answered what does not answer the request.
    Unusable(String),
    /// The store of the node failed.
    Store(StoreError),
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotOwner { map_version, .. } => Self::NotOwner(map_version),
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
    /// Asks the node of a shard until there is an answer, or none is to be had.
    pub(crate) async fn ask(
        &self,
        call: &CallContext,
        shard: ShardId,
        (lane, kind): (Lane, Kind),
        ask: Ask,
    ) -> Result<Outcome, StoreError> {
        let mut tries = 0;
        loop {
            let node = Arc::clone(self.topology().node_of(shard));
            match self.attempt(&node, call, (lane, kind), &ask).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => {
                    // On the heap, for it is rare and makes the future large.
                    let target = (shard, kind);
                    Box::pin(self.settle(failure, &node, call, target, &mut tries)).await?;
                }
            }
        }
    }

    /// Asks a node once.
    pub(crate) async fn attempt(
        &self,
        node: &Arc<Node>,
        call: &CallContext,
        (lane, kind): (Lane, Kind),
        ask: &Ask,
    ) -> Result<Outcome, Failure> {
        let mut asked = self.send(node, call, (lane, kind), ask)?;
        let answer = match asked.event().await {
            Event::Answered(answer) => answer,
            Event::Lost { was_sent } => return Err(lost(&asked, was_sent)),
            Event::Slow => Box::pin(self.hedge(asked, node, call, (lane, kind), ask)).await?,
        };
        call.note_service_time(answer.service_time);
        match answer.outcome {
            Outcome::Failed(error) => Err(error.into()),
            outcome => Ok(outcome),
        }
    }

    fn send(
        &self,
        node: &Arc<Node>,
        call: &CallContext,
        (lane, kind): (Lane, Kind),
        ask: &Ask,
    ) -> Result<Asked, Failure> {
        let connection = node.connection(lane).ok_or(Failure::Away)?;
        let now = self.common.clock.monotonic();
        let timeout = call.deadline.map(|deadline| deadline.remaining(now));
        if timeout.is_some_and(|left| left.is_zero()) {
            return Err(Failure::Late);
        }
        let caller = call.caller.as_ref();
        let traceparent = call.traceparent.as_deref();
        let request = RequestRef {
            id: 0,
            timeout,
            criticality: call.criticality,
            caller: caller.map_or(&[], |caller| caller.as_str().as_bytes()),
            price: call.price,
            traceparent: traceparent.map_or(&[], str::as_bytes),
            is_continued: call.is_continued,
            names: call.names.as_deref(),
            ask,
        };
        let taken = connection.ask(request, kind, now);
        taken.map_err(|refused| match refused {
            NotTaken::Busy => Failure::Busy,
            NotTaken::Left => Failure::NotSent,
        })
    }

    /// Sends a slow read a second time over the other connection, where the budget lasts. The
    /// first answer counts; the other request is cancelled when it is dropped.
    async fn hedge(
        &self,
        mut first: Asked,
        node: &Arc<Node>,
        call: &CallContext,
        (lane, kind): (Lane, Kind),
        ask: &Ask,
    ) -> Result<Answer, Failure> {
        let mut second = None;
        if node.own_connection(lane.other()).is_some() && self.common.hedges.take() {
            // It is no second request to whoever counts them.
            let again = call.later_part();
            second = self.send(node, &again, (lane.other(), kind), ask).ok();
        }
        if second.is_some() {
            count(&self.common.counters.hedges);
        }
        let mut is_first_lost = None;
        poll_fn(|context| {
            if is_first_lost.is_none() {
                match first.poll(context) {
                    Poll::Ready(Event::Answered(answer)) => return Poll::Ready(Ok(answer)),
                    Poll::Ready(Event::Lost { was_sent }) => is_first_lost = Some(was_sent),
                    Poll::Ready(Event::Slow) | Poll::Pending => {}
                }
            }
            while let Some(asked) = &mut second {
                match asked.poll(context) {
                    Poll::Ready(Event::Answered(answer)) => {
                        count(&self.common.counters.hedges_won);
                        return Poll::Ready(Ok(answer));
                    }
                    Poll::Ready(Event::Lost { .. }) => second = None,
                    Poll::Ready(Event::Slow) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
            match is_first_lost {
                Some(was_sent) => Poll::Ready(Err(lost(&first, was_sent))),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Decides on a failed attempt: returns where it is to be repeated, after what has to be
    /// waited for.
    pub(crate) async fn settle(
        &self,
        failure: Failure,
        node: &Arc<Node>,
        call: &CallContext,
        (shard, kind): (ShardId, Kind),
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
            Failure::Late => Err(StoreError::DeadlinePassed { shard }),
            Failure::Busy => Err(StoreError::NodeBusy { shard }),
            Failure::Unusable(reason) => Err(unavailable(reason, umbo_store::Outcome::Unknown)),
            Failure::Store(error) => Err(of_shard(error, shard)),
            Failure::Away => {
                self.wait_for(node, call).await;
                match node.failure() {
                    None if !is_last => Ok(()),
                    reason => Err(unavailable(reason.unwrap_or_default(), not_applied)),
                }
            }
            Failure::Lost(reason) if kind == Kind::Write => {
                Err(unavailable(reason, umbo_store::Outcome::Unknown))
            }
            Failure::Lost(reason) if is_last || !self.common.retries.take() => {
                Err(unavailable(reason, not_applied))
            }
            Failure::NotSent | Failure::Stopping | Failure::NotOwner(_) if is_last => {
                Err(unavailable(exhausted(&failure), not_applied))
            }
            Failure::NotOwner(version) => {
                count(&self.common.counters.retries);
                node.goes_by(version);
                self.next_map(version, pause(*tries)).await;
                Ok(())
            }
            Failure::Lost(_) | Failure::NotSent | Failure::Stopping => {
                count(&self.common.counters.retries);
                if node.is_reachable() {
                    sleep(pause(*tries)).await;
                }
                Ok(())
            }
        }
    }

    /// Waits while a node is expected back, though not to the very end of a deadline, so that the
    /// rows of other nodes can still be told.
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

/// Returns a time somewhat shorter than what is left.
pub(crate) fn short_of(left: Duration) -> Duration {
    left.saturating_sub((left / 10).min(Duration::from_millis(50)))
}

fn pause(tries: u32) -> Duration {
    REPEAT_AFTER * (1 << tries.min(TRIES_MAX))
}

fn exhausted(failure: &Failure) -> String {
    match failure {
        Failure::NotOwner(version) => {
            format!("it does not own the shard, by version {version} of the map")
        }
        Failure::Stopping => "it is stopping".to_owned(),
        _ => "its connections do not last".to_owned(),
    }
}

fn lost(asked: &Asked, was_sent: bool) -> Failure {
    if was_sent {
        Failure::Lost(asked.loss())
    } else {
        Failure::NotSent
    }
}

/// Names the shard in an error that could not.
pub(crate) fn of_shard(error: StoreError, shard: ShardId) -> StoreError {
    match error {
        StoreError::Unavailable {
            shard: SHARD_UNKNOWN,
            reason,
            outcome,
        } => StoreError::Unavailable {
            shard,
            reason,
            outcome,
        },
        error => error,
    }
}
