//! The seventh verb, *wait*: for one of the slots of a shard, or until the request is shed.
//!
//! Hot path: where there is a slot nothing is allocated, and no timer made. A slot is given back on
//! every way out, also when the one who waits for it has left.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;
use umbo_shed::{Class, Entered, Entry, Gate, Grant, Outcome, Shed, Ticket, Verdict, Woken};
use umbo_store::CallContext;
use umbo_types::{CallerId, Deadline, Names, Operation, ShardId};

use crate::failure::Failure;
use crate::overload::{ShedReport, ShedSignal, Waiter, deliver};
use crate::pod::Dispatcher;
use crate::reach;

/// What a gate is told of a request, and what is learned of its answer.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) entry: Entry,
    /// The time that was given, for whoever is told that it is over.
    pub(crate) timeout: Duration,
    /// Who pays; none for Umbo's own work.
    pub(crate) payer: Option<CallerId>,
    /// Whom the request is for beside the payer, where a quota of shards counts by them.
    pub(crate) names: Option<Arc<Names>>,
    /// Whether an earlier part of the request was let in.
    pub(crate) is_continued: bool,
    /// As a `traceparent` header, where the request is traced.
    pub(crate) traceparent: Option<Box<str>>,
}

impl Call {
    /// Returns what goes with one call of the store.
    pub(crate) fn context(&self) -> CallContext {
        let mut context = CallContext::internal();
        context.deadline = Some(self.entry.deadline);
        context.criticality = self.entry.criticality;
        context.caller.clone_from(&self.payer);
        context.names.clone_from(&self.names);
        context.is_continued = self.is_continued;
        context.price = self.entry.price;
        context.traceparent.clone_from(&self.traceparent);
        context
    }
}

/// What a call of the store came to, and how long the shard says that it worked.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    answer: T,
    service_time: Option<Duration>,
}

impl<T> Answered<T> {
    pub(crate) fn new(context: &CallContext, answer: T) -> Self {
        Self {
            answer,
            service_time: context.service_time(),
        }
    }
}

/// An answer of the store, and how long the store took for it.
#[derive(Debug, Clone)]
pub(crate) struct Timed<T> {
    pub(crate) answer: T,
    pub(crate) service_time: Duration,
}

/// Does work that one shard is asked for, in one of its slots.
pub(crate) async fn in_slot<T>(
    pod: &Dispatcher,
    shard: ShardId,
    call: &Call,
    work: Pin<&mut impl Future<Output = Answered<T>>>,
) -> Result<Timed<T>, Failure> {
    Ok(slot(pod, shard, call).await?.serve(work).await)
}

impl<T> Timed<T> {
    /// Makes something else of the answer.
    pub(crate) fn map<U>(self, make: impl FnOnce(T) -> U) -> Timed<U> {
        Timed {
            answer: make(self.answer),
            service_time: self.service_time,
        }
    }

    /// Of an answer whose time has been noted elsewhere.
    pub(crate) const fn untimed(answer: T) -> Self {
        Self {
            answer,
            service_time: Duration::ZERO,
        }
    }
}

impl<T, E> Timed<Result<T, E>> {
    /// Makes something of the answer, where it is one.
    pub(crate) fn and_then<U>(self, make: impl FnOnce(T) -> U) -> Result<Timed<U>, E> {
        Ok(Timed {
            answer: make(self.answer?),
            service_time: self.service_time,
        })
    }
}

/// A slot of a shard. `P` is the pod, borrowed or shared.
#[derive(Debug)]
pub(crate) struct Slot<P: Deref<Target = Dispatcher>> {
    pod: P,
    shard: ShardId,
    began: Instant,
    operation: Operation,
    /// When nobody waits for the answer any more.
    deadline: Deadline,
    /// None where nobody counts, and once it is given back.
    grant: Option<Grant>,
}

impl<P: Deref<Target = Dispatcher>> Slot<P> {
    /// Does the work, and gives the slot back.
    pub(crate) async fn serve<T>(
        mut self,
        work: Pin<&mut impl Future<Output = Answered<T>>>,
    ) -> Timed<T> {
        let answered = work.await;
        let now = self.pod.clock.monotonic();
        let elapsed = now.saturating_duration_since(self.began);
        let service_time = answered.service_time.unwrap_or(elapsed);
        self.served(service_time, elapsed, now);
        Timed {
            answer: answered.answer,
            service_time,
        }
    }

    /// The latency ratio judges the shard by its own time; the limit of the gate goes by what a
    /// request takes from here, the way to another machine included.
    fn served(&mut self, service_time: Duration, elapsed: Duration, now: Instant) {
        let Some(overload) = &self.pod.overload else {
            return;
        };
        let operation = self.operation;
        overload.ended(self.shard, operation);
        if let Some(class) = Class::of(operation) {
            overload.signal().record(self.shard, class, service_time);
        }
        let outcome = Outcome::Served {
            operation,
            service_time: elapsed,
        };
        self.give_back(outcome, now);
    }

    fn give_back(&mut self, outcome: Outcome, now: Instant) {
        let gate = gate(&self.pod, self.shard, self.operation);
        if let (Some(gate), Some(grant)) = (gate, self.grant.take()) {
            let mut woken = Woken::new();
            gate.leave(grant, outcome, now, &mut woken);
            if !woken.is_empty() {
                deliver(gate, woken, now);
            }
        }
    }
}

