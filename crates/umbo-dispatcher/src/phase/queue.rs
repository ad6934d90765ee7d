//! The phases *wait* and *fetch*: a permit of the shard, or the request is shed; then the store call, within
//! the deadline.
//!
//! Hot path: a request that gets a permit at once allocates nothing and makes no timer. A permit is given back on every
//! way out, also when the request that waits for it is dropped.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;
use umbo_hotkey::CallSource;
use umbo_http::RequestError;
use umbo_http::shed_report::ShedReport;
use umbo_overload::{
    Admission, AdmissionQueue, Class, Entered, Entry, Permit, QueueTicket, ServiceOutcome,
    ShardCall, Shed, Wakeups,
};
use umbo_telemetry::trace::Phase;
use umbo_types::{Deadline, Operation, RequestUnits, ShardId};

use crate::dispatcher::Dispatcher;
use crate::overload::{Overload, Waiter, deliver};
use crate::phase::listed::until_killed;
use crate::phase::locate::Located;
use crate::phase::reach;
use crate::store_call::{Answered, StoreCall, StoreTime, Timed};

/// Asks the store, within the deadline, and records how long it took. The work waits for its permits.
///
/// Reads are stopped at the deadline. Writes that reached the store run to their end there; only
/// the waiting is given up, and the outcome is then unknown. The caller holds the work: it would be
/// copied from hand to hand.
pub(crate) async fn ask<T>(
    located: &mut Located<'_>,
    work: Pin<&mut impl Future<Output = Result<Timed<T>, RequestError>>>,
) -> Result<T, RequestError> {
    located.debit()?;
    located.log.phase(Phase::Wait);
    located.charge.begin_store();
    let timed = until_killed(located, work).await?;
    located.log.stored(timed.time);
    Ok(timed.answer)
}

/// A permit of a shard. `P` is the dispatcher, borrowed or shared.
#[derive(Debug)]
pub(crate) struct HeldPermit<P: Deref<Target = Dispatcher>> {
    dispatcher: P,
    shard: ShardId,
    began: Instant,
    /// Time in the queue.
    waited: Duration,
    operation: Operation,
    /// The call as overload control sees it. `None` if shedding is off.
    call: Option<ShardCall>,
    /// Busy time that is counted already.
    expected: Duration,
    /// Whether the permit is one for heavy requests.
    is_heavy: bool,
    /// When the client waits for the answer no longer.
    deadline: Deadline,
    /// `None` if shedding is off, and after the permit is given back.
    permit: Option<Permit>,
}

impl<P: Deref<Target = Dispatcher>> HeldPermit<P> {
    /// Gives the permit back after the work of a source.
    pub(crate) fn complete<T>(
        mut self,
        answered: Answered<T>,
        source: impl FnOnce() -> CallSource,
    ) -> Timed<T> {
        let now = self.dispatcher.clock.monotonic();
        let elapsed = now.saturating_duration_since(self.began);
        let (taken, retries) = (answered.service_time.unwrap_or(elapsed), answered.retries);
        let busy = answered.busy_time.unwrap_or(taken);
        let sources = &self.dispatcher.busy;
        sources.record(self.shard, busy, fastrand::u32(..), source);
        if !self.is_heavy {
            self.dispatcher.latencies.record(self.shard, elapsed);
        }
        let charged = self.charged(busy);
        self.served(taken, busy, elapsed, now);
        Timed {
            answer: answered.answer,
            time: StoreTime {
                taken,
                charged,
                waited: self.waited,
                held: elapsed,
                retries,
            },
        }
    }

    /// Returns the part of the busy time that is charged.
    fn charged(&self, busy_time: Duration) -> Duration {
        match (&self.dispatcher.overload, &self.call) {
            (Some(overload), Some(call)) => {
                let controller = overload.controller();
                controller.charged_time(self.shard, call.class, busy_time)
            }
            _ => busy_time,
        }
    }

    /// Records the end of the call. The latency ratio judges the shard by its service time for requests that are not
    /// heavy. The limit of the queue uses the whole time of a call, including the way to another machine.
    fn served(&mut self, service_time: Duration, busy: Duration, elapsed: Duration, now: Instant) {
        let Some(overload) = &self.dispatcher.overload else {
            return;
        };
        let operation = self.operation;
        if !self.is_heavy {
            overload.ended(self.shard, operation);
        }
        if let Some(call) = &self.call {
            let controller = overload.controller();
            controller.was_busy(call, busy, self.expected);
            if !self.is_heavy {
                controller.record(self.shard, call.class, service_time);
            }
        }
        let outcome = ServiceOutcome::Served {
            operation,
            service_time: elapsed,
        };
        self.give_back(outcome, now);
    }

