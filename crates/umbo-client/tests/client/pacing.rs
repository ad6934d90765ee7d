//! The pacer against a simulated server, in simulated time: bulk work under a quota is to use what
//! it may and hardly ever be rejected, whatever the limit, the cost of a request, the number of
//! lanes.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "simulated times and counts are positive and far below 2^52"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use umbo_client::{
    Pacer, QuotaState, QuotaUnit, Rejected, RequestResult, SendDecision, Sent, ServerFeedback,
    WorkHint,
};

const SECOND: u64 = 1_000_000;
/// Step in which the server fills its bucket.
const STEP: u64 = 50_000;

/// What is simulated; amounts in request units, times in microseconds.
#[derive(Debug, Clone, Copy)]
struct Case {
    rate: f64,
    burst: f64,
    cost: f64,
    lanes: usize,
    /// Importers, each with a pacer of its own and its share of the lanes.
    importers: usize,
    seconds: u64,
    seed: u64,
}

/// A bucket as the server keeps it: it admits while positive, may go into debt, fills in steps,
/// and names a wait with a rejection that includes what it has reserved for others.
struct Server {
    case: Case,
    balance: f64,
    step: u64,
    reserved_refill: f64,
    estimate: f64,
}

struct Verdict {
    reserved: Option<f64>,
    wait: u64,
}

impl Server {
    fn refill(&mut self, now: u64) {
        let steps = now / STEP - self.step;
        self.step = now / STEP;
        let filled = steps as f64 * self.case.rate * STEP as f64 / SECOND as f64;
        self.reserved_refill = (self.reserved_refill - filled).max(0.0);
        self.balance = (self.balance + filled).min(self.case.burst);
    }

    fn admit(&mut self, now: u64, has_ticket: bool, random: &mut u64) -> Verdict {
        self.refill(now);
        let owed = if has_ticket {
            0.0
        } else {
            self.reserved_refill
        };
        if self.balance - owed > 0.0 {
            self.balance -= self.estimate;
            return Verdict {
                reserved: Some(self.estimate),
                wait: 0,
            };
        }
        let seconds = (self.reserved_refill - self.balance) / self.case.rate;
        self.reserved_refill += self.estimate;
        let wait = ((seconds * SECOND as f64) as u64).max(STEP);
        let jitter = uniform(random) * (wait as f64 / 5.0).max(STEP as f64);
        Verdict {
            reserved: None,
            wait: wait + STEP + jitter as u64,
        }
    }

    fn settle(&mut self, now: u64, reserved: f64, cost: f64) {
        self.refill(now);
        self.balance -= cost - reserved;
        self.estimate += (cost - self.estimate) / 8.0;
    }

    fn state(&self) -> QuotaState {
        QuotaState {
            policy: "bulk".to_owned(),
            unit: QuotaUnit::Ru,
            rate: self.case.rate,
            burst: self.case.burst,
            balance: self.balance,
            refill: Duration::from_micros(STEP),
        }
    }
}

fn uniform(random: &mut u64) -> f64 {
    // A linear congruential generator (Knuth's MMIX) is random enough for jitter.
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*random >> 11) as f64 / (1_u64 << 53) as f64
}

enum Event {
    /// A lane asks the pacer, or tries again as told.
    Ask { was_told: bool },
    /// An admitted request is done.
    Done {
        sent: Sent,
        reserved: f64,
        cost: f64,
    },
}

#[derive(Debug)]
struct Outcome {
    used: f64,
    answered: u64,
    rejected: u64,
}

/// Closed loops of lanes that always have more to send.
struct Simulation {
    case: Case,
    start: Instant,
    server: Server,
    pacers: Vec<Pacer>,
    random: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    /// The event for which each lane waits, so that an earlier wake-up takes its place.
    pending: Vec<u64>,
    waiting: Vec<bool>,
    outcome: Outcome,
}

