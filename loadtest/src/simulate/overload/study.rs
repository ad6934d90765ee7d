//! A study of overload: scenarios one after the other, each discipline beside the others, as tables
//! and plots. Equal studies give equal bytes.

use umbo_overload::QueueSettings;
use umbo_types::Criticality;

use super::account::{Account, SLICE_NS};
use super::door::Discipline;
use super::figures::{Calm, Figures};
use super::scenario::{Kind, Scenario};
use super::world::run;
use crate::plot::{Line, Panel, Pen, Plot, Scale, Span};

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

/// What came of it, as texts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// All tables.
    pub(crate) tables: String,
    /// Names of files with their contents.
    pub(crate) plots: Vec<(String, String)>,
}

impl Study {
    /// Runs every scenario with every discipline. `show` gets each line when it is known.
    pub(crate) fn run(&self, mut show: impl FnMut(&str)) -> Report {
        let (mut tables, mut plots) = (String::new(), Vec::new());
        let mut say = |line: String| {
            show(&line);
            tables.push_str(&line);
            tables.push('\n');
        };
        for &kind in &self.kinds {
            let scenario = Scenario::new(kind, self.seed, self.trouble_s);
            let calm = Calm::of(&scenario);
            say(heading(&scenario, &calm));
            let mut panels = Vec::new();
            for &discipline in &self.disciplines {
                let account = run(&scenario, discipline, QueueSettings::default());
                let figures = Figures::of(&scenario, &account, &calm);
                for line in lines(discipline, &figures) {
                    say(line);
                }
                panels.push(panel(discipline, &scenario, &account));
            }
            let plot = Plot {
                title: kind.as_str().to_owned(),
                seconds: scenario.length_ns as f64 / 1e9,
                spans: vec![Span {
                    name: "trouble".to_owned(),
                    from: scenario.from_ns as f64 / 1e9,
                    to: scenario.to_ns as f64 / 1e9,
                }],
                panels,
            };
            plots.push((format!("overload-{}.svg", kind.as_str()), plot.draw()));
        }
        Report { tables, plots }
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

/// How far a panel reaches, as a multiple of what all workers can do.
const REACH: f64 = 3.0;

/// Returns the lines of one discipline over time, in workers.
fn panel(discipline: Discipline, scenario: &Scenario, account: &Account) -> Panel {
    let slices = (scenario.length_ns / SLICE_NS) as usize;
    let at_s = |slice: usize| (slice as f64 + 0.5) * SLICE_NS as f64 / 1e9;
    let zero = |slice| (at_s(slice), 0.0);
    let mut offered: Vec<(f64, f64)> = (0..slices).map(zero).collect();
    let mut good = offered.clone();
    for (asks, source) in scenario.sources.iter().zip(&account.sources) {
        let work = asks.times * scenario.service_ns / SLICE_NS as f64;
        for (at, slice) in source.slices.iter().take(slices).enumerate() {
            offered[at].1 += slice.offered as f64 * work;
            good[at].1 += slice.work_ns / SLICE_NS as f64;
        }
    }
    let slots = account.slots.iter().take(slices).enumerate();
    let slots = slots.map(|(at, slots)| (at_s(at), f64::from(*slots) * scenario.shards as f64));
    let workers = (scenario.shards * scenario.workers) as f64;
    let line = |name, pen, points| Line { name, pen, points };
    Panel {
        title: discipline.as_str().to_owned(),
        unit: "workers".to_owned(),
        scale: Scale::Linear,
        reach: Some(REACH * workers),
        lines: vec![
            line("offered", Pen::GREY, offered),
            line("slots (as of the first shard)", Pen::AMBER, slots.collect()),
            line("answered in time", Pen::BLUE, good),
            Line::level(
                "all workers busy",
                Pen::BOUND,
                workers,
                scenario.length_ns as f64 / 1e9,
            ),
        ],
    }
}
