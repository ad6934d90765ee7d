//! What stands in front of a shard: Umbo's queue, or one of the simpler things it is compared with.
//!
//! The simpler ones let a fixed number in, and all of them know no tiers: *FIFO* lets the others
//! wait, however many; *`CoDel` alone* sheds by the delay of the queue (as folly does: the minimum over
//! an interval, twice the target, oldest first); *quotas alone* are a token bucket for each caller,
//! with a FIFO behind it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use umbo_overload::{
    Admission, AdmissionQueue, Entered, Entry, Permit, QueueSettings, ServiceOutcome, Wakeups,
};
use umbo_types::Operation;

use super::decision::{Decision, Decisions};

/// Requests a simpler door lets in.
const IN_FLIGHT_MAX: usize = 64;
/// Requests that wait at a simpler door.
const WAITING_MAX: usize = 1_000_000;
const TARGET_NS: u64 = 5_000_000;
const INTERVAL_NS: u64 = 100_000_000;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// Umbo as it ships
    Umbo,
    /// A queue without tiers or an end
    Fifo,
    /// `CoDel` alone
    Codel,
    /// Fixed quotas alone
    Quotas,
}

impl Discipline {
    /// Umbo, and what is simpler.
    pub(crate) const ALL: [Self; 4] = [Self::Umbo, Self::Fifo, Self::Codel, Self::Quotas];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Umbo => "umbo",
            Self::Fifo => "fifo",
            Self::Codel => "codel-alone",
            Self::Quotas => "quotas-alone",
        }
    }
}

/// A door.
#[derive(Debug)]
pub(crate) enum Door {
    Umbo(Box<AdmissionQueue<u32>>),
    Simple(Simple),
}

/// A fixed number in flight, and a queue.
#[derive(Debug)]
pub(crate) struct Simple {
    is_codel: bool,
    in_flight: usize,
    /// With the instants of their arrival.
    waiting: VecDeque<(u64, u32)>,
    /// Least delay since the interval began.
    least_ns: u64,
    interval_ends_ns: u64,
    is_overloaded: bool,
}

impl Door {
    pub(crate) fn new(discipline: Discipline, settings: QueueSettings) -> Self {
        match discipline {
            Discipline::Umbo => Self::Umbo(Box::new(AdmissionQueue::new(settings))),
            Discipline::Fifo | Discipline::Codel | Discipline::Quotas => Self::Simple(Simple {
                is_codel: discipline == Discipline::Codel,
                in_flight: 0,
                waiting: VecDeque::new(),
                least_ns: u64::MAX,
                interval_ends_ns: 0,
                is_overloaded: false,
            }),
        }
    }

    /// A request arrives.
    pub(crate) fn enter(
        &mut self,
        request: u32,
        entry: &Entry,
        (now, now_ns): (Instant, u64),
        decisions: &mut Decisions,
    ) {
        match self {
            Self::Umbo(queue) => {
                let mut wakeups = Wakeups::new();
                match queue.enter(entry, now, || request, &mut wakeups) {
                    Entered::Permit(permit) => {
                        decisions.push((request, Decision::Admitted(Some(permit))));
                    }
                    Entered::Queued(_) => {}
                    Entered::Shed(_) => decisions.push((request, Decision::Shed)),
                    Entered::Expired => decisions.push((request, Decision::Expired)),
                }
                deliver(wakeups, decisions);
            }
            Self::Simple(simple) => {
                if simple.in_flight < IN_FLIGHT_MAX {
                    simple.in_flight += 1;
                    decisions.push((request, Decision::Admitted(None)));
                } else if simple.waiting.len() < WAITING_MAX {
                    simple.waiting.push_back((now_ns, request));
                } else {
                    decisions.push((request, Decision::Shed));
                }
            }
        }
    }

    /// A request has been served.
    pub(crate) fn leave(
        &mut self,
        permit: Option<Permit>,
        (operation, service_time): (Operation, Duration),
        (now, now_ns): (Instant, u64),
        decisions: &mut Decisions,
    ) {
        match self {
            Self::Umbo(queue) => {
                let Some(permit) = permit else { return };
                let mut wakeups = Wakeups::new();
                let outcome = ServiceOutcome::Served {
                    operation,
                    service_time,
                };
                queue.leave(permit, outcome, now, &mut wakeups);
                deliver(wakeups, decisions);
            }
            Self::Simple(simple) => {
                simple.in_flight -= 1;
                simple.serve_next(now_ns, decisions);
            }
        }
    }

    /// A few milliseconds are over.
    pub(crate) fn tick(&mut self, now: Instant, decisions: &mut Decisions) {
        match self {
            Self::Umbo(queue) => {
                let mut wakeups = Wakeups::new();
                queue.tick(now, Duration::ZERO, &mut wakeups);
                deliver(wakeups, decisions);
            }
            Self::Simple(_) => {}
        }
    }
}

fn deliver(wakeups: Wakeups<u32>, decisions: &mut Decisions) {
    decisions.extend(wakeups.into_iter().map(|(request, admission)| {
        let decision = match admission {
            Admission::Permit(permit) => Decision::Admitted(Some(permit)),
            Admission::Shed(_) => Decision::Shed,
            Admission::Expired => Decision::Expired,
        };
        (request, decision)
    }));
}

impl Simple {
    fn serve_next(&mut self, now_ns: u64, decisions: &mut Decisions) {
        while let Some((since_ns, request)) = self.waiting.pop_front() {
            if self.is_codel && self.is_to_shed(now_ns - since_ns, now_ns) {
                decisions.push((request, Decision::Shed));
                continue;
            }
            self.in_flight += 1;
            decisions.push((request, Decision::Admitted(None)));
            return;
        }
    }

    fn is_to_shed(&mut self, delay_ns: u64, now_ns: u64) -> bool {
        let is_first = now_ns >= self.interval_ends_ns;
        if is_first {
            self.is_overloaded = self.least_ns != u64::MAX && self.least_ns > TARGET_NS;
            self.least_ns = delay_ns;
            self.interval_ends_ns = now_ns + INTERVAL_NS;
        }
        self.least_ns = self.least_ns.min(delay_ns);
        // The first of an interval is never shed.
        self.is_overloaded && !is_first && delay_ns > 2 * TARGET_NS
    }
}

/// A token bucket that counts requests, for the quotas alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    rate: f64,
    burst: f64,
    balance: f64,
    at_ns: u64,
}

impl Bucket {
    /// Makes a full bucket that holds a second of its rate.
    pub(crate) fn new(rate: f64) -> Self {
        Self {
            rate,
            burst: rate.max(1.0),
            balance: rate.max(1.0),
            at_ns: 0,
        }
    }

    pub(crate) fn admits(&mut self, now_ns: u64) -> bool {
        let gained = (now_ns - self.at_ns) as f64 / 1e9 * self.rate;
        self.balance = (self.balance + gained).min(self.burst);
        self.at_ns = now_ns;
        let admits = self.balance >= 1.0;
        if admits {
            self.balance -= 1.0;
        }
        admits
    }
}