impl<P: Deref<Target = Dispatcher>> Drop for Slot<P> {
    fn drop(&mut self) {
        if self.grant.is_none() {
            return;
        }
        let now = self.pod.clock.monotonic();
        // Given up for taking too long: it would have taken longer still.
        if self.deadline.has_passed(now)
            && let Some(class) = Class::of(self.operation)
            && let Some(overload) = &self.pod.overload
        {
            let elapsed = now.saturating_duration_since(self.began);
            overload.signal().record(self.shard, class, elapsed);
        }
        self.give_back(Outcome::Unknown, now);
    }
}

/// Waits for a slot. Until it has one, nothing of the request has reached the store.
pub(crate) async fn slot<P: Deref<Target = Dispatcher>>(
    pod: P,
    shard: ShardId,
    call: &Call,
) -> Result<Slot<P>, Failure> {
    let (grant, began) = grant(&pod, shard, call).await?;
    Ok(Slot {
        pod,
        shard,
        began,
        operation: call.operation,
        deadline: call.entry.deadline,
        grant,
    })
}

fn gate(pod: &Dispatcher, shard: ShardId, operation: Operation) -> Option<&Gate<Waiter>> {
    let overload = pod.overload.as_ref();
    overload.and_then(|overload| overload.gate(shard, operation))
}

/// Returns a grant, none where nobody counts, and since when it is held.
async fn grant(
    pod: &Dispatcher,
    shard: ShardId,
    call: &Call,
) -> Result<(Option<Grant>, Instant), Failure> {
    let (entry, timeout) = (&call.entry, call.timeout);
    let late = || Failure::DeadlineBeforeStore {
        shard: Some(shard),
        timeout,
    };
    reach::reachable(pod, shard, entry.deadline).await?;
    let now = pod.clock.monotonic();
    let Some(gate) = gate(pod, shard, call.operation) else {
        if entry.deadline.has_passed(now) {
            return Err(late());
        }
        return Ok((None, now));
    };
    let (mut woken, mut verdict) = (Woken::new(), None);
    let waiter = || {
        let (sender, receiver) = oneshot::channel();
        verdict = Some(receiver);
        sender
    };
    let entered = gate.enter(entry, now, waiter, &mut woken);
    if !woken.is_empty() {
        deliver(gate, woken, now);
    }
    let verdict = match (entered, verdict) {
        (Entered::Slot(grant), _) => return Ok((Some(grant), now)),
        (Entered::Shed(shed), _) => Verdict::Shed(shed),
        (Entered::Queued(ticket), Some(verdict)) => {
            let waiting = Waiting {
                pod,
                gate,
                ticket,
                verdict,
            };
            Box::pin(waiting.verdict(entry.deadline)).await
        }
        (Entered::Expired | Entered::Queued(_), _) => Verdict::Expired,
    };
    match verdict {
        Verdict::Slot(grant) => Ok((Some(grant), pod.clock.monotonic())),
        Verdict::Shed(shed) => Err(Failure::Shed(report(shard, shed))),
        Verdict::Expired => Err(late()),
    }
}

fn report(shard: ShardId, shed: Shed) -> ShedReport {
    ShedReport {
        shard,
        tier: shed.criticality,
        signal: ShedSignal::Queue(shed.why),
        wait: shed.wait,
    }
}

/// One who waits at a gate. Dropping it gives up the place, and the slot that is on its way.
struct Waiting<'a> {
    pod: &'a Dispatcher,
    gate: &'a Gate<Waiter>,
    ticket: Ticket,
    verdict: oneshot::Receiver<Verdict>,
}

impl Waiting<'_> {
    async fn verdict(mut self, deadline: Deadline) -> Verdict {
        // The gate lets go of who is late when it comes to them; the client is told in time.
        let told = timeout_at(deadline.instant().into(), &mut self.verdict).await;
        match told {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) | Err(_) => Verdict::Expired,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.verdict.is_terminated() {
            return;
        }
        let now = self.pod.clock.monotonic();
        if self.gate.cancel(self.ticket, now).is_some() {
            return;
        }
        // A verdict is on its way, or there.
        self.verdict.close();
        if let Ok(Verdict::Slot(grant)) = self.verdict.try_recv() {
            let mut woken = Woken::new();
            self.gate.leave(grant, Outcome::Unknown, now, &mut woken);
            deliver(self.gate, woken, now);
        }
    }
}

/// Sheds a request that the gate would shed if it came to it now.
pub(crate) fn turn_away(
    pod: &Dispatcher,
    shard: ShardId,
    operation: Operation,
    entry: impl FnOnce() -> Entry,
) -> Result<(), Failure> {
    let Some(gate) = gate(pod, shard, operation).filter(|gate| gate.is_crowded()) else {
        return Ok(());
    };
    match gate.turn_away(&entry(), pod.clock.monotonic()) {
        Some(shed) => Err(Failure::Shed(report(shard, shed))),
        None => Ok(()),
    }
}

/// Says whether somebody waits already.
pub(crate) fn is_crowded(pod: &Dispatcher, shard: ShardId, operation: Operation) -> bool {
    gate(pod, shard, operation).is_some_and(Gate::is_crowded)
}

/// Says whether a read would find a slot at once. Another one may be faster.
pub(crate) fn has_room(pod: &Dispatcher, shard: ShardId) -> bool {
    gate(pod, shard, Operation::Get).is_none_or(Gate::has_room)
}
