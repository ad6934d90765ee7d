//! One flood from beginning to end: victims alone, beside it, and from two seconds after it on.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use umbo_api::hot::BusyReport;
use umbo_api::quota::UsageAnswer;
use umbo_api::shed::ShedStatus;

use super::culprit::{Culprit, Tally};
use super::flood::{Flood, Requests};
use super::victims::{self, Got, Sample, Victim, got};
use crate::bench::lab::{Lab, NAMESPACE, UMBO, UMBO_ADMIN};
use crate::check::connection::{Answer, Connection};
use crate::failure::Failure;
use crate::load::requests::http;
use crate::load::scrape::get;
use crate::process::{self, Cores, Process};
use crate::random::Random;
use crate::verdict::median_of;

/// Time of the victims before anything is measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time of the flood that is left out: the first second.
const ENGAGED: Duration = Duration::from_secs(1);
/// Time from the end of the flood until all has to be as before.
const OVER: Duration = Duration::from_secs(2);
/// Requests of the culprit alone, whose median is one commit.
const COMMITS: usize = 9;

/// How long each part lasts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) alone: Duration,
    pub(super) flood: Duration,
    pub(super) after: Duration,
}

/// What came of a flood.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Of each victim alone, beside the flood and after it.
    pub(super) got: Vec<(Victim, [Got; 3])>,
    /// One commit of the largest admitted write, in milliseconds.
    pub(super) commit_ms: f64,
    /// Requests of victims that were refused since the flood began, with the first reason.
    pub(super) refused: (usize, String),
    /// What victims paid, of plain prices; and the most that a put cost, of the dearest one alone.
    pub(super) price: (f64, f64),
    pub(super) tally: Tally,
    /// Answers of the culprit a second, and milliseconds until it was refused first.
    pub(super) answered_per_s: f64,
    pub(super) engaged_ms: Option<f64>,
    /// Share of the shards' busy time that the culprit has had, and its fair share, where the server says so.
    pub(super) busy: Option<(f64, f64)>,
    /// Processor time of the server and of this program during the flood, in cores.
    pub(super) cores: (f64, f64),
    /// What is not as before two seconds after the end.
    pub(super) left: Vec<String>,
}

/// Runs a flood against a new server with the configuration that it ships with.
pub(super) fn run(
    lab: &mut Lab,
    (flood, culprit): (Flood, Culprit),
    times: Times,
    seed: u64,
) -> Result<Outcome, Failure> {
    let server = start(lab)?;
    Victim::prepare()?;
    let requests = flood.prepare()?;
    let commit_ms = commit_ms(flood, &requests)?;
    let is_over = AtomicBool::new(false);
    let timeline = thread::scope(|scope| {
        let victims = victims::start(scope, &is_over);
        let timeline = Timeline::drive((culprit, &requests), times, server.id(), seed);
        is_over.store(true, Relaxed);
        let samples = victims::join(victims)?;
        Ok::<_, Failure>((timeline?, samples))
    });
    let (timeline, samples) = timeline?;
    server.stop()?;
    Ok(timeline.outcome(&samples, flood, commit_ms))
}

/// Starts the server on an empty folder, with no settings but where it is and listens.
fn start(lab: &mut Lab) -> Result<Process, Failure> {
    process::check_free(&[UMBO, UMBO_ADMIN])?;
    let folder = lab.new_folder("defaults")?;
    let arguments = [
        "serve".to_owned(),
        format!("--data={}", folder.join("data").display()),
        format!("--listen=127.0.0.1:{UMBO}"),
        format!("--admin-listen=127.0.0.1:{UMBO_ADMIN}"),
    ];
    let mut server = Process::start(lab.umbo_program(), &arguments, Cores::All, &folder)?;
    server.wait_for(UMBO)?;
    let target = format!("/admin/v1/namespaces/{NAMESPACE}");
    let created = Connection::open(UMBO)?.ask(&http("PUT", &target, "", b"{}"))?;
    if created.is_success() {
        Ok(server)
    } else {
        Err(created.unexpected())
    }
}

