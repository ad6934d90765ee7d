//! One request: checked, asked of the store, answered at once or left to be waited for.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use umbo_protocol::{Answer, Ask, NodeError, Outcome, Request};
use umbo_store::{CallContext, StoreError};
use umbo_types::{Criticality, Deadline, Operation, ShardId};

use super::Exchange;
use super::charge::{Bill, shares};
use crate::admission::{Held, Place};
use crate::kind::Kind;
use crate::multi_get::MultiGet;
use crate::ownership::Ownership;
use crate::pending::Work;
use crate::quota::{Done, Receipt};
use crate::reads::{Read, since};
use crate::writes::{Sorted, Writing};

/// What a request that waits for the store takes of the node until it is done.
struct Taken {
    _place: Place,
    _held: Arc<Held>,
    _long: Option<Arc<OwnedSemaphorePermit>>,
}

/// What is the same for every kind of request.
pub(super) struct Asked {
    id: u64,
    kind: Kind,
    pub(super) call: CallContext,
    pub(super) begun: Instant,
}

impl Exchange {
    /// Serves one request.
    pub(super) fn serve(&mut self, request: Request, context: &mut Context<'_>) {
        let id = request.id;
        if let Ask::Cancel(id) = request.ask {
            self.pending.cancel(id);
            self.traces.cancelled(&self.node, id);
            return;
        }
        let kind = Kind::of(&request.ask);
        if !request.traceparent.is_empty() {
            let arrived = self.frame.arrived;
            self.traces.begin(&self.node, kind, &request, arrived);
        }
        if let Err(error) = self.try_serve(kind, request, context) {
            self.answer_failed(kind, id, error);
        }
    }

    /// Reads what is the same for every kind of request.
    fn asked(&mut self, kind: Kind, request: &mut Request) -> Result<Asked, NodeError> {
        let begun = self.node.clock().monotonic();
        let caller = self.callers.named(&request.caller);
        let mut call = CallContext::default();
        call.caller = caller.map_err(NodeError::BadRequest)?;
        call.criticality = request.criticality;
        call.price = request.price;
        call.traceparent = traceparent(&request.traceparent)?;
        call.is_continued = request.is_continued;
        call.names = request.names.take();
        let timeout = request.timeout;
        let ends = timeout.and_then(|timeout| self.frame.arrived.checked_add(timeout));
        call.deadline = ends.map(Deadline::at);
        Ok(Asked {
            id: request.id,
            kind,
            call,
            begun,
        })
    }

    fn try_serve(
        &mut self,
        kind: Kind,
        mut request: Request,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let node = Arc::clone(&self.node);
        let asked = self.asked(kind, &mut request)?;
        let ownership = node.ownership();
        match Read::of(request.ask) {
            Ok(read) => self.serve_read(asked, read, &ownership, context),
            Err(Ask::MultiGet(namespace, keys)) => {
                let shard_map = ownership.map().shard_map();
                let first = keys.first();
                let shard = first.map_or(ShardId(0), |key| {
                    shard_map.locate(namespace, &key.partition)
                });
                check_deadline(&asked, shard)?;
                let bill = Bill::read(namespace, Operation::MultiGet, keys.len() as u64);
                let by_shard = || shares(&ownership, namespace, keys.iter());
                let receipt = self.charge(&asked, &bill, by_shard)?;
                let (wanted, begun) = ((namespace, keys), asked.begun);
                self.multi_get = Some(MultiGet::new(asked.id, asked.call, wanted, begun, receipt));
                Ok(())
            }
            Err(Ask::Write(request)) => {
                let shard_map = ownership.map().shard_map();
                let first = request.mutations.first();
                let shard = first.map_or(ShardId(0), |mutation| {
                    shard_map.locate(request.namespace, &mutation.key.partition)
                });
                check_deadline(&asked, shard)?;
                let writing = Sorted::new(request, &ownership);
                let bill = Bill::write(writing.request(), writing.bytes());
                let receipt = self.charge(&asked, &bill, || {
                    let mutations = writing.request().mutations.iter();
                    let keys = mutations.map(|mutation| &mutation.key);
                    shares(&ownership, bill.namespace, keys)
                })?;
                let writing = (Writing::Write(writing), receipt);
                self.serve_write(asked, writing, shard, context)
            }
            Err(Ask::DeleteRange(request)) => {
                let shard = ownership.locate(request.namespace, &request.partition)?;
                check_deadline(&asked, shard)?;
                let rows_max = request.rows_max.into();
                let bill = Bill::read(request.namespace, Operation::DeleteRange, rows_max);
                let receipt = self.charge(&asked, &bill, || vec![(shard, 1)])?;
                let writing = (Writing::DeleteRange(request), receipt);
                self.serve_write(asked, writing, shard, context)
            }
            Err(Ask::Purge(namespace, rows_max)) => {
                let purge = Writing::Purge(namespace, rows_max);
                self.serve_write(asked, (purge, None), ShardId(0), context)
            }
            Err(Ask::Probe) => {
                let shards = node.shards();
                let outcome = Outcome::Status(ownership.map().version(), shards);
                self.answer(kind, plain(asked.id, Duration::ZERO, outcome));
                Ok(())
            }
            Err(Ask::ClusterMap) => {
                let outcome = Outcome::ClusterMap(ownership.map().to_toml());
                self.answer(kind, plain(asked.id, Duration::ZERO, outcome));
                Ok(())
            }
            Err(Ask::Cancel(_) | Ask::Get(..) | Ask::Range(_) | Ask::Scan(_)) => {
                unreachable!("a cancel was served before, and the others are reads")
            }
        }
    }

