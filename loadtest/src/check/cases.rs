//! Many simulated cases on all cores, and which of them was the worst.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::verdict::{Bound, Verdict};

/// A scenario with its name.
pub(super) struct Case<S> {
    pub(super) name: String,
    pub(super) scenario: S,
}

/// A figure of a case.
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) figure: f64,
}

/// Runs all cases on as many threads as there are cores, and returns what `measure` makes of them,
/// in order.
pub(super) fn run_all<S: Sync, T: Send>(
    cases: &[Case<S>],
    measure: impl Fn(&Case<S>) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let measured = Mutex::new(Vec::with_capacity(cases.len()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, case)) = take(cases, &next) {
                    let figure = measure(case);
                    let mut measured = measured.lock().expect("no measure panics");
                    measured.push((at, figure));
                }
            });
        }
    });
    let mut measured = measured.into_inner().expect("no measure panics");
    measured.sort_by_key(|(at, _)| *at);
    measured.into_iter().map(|(_, figure)| figure).collect()
}

fn take<'a, S>(cases: &'a [Case<S>], next: &AtomicUsize) -> Option<(usize, &'a Case<S>)> {
    let at = next.fetch_add(1, Relaxed);
    Some((at, cases.get(at)?))
}

/// Makes a verdict of which the worst figure decides, and which says whose it is.
fn worst_of(what: &str, bound: Bound, figures: Vec<Figure>) -> Verdict {
    let order = |one: &&Figure, other: &&Figure| one.figure.total_cmp(&other.figure);
    let worst = match bound {
        Bound::AtLeast(_) => figures.iter().min_by(order),
        Bound::AtMost(_) | Bound::Nothing => figures.iter().max_by(order),
    };
    let worst = worst.map_or("", |figure| figure.name.as_str());
    let detail = format!("{} figures, the worst: {worst}", figures.len());
    let figures = figures.into_iter().map(|figure| figure.figure).collect();
    Verdict::worst(what, bound, figures, detail)
}

/// Makes a verdict of each metric, over all cases.
pub(super) fn verdicts_of<const N: usize>(
    metrics: [(&str, Bound); N],
    measured: Vec<[Figure; N]>,
) -> Vec<Verdict> {
    let mut columns = metrics.map(|_| Vec::new());
    for figures in measured {
        for (column, figure) in columns.iter_mut().zip(figures) {
            column.push(figure);
        }
    }
    let verdicts = metrics.into_iter().zip(columns);
    verdicts
        .map(|((what, bound), figures)| worst_of(what, bound, figures))
        .collect()
}
