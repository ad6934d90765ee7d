//! One request: checked, passed to the store, answered at once or left pending.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use umbo_protocol::{Answer, Ask, NodeError, Outcome, Request, StatusOfNode};
use umbo_store::{CallContext, StoreError};
use umbo_types::{Criticality, ShardId};

use super::call::{RequestCall, check_deadline};
use super::pending::PendingWork;
use super::stream::ShardStream;
use super::traces::shard_of;
use crate::admission::{AdmittedRequest, FrameMemory};
use crate::kind::RequestKind;
use crate::ownership::Ownership;
use crate::reads::{Read, since};

/// Told to a dispatcher of an earlier release.
const MAIL_REFUSED: &str = "dispatchers ask one another without their shard nodes since version 0.1.0: upgrade the \
    dispatcher to it or to a later one";

/// The resources of a request that waits for the store.
pub(super) struct RequestResources {
    _place: AdmittedRequest,
    _held: Arc<FrameMemory>,
}

impl ShardStream {
    /// Serves one request: answers it, refuses it, or leaves it pending.
    pub(super) fn serve(&mut self, request: Request, context: &mut Context<'_>) {
        let id = request.id;
        let kind = RequestKind::of(&request.ask);
        if !request.traceparent.is_empty() {
            let arrived = self.arrival.at;
            self.traces.begin(&self.node, kind, &request, arrived);
        }
        if let Err(error) = self.try_serve(kind, request, context) {
            self.answer_failed(kind, id, error);
        }
    }

    fn try_serve(
        &mut self,
        kind: RequestKind,
        request: Request,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let node = Arc::clone(&self.node);
        let call = self.call(kind, &request)?;
        let ownership = node.ownership();
        if let Some(dataset) = request.ask.dataset() {
            let revisions = (self.records_heard, node.store().records_revision());
            let placed = ownership.check_placement(dataset, request.placed_as, revisions);
            placed.map_err(|reason| {
                let shard = shard_of(&node, &request.ask).unwrap_or(ShardId(0));
                // One side has forgotten a dataset that was dropped.
                if node.store().is_fenced(dataset) {
                    let namespace = dataset;
                    return StoreError::NamespaceGone { shard, namespace }.into();
                }
                NodeError::Misplaced { shard, reason }
            })?;
        }
        match Read::of(request.ask) {
            Ok(read) => return self.serve_read(call, read, &ownership, context),
            Err(Ask::Write(request)) => return self.write(call, request, &ownership, context),
            Err(Ask::DeleteRange(request)) => {
                return self.delete_range(call, request, &ownership, context);
            }
            Err(Ask::KeepRecords(copy)) => return self.keep_records(&call, copy, context),
            Err(Ask::KeptRecords) => return self.kept_records(&call, context),
            Err(Ask::Probe) => {
                let outcome = Outcome::Status(StatusOfNode {
                    map_version: ownership.map().version(),
                    wall: Some(node.clock().wall()),
                    shards: node.shards(),
                });
                self.answer(
                    kind,
                    &Answer::without_rows(call.id, Duration::ZERO, outcome),
                );
            }
            Err(Ask::ClusterMap) => {
                let outcome = Outcome::ClusterMap(ownership.map().to_toml());
                self.answer(
                    kind,
                    &Answer::without_rows(call.id, Duration::ZERO, outcome),
                );
            }
            Err(Ask::Mail) => return Err(NodeError::BadRequest(MAIL_REFUSED.to_owned())),
            Err(
                Ask::Get(..)
                | Ask::Chunk(..)
                | Ask::Backup(_)
                | Ask::MultiGet(..)
                | Ask::Range(_)
                | Ask::Scan(..),
            ) => {
                unreachable!("these are reads")
            }
        }
        Ok(())
    }

    /// Reads the fields that all kinds of requests have.
    fn call(&self, kind: RequestKind, request: &Request) -> Result<RequestCall, NodeError> {
        let begun = self.node.clock().monotonic();
        let mut context = CallContext::default();
        context.criticality = request.criticality;
        context.price = request.price;
        context.traceparent = traceparent(&request.traceparent)?;
        context.placed_as = request.placed_as;
        let deadline = request.deadline_ns;
        context.deadline = deadline.and_then(|deadline| self.node.deadline_at(deadline));
        Ok(RequestCall {
            id: request.id,
            kind,
            context,
            begun,
        })
    }

    fn serve_read(
        &mut self,
        call: RequestCall,
        read: Read,
        ownership: &Ownership,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let shard = read.locate(ownership)?;
        check_deadline(&call, shard)?;
        let takes_short = self.takes_short;
        let store = self.node.store();
        if store.capabilities().answers_at_once
            && let Poll::Ready(outcome) = read.run_now(&**store, (&call.context, shard), context)
        {
            let took = since(call.begun, self.node.clock().monotonic());
            self.answer(call.kind, &read.answer(call.id, took, outcome, takes_short));
            return Ok(());
        }
        let taken = self.take(call.context.criticality, shard)?;
        let node = Arc::clone(&self.node);
        let (kind, id) = (call.kind, call.id);
        let work = async move {
            let reading = read.run(&**node.store(), &call.context, shard);
            let outcome = until_deadline(&call, shard, reading).await;
            drop(taken);
            let took = since(call.begun, node.clock().monotonic());
            read.answer(id, took, outcome, takes_short)
        };
        self.wait_for(kind, id, Box::pin(work), context);
        Ok(())
    }

    /// Polls work for the first time, and leaves it pending if it does not end at once. The first poll passes
    /// a write to the store, so writes are passed on in the order of the requests.
    pub(super) fn wait_for(
        &mut self,
        kind: RequestKind,
        id: u64,
        mut work: PendingWork,
        context: &mut Context<'_>,
    ) {
        match work.as_mut().poll(context) {
            Poll::Ready(answer) => self.answer(kind, &answer),
            Poll::Pending => self.pending.add(kind, id, work),
        }
    }

    /// Reserves the resources of a request that waits for the store.
    pub(super) fn take(
        &mut self,
        tier: Criticality,
        shard: ShardId,
    ) -> Result<RequestResources, NodeError> {
        let busy = || NodeError::Store(StoreError::NodeBusy { shard });
        let admission = self.node.admission();
        // One connection alone never uses all permits.
        if self.pending.count() >= self.node.limits().in_flight_max / 2 {
            return Err(busy());
        }
        let held = match &self.arrival.held {
            Some(held) => Arc::clone(held),
            None => Arc::new(admission.hold(self.arrival.len, tier).ok_or_else(busy)?),
        };
        let place = admission.admit(tier).ok_or_else(busy)?;
        self.arrival.held = Some(Arc::clone(&held));
        Ok(RequestResources {
            _place: place,
            _held: held,
        })
    }
}

/// Runs a read until its deadline.
async fn until_deadline(
    call: &RequestCall,
    shard: ShardId,
    reading: impl Future<Output = Outcome>,
) -> Outcome {
    let Some(deadline) = call.context.deadline else {
        return reading.await;
    };
    let left = deadline.remaining(call.begun);
    let outcome = tokio::time::timeout(left, reading).await;
    outcome.unwrap_or_else(|_| Outcome::Failed(StoreError::DeadlinePassed { shard }.into()))
}

fn traceparent(bytes: &[u8]) -> Result<Option<Box<str>>, NodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|error| NodeError::BadRequest(format!("traceparent: {error}")))?;
    Ok(Some(text.into()))
}