/// Returns what one commit of the largest write takes: of a flood that reads, that is a put of a victim, and 0 stands
/// for it.
fn commit_ms(flood: Flood, requests: &Requests) -> Result<f64, Failure> {
    if !flood.is_write() {
        return Ok(0.0);
    }
    let (mut random, mut times) = (Random::seeded(3), Vec::new());
    let mut connection = Connection::open(UMBO)?;
    for _ in 0..COMMITS {
        let request = requests.next(&Culprit::fields(0), &mut random);
        let begun = Instant::now();
        let answer = connection.ask(&request)?;
        if !answer.is_success() {
            return Err(answer.unexpected());
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median_of(&times))
}

/// What happened when, and what the server said meanwhile.
struct Timeline {
    /// Of the victims alone, beside the flood and after it.
    windows: [(Instant, Instant); 3],
    begun: Instant,
    tally: Tally,
    busy: Option<(f64, f64)>,
    cores: (f64, f64),
    /// What victims paid beyond plain prices since the flood began, of what they paid.
    penalty: f64,
    left: Vec<String>,
}

impl Timeline {
    fn drive(
        (culprit, requests): (Culprit, &Requests),
        times: Times,
        server: u32,
        seed: u64,
    ) -> Result<Self, Failure> {
        sleep(WARM_UP);
        let alone = (Instant::now(), Instant::now() + times.alone);
        sleep(times.alone);
        let paid = paid()?;
        let begun = Instant::now();
        let is_over = AtomicBool::new(false);
        let (tally, beside, busy, cores) = thread::scope(|scope| {
            let flood = scope.spawn(|| culprit.flood(requests, seed, &is_over));
            sleep(ENGAGED);
            let watched = watch(culprit, server, times.flood.saturating_sub(ENGAGED));
            is_over.store(true, Relaxed);
            let tally = flood.join().expect("no flood panics")?;
            let (beside, busy, cores) = watched?;
            Ok::<_, Failure>((tally, beside, busy, cores))
        })?;
        sleep(OVER);
        let mut left = left(&probe(requests)?)?;
        let over = self::paid()?;
        let after = (Instant::now(), Instant::now() + times.after);
        sleep(times.after);
        let now = self::paid()?;
        if now.1 > over.1 {
            left.push(format!("victims pay {:.1} RU of penalties", now.1 - over.1));
        }
        Ok(Self {
            windows: [alone, beside, after],
            begun,
            tally,
            busy,
            cores,
            penalty: (now.1 - paid.1) / (now.0 - paid.0),
            left,
        })
    }

    fn outcome(self, samples: &[Sample], flood: Flood, commit_ms: f64) -> Outcome {
        let got = Victim::ALL.map(|victim| {
            let of = self.windows.map(|window| got(samples, victim, window));
            (victim, of)
        });
        let refused = samples.iter().filter(|sample| sample.due >= self.begun);
        let mut refused = refused.filter_map(|sample| sample.refused.as_deref());
        let first = refused.next().map(str::to_owned);
        let refused = first.map_or((0, String::new()), |first| (1 + refused.count(), first));
        // A price has the time of the store in it, so that only the part of penalties is exact.
        let puts = got.iter().filter(|(victim, _)| *victim != Victim::Gets);
        let puts = puts.map(|(_, [alone, beside, _])| beside.units_max / alone.units_max);
        let (from, to) = self.windows[1];
        let is_within = |at: &&Instant| (from..to).contains(*at);
        let answered = self.tally.answered.iter().filter(is_within).count();
        let first_refusal = self.tally.first_refusal;
        Outcome {
            commit_ms: if flood.is_write() {
                commit_ms
            } else {
                got[0].1[0].p50
            },
            got: got.to_vec(),
            refused,
            price: (1.0 / (1.0 - self.penalty), puts.fold(0.0, f64::max)),
            answered_per_s: answered as f64 / (to - from).as_secs_f64(),
            engaged_ms: first_refusal.map(|at| (at - self.begun).as_secs_f64() * 1e3),
            tally: self.tally,
            busy: self.busy,
            cores: self.cores,
            left: self.left,
        }
    }
}

type Watched = ((Instant, Instant), Option<(f64, f64)>, (f64, f64));

/// Looks on at the rest of a flood.
fn watch(culprit: Culprit, server: u32, length: Duration) -> Result<Watched, Failure> {
    let cpu = || -> Result<_, Failure> {
        Ok([
            process::cpu_seconds(server)?,
            process::cpu_seconds(std::process::id())?,
        ])
    };
    let (begun, before) = (Instant::now(), cpu()?);
    sleep(length);
    let (ended, after) = (Instant::now(), cpu()?);
    let seconds = (ended - begun).as_secs_f64();
    let busy = busy(&get(UMBO, "/admin/v1/hot/busy", "")?, culprit);
    let cores = [0, 1].map(|at| (after[at] - before[at]) / seconds);
    Ok(((begun, ended), busy, (cores[0], cores[1])))
}

/// Returns the share of the culprit of the busy time of all shards, and the fair share of its callers together. `None` if
/// nothing was busy.
fn busy(report: &str, culprit: Culprit) -> Option<(f64, f64)> {
    let report: BusyReport = serde_json::from_str(report).ok()?;
    let (mut own, mut all) = (0.0, 0.0);
    for shard in &report.shards {
        all += shard.busy;
        let sources = shard.sources.iter();
        let of_culprit = sources.filter(|source| {
            let caller = source.caller.as_deref();
            caller.is_some_and(|caller| caller.starts_with("culprit"))
        });
        own += of_culprit.map(|source| source.share).sum::<f64>() * shard.busy;
    }
    // The victims are two more callers.
    let callers = culprit.callers as f64;
    (all > 0.0).then(|| (own / all, callers / (callers + 2.0)))
}

/// Asks once for the first caller of the culprit.
fn probe(requests: &Requests) -> Result<Answer, Failure> {
    Connection::open(UMBO)?.ask(&requests.next(&Culprit::fields(0), &mut Random::seeded(5)))
}

/// Returns what the victims have paid, and how much of it beyond plain prices.
fn paid() -> Result<(f64, f64), Failure> {
    let usage = get(UMBO, &format!("/v1/ns/{NAMESPACE}/usage"), "")?;
    let usage: UsageAnswer = serde_json::from_str(&usage)?;
    let is_victim = |caller: &str| Victim::ALL.iter().any(|victim| victim.caller() == caller);
    let rows = usage.rows.iter().filter(|row| is_victim(&row.caller));
    Ok(rows.fold((0.0, 0.0), |sum, row| (sum.0 + row.ru, sum.1 + row.penalty)))
}

/// Returns what an overload has left behind; `after` is an answer to the culprit.
fn left(after: &Answer) -> Result<Vec<String>, Failure> {
    let mut left = Vec::new();
    let status: ShedStatus = serde_json::from_str(&get(UMBO, "/admin/v1/shed", "")?)?;
    for shard in &status.shards {
        let tiers = shard.tiers.iter();
        let tiers = tiers.filter(|tier| tier.penalised || tier.overloaded);
        left.extend(tiers.map(|tier| format!("shard {} at {}", shard.shard, tier.tier)));
    }
    if !after.is_success() {
        let reason = super::culprit::reason(after);
        left.push(format!("the culprit is refused: {reason}"));
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use umbo_api::hot::{BusyShardInfo, BusySourceInfo};

    use super::*;

    #[test]
    fn busy_time_is_counted_where_the_server_says_it() {
        let culprit = Culprit {
            callers: 1,
            is_rude: false,
        };
        assert_eq!(busy("{}", culprit), None);
        let of = |caller: &str| BusySourceInfo {
            share: 1.0,
            caller: Some(caller.to_owned()),
            operation: "put".to_owned(),
            namespace: None,
            pk: None,
            pk64: None,
        };
        let shard = |shard: u16, busy: f64, caller: &str| BusyShardInfo {
            shard,
            busy,
            sources: vec![of(caller)],
        };
        let shards = vec![shard(0, 0.3, "culprit-0"), shard(1, 0.1, "critical")];
        let report = BusyReport {
            shards,
            ..BusyReport::default()
        };
        let status = &serde_json::to_string(&report).unwrap();
        let (own, fair) = busy(status, culprit).unwrap();
        assert!((own - 0.75).abs() < 1e-9 && (fair - 1.0 / 3.0).abs() < 1e-9);
    }
}
