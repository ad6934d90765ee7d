//! What an admission costs, side by side with two crates that limit rates, and that it allocates nothing.
//!
//! One limit, counted by one variable, ten thousand callers, the same callers in the same random
//! order for all, by turns within one run; what differs is who decides. Ours is a whole request:
//! admit and settle. It is given the instant, as the server does that has read it for its latencies;
//! what it costs with a read of the clock each is shown beside. The others check and count. Their keys
//! and contexts are made beforehand, outside of what is measured.

use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use limitador::RateLimiter;
use limitador::limit::{Context, Expression, Limit, Namespace};
use umbo_quota::{
    ActualUsage, CostHint, Limiter, LimiterSettings, QuotaRequest, Subject, Unit, Weights,
};
use umbo_types::{Attributes, NamespaceId, Operation, PriceMultiplier};

use crate::allocations;
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::random::Random;
use crate::simulate::{Quota, REFILL, one_quota};
use crate::verdict::{Bound, Verdict};

const CALLERS: usize = 10_000;
/// So much for everybody that nobody is rejected: a rejection is another, and rarer, path.
const AMPLE: u32 = 1_000_000_000;

/// Nanoseconds of one decision, a figure a round.
#[derive(Debug, Default)]
struct Times {
    ours: Vec<f64>,
    with_clock: Vec<f64>,
    governor: Vec<f64>,
    limitador: Vec<f64>,
}

pub(super) fn cost(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let (rounds, turns) = if plan.is_quick {
        (7, 30_000)
    } else {
        (15, 200_000)
    };
    let names: Vec<String> = (0..CALLERS).map(|at| format!("caller-{at:05}")).collect();
    let ours = Ours::new(plan.seed);
    let governor = Governor::new();
    let limitador = Limitador::new(&names)?;
    let mut random = Random::seeded(plan.seed);
    let order: Vec<usize> = (0..turns)
        .map(|_| random.below(CALLERS as u64) as usize)
        .collect();
    let everybody: Vec<usize> = (0..CALLERS).collect();
    let mut times = Times::default();
    for round in 0..=rounds {
        // The first round makes all callers known, and is not counted.
        let order = if round == 0 { &everybody } else { &order };
        // Every second round is the other way round.
        let turns = if round % 2 == 0 {
            [0, 1, 2, 3]
        } else {
            [3, 2, 1, 0]
        };
        for who in turns {
            let (nanos, times) = match who {
                0 => (time(order, |at| ours.decide(&names[at])), &mut times.ours),
                1 => {
                    let governor = |at: usize| governor.decide(&names[at]);
                    (time(order, governor), &mut times.governor)
                }
                2 => {
                    let ours = |at: usize| ours.decide_at(&names[at], Instant::now());
                    (time(order, ours), &mut times.with_clock)
                }
                _ => (time(order, |at| limitador.decide(at)), &mut times.limitador),
            };
            if round > 0 {
                times.push(nanos);
            }
        }
    }
    let count = |decide: &dyn Fn(usize) -> bool| allocations::count(|| time(&order, decide)).0;
    let allocated = count(&|at| ours.decide(&names[at]));
    let of_governor = count(&|at| governor.decide(&names[at]));
    let of_limitador = count(&|at| limitador.decide(at));
    let each = |count: u64| count as f64 / order.len() as f64;
    let detail = format!(
        "in {} requests; {:.1} each of governor, {:.1} of limitador",
        order.len(),
        each(of_governor),
        each(of_limitador)
    );
    let mut verdicts = times.verdicts();
    verdicts.push(Verdict::one(
        "cost: heap allocations",
        Bound::AtMost(0.0),
        allocated as f64,
        detail,
    ));
    Ok(verdicts)
}

impl Times {
    fn verdicts(&self) -> Vec<Verdict> {
        let Self {
            ours,
            with_clock,
            governor,
            limitador,
        } = self;
        let (of_governor, of_limitador) = (Bound::AtMost(2.0), Bound::AtMost(0.2));
        let what = "cost: admit + settle, of";
        vec![
            Verdict::of_nanos(format!("{what} governor"), of_governor, ours, governor),
            Verdict::of_nanos(
                "  with a read of the clock each",
                Bound::Nothing,
                with_clock,
                governor,
            ),
            Verdict::of_nanos(format!("{what} limitador"), of_limitador, ours, limitador),
        ]
    }
}

