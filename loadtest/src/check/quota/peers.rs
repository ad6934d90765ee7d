//! Umbo's quota of a fleet beside its peers: eight dispatchers share one limit, each a process that only decides.
//!
//! Each way to decide is offered twice the limit, then four times the limit on and off, and then twice the limit again
//! until its owner is killed. Umbo's own errors have bounds; the figures of the peers have none.

mod dispatchers;
mod servers;

use std::thread::sleep;
use std::time::Duration;

use self::dispatchers::{Dispatchers, Outcome};
use self::servers::Servers;
use crate::admit::{DISPATCHERS, Kind, RATE, Run, Traffic};
use crate::bench::lab::Lab;
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::simulate::{Ideal, Quota};
use crate::verdict::{Bound, Verdict};

/// Time for buckets to fill between two runs.
const REST: Duration = Duration::from_secs(2);
/// When the owner is killed, and how long after that is looked at.
const KILL_AFTER: Duration = Duration::from_secs(5);
const WATCHED_S: u64 = 5;
/// Atoms of a request in the ideal bucket.
const REQUEST: u64 = 1_000_000;

const KINDS: [(Kind, &str); 6] = [
    (Kind::Fleet, "umbo, scope fleet"),
    (Kind::Pod, "umbo, scope pod"),
    (Kind::Redis, "Redis, a script a request"),
    (Kind::RedisBatched, "Redis, a script a batch"),
    (Kind::Gubernator, "gubernator"),
    (Kind::GubernatorGlobal, "gubernator, GLOBAL"),
];

/// What a kind comes to.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Admitted of what the ideal bucket serves, by traffic.
    over: f64,
    on_off: f64,
    /// Processor time of a decision in microseconds: of the dispatchers, and of the servers.
    cpu_us: (f64, f64),
    p50_us: f64,
    /// After the kill: admitted of the limit, and admitted or without an answer. `None` if the limit has no owner.
    killed: Option<(f64, f64)>,
}

pub(super) fn peers(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = Lab::open(None, true)?;
    let seconds = if plan.is_quick { 10 } else { 20 };
    let mut verdicts = Vec::new();
    for (kind, name) in KINDS {
        let figures = measure(&mut lab, kind, (seconds, plan.seed));
        verdicts.extend(figures.map_or_else(
            |failure| vec![failed(name, &failure)],
            |figures| lines(kind, name, figures),
        ));
    }
    Ok(verdicts)
}

fn measure(lab: &mut Lab, kind: Kind, (seconds, seed): (u64, u64)) -> Result<Figures, Failure> {
    let mut servers = Servers::start(lab, kind)?;
    let mut dispatchers = Dispatchers::start(kind, &servers.ports)?;
    servers.wait()?;
    dispatchers.wait_for_owners()?;
    let run = |traffic, seed| Run {
        traffic,
        seconds,
        seed,
    };
    // What is made at first use is made before.
    dispatchers.run(
        Run {
            seconds: 1,
            ..run(Traffic::Over, seed)
        },
        || Ok(None),
    )?;
    sleep(REST);
    let before = servers.cpu_seconds()?;
    let over = run(Traffic::Over, seed + 1);
    let of_over = dispatchers.run(over, || Ok(None))?;
    let server_us = (servers.cpu_seconds()? - before) * 1e6;
    sleep(REST);
    let on_off = run(Traffic::OnOff, seed + 2);
    let of_on_off = dispatchers.run(on_off, || Ok(None))?;
    sleep(REST);
    let decisions = of_over.decisions as f64;
    let mut figures = Figures {
        over: share(over, &of_over),
        on_off: share(on_off, &of_on_off),
        cpu_us: (
            of_over.cpu_ns as f64 / 1e3 / decisions,
            server_us / decisions,
        ),
        p50_us: of_over.p50_us,
        killed: None,
    };
    if kind != Kind::Pod {
        let owner = of_over.owner;
        let killing = Run {
            seconds: KILL_AFTER.as_secs() + WATCHED_S,
            ..run(Traffic::Over, seed + 3)
        };
        let outcome = dispatchers.run(killing, || {
            sleep(KILL_AFTER);
            servers.kill(owner)
        })?;
        let after = outcome.after(KILL_AFTER);
        let limit = (u64::from(RATE) * WATCHED_S) as f64;
        let open = after.admitted + after.failed;
        figures.killed = Some((after.admitted as f64 / limit, open as f64 / limit));
    }
    Ok(figures)
}

/// Returns what was admitted of what one exact bucket serves.
fn share(run: Run, outcome: &Outcome) -> f64 {
    let amount = u64::from(RATE) * REQUEST;
    let mut ideal = Ideal::full(Quota {
        rate: amount,
        burst: amount,
    });
    let mut due: Vec<u64> = (0..DISPATCHERS).flat_map(|at| run.arrivals(at)).collect();
    due.sort_unstable();
    let served: u64 = due
        .into_iter()
        .map(|at_ns| ideal.serve(at_ns, REQUEST))
        .sum();
    outcome.after(Duration::ZERO).admitted as f64 * REQUEST as f64 / served as f64
}

/// A kind that could not be measured is a line that fails, and not left out.
fn failed(name: &str, failure: &Failure) -> Verdict {
    let detail = failure.to_string();
    Verdict::one(
        format!("peers: {name}"),
        Bound::AtMost(0.0),
        f64::NAN,
        detail,
    )
}

fn lines(kind: Kind, name: &str, figures: Figures) -> Vec<Verdict> {
    let bound = |off| match kind {
        Kind::Fleet => Bound::AtMost(off),
        _ => Bound::Nothing,
    };
    let line = |what: String, off, figure: f64, detail| {
        Verdict::one(what, bound(off), (figure - 1.0).abs(), detail)
    };
    let Figures {
        over,
        on_off,
        cpu_us,
        p50_us,
        killed,
    } = figures;
    let cpu = Verdict::one(
        "  processor time of a decision, µs",
        Bound::Nothing,
        cpu_us.0 + cpu_us.1,
        format!(
            "{:.1} µs dispatcher, {:.1} µs servers; p50 of a decision {p50_us:.1} µs",
            cpu_us.0, cpu_us.1
        ),
    );
    let mut lines = vec![
        line(
            format!("peers: {name}: off, over the limit"),
            0.02,
            over,
            format!("{over:.3} of the ideal bucket"),
        ),
        line(
            "  off, on and off".to_owned(),
            0.02,
            on_off,
            format!("{on_off:.3} of the ideal bucket"),
        ),
        cpu,
    ];
    lines.extend(killed.map(|(closed, open)| {
        let detail = format!("{closed:.3} of the limit; {open:.3} with those without an answer");
        line("  off, 5 s after the kill".to_owned(), 0.05, closed, detail)
    }));
    lines
}
