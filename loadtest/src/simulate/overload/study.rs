//! A study of overload: scenarios one after the other, each discipline beside the others, as tables.
//! Equal studies give equal bytes.

use umbo_overload::QueueSettings;
use umbo_types::Criticality;

use super::door::Discipline;
use super::figures::{Calm, Figures};
use super::scenario::{Kind, Scenario};
use super::world::run;

/// What is studied.
#[derive(Debug, Clone)]
pub(crate) struct Study {
    /// Of all randomness.
    pub(crate) seed: u64,
    /// Scenarios.
    pub(crate) kinds: Vec<Kind>,
    /// Who is at the doors, one after the other.
    pub(crate) disciplines: Vec<Discipline>,
    /// Length of the trouble, in seconds.
    pub(crate) trouble_s: f64,
}

impl Study {
    /// Runs every scenario with every discipline. `show` gets each line when it is known.
    pub(crate) fn run(&self, mut show: impl FnMut(String)) {
        for &kind in &self.kinds {
            let scenario = Scenario::new(kind, self.seed, self.trouble_s);
            let calm = Calm::of(&scenario);
            show(heading(&scenario, &calm));
            for &discipline in &self.disciplines {
                let account = run(&scenario, discipline, QueueSettings::default());
                let figures = Figures::of(&scenario, &account, &calm);
                for line in lines(discipline, &figures) {
                    show(line);
                }
            }
        }
    }
}

fn heading(scenario: &Scenario, calm: &Calm) -> String {
    format!(
        "{}: seed {}, {} shards of {} workers, {} ms a request; trouble from {} to {} s of {}\n\
         without trouble: at most {:.3} of the workers do what is answered in time, p99 {:.1} ms",
        scenario.kind.as_str(),
        scenario.seed,
        scenario.shards,
        scenario.workers,
        scenario.service_ns / 1e6,
        scenario.from_ns as f64 / 1e9,
        scenario.to_ns as f64 / 1e9,
        scenario.length_ns as f64 / 1e9,
        calm.peak / (scenario.shards * scenario.workers) as f64,
        calm.p99,
    )
}

/// Returns the lines of one discipline.
fn lines(discipline: Discipline, figures: &Figures) -> Vec<String> {
    let millis = |millis: Option<f64>| {
        millis.map_or_else(|| "never".to_owned(), |millis| format!("{millis} ms"))
    };
    let mut lines = vec![format!(
        "{:<13} goodput {:.3} of the peak; critical and above: {:.3} % answered, p99 x {:.2}; \
         inversions {:.4} %; begins to shed after {}, recovers within {}",
        discipline.as_str(),
        figures.goodput,
        figures.success * 100.0,
        figures.p99,
        figures.inversions * 100.0,
        millis(figures.engaged_ms),
        millis(figures.recovery_ms),
    )];
    for (tier, sum) in Criticality::ALL.into_iter().zip(&figures.tiers).rev() {
        lines.push(format!(
            "  {:<14} offered {:>9} admitted {:>9} shed {:>9} in time {:>9}  p50 {:>6.1}  p99 {:>6.1}  p99.9 {:>6.1} ms",
            tier.as_str(),
            sum.offered,
            sum.admitted,
            sum.shed,
            sum.good,
            sum.p50,
            sum.p99,
            sum.p999
        ));
    }
    lines
}