    fn serve_read(
        &mut self,
        asked: Asked,
        read: Read,
        ownership: &Ownership,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let shard = match &read {
            Read::Get(namespace, key) => ownership.locate(*namespace, &key.partition)?,
            Read::Range(request) => ownership.locate(request.namespace, &request.partition)?,
            Read::Scan(request) => {
                let shard = request.shard.unwrap_or(ShardId(u16::MAX));
                ownership.check(shard)?;
                shard
            }
        };
        check_deadline(&asked, shard)?;
        let bill = match &read {
            Read::Get(namespace, _) => Bill::read(*namespace, Operation::Get, 1),
            Read::Range(request) => {
                let rows_max = request.rows_max.into();
                Bill::read(request.namespace, Operation::Range, rows_max).within(request.bytes_max)
            }
            Read::Scan(request) => {
                let rows_max = request.rows_max.into();
                Bill::read(request.namespace, Operation::Scan, rows_max).within(request.bytes_max)
            }
        };
        let receipt = self.charge(&asked, &bill, || vec![(shard, 1)])?;
        let store = self.node.store();
        if store.answers_at_once()
            && let Poll::Ready(outcome) = read.run_now(&**store, &asked.call, context)
        {
            let took = since(asked.begun, self.node.clock().monotonic());
            let answer = read.answer(asked.id, took, outcome);
            settle(receipt, &answer);
            self.answer(asked.kind, answer);
            return Ok(());
        }
        let (taken, receipt) = self.take_for(asked.call.criticality, shard, receipt)?;
        let node = Arc::clone(&self.node);
        let (kind, id) = (asked.kind, asked.id);
        let work = async move {
            let outcome = within(&asked, shard, read.run(&**node.store(), &asked.call)).await;
            drop(taken);
            let took = since(asked.begun, node.clock().monotonic());
            let answer = read.answer(id, took, outcome);
            settle(receipt, &answer);
            vec![answer]
        };
        self.wait_for((kind, id), Box::pin(work), context);
        Ok(())
    }

    /// Goes on with the multi-get under way.
    pub(super) fn go_on_with_multi_get(&mut self, context: &mut Context<'_>) {
        let Some(mut multi_get) = self.multi_get.take() else {
            return;
        };
        self.turn.requests += 1;
        let kind = Kind::MultiGet;
        let node = Arc::clone(&self.node);
        let store = node.store();
        if store.answers_at_once() {
            let (ownership, now) = (node.ownership(), node.clock().monotonic());
            let mut answers = Vec::new();
            let mut answer = |answer| answers.push(answer);
            let step = multi_get.step_now(&**store, &ownership, now, context, &mut answer);
            self.answer_all(kind, answers);
            if step.is_ready() {
                self.multi_get = (!multi_get.is_over()).then_some(multi_get);
                return;
            }
        }
        let id = multi_get.id;
        let taken = match self.take(multi_get.call.criticality, ShardId(0)) {
            Ok(taken) => taken,
            Err(error) => {
                multi_get.give_up();
                return self.answer_failed(kind, id, error);
            }
        };
        let work = async move {
            let ownership = node.ownership_whole();
            let answers = multi_get.run(&**node.store(), &ownership).await;
            drop(taken);
            answers
        };
        self.wait_for((kind, id), Box::pin(work), context);
    }

