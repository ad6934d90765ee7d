//! How soon a key under attack is hot, and how soon it is not any more.

use super::counting::{SimulatedDispatcher, THREADS};
use super::keys::{ATTACKED, KEYS};
use crate::check::cases::{Case, Figure, run_all, verdicts_of};
use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

/// An attack on one key among many others.
struct Attack {
    seed: u64,
    /// Reads a second of the others.
    base: u64,
    /// Reads a second of the key.
    rate: f64,
    /// Milliseconds at which it begins.
    from: u64,
    /// How long it lasts.
    length: u64,
}

/// How soon a key is hot, and how soon it is not any more.
pub(super) fn reaction(plan: &Plan) -> Vec<Verdict> {
    let mut cases = Vec::new();
    let phases: &[u64] = if plan.is_quick {
        &[1, 50]
    } else {
        &[1, 25, 50, 75, 99]
    };
    // From three and a half times what makes a key hot: of less it takes longer to be sure.
    for (base, rate) in [
        (1_000, 700.0),
        (1_000, 50_000.0),
        (20_000, 700.0),
        (50_000, 1_750.0),
        (100_000, 3_500.0),
        (100_000, 100_000.0),
    ] {
        for length in [500, 3_000] {
            for phase in phases {
                cases.push(Case {
                    name: format!(
                        "{rate}/s among {base}/s for {length} ms, {phase} ms into a merge"
                    ),
                    scenario: Attack {
                        seed: plan.seed ^ (cases.len() as u64) << 32,
                        base,
                        rate,
                        from: 3_000 + phase,
                        length,
                    },
                });
            }
        }
    }
    let metrics = [
        ("sketch: seconds to hot", Bound::AtMost(0.2)),
        ("sketch: seconds to cool", Bound::AtMost(5.0)),
    ];
    let measured = run_all(&cases, |case| {
        let (hot_s, cool_s) = case.scenario.run();
        [hot_s, cool_s].map(|figure| Figure {
            name: case.name.clone(),
            figure,
        })
    });
    verdicts_of(metrics, measured)
}

impl Attack {
    /// Returns the seconds from the beginning to hot and from the end to cool; infinite where it never
    /// comes to that.
    fn run(&self) -> (f64, f64) {
        let mut random = Random::seeded(self.seed);
        let mut pod = SimulatedDispatcher::new(random.next(), THREADS);
        let to = self.from + self.length;
        let (mut hot_ms, mut cool_ms) = (None, None);
        let mut reads = Vec::new();
        let mut due = 0.0;
        for milli in 1..=to + 8_000 {
            reads.extend((0..self.base / 1_000).map(|_| random.below(KEYS)));
            if (self.from..to).contains(&milli) {
                // As irregular as arrivals are.
                due += self.rate / 1_000.0 * 2.0 * random.unit();
                while due >= 1.0 {
                    due -= 1.0;
                    reads.push(ATTACKED);
                }
            }
            if milli % 100 == 0 {
                pod.count(&reads);
                pod.tick();
                reads.clear();
                if pod.is_hot(ATTACKED) {
                    hot_ms = hot_ms.or(Some(milli));
                    cool_ms = None;
                } else if hot_ms.is_some() {
                    cool_ms = cool_ms.or(Some(milli));
                }
            }
        }
        let since = |at: Option<u64>, from| {
            at.map_or(f64::INFINITY, |at| at.saturating_sub(from) as f64 / 1e3)
        };
        (since(hot_ms, self.from), since(cool_ms, to))
    }
}
