//! The patterns of the simulator over sockets: eight real dispatchers in front of a node, each caller with one quota in
//! the whole fleet, held against the one exact bucket.
//!
//! Open callers send each request when it is due, by turns to all dispatchers; obedient clients stay with theirs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::bench::lab::Lab;
use crate::check::connection::{Answer, Connection};
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::load::requests::http;
use crate::random::Random;
use crate::simulate::{Arrivals, Behaviour, Caller, Ideal, Pattern, Quota, SECOND_NS};
use crate::verdict::{Bound, Verdict};

/// Data and admin ports of the dispatchers.
const PORTS: [(u16, u16); 8] = [
    (18_130, 18_131),
    (18_132, 18_133),
    (18_134, 18_135),
    (18_136, 18_137),
    (18_138, 18_139),
    (18_140, 18_141),
    (18_142, 18_143),
    (18_144, 18_145),
];
/// Requests a second of a caller, and its burst. At 20 a second a request at each of eight dispatchers is two fifths of the
/// burst, and the simulator admits 1.05 of on-off too.
const RATE: u32 = 100;
/// Atoms of a request in the ideal bucket.
const REQUEST: u64 = 1_000_000;
/// Connections to a dispatcher.
const LANES: usize = 4;
/// Time for buckets to fill between two patterns.
const REST: Duration = Duration::from_secs(2);
/// Longest wait until all dispatchers own counters.
const TIMEOUT: Duration = Duration::from_mins(1);
/// A caller that the ideal bucket serves less of its quota has too few requests for a ratio.
const SERVED_LEAST: f64 = 0.25;

const POLICY: &str = r#"{"name":"shared","match":{"namespace":"bench"},"per":["caller"],"unit":"requests","rate":100,"burst":100,"scope":"fleet"}"#;
/// The policy that is built in counts something else.
const OFF: &str = r#"{"name":"default-caller","match":{"operations":["scan"]},"per":["caller"],"unit":"ru","rate":1000000}"#;

pub(super) fn sockets(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let seconds = if plan.is_quick { 12 } else { 60 };
    let mut lab = Lab::open(None, true)?;
    let most = Pattern::ALL
        .into_iter()
        .map(|one| one.callers().len())
        .max();
    let names = (0..most.unwrap_or_default()).map(|at| format!("caller-{at}"));
    let tokens: Vec<String> = names
        .map(|name| lab.new_caller(&name))
        .collect::<Result<_, _>>()?;
    let data = lab.path("data");
    let (node, dispatchers) = lab.fleet(&data, &PORTS)?;
    lab.create_namespace_on(PORTS[0].0)?;
    lab.put_policy_on(PORTS[0].0, "default-caller", OFF)?;
    lab.put_policy_on(PORTS[0].0, "shared", POLICY)?;
    for (_, admin) in PORTS {
        wait_for_owners(admin)?;
    }
    let mut verdicts = Vec::new();
    for pattern in Pattern::ALL {
        let run = Run {
            seconds,
            seed: plan.seed,
            requests: tokens
                .iter()
                .map(|token| http("GET", "/v1/ns/bench/kv/absent", token, b""))
                .collect(),
        };
        verdicts.push(run.verdict(pattern)?);
        sleep(REST);
    }
    for dispatcher in dispatchers {
        dispatcher.stop()?;
    }
    node.stop()?;
    Ok(verdicts)
}

/// Waits until a dispatcher knows a row with all owners: one joins with each revision.
fn wait_for_owners(admin: u16) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let answer = Connection::open(admin)?.ask(&http("GET", "/metrics", "", b""))?;
        let text = String::from_utf8_lossy(&answer.body);
        let mut lines = text.lines();
        let revision = lines.find_map(|line| line.strip_prefix("umbo_fleet_quota_revision "));
        let revision: f64 = revision.and_then(|text| text.parse().ok()).unwrap_or(0.0);
        if revision >= PORTS.len() as f64 {
            return Ok(());
        }
        if begun.elapsed() > TIMEOUT {
            return Err(Failure::Peer(format!("the row has revision {revision}")));
        }
        sleep(Duration::from_millis(100));
    }
}

/// One pattern, for some seconds.
struct Run {
    seconds: u64,
    seed: u64,
    /// The request of each caller.
    requests: Vec<Vec<u8>>,
}

/// A request of an open caller.
struct Due {
    at_ns: u64,
    caller: usize,
}

/// Answers of all callers.
#[derive(Default)]
struct Tally {
    admitted: Vec<AtomicU64>,
    refused: AtomicU64,
    /// Answers that neither admit nor refuse.
    others: AtomicU64,
    late: AtomicU64,
}

impl Tally {
    fn count(&self, caller: usize, answer: &Answer) {
        let count = match answer.status() {
            404 => &self.admitted[caller],
            429 => &self.refused,
            _ => &self.others,
        };
        count.fetch_add(1, Relaxed);
    }
}