/// Returns the nanoseconds of one decision.
fn time(order: &[usize], decide: impl Fn(usize) -> bool) -> f64 {
    let begun = Instant::now();
    let mut admitted = 0_usize;
    for &at in order {
        admitted += usize::from(black_box(decide(black_box(at))));
    }
    let nanos = begun.elapsed().as_nanos() as f64;
    assert_eq!(admitted, order.len(), "nobody is rejected");
    nanos / order.len() as f64
}

struct Ours {
    limiter: Limiter,
    work: ActualUsage,
    /// Decisions so far, and an instant that is read every so many of them.
    clock: Cell<(u32, Instant)>,
}

impl Ours {
    fn new(seed: u64) -> Self {
        let quota = Quota {
            rate: u64::from(AMPLE) * 1_000_000,
            burst: u64::from(AMPLE) * 1_000_000,
        };
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max: 2 * CALLERS,
            buckets_max: 2 * CALLERS,
            shards: 4,
            seed,
        };
        let policies = one_quota(Unit::Ru, quota, REFILL);
        Self {
            limiter: Limiter::new(settings, policies, Instant::now()),
            work: ActualUsage {
                rows: 1,
                read_bytes: 256,
                reads: 1,
                ..ActualUsage::default()
            },
            clock: Cell::new((0, Instant::now())),
        }
    }

    fn decide(&self, caller: &str) -> bool {
        let (count, mut now) = self.clock.get();
        if count.is_multiple_of(64) {
            now = Instant::now();
        }
        self.clock.set((count.wrapping_add(1), now));
        self.decide_at(caller, now)
    }

    fn decide_at(&self, caller: &str, now: Instant) -> bool {
        let request = QuotaRequest {
            subject: Subject {
                caller,
                namespace: "checked",
                namespace_id: NamespaceId(1),
                attributes: Attributes::NONE,
                operation: Operation::Get,
            },
            hint: CostHint::default(),
            ticket: None,
            price_multiplier: PriceMultiplier::NONE,
        };
        match self.limiter.admit(&request, now, 1) {
            Ok(mut reservation) => {
                reservation.sent();
                reservation.settle(&self.work);
                true
            }
            Err(_) => false,
        }
    }
}

struct Governor {
    limiter: governor::RateLimiter<String, DashMapStateStore<String>, DefaultClock>,
}

impl Governor {
    fn new() -> Self {
        let rate = NonZeroU32::new(AMPLE).expect("it is not 0");
        let quota = governor::Quota::per_second(rate);
        Self {
            limiter: governor::RateLimiter::dashmap(quota),
        }
    }

    fn decide(&self, caller: &String) -> bool {
        self.limiter.check_key(caller).is_ok()
    }
}

struct Limitador {
    limiter: RateLimiter,
    namespace: Namespace,
    contexts: Vec<Context<'static>>,
}

impl Limitador {
    fn new(names: &[String]) -> Result<Self, Failure> {
        let namespace = Namespace::from("checked");
        let variable = Expression::parse("caller").map_err(Failure::peer)?;
        let limit = Limit::new(namespace.clone(), u64::from(AMPLE), 60, [], [variable]);
        // Room for twice the callers: it is not to evict any.
        let limiter = RateLimiter::new(2 * names.len() as u64);
        limiter.add_limit(limit);
        let context = |name: &String| {
            let values = HashMap::from([("caller".to_owned(), name.clone())]);
            Context::from(values)
        };
        Ok(Self {
            limiter,
            namespace,
            contexts: names.iter().map(context).collect(),
        })
    }

    fn decide(&self, at: usize) -> bool {
        let checked =
            self.limiter
                .check_rate_limited_and_update(&self.namespace, &self.contexts[at], 1);
        // A limit that applies to no request would be fast.
        checked.is_ok_and(|checked| !checked.limited && checked.counters.len() == 1)
    }
}
