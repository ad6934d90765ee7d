//! What holds the requests of a client back, with the state that all its clones share: how much
//! may be repeated, what is given up here, and the pace of bulk work.
//!
//! What is decided stands in [`RetryBudget`], [`AdaptiveThrottle`] and [`Pacer`]; here are the clock, the
//! locks and the waiting. No lock is held while anything waits. A namespace has a throttle of its
//! own, so that one whose quota is spent holds no other back; the admin API has none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::budget::RetryBudget;
use crate::error::Error;
use crate::pacer::{
    Load, Pace, Pacer, Rejected, RequestResult, SendDecision, Sent, ServerFeedback,
};
use crate::retry::RetryPolicy;
use crate::throttle::AdaptiveThrottle;

/// Most namespaces whose answers are counted; the one that rested longest makes room.
const NAMESPACES_MAX: usize = 64;
/// What a server that rejects without a wait is taken to ask for.
const UNNAMED_WAIT: Duration = Duration::from_millis(50);

/// The state.
#[derive(Debug)]
pub(crate) struct Flow {
    factor: f64,
    throttles: Mutex<HashMap<String, NamespaceThrottle>>,
    budget: Mutex<RetryBudget>,
    pacer: Option<Mutex<Pacer>>,
    answered: Notify,
    is_ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct NamespaceThrottle {
    throttle: AdaptiveThrottle,
    /// With what the server last refused a request.
    status: u16,
}

impl Flow {
    pub(crate) fn new(factor: f64, policy: &RetryPolicy, is_paced: bool) -> Self {
        let budget = RetryBudget::new(
            policy.budget_percent,
            policy.budget_per_second_min,
            Instant::now(),
        );
        Self {
            factor,
            throttles: Mutex::default(),
            budget: Mutex::new(budget),
            pacer: is_paced.then(Mutex::default),
            answered: Notify::new(),
            is_ended: watch::Sender::new(false),
        }
    }

    /// Says whether a request is to be sent, or why not.
    pub(crate) fn admit(&self, namespace: Option<&str>, random: u64) -> Result<(), Error> {
        let Some(namespace) = namespace else {
            return Ok(());
        };
        let now = Instant::now();
        let mut throttles = lock(&self.throttles);
        let throttle = self.throttle(&mut throttles, namespace, now);
        if throttle.throttle.admits(now, random) {
            return Ok(());
        }
        let (requests, accepts) = throttle.throttle.counts(now);
        Err(Error::GivenUp {
            requests,
            accepts,
            status: throttle.status,
        })
    }

    fn throttle<'a>(
        &self,
        throttles: &'a mut HashMap<String, NamespaceThrottle>,
        namespace: &str,
        now: Instant,
    ) -> &'a mut NamespaceThrottle {
        if throttles.len() >= NAMESPACES_MAX && !throttles.contains_key(namespace) {
            let rested = throttles
                .iter()
                .min_by_key(|(_, throttle)| throttle.throttle.sent());
            if let Some(name) = rested.map(|(name, _)| name.clone()) {
                throttles.remove(&name);
            }
        }
        if !throttles.contains_key(namespace) {
            let throttle = AdaptiveThrottle::new(self.factor, now);
            let status = 503;
            throttles.insert(namespace.to_owned(), NamespaceThrottle { throttle, status });
        }
        throttles
            .get_mut(namespace)
            .expect("a namespace that was absent has just been added")
    }

    /// Notes a request that is sent for the first time.
    pub(crate) fn deposit(&self) {
        lock(&self.budget).deposit(Instant::now());
    }

    /// Says whether one more repetition is in the budget.
    pub(crate) fn withdraw(&self) -> bool {
        lock(&self.budget).withdraw(Instant::now())
    }

    /// Waits until it is a request's turn; at once where work is not paced, of one to no
    /// namespace, and where `is_due` because the server has named the time.
    pub(crate) async fn enter(
        &self,
        namespace: Option<&str>,
        load: Load,
        is_due: bool,
    ) -> Result<UnderWay<'_>, Error> {
        let (Some(pacer), Some(_)) = (&self.pacer, namespace) else {
            return Ok(UnderWay {
                flow: self,
                sent: None,
            });
        };
        loop {
            // Registered before the pacer is asked, so that no answer goes by unnoticed.
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
                SendDecision::After(wait) => tokio::select! {
                    waited = self.wait(wait) => waited?,
                    () = answer => {}
                },
                SendDecision::WithNextAnswer => tokio::select! {
                    () = self.ended() => return Err(Error::WaitEnded),
                    () = answer => {}
                },
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

    /// Ends all waiting, now and later.
    pub(crate) fn end_waits(&self) {
        self.is_ended.send_replace(true);
    }

    async fn ended(&self) {
        let mut is_ended = self.is_ended.subscribe();
        // The sender lives as long as this.
        let _ = is_ended.wait_for(|is_ended| *is_ended).await;
    }

    /// Notes what a streamed answer was charged.
    pub(crate) fn charged_late(&self, sent: &Sent, charged: f64) {
        if let Some(pacer) = &self.pacer {
            lock(pacer).charged_late(sent, charged, Instant::now());
            self.answered.notify_waiters();
        }
    }

    /// Returns the pace that is kept, none where none is.
    pub(crate) fn pace(&self) -> Option<Pace> {
        lock(self.pacer.as_ref()?).pace(Instant::now())
    }

    /// Takes an answer into account: of a request to a namespace, with what it says, and the
    /// error that it is, if it is one.
    pub(crate) fn note(&self, namespace: Option<&str>, error: Option<&Error>) {
        let is_accepted = match error {
            None => true,
            // Somebody else's answer says nothing about the server.
            Some(Error::Foreign { .. }) => return,
            Some(error) => !error.is_overload(),
        };
        let Some(namespace) = namespace else { return };
        let now = Instant::now();
        let mut throttles = lock(&self.throttles);
        let throttle = self.throttle(&mut throttles, namespace, now);
        throttle.throttle.answered(is_accepted, now);
        if let Some(status) = error.and_then(Error::status).filter(|_| !is_accepted) {
            throttle.status = status;
        }
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
    /// Tells the pacer of the answer. Returns what a charge that comes later belongs to.
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

/// Returns how a request ended that is answered with an error, or with none.
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