impl Run {
    fn verdict(&self, pattern: Pattern) -> Result<Verdict, Failure> {
        let callers = pattern.callers();
        let tally = Tally {
            admitted: callers.iter().map(|_| AtomicU64::new(0)).collect(),
            ..Tally::default()
        };
        let ideal = match callers[0].behaviour {
            Behaviour::Closed {
                clients, demand, ..
            } => {
                self.obey(clients, demand, &tally)?;
                vec![u64::from(RATE) * (self.seconds + 1)]
            }
            Behaviour::Open { .. } => self.offer(&callers, &tally)?,
        };
        let least = SERVED_LEAST * f64::from(RATE) * self.seconds as f64;
        let shares: Vec<f64> = ideal
            .iter()
            .zip(&tally.admitted)
            .filter(|(ideal, _)| **ideal as f64 >= least)
            .map(|(ideal, admitted)| admitted.load(Relaxed) as f64 / *ideal as f64)
            .collect();
        let admitted: u64 = tally.admitted.iter().map(|one| one.load(Relaxed)).sum();
        let detail = format!(
            "{:.3} to {:.3} of {} callers; {admitted} requests admitted, {} refused, {} neither, {} late",
            shares.iter().copied().fold(f64::INFINITY, f64::min),
            shares.iter().copied().fold(0.0, f64::max),
            shares.len(),
            tally.refused.load(Relaxed),
            tally.others.load(Relaxed),
            tally.late.load(Relaxed),
        );
        let what = format!("sockets: {}: off from one bucket", pattern.as_str());
        let off = shares.iter().map(|share| (share - 1.0).abs()).collect();
        Ok(Verdict::worst(what, Bound::AtMost(0.02), off, detail))
    }

    /// Sends the requests of open callers; returns how many the ideal bucket of each serves of them at the times when they
    /// were sent: a busy machine sends late.
    fn offer(&self, callers: &[Caller], tally: &Tally) -> Result<Vec<u64>, Failure> {
        let mut random = Random::seeded(self.seed);
        let mut all = Vec::new();
        for (caller, Caller { behaviour, .. }) in callers.iter().enumerate() {
            let Behaviour::Open {
                shape,
                scale,
                is_random,
            } = *behaviour
            else {
                continue;
            };
            let (rate, length_ns) = (f64::from(RATE) * scale, self.seconds * SECOND_NS);
            let random = Random::seeded(random.next());
            let mut arrivals = Arrivals::new(shape, rate, is_random, length_ns, random);
            while let Some(at_ns) = arrivals.next_ns() {
                all.push(Due { at_ns, caller });
            }
        }
        all.sort_by_key(|due| due.at_ns);
        let lanes = PORTS.len() * LANES;
        let begun = Instant::now() + Duration::from_millis(100);
        let sent = Mutex::new(Vec::new());
        in_threads(lanes, |lane| {
            let mut connection = Connection::open(PORTS[lane % PORTS.len()].0)?;
            for due in all.iter().skip(lane).step_by(lanes) {
                let at = begun + Duration::from_nanos(due.at_ns);
                sleep(at.saturating_duration_since(Instant::now()));
                let is_late = at.elapsed() > Duration::from_millis(100);
                tally.late.fetch_add(u64::from(is_late), Relaxed);
                let at_ns = begun.elapsed().as_nanos() as u64;
                let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
                sent.push(Due {
                    at_ns,
                    caller: due.caller,
                });
                drop(sent);
                let answer = connection.ask(&self.requests[due.caller])?;
                tally.count(due.caller, &answer);
            }
            Ok(())
        })?;
        let mut sent = sent.into_inner().unwrap_or_else(PoisonError::into_inner);
        sent.sort_by_key(|due| due.at_ns);
        let served = |caller| {
            let amount = u64::from(RATE) * REQUEST;
            let mut ideal = Ideal::full(Quota {
                rate: amount,
                burst: amount,
            });
            let due = sent.iter().filter(|due| due.caller == caller);
            due.map(|due| ideal.serve(due.at_ns, REQUEST)).sum::<u64>() / REQUEST
        };
        Ok((0..callers.len()).map(served).collect())
    }

    /// Lets clients ask again as they are told.
    fn obey(&self, clients: u32, demand: f64, tally: &Tally) -> Result<(), Failure> {
        let cycle_s = f64::from(clients) / (f64::from(RATE) * demand);
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let until = |wait: Duration| sleep(wait.min(end.saturating_duration_since(Instant::now())));
        in_threads(clients as usize, |client| {
            let mut random = Random::seeded(self.seed ^ client as u64);
            let mut connection = Connection::open(PORTS[client % PORTS.len()].0)?;
            let mut request = self.requests[0].clone();
            until(Duration::from_secs_f64(cycle_s * random.unit()));
            while Instant::now() < end {
                let answer = connection.ask(&request)?;
                tally.count(0, &answer);
                request.clone_from(&self.requests[0]);
                if answer.is_rejected() {
                    let wait_ms = answer.number("umbo-retry-after-ms:")?;
                    if let Some(ticket) = answer.header("umbo-retry-ticket") {
                        request = with_ticket(&request, ticket);
                    }
                    until(Duration::from_secs_f64(wait_ms / 1e3));
                } else {
                    until(Duration::from_secs_f64(cycle_s * (0.5 + random.unit())));
                }
            }
            Ok(())
        })
    }
}

/// Returns a request with another field.
fn with_ticket(request: &[u8], ticket: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let field = format!("\r\nUmbo-Retry-Ticket: {ticket}\r\n");
    text.replacen("\r\n", &field, 1).into_bytes()
}

/// Runs work on threads; returns the first failure.
fn in_threads(
    count: usize,
    work: impl Fn(usize) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|at| scope.spawn(move || work(at))).collect();
        let mut results = threads.into_iter().map(|thread| {
            let result = thread.join();
            result.unwrap_or_else(|_| Err(Failure::Peer("a client panicked".to_owned())))
        });
        results.try_for_each(|result| result)
    })
}
