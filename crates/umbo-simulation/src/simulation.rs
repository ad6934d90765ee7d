//! The result of one run of a seed: its trace, the events that occurred, and the first violation of an
//! oracle.
//!
//! Each run has its own thread, and records into the state of that thread, so that the code of a world does
//! not pass it around. The invariant: a trace contains nothing that differs between two runs of a seed, such
//! as paths, addresses or times of the machine.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use umbo_types::buggify;

use crate::chance::Chance;

/// Most lines of a trace that are kept for a failing seed.
const LINES_MAX: usize = 4_000;
/// Probability that a marked point is active in a seed, in thousandths.
const POINT_ON: u64 = 250;
/// Probability that an active point causes its event, in thousandths.
const POINT_HIT: u64 = 50;

/// Result of a run.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// Hash of all lines of the trace.
    pub hash: u64,
    /// Number of lines of the trace.
    pub events: u64,
    /// How often each fault, refusal and marked point occurred.
    pub met: BTreeMap<&'static str, u64>,
    /// The first violation.
    pub violation: Option<String>,
    /// The last lines of the trace.
    pub lines: VecDeque<String>,
}

impl RunReport {
    /// Makes the report of a run that panicked.
    pub fn of_panic(seed: u64, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Self {
            seed,
            hash: 0,
            events: 0,
            met: BTreeMap::new(),
            violation: Some(format!("the run panicked: {}", text.unwrap_or("no text"))),
            lines: VecDeque::new(),
        }
    }
}

struct CurrentRun {
    report: RunReport,
    began: Instant,
    is_printed: bool,
}

thread_local! {
    static RUN: RefCell<Option<CurrentRun>> = const { RefCell::new(None) };
}

/// Runs a world on this thread, in simulated time, and returns the result. `is_printed` prints the trace
/// during the run.
pub fn run<F: Future<Output = ()>>(
    seed: u64,
    is_printed: bool,
    world: impl FnOnce(u64) -> F,
) -> RunReport {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    let mut points: BTreeMap<&'static str, bool> = BTreeMap::new();
    let mut chance = Chance::new(seed, "marked points");
    buggify::on_this_thread(Some(Box::new(move |name| {
        let is_on = *points
            .entry(name)
            .or_insert_with(|| chance.per_mille(POINT_ON));
        let is_hit = is_on && chance.per_mille(POINT_HIT);
        if is_hit {
            met(name);
            note!("marked point {name} is hit");
        }
        is_hit
    })));
    let local = tokio::task::LocalSet::new();
    let report = local.block_on(&runtime, async {
        RUN.set(Some(CurrentRun {
            report: RunReport {
                seed,
                hash: 0,
                events: 0,
                met: BTreeMap::new(),
                violation: None,
                lines: VecDeque::new(),
            },
            began: Instant::now(),
            is_printed,
        }));
        world(seed).await;
        with(|run| run.report.clone())
    });
    buggify::on_this_thread(None);
    report
}

fn with<T>(of: impl FnOnce(&mut CurrentRun) -> T) -> T {
    RUN.with_borrow_mut(|run| of(run.as_mut().expect("a world runs")))
}

/// Adds a line to the trace, called by [`note!`].
pub fn note_line(line: fmt::Arguments<'_>) {
    with(|run| {
        let mut text = String::new();
        let at = run.began.elapsed().as_micros();
        write!(text, "{:>4}.{:06} {line}", at / 1_000_000, at % 1_000_000)
            .expect("a string takes everything");
        let report = &mut run.report;
        report.hash = xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), report.hash);
        report.events += 1;
        if run.is_printed {
            println!("{text}");
        }
        if report.lines.len() == LINES_MAX {
            report.lines.pop_front();
        }
        report.lines.push_back(text);
    });
}

/// Adds a line to the trace.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::simulation::note_line(format_args!($($text)*)) };
}
pub use note;

/// Counts an event that must occur from time to time.
pub fn met(name: &'static str) {
    with(|run| *run.report.met.entry(name).or_default() += 1);
}

/// Records a violation of an oracle. The first violation of a run counts.
pub fn violated(text: &str) {
    note!("VIOLATION: {text}");
    with(|run| {
        run.report.violation.get_or_insert_with(|| text.to_owned());
    });
}

/// Returns whether an oracle was violated in this run.
pub fn is_violated() -> bool {
    with(|run| run.report.violation.is_some())
}

/// Returns the simulated time since the run began.
pub fn elapsed() -> Duration {
    with(|run| run.began.elapsed())
}