    fn give_back(&mut self, outcome: ServiceOutcome, now: Instant) {
        let overload = self.dispatcher.overload.as_ref();
        let queue =
            overload.and_then(|overload| overload.queue(self.shard, self.operation, self.is_heavy));
        if let (Some(queue), Some(permit)) = (queue, self.permit.take()) {
            let mut wakeups = Wakeups::new();
            queue.leave(permit, outcome, now, &mut wakeups);
            if !wakeups.is_empty() {
                deliver(queue, wakeups, now);
            }
        }
    }
}

impl<P: Deref<Target = Dispatcher>> Drop for HeldPermit<P> {
    fn drop(&mut self) {
        if self.permit.is_none() {
            return;
        }
        let now = self.dispatcher.clock.monotonic();
        // Work that is given up at its deadline would have taken longer still.
        if self.deadline.has_passed(now)
            && !self.is_heavy
            && let Some(call) = &self.call
            && let Some(overload) = &self.dispatcher.overload
        {
            let elapsed = now.saturating_duration_since(self.began);
            self.dispatcher.latencies.record(self.shard, elapsed);
            overload
                .controller()
                .record(self.shard, call.class, elapsed);
        }
        self.give_back(ServiceOutcome::Unknown, now);
    }
}

/// Waits for a permit. Before that, nothing of the request has reached the store.
pub(crate) async fn permit_of<P: Deref<Target = Dispatcher>>(
    dispatcher: P,
    shard: ShardId,
    call: &StoreCall,
) -> Result<HeldPermit<P>, RequestError> {
    let is_own = call.payer.is_none();
    let seen = call_of_shard(call.operation, shard, &call.entry, is_own, call.size);
    let mut way = Way::into(&dispatcher, shard, call.operation, seen);
    let (permit, began, waited) = admitted(&dispatcher, shard, call, way.as_mut()).await?;
    let (as_seen, is_heavy, expected) = way.map_or_else(Default::default, Way::into_parts);
    Ok(HeldPermit {
        dispatcher,
        shard,
        began,
        waited,
        operation: call.operation,
        call: as_seen,
        expected,
        is_heavy,
        deadline: call.entry.deadline,
        permit,
    })
}

/// The way of one call into a shard.
struct Way<'a> {
    overload: &'a Overload,
    queue: &'a AdmissionQueue<Waiter>,
    /// `None` for an operation that touches no rows.
    call: Option<ShardCall>,
    is_heavy: bool,
    /// Busy time that is counted before the call is made.
    expected: Duration,
}

impl<'a> Way<'a> {
    /// Returns the way that a call takes now. `None` if shedding is off, or there is no such shard.
    fn into(
        dispatcher: &'a Dispatcher,
        shard: ShardId,
        operation: Operation,
        call: Option<ShardCall>,
    ) -> Option<Self> {
        let overload = dispatcher.overload.as_ref()?;
        let is_heavy = call.is_some_and(|call| overload.controller().is_heavy(&call));
        Some(Self {
            queue: overload.queue(shard, operation, is_heavy)?,
            overload,
            call,
            is_heavy,
            expected: Duration::ZERO,
        })
    }

    /// Sheds a call if its caller has used up the allowed part of its share.
    fn check_share(&self, shard: ShardId) -> Result<(), RequestError> {
        let Some(call) = &self.call else {
            return Ok(());
        };
        match self.overload.controller().refusal(call) {
            Some(wait) => {
                let shed = self.queue.shed_for_share(call.tier, wait);
                Err(RequestError::Shed(report(shard, shed)))
            }
            None => Ok(()),
        }
    }

    /// Counts the busy time that the call is expected to take.
    fn expect(&mut self) {
        if let Some(call) = &self.call {
            self.expected = self.overload.controller().expect(call);
        }
    }

    fn into_parts(self) -> (Option<ShardCall>, bool, Duration) {
        (self.call, self.is_heavy, self.expected)
    }
}

/// Returns a call as overload control sees it. `None` for an operation that touches no rows.
fn call_of_shard(
    operation: Operation,
    shard: ShardId,
    entry: &Entry,
    is_own: bool,
    size: RequestUnits,
) -> Option<ShardCall> {
    Some(ShardCall {
        shard,
        class: Class::of(operation)?,
        tier: entry.criticality,
        caller: (!is_own).then_some(entry.caller),
        size,
    })
}