impl Simulation {
    fn new(case: Case) -> Self {
        let server = Server {
            case,
            balance: case.burst,
            step: 0,
            reserved_refill: 0.0,
            estimate: 6.0,
        };
        Self {
            case,
            start: Instant::now(),
            server,
            pacers: (0..case.importers).map(|_| Pacer::default()).collect(),
            random: case.seed,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            pending: vec![0; case.lanes],
            waiting: vec![false; case.lanes],
            outcome: Outcome {
                used: 0.0,
                answered: 0,
                rejected: 0,
            },
        }
    }

    fn pacer(&mut self, lane: usize) -> &mut Pacer {
        &mut self.pacers[lane % self.case.importers]
    }

    fn schedule(&mut self, at: u64, lane: usize, event: Event) {
        self.pending[lane] = self.events.len() as u64;
        self.heap.push(Reverse((at, self.pending[lane], lane)));
        self.events.push(Some(event));
    }

    fn run(mut self) -> Outcome {
        for lane in 0..self.case.lanes {
            self.schedule(0, lane, Event::Ask { was_told: false });
        }
        while let Some(Reverse((now, number, lane))) = self.heap.pop() {
            if now > self.case.seconds * SECOND {
                break;
            }
            if self.pending[lane] != number {
                continue;
            }
            match self.events[number as usize].take() {
                Some(Event::Ask { was_told }) => self.ask(now, lane, was_told),
                Some(Event::Done {
                    sent,
                    reserved,
                    cost,
                }) => self.done(now, lane, &sent, reserved, cost),
                None => {}
            }
        }
        let available = self.case.rate * self.case.seconds as f64 + self.case.burst;
        self.outcome.used /= available;
        self.outcome
    }

    fn ask(&mut self, now: u64, lane: usize, was_told: bool) {
        self.waiting[lane] = false;
        let load = WorkHint {
            is_write: true,
            rows: 1_000,
            bytes: 100_000,
        };
        let instant = self.start + Duration::from_micros(now);
        let decision = if was_told {
            SendDecision::Now(self.pacer(lane).sent(load))
        } else {
            self.pacer(lane).decide(load, instant)
        };
        match decision {
            SendDecision::Now(sent) => self.send(now, lane, sent, was_told),
            SendDecision::After(wait) => {
                self.waiting[lane] = true;
                // Sleeps end at whole milliseconds.
                let at = now + wait.as_micros() as u64 / 1_000 * 1_000 + 1_000;
                self.schedule(at, lane, Event::Ask { was_told: false });
            }
            SendDecision::WithNextAnswer => {
                self.waiting[lane] = true;
                self.schedule(u64::MAX, lane, Event::Ask { was_told: false });
            }
        }
    }

    fn send(&mut self, now: u64, lane: usize, sent: Sent, has_ticket: bool) {
        let verdict = self.server.admit(now, has_ticket, &mut self.random);
        if let Some(reserved) = verdict.reserved {
            let cost = self.case.cost * (0.8 + 0.4 * uniform(&mut self.random));
            let service = 2_000 + (uniform(&mut self.random) * 20_000.0) as u64;
            let done = Event::Done {
                sent,
                reserved,
                cost,
            };
            self.schedule(now + service, lane, done);
            return;
        }
        self.outcome.rejected += 1;
        let feedback = ServerFeedback {
            quota: Some(self.server.state()),
            charged: None,
            result: RequestResult::Rejected(Rejected {
                policy: Some("bulk".to_owned()),
                wait: Duration::from_micros(verdict.wait),
            }),
        };
        self.answered(now, lane, &sent, &feedback);
        self.schedule(now + verdict.wait, lane, Event::Ask { was_told: true });
    }

    fn done(&mut self, now: u64, lane: usize, sent: &Sent, reserved: f64, cost: f64) {
        self.server.settle(now, reserved, cost);
        self.outcome.used += cost;
        self.outcome.answered += 1;
        let feedback = ServerFeedback {
            quota: Some(self.server.state()),
            charged: Some(cost),
            result: RequestResult::Accepted,
        };
        self.answered(now, lane, sent, &feedback);
        self.schedule(now, lane, Event::Ask { was_told: false });
    }

