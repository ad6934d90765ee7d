//! The seventh verb, *wait*: for one of the slots of a shard, or until the request is shed.
//!
//! Hot path: where there is a slot nothing is allocated, and no timer made. A slot is given back on
//! every way out, also when the one who waits for it has left.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use umbo_shed::{Class, Entered, Entry, Gate, Grant, Outcome, Shed, Ticket, Verdict, Woken};
use umbo_types::{Deadline, Operation, ShardId};

use crate::failure::Failure;
use crate::overload::{Overload, ShedReport, ShedSignal, Waiter, deliver};
use crate::pod::Dispatcher;

/// What a gate is told of a request, and what is learned of its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) entry: Entry,
    /// The time that was given, for whoever is told that it is over.
    pub(crate) timeout: Duration,
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
    work: impl Future<Output = T>,
) -> Result<Timed<T>, Failure> {
    let slot = slot(pod, shard, call).await?;
    let began = slot.began;
    let answer = work.await;
    let now = pod.clock.monotonic();
    let service_time = now.saturating_duration_since(began);
    slot.served(service_time, now);
    Ok(Timed {
        answer,
        service_time,
    })
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

/// A slot of a shard.
#[derive(Debug)]
struct Slot<'a> {
    pod: &'a Dispatcher,
    shard: ShardId,
    began: Instant,
    operation: Operation,
    /// When nobody waits for the answer any more.
    deadline: Deadline,
    /// None where nobody counts, and once it is given back.
    held: Option<(&'a Gate<Waiter>, Grant)>,
}

impl Slot<'_> {
    /// Gives the slot back: the store has answered.
    fn served(mut self, service_time: Duration, now: Instant) {
        let operation = self.operation;
        let Some(overload) = &self.pod.overload else {
            return;
        };
        overload.ended(self.shard);
        if let Some(class) = Class::of(operation) {
            overload.signal().record(self.shard, class, service_time);
        }
        let outcome = Outcome::Served {
            operation,
            service_time,
        };
        self.give_back(outcome, now);
    }

    fn give_back(&mut self, outcome: Outcome, now: Instant) {
        if let Some((gate, grant)) = self.held.take() {
            let mut woken = Woken::new();
            gate.leave(grant, outcome, now, &mut woken);
            if !woken.is_empty() {
                deliver(gate, woken, now);
            }
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.held.is_none() {
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

async fn slot<'a>(pod: &'a Dispatcher, shard: ShardId, call: &Call) -> Result<Slot<'a>, Failure> {
    let entry = &call.entry;
    let timeout = call.timeout;
    let now = pod.clock.monotonic();
    let mut slot = Slot {
        pod,
        shard,
        began: now,
        operation: call.operation,
        deadline: entry.deadline,
        held: None,
    };
    let gate = pod
        .overload
        .as_ref()
        .and_then(|overload| overload.gate(shard));
    let Some(gate) = gate else {
        if entry.deadline.has_passed(now) {
            return Err(Failure::DeadlineBeforeStore { timeout });
        }
        return Ok(slot);
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
        (Entered::Slot(grant), _) => Verdict::Slot(grant),
        (Entered::Shed(shed), _) => Verdict::Shed(shed),
        (Entered::Queued(ticket), Some(verdict)) => {
            let waiting = Waiting {
                pod,
                gate,
                ticket,
                verdict,
            };
            let verdict = Box::pin(waiting.verdict()).await;
            slot.began = pod.clock.monotonic();
            verdict
        }
        (Entered::Expired | Entered::Queued(_), _) => Verdict::Expired,
    };
    match verdict {
        Verdict::Slot(grant) => {
            slot.held = Some((gate, grant));
            Ok(slot)
        }
        Verdict::Shed(shed) => Err(Failure::Shed(report(shard, shed))),
        Verdict::Expired => Err(Failure::DeadlineBeforeStore { timeout }),
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
    async fn verdict(mut self) -> Verdict {
        // The gate tells everybody something before it forgets them.
        (&mut self.verdict).await.unwrap_or(Verdict::Expired)
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

/// Says whether a request would find a slot at once. Another one may be faster.
pub(crate) fn has_room(overload: Option<&Overload>, shard: ShardId) -> bool {
    let gate = overload.and_then(|overload| overload.gate(shard));
    gate.is_none_or(Gate::has_room)
}