    fn serve_write(
        &mut self,
        asked: Asked,
        (writing, receipt): (Writing, Option<Box<dyn Receipt>>),
        shard: ShardId,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let (taken, receipt) = self.take_for(asked.call.criticality, shard, receipt)?;
        let node = Arc::clone(&self.node);
        let (kind, id) = (asked.kind, asked.id);
        let (mut rows, mut bytes) = writing.size();
        let work = async move {
            let outcome = writing.run(&**node.store(), &asked.call).await;
            drop(taken);
            match &outcome {
                Outcome::Deleted(deleted) => (rows, bytes) = (deleted.rows, deleted.bytes),
                Outcome::Purged(progress) => rows = progress.rows,
                _ => {}
            }
            let took = since(asked.begun, node.clock().monotonic());
            let mut answer = plain(id, took, outcome);
            (answer.rows, answer.bytes) = (rows, bytes);
            settle(receipt, &answer);
            vec![answer]
        };
        let mut work: Work = Box::pin(work);
        // The first poll hands it over, in the order of the requests.
        match work.as_mut().poll(context) {
            Poll::Ready(answers) => self.answer_all(kind, answers),
            Poll::Pending => self.pending.add_write((kind, id), work, self.node.work()),
        }
        Ok(())
    }

    fn wait_for(&mut self, (kind, id): (Kind, u64), mut work: Work, context: &mut Context<'_>) {
        match work.as_mut().poll(context) {
            Poll::Ready(answers) => self.answer_all(kind, answers),
            Poll::Pending => self.pending.add_read((kind, id), work, self.node.work()),
        }
    }

    pub(super) fn answer_all(&mut self, kind: Kind, answers: Vec<Answer>) {
        for answer in answers {
            self.answer(kind, answer);
        }
    }

    /// Takes what a request needs that waits for the store; where there is no room for it, it costs
    /// nothing.
    fn take_for(
        &mut self,
        tier: Criticality,
        shard: ShardId,
        receipt: Option<Box<dyn Receipt>>,
    ) -> Result<(Taken, Option<Box<dyn Receipt>>), NodeError> {
        match self.take(tier, shard) {
            Ok(taken) => Ok((taken, receipt)),
            Err(error) => {
                if let Some(receipt) = receipt {
                    receipt.release();
                }
                Err(error)
            }
        }
    }

    /// Takes what a request needs that waits for the store.
    fn take(&mut self, tier: Criticality, shard: ShardId) -> Result<Taken, NodeError> {
        let busy = || NodeError::Store(StoreError::NodeBusy { shard });
        let admission = self.node.admission();
        // One stream alone never takes all places.
        if self.pending.count() >= self.node.limits().in_flight_max / 2 {
            return Err(busy());
        }
        let held = if let Some(held) = &self.frame.held {
            Arc::clone(held)
        } else {
            // A long message has its place already.
            let is_long = self.frame.place.is_some();
            let len = if is_long { 0 } else { self.frame.len };
            Arc::new(admission.hold(len, tier).ok_or_else(busy)?)
        };
        let place = admission.admit(tier).ok_or_else(busy)?;
        self.frame.held = Some(Arc::clone(&held));
        Ok(Taken {
            _place: place,
            _held: held,
            _long: self.frame.place.clone(),
        })
    }
}

/// Charges what a request did.
fn settle(receipt: Option<Box<dyn Receipt>>, answer: &Answer) {
    if let Some(receipt) = receipt {
        receipt.settle(Done {
            rows: answer.rows,
            bytes: answer.bytes,
            service_time: answer.service_time,
        });
    }
}

fn check_deadline(asked: &Asked, shard: ShardId) -> Result<(), NodeError> {
    match asked.call.deadline {
        Some(deadline) if deadline.has_passed(asked.begun) => {
            Err(StoreError::DeadlinePassed { shard }.into())
        }
        _ => Ok(()),
    }
}

/// Waits for a read until its deadline.
async fn within(asked: &Asked, shard: ShardId, work: impl Future<Output = Outcome>) -> Outcome {
    let Some(deadline) = asked.call.deadline else {
        return work.await;
    };
    let left = deadline.remaining(asked.begun);
    let outcome = tokio::time::timeout(left, work).await;
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

/// Returns the answer to a request that was not begun.
pub(super) fn refusal(id: u64, error: NodeError) -> Answer {
    plain(id, Duration::ZERO, Outcome::Failed(error))
}

fn plain(id: u64, service_time: Duration, outcome: Outcome) -> Answer {
    Answer {
        id,
        service_time,
        has_more: false,
        rows: 0,
        bytes: 0,
        outcome,
    }
}