    /// Tells the pacer of a lane, and wakes the lanes that wait for it.
    fn answered(&mut self, now: u64, lane: usize, sent: &Sent, feedback: &ServerFeedback) {
        let instant = self.start + Duration::from_micros(now);
        self.pacer(lane).answered(sent, feedback, instant);
        for other in (lane % self.case.importers..self.case.lanes).step_by(self.case.importers) {
            if self.waiting[other] {
                self.waiting[other] = false;
                self.schedule(now, other, Event::Ask { was_told: false });
            }
        }
    }
}

/// Runs all combinations; burst and cost of a request are in seconds of the rate.
fn run(
    (rates, bursts, costs): (&[f64], &[f64], &[f64]),
    (lanes, importers): (&[usize], usize),
) -> Vec<(Case, Outcome)> {
    let mut outcomes = Vec::new();
    for (&rate, &burst) in rates
        .iter()
        .flat_map(|rate| bursts.iter().map(move |burst| (rate, burst)))
    {
        for (&cost, &lanes) in costs
            .iter()
            .flat_map(|cost| lanes.iter().map(move |lanes| (cost, lanes)))
        {
            let case = Case {
                rate,
                burst: rate * burst,
                cost: rate * cost,
                lanes,
                importers,
                // Long enough for several hundred requests.
                seconds: (cost * 500.0).clamp(60.0, 3_600.0) as u64,
                seed: outcomes.len() as u64,
            };
            outcomes.push((case, Simulation::new(case).run()));
        }
    }
    outcomes
}

fn check(outcomes: Vec<(Case, Outcome)>, rejected_max: f64) {
    for (case, outcome) in outcomes {
        // What all lanes together can ask for at most, where an answer takes 12 ms on average.
        let demand = case.lanes as f64 * case.cost / 0.012 / case.rate;
        assert!(
            demand < 1.5 || outcome.used >= 0.95,
            "{case:?}: {outcome:?}"
        );
        assert!(outcome.used <= 1.02, "{case:?}: {outcome:?}");
        let share = outcome.rejected as f64 / (outcome.rejected + outcome.answered) as f64;
        assert!(share <= rejected_max, "{case:?}: {outcome:?}");
    }
}

#[test]
fn a_paced_import_uses_its_quota_and_is_hardly_ever_rejected() {
    let limits = (&[100.0, 100_000.0][..], &[1.0, 2.0, 10.0][..]);
    check(
        run((limits.0, limits.1, &[0.005, 0.05, 0.5]), (&[1, 8, 32], 1)),
        0.005,
    );
}

#[test]
fn bursts_of_parts_of_a_second_are_used_too() {
    let bursts = [0.1, 0.3, 1.5, 2.5];
    check(
        run((&[1_000.0], &bursts, &[0.005, 0.05, 0.5]), (&[8], 1)),
        0.01,
    );
}

#[test]
fn requests_that_cost_more_than_the_bucket_holds_are_paced_too() {
    check(
        run(
            (&[100.0], &[0.1, 1.0, 1.5, 10.0], &[2.0, 10.0]),
            (&[1, 8], 1),
        ),
        0.01,
    );
    check(
        run((&[1.0, 7.0], &[1.0, 3.0], &[0.5, 6.0]), (&[8], 1)),
        0.01,
    );
}

#[test]
fn importers_that_share_a_quota_without_knowing_of_each_other_use_it_too() {
    let bursts = [1.0, 5.0];
    check(run((&[1_000.0], &bursts, &[0.01]), (&[8, 16], 4)), 0.15);
    // Of what another has taken meanwhile only a rejection can tell: one for each success.
    check(run((&[1_000.0], &bursts, &[0.1]), (&[8, 16], 4)), 0.51);
}
