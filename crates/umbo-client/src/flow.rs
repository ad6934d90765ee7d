//! The limits on the requests of a client, with the state that all its clones share: the budget of
//! repetitions, the throttles, and the pace of bulk work.
//!
//! [`RetryBudget`], [`AdaptiveThrottle`], [`Concerns`] and [`Pacer`] decide; this module has the clock, the
//! locks and the waiting. No lock is held while anything waits. Each namespace has a separate throttle, and so
//! has each shard and policy that refuses, so that a refusal slows only its own kind of requests. The admin
//! API has no throttle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::budget::RetryBudget;
use crate::concern::{Concerns, RequestScope};
use crate::error::Error;
use crate::pacer::{
    Pace, Pacer, Rejected, RequestResult, SendDecision, Sent, ServerFeedback, WorkHint,
};
use crate::retry::RetryPolicy;
use crate::throttle::AdaptiveThrottle;

/// Most namespaces, shards and policies with a throttle; a new one replaces the one with the oldest request.
const THROTTLES_MAX: usize = 256;
/// Wait after a rejection that names none.
const UNNAMED_WAIT: Duration = Duration::from_millis(50);

/// The state.
#[derive(Debug)]
pub(crate) struct Flow {
    factor: f64,
    throttles: Mutex<Throttles>,
    budget: Mutex<RetryBudget>,
    pacer: Option<Mutex<Pacer>>,
    answered: Notify,
    is_ended: watch::Sender<bool>,
    held_back_nanos: AtomicU64,
    given_up: AtomicU64,
}

/// How much a client and its clones were held back since it was made. The numbers never shrink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Time that requests waited for their turn in paced work, and after refusals, added up over all
    /// requests: two that wait at the same time count twice.
    pub waited: Duration,
    /// Requests that were given up before they were sent ([`Error::GivenUp`]).
    pub given_up: u64,
}

/// The throttles of namespaces, shards and policies.
#[derive(Debug, Default)]
struct Throttles {
    concerns: Concerns,
    /// By the hash that [`Concerns::throttle`] returns.
    throttles: HashMap<u64, Throttle>,
}

#[derive(Debug)]
struct Throttle {
    throttle: AdaptiveThrottle,
    /// Status of the last refusal.
    status: u16,
}

impl Throttles {
    /// Returns the throttle that counts a request.
    fn of(&mut self, kind: &RequestScope, factor: f64, now: Instant) -> &mut Throttle {
        let name = self.concerns.throttle(kind, now);
        let throttles = &mut self.throttles;
        if throttles.len() >= THROTTLES_MAX && !throttles.contains_key(&name) {
            let rested = throttles
                .iter()
                .min_by_key(|(_, throttle)| throttle.throttle.sent());
            if let Some(name) = rested.map(|(name, _)| *name) {
                throttles.remove(&name);
            }
        }
        throttles.entry(name).or_insert_with(|| Throttle {
            throttle: AdaptiveThrottle::new(factor, now),
            status: 503,
        })
    }
}

impl Flow {
    pub(crate) fn new(factor: f64, policy: &RetryPolicy, pacer: Option<Pacer>) -> Self {
        let budget = RetryBudget::new(
            policy.budget_percent,
            policy.budget_per_second_min,
            Instant::now(),
        );
        Self {
            factor,
            throttles: Mutex::default(),
            budget: Mutex::new(budget),
            pacer: pacer.map(Mutex::new),
            answered: Notify::new(),
            is_ended: watch::Sender::new(false),
            held_back_nanos: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    /// Returns whether a request is to be sent, or why not.
    pub(crate) fn admit(&self, kind: Option<&RequestScope>, random: u64) -> Result<(), Error> {
        let Some(kind) = kind else {
            return Ok(());
        };
        let now = Instant::now();
        let mut throttles = lock(&self.throttles);
        let throttle = throttles.of(kind, self.factor, now);
        if throttle.throttle.admits(now, random) {
            return Ok(());
        }
        self.given_up.fetch_add(1, Relaxed);
        let (requests, accepts) = throttle.throttle.counts(now);
        Err(Error::GivenUp {
            requests,
            accepts,
            status: throttle.status,
        })
    }

    /// Counts a request that is sent for the first time.
    pub(crate) fn deposit(&self) {
        lock(&self.budget).deposit(Instant::now());
    }

    /// Returns whether one more repetition is in the budget.
    pub(crate) fn withdraw(&self) -> bool {
        lock(&self.budget).withdraw(Instant::now())
    }

    /// Waits for the turn of a request. Returns at once if work is not paced, if the request concerns no
    /// namespace, or if `is_due`: the server has named this time.
    pub(crate) async fn enter(
        &self,
        kind: Option<&RequestScope>,
        load: WorkHint,
        is_due: bool,
    ) -> Result<UnderWay<'_>, Error> {
        let (Some(pacer), Some(_)) = (&self.pacer, kind) else {
            return Ok(UnderWay {
                flow: self,
                sent: None,
            });
        };
        loop {
            // Registered before the pacer is asked, so that no answer is missed.
            let answer = self.answered.notified();
            tokio::pin!(answer);
            answer.as_mut().enable();
            let decision = if is_due {
                SendDecision::Now(lock(pacer).sent(load))
            } else {
                lock(pacer).decide(load, Instant::now())
            };
            match decision {
                SendDecision::Now(sent) => {
                    return Ok(UnderWay {
                        flow: self,
                        sent: Some(sent),
                    });
                }
                SendDecision::After(wait) => {
                    let _waiting = self.hold_back();
                    tokio::select! {
                        biased;
                        waited = self.wait(wait) => waited?,
                        () = answer => {}
                    }
                }
                SendDecision::WithNextAnswer => {
                    let _waiting = self.hold_back();
                    tokio::select! {
                        biased;
                        () = self.ended() => return Err(Error::WaitEnded),
                        () = answer => {}
                    }
                }
            }
        }
    }

    /// Waits, unless all waiting is to end.
    pub(crate) async fn wait(&self, wait: Duration) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = self.ended() => Err(Error::WaitEnded),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }

    /// Waits to repeat a request that met an error, unless all waiting is to end. If the server refused it,
    /// the wait counts as held back.
    pub(crate) async fn wait_after(&self, error: &Error, wait: Duration) -> Result<(), Error> {
        let _waiting = error.is_overload().then(|| self.hold_back());
        self.wait(wait).await
    }

    /// Counts the time until it is dropped as held back.
    fn hold_back(&self) -> HeldBackWait<'_> {
        HeldBackWait {
            flow: self,
            since: Instant::now(),
        }
    }

    /// Returns how much was held back.
    pub(crate) fn held_back(&self) -> HeldBack {
        HeldBack {
            waited: Duration::from_nanos(self.held_back_nanos.load(Relaxed)),
            given_up: self.given_up.load(Relaxed),
        }
    }

    /// Ends all waiting, now and later.
    pub(crate) fn end_waits(&self) {
        self.is_ended.send_replace(true);
    }

    async fn ended(&self) {
        let mut is_ended = self.is_ended.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = is_ended.wait_for(|is_ended| *is_ended).await;
    }

    /// Records the charge of a streamed answer.
    pub(crate) fn charged_late(&self, sent: &Sent, charged: f64) {
        if let Some(pacer) = &self.pacer {
            lock(pacer).charged_late(sent, charged, Instant::now());
            self.answered.notify_waiters();
        }
    }

    /// Returns the pace that is kept, or `None` without one.
    pub(crate) fn pace(&self) -> Option<Pace> {
        lock(self.pacer.as_ref()?).pace(Instant::now())
    }

    /// Takes an answer into account: of a request of this kind, with the error that it is, if it is one.
    pub(crate) fn note(&self, kind: Option<&RequestScope>, error: Option<&Error>) {
        let is_accepted = match error {
            None => true,
            // An answer from another program says nothing about the server.
            Some(Error::Foreign { .. }) => return,
            Some(error) => !error.is_overload(),
        };
        let Some(kind) = kind else { return };
        let now = Instant::now();
        let mut throttles = lock(&self.throttles);
        let throttle = throttles.of(kind, self.factor, now);
        throttle.throttle.answered(is_accepted, now);
        let Some(error) = error.filter(|_| !is_accepted) else {
            return;
        };
        if let Some(status) = error.status() {
            throttle.status = status;
        }
        if let Some(problem) = error.problem() {
            throttles.concerns.learn(kind, problem, now);
        }
    }
}

/// A wait that counts as held back until it is dropped.
struct HeldBackWait<'a> {
    flow: &'a Flow,
    since: Instant,
}

impl Drop for HeldBackWait<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed().as_nanos();
        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
        self.flow.held_back_nanos.fetch_add(waited, Relaxed);
    }
}

/// A request that is under way. Dropped without an answer, it is lost.
#[derive(Debug)]
#[must_use = "dropped at once, it is lost at once"]
pub(crate) struct UnderWay<'a> {
    flow: &'a Flow,
    sent: Option<Sent>,
}

impl UnderWay<'_> {
    /// Reports the answer to the pacer. Returns the request that a later charge belongs to.
    pub(crate) fn answered(mut self, feedback: &ServerFeedback) -> Option<Sent> {
        let sent = self.sent.take()?;
        if let Some(pacer) = &self.flow.pacer {
            lock(pacer).answered(&sent, feedback, Instant::now());
            self.flow.answered.notify_waiters();
        }
        Some(sent)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let (Some(sent), Some(pacer)) = (self.sent.take(), &self.flow.pacer) {
            lock(pacer).lost(&sent, Instant::now());
            self.flow.answered.notify_waiters();
        }
    }
}

/// Returns the result of a request from its error, if it has one.
pub(crate) fn result(error: Option<&Error>) -> RequestResult {
    let Some(error) = error.filter(|error| error.is_overload()) else {
        return RequestResult::Accepted;
    };
    match error.problem() {
        Some(problem) if problem.status != 503 => RequestResult::Rejected(Rejected {
            policy: problem.policy.clone(),
            wait: error.retry_after().unwrap_or(UNNAMED_WAIT),
        }),
        _ => RequestResult::Shed,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
