//! A dispatcher that only decides: one of several that share a limit by Umbo or by one of its peers.
//!
//! It runs as a separate process, so that it can be killed, and so that its processor time is its own. It reads which
//! traffic to offer from its standard input, and writes what came of it to its standard output. Traffic is open: a
//! decision that takes long delays the next ones, and a request that is a second late counts as one without a decision.

mod decision;
pub(crate) mod frame;
mod gubernator;
mod redis;
mod umbo;

use std::io::{BufRead as _, stdin};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use cpu_time::{ProcessTime, ThreadTime};
use serde::{Deserialize, Serialize};

pub(crate) use self::decision::{DISPATCHERS, RATE};
use self::decision::{Decider, Decision};
use self::gubernator::Gubernator;
use self::redis::Redis;
use self::umbo::Umbo;
use crate::failure::Failure;
use crate::latencies::Latencies;
use crate::random::Random;
use crate::simulate::{Arrivals, SECOND_NS, Shape};

/// How often counts are written.
pub(crate) const TENTH: Duration = Duration::from_millis(100);
/// A request that is later is not decided.
const LATE_NS: u64 = SECOND_NS;
/// Empty measurements of processor time, of which the least is what a measurement takes.
const EMPTY_MEASUREMENTS: usize = 1_000;

/// Arguments of `umbo-loadtest admit`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Who decides
    #[arg(value_enum)]
    kind: Kind,
    /// Number of this dispatcher
    #[arg(long)]
    at: u32,
    /// Ports of the servers that decide or, with Umbo, of all dispatchers
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u16>,
    /// Port of the ownership row
    #[arg(long, default_value_t = 0)]
    row_port: u16,
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Umbo, with a quota of the scope `fleet`
    Fleet,
    /// Umbo, with a quota of the scope `pod`
    Pod,
    /// A script of Redis for each request
    Redis,
    /// A script of Redis for a batch of tokens
    RedisBatched,
    /// gubernator, by the owner of the key
    Gubernator,
    /// gubernator, by the server that is asked, which tells the owner later
    GubernatorGlobal,
}

/// What is offered to all dispatchers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Traffic {
    /// Twice the limit, at random instants.
    Over,
    /// Four times the limit for five seconds, nothing for five.
    OnOff,
}

/// A run, as the parent asks for it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) traffic: Traffic,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

impl Run {
    /// Returns the instants of the requests at a dispatcher, in nanoseconds.
    pub(crate) fn arrivals(self, at: u32) -> Vec<u64> {
        let shape = match self.traffic {
            Traffic::Over => Shape::Level(2.0),
            Traffic::OnOff => Shape::OnOff { on: 4.0, half_s: 5 },
        };
        let rate = f64::from(RATE) / f64::from(DISPATCHERS);
        let random = Random::seeded(self.seed ^ u64::from(at + 1) << 32);
        let mut arrivals = Arrivals::new(shape, rate, true, self.seconds * SECOND_NS, random);
        std::iter::from_fn(move || arrivals.next_ns()).collect()
    }
}

/// What a dispatcher writes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It waits for a run.
    Ready,
    /// A tenth of a second is over.
    Tenth {
        /// Number of the tenth.
        at: u64,
        counts: Counts,
    },
    /// A run is over.
    Done {
        /// Processor time of decisions, and of all that other threads did.
        cpu_ns: u64,
        decisions: u64,
        /// Median time of a decision.
        p50_us: f64,
        /// Port of the owner of the limit, if it is known here.
        owner: Option<u16>,
    },
}

/// Decisions by outcome.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// Without an answer.
    pub(crate) failed: u64,
}

impl Arguments {
    /// Offers the traffic that the standard input asks for, until its end.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut decider: Box<dyn Decider> = match self.kind {
            Kind::Fleet => Box::new(Umbo::of_fleet(self.at, self.ports, self.row_port)?),
            Kind::Pod => Box::new(Umbo::of_pod(self.at)),
            Kind::Redis => Box::new(Redis::new(self.ports[0], 1)),
            Kind::RedisBatched => Box::new(Redis::new(self.ports[0], redis::BATCH)),
            Kind::Gubernator => Box::new(Gubernator::new(self.at, self.ports, false)?),
            Kind::GubernatorGlobal => Box::new(Gubernator::new(self.at, self.ports, true)?),
        };
        say(&Word::Ready)?;
        for line in stdin().lock().lines() {
            let line = line.map_err(Failure::io("standard input"))?;
            let run: Run = serde_json::from_str(&line)?;
            let done = drive(&mut *decider, &run.arrivals(self.at), run.seconds)?;
            say(&done)?;
        }
        Ok(())
    }
}

fn say(word: &Word) -> Result<(), Failure> {
    println!("{}", serde_json::to_string(word)?);
    Ok(())
}

/// Decides about each request when it is due.
fn drive(decider: &mut dyn Decider, due: &[u64], seconds: u64) -> Result<Word, Failure> {
    let empty = (0..EMPTY_MEASUREMENTS).map(|_| measured(|| ()));
    let empty = empty.min().unwrap_or_default();
    let (process, own_thread) = (ProcessTime::now(), ThreadTime::now());
    let begun = Instant::now();
    let (mut next, mut tenth, mut counts) = (0, 0, Counts::default());
    let (mut inside, mut decisions, mut times) = (Duration::ZERO, 0, Latencies::default());
    let mut batch = Vec::new();
    while tenth < seconds * 10 {
        let passed = begun.elapsed();
        if passed >= TENTH * (tenth as u32 + 1) {
            say(&Word::Tenth { at: tenth, counts })?;
            (tenth, counts) = (tenth + 1, Counts::default());
            continue;
        }
        let now_ns = passed.as_nanos() as u64;
        let until = next + due[next..].partition_point(|at_ns| *at_ns <= now_ns);
        let late = due[next..until].partition_point(|at_ns| at_ns + LATE_NS < now_ns);
        counts.failed += late as u64;
        next += late;
        if next == until {
            let wake_ns = due.get(next).copied().unwrap_or(u64::MAX);
            let wake = Duration::from_nanos(wake_ns).min(TENTH * (tenth as u32 + 1));
            sleep(wake.saturating_sub(begun.elapsed()));
            continue;
        }
        let took = measured(|| {
            for _ in next..until {
                let asked = Instant::now();
                let decision = decider.decide();
                batch.push((decision, asked.elapsed()));
            }
        });
        inside += took.saturating_sub(empty);
        next = until;
        decisions += batch.len() as u64;
        for (decision, time) in batch.drain(..) {
            times.record_ms(time.as_secs_f64() * 1e3);
            *match decision {
                Decision::Admitted => &mut counts.admitted,
                Decision::Refused => &mut counts.refused,
                Decision::Failed => &mut counts.failed,
            } += 1;
        }
    }
    let of_others = process.elapsed().saturating_sub(own_thread.elapsed());
    Ok(Word::Done {
        cpu_ns: (inside + of_others).as_nanos() as u64,
        decisions,
        p50_us: times.quantile_ms(0.5).unwrap_or_default() * 1e3,
        owner: decider.owner(),
    })
}

/// Returns the processor time of this thread in some work.
fn measured(work: impl FnOnce()) -> Duration {
    let before = ThreadTime::now();
    work();
    before.elapsed()
}
