//! The proof of coalescing at full size: all interleavings of the smallest programs, and a million
//! random ones.
//!
//! What is promised and how it is checked is in `proof`, which the tests of the crate run at a size
//! that every run of theirs can afford. Here a broken promise is a figure: a walk ends with the first
//! one, so a figure counts walks.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use self::proof::{Program, Tally};
use crate::check::cases::{Case, run_all};
use crate::check::plan::Plan;
use crate::verdict::{Bound, Verdict};

#[allow(
    dead_code,
    unreachable_pub,
    reason = "it holds modules of the crate, which uses more of them"
)]
#[path = "../../../../crates/umbo-hotkey/tests/interleavings/proof.rs"]
mod proof;

/// Random runs of one walk.
const WALK_RUNS: usize = 5_000;
/// Changes of priority in a run that is preempted at the worst moments.
const DEPTH: usize = 3;
/// Preemptions that are walked through at most.
const PREEMPTIONS_MAX: usize = 4;

/// What a walk goes through.
enum Walk {
    /// All interleavings of a program with as many preemptions as so many runs are enough for.
    All { program: Program, runs_max: usize },
    /// Random programs in random interleavings.
    Random { seed: u64 },
    /// Random programs, preempted at the worst moments.
    Adversarial { seed: u64 },
}

/// A promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Stuck,
    WrongValue,
    Stale,
    ReadTwice,
    Other,
}

impl Broken {
    /// Tells by what a walk said when it broke off.
    fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let kinds = [
            ("deadlock", Self::Stuck),
            ("stays behind", Self::Stuck),
            ("a value of another key", Self::WrongValue),
            (": read ", Self::Stale),
            ("from before a write", Self::Stale),
            ("has asked the store more than once", Self::ReadTwice),
            ("leaders of one key", Self::ReadTwice),
        ];
        let is_of = |(part, _): &&(&str, Self)| text.is_some_and(|text| text.contains(part));
        kinds.iter().find(is_of).map_or(Self::Other, |kind| kind.1)
    }
}

/// What a walk has come to.
struct Walked {
    tally: Tally,
    /// Preemptions of which all interleavings were walked through.
    preemptions: Option<usize>,
    broken: Option<Broken>,
}

pub(super) fn proof(plan: &Plan) -> Vec<Verdict> {
    let (runs, runs_max) = if plan.is_quick {
        (40_000, 6_000)
    } else {
        (1_000_000, 50_000)
    };
    let mut walks: Vec<Case<Walk>> = proof::cases()
        .into_iter()
        .map(|(name, program)| Case {
            name: name.to_owned(),
            scenario: Walk::All { program, runs_max },
        })
        .collect();
    for at in 0..runs / WALK_RUNS {
        let seed = plan.seed.wrapping_add(at as u64);
        // Every fourth one at the worst moments.
        let (name, scenario) = if at % 4 == 3 {
            ("worst moments", Walk::Adversarial { seed })
        } else {
            ("random", Walk::Random { seed })
        };
        walks.push(Case {
            name: name.to_owned(),
            scenario,
        });
    }
    let walked = run_all(&walks, |case| case.scenario.walk());
    verdicts(&walks, &walked)
}

impl Walk {
    fn walk(&self) -> Walked {
        let mut preemptions = None;
        let walked = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Random { seed } => proof::random(*seed, WALK_RUNS),
            Self::Adversarial { seed } => proof::adversarial(*seed, WALK_RUNS, DEPTH),
            Self::All { program, runs_max } => {
                let mut sum = Tally::default();
                for most in 0..=PREEMPTIONS_MAX {
                    let (tally, is_complete) = proof::exhaustive(program.clone(), most, *runs_max);
                    sum.add(&tally);
                    if !is_complete {
                        break;
                    }
                    preemptions = Some(most);
                }
                sum
            }
        }));
        let (tally, broken) = match walked {
            Ok(tally) => (tally, None),
            Err(payload) => (Tally::default(), Some(Broken::of(&*payload))),
        };
        Walked {
            tally,
            preemptions,
            broken,
        }
    }
}

fn verdicts(walks: &[Case<Walk>], walked: &[Walked]) -> Vec<Verdict> {
    let (mut all, mut random) = (Tally::default(), Tally::default());
    let mut preemptions: Vec<(f64, &str)> = Vec::new();
    for (case, walked) in walks.iter().zip(walked) {
        if matches!(case.scenario, Walk::All { .. }) {
            all.add(&walked.tally);
            let whole = walked.preemptions.map_or(-1.0, |whole| whole as f64);
            preemptions.push((whole, &case.name));
        } else {
            random.add(&walked.tally);
        }
    }
    let of = |broken| {
        let is_of = |walked: &&Walked| walked.broken == Some(broken);
        walked.iter().filter(is_of).count() as f64
    };
    let runs = format!(
        "{} random runs and {} of {} programs in all orders",
        random.runs,
        all.runs,
        preemptions.len()
    );
    let none = |what: &str, broken, detail: String| {
        Verdict::one(
            format!("proof: {what}"),
            Bound::AtMost(0.0),
            of(broken),
            detail,
        )
    };
    let met = format!(
        "{} answered, {} with others, {} failed, {} left",
        random.answered, random.followers, random.failed, random.cancelled
    );
    let writes = format!(
        "{} flights overtaken by a write, {} fills not kept",
        random.overtaken, random.stale
    );
    let reads = |tally: &Tally| tally.store_reads as f64 / tally.leaders as f64;
    let orphans = format!(
        "{} followers of failed leaders",
        all.orphans + random.orphans
    );
    preemptions.sort_by(|one, other| one.0.total_cmp(&other.0));
    let fewest = preemptions.first().map_or("", |fewest| fewest.1);
    vec![
        none("waiters that are stuck", Broken::Stuck, runs),
        none("wrong values", Broken::WrongValue, met),
        none(
            "stale reads after an own acknowledged write",
            Broken::Stale,
            writes,
        ),
        none(
            "reads of the store beside a leader's",
            Broken::ReadTwice,
            orphans,
        ),
        Verdict::worst(
            "proof: reads of the store, of leaders",
            Bound::AtMost(1.0),
            vec![reads(&all), reads(&random)],
            format!("{} leaders", all.leaders + random.leaders),
        ),
        none("promises broken otherwise", Broken::Other, String::new()),
        Verdict::worst(
            "proof: preemptions of which all orders were walked",
            Bound::AtLeast(1.0),
            preemptions
                .iter()
                .map(|preemptions| preemptions.0)
                .collect(),
            format!("the fewest: {fewest}"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_told_by_what_was_said() {
        let of = |text: &str| Broken::of(&text.to_owned());
        assert_eq!(of("deadlock! blocked tasks: [0]"), Broken::Stuck);
        assert_eq!(of("a flight stays behind"), Broken::Stuck);
        assert_eq!(of("One: read 1, from Cache, after Floor"), Broken::Stale);
        assert_eq!(of("2 leaders of one key"), Broken::ReadTwice);
        assert_eq!(of("3.4s"), Broken::Other);
        assert_eq!(Broken::of(&"a value of another key"), Broken::WrongValue);
    }
}