/// Returns a permit (`None` if shedding is off), the instant of its begin, and the time waited for it.
async fn admitted(
    dispatcher: &Dispatcher,
    shard: ShardId,
    call: &StoreCall,
    way: Option<&mut Way<'_>>,
) -> Result<(Option<Permit>, Instant, Duration), RequestError> {
    let (entry, timeout) = (&call.entry, call.timeout);
    let late = || RequestError::DeadlineBeforeStore {
        shard: Some(shard),
        timeout,
    };
    reach::wait_until_reachable(dispatcher, shard, entry.deadline).await?;
    let now = dispatcher.clock.monotonic();
    let Some(way) = way else {
        if entry.deadline.has_passed(now) {
            return Err(late());
        }
        return Ok((None, now, Duration::ZERO));
    };
    // Umbo's own work has no client that could come later.
    if call.payer.is_some() {
        way.check_share(shard)?;
    }
    way.expect();
    let queue = way.queue;
    let (mut wakeups, mut admission) = (Wakeups::new(), None);
    let waiter = || {
        let (sender, receiver) = oneshot::channel();
        admission = Some(receiver);
        sender
    };
    let entered = queue.enter(entry, now, waiter, &mut wakeups);
    if !wakeups.is_empty() {
        deliver(queue, wakeups, now);
    }
    let admission = match (entered, admission) {
        (Entered::Permit(permit), _) => return Ok((Some(permit), now, Duration::ZERO)),
        (Entered::Shed(shed), _) => Admission::Shed(shed),
        (Entered::Queued(ticket), Some(admission)) => {
            let waiting = Waiting {
                dispatcher,
                queue,
                ticket,
                admission,
            };
            Box::pin(waiting.admission(entry.deadline)).await
        }
        (Entered::Expired | Entered::Queued(_), _) => Admission::Expired,
    };
    match admission {
        Admission::Permit(permit) => {
            let began = dispatcher.clock.monotonic();
            let delay = began.saturating_duration_since(now);
            Ok((Some(permit), began, delay))
        }
        Admission::Shed(shed) => Err(RequestError::Shed(report(shard, shed))),
        Admission::Expired => Err(late()),
    }
}

fn report(shard: ShardId, shed: Shed) -> ShedReport {
    ShedReport {
        shard,
        tier: shed.criticality,
        reason: shed.reason,
        wait: shed.wait,
    }
}

/// A request that waits at a queue. Dropping it gives up its place, and the permit that is on its way.
struct Waiting<'a> {
    dispatcher: &'a Dispatcher,
    queue: &'a AdmissionQueue<Waiter>,
    ticket: QueueTicket,
    admission: oneshot::Receiver<Admission>,
}

impl Waiting<'_> {
    async fn admission(mut self, deadline: Deadline) -> Admission {
        // The queue drops late requests only when their turn comes, but the client has to get its answer in time.
        let told = timeout_at(deadline.instant().into(), &mut self.admission).await;
        match told {
            Ok(Ok(admission)) => admission,
            Ok(Err(_)) | Err(_) => Admission::Expired,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.admission.is_terminated() {
            return;
        }
        let now = self.dispatcher.clock.monotonic();
        if self.queue.cancel(self.ticket, now).is_some() {
            return;
        }
        // An admission is on its way, or there.
        self.admission.close();
        if let Ok(Admission::Permit(permit)) = self.admission.try_recv() {
            let mut wakeups = Wakeups::new();
            self.queue
                .leave(permit, ServiceOutcome::Unknown, now, &mut wakeups);
            deliver(self.queue, wakeups, now);
        }
    }
}

/// Sheds a request now if its shard would shed it.
pub(crate) fn turn_away(located: &Located<'_>, shard: ShardId) -> Result<(), RequestError> {
    let dispatcher = located.dispatcher;
    let Some(overload) = &dispatcher.overload else {
        return Ok(());
    };
    let operation = located.identified().operation;
    let is_quiet = !overload.controller().is_raised(shard);
    if is_quiet && !overload.is_crowded(shard, operation) {
        return Ok(());
    }
    let (entry, size) = (located.entry(), located.charge.estimate());
    let call = call_of_shard(operation, shard, &entry, false, size);
    let Some(way) = Way::into(dispatcher, shard, operation, call) else {
        return Ok(());
    };
    way.check_share(shard)?;
    match way.queue.turn_away(&entry, dispatcher.clock.monotonic()) {
        Some(shed) => Err(RequestError::Shed(report(shard, shed))),
        None => Ok(()),
    }
}

/// Returns whether a request waits already.
pub(crate) fn is_crowded(dispatcher: &Dispatcher, shard: ShardId, operation: Operation) -> bool {
    let overload = dispatcher.overload.as_ref();
    overload.is_some_and(|overload| overload.is_crowded(shard, operation))
}
