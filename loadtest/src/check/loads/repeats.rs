//! Writes with idempotency keys over connections that are cut, to a server that is killed, repeated until they are
//! answered. The oracle says that each was applied once, and that each repetition had the answer of its application.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::rows;
use super::tier::{Tier, ask, wait_for};
use crate::check::connection::{Answer, Connection};
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::load::requests::http;
use crate::process::Cores;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const REQUESTS: u64 = 1_000_000;
const REQUESTS_QUICK: u64 = 20_000;
/// Writers, a connection each.
const WRITERS: u64 = 32;
/// Counters that all of them increment, each in a partition of its own.
const COUNTERS: usize = 8;
/// Share of the requests whose connection is cut, and of the writes that are sent once more after their answer.
const CUT_SHARE: f64 = 0.2;
const AGAIN_SHARE: f64 = 0.3;
/// Times that the server is killed meanwhile.
const KILLS: u64 = 3;
/// Longest part of an answer that is read before a cut, in bytes: of the head alone.
const HALF_ANSWER_MAX: u64 = 100;
/// Wait before a connection is made again, or a request is sent again that was refused.
const PAUSE: Duration = Duration::from_millis(5);
const NAMESPACE: &str = "once";

/// What the oracle knows, and what was seen.
#[derive(Default)]
struct Written {
    /// Sum of the increments of each counter.
    added: [i64; COUNTERS],
    /// Rows by partition and sort key: their value and version.
    rows: BTreeMap<(String, String), (String, u64)>,
    writes: u64,
    cuts: u64,
    replayed: u64,
    /// Repetitions that had another answer than the first, and writes that were refused.
    wrong: u64,
    first_wrong: Option<String>,
}

impl Written {
    fn add(&mut self, other: Self) {
        for (sum, added) in self.added.iter_mut().zip(other.added) {
            *sum += added;
        }
        self.rows.extend(other.rows);
        self.writes += other.writes;
        self.cuts += other.cuts;
        self.replayed += other.replayed;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
    }

    fn complain(&mut self, what: &str, answer: &Answer) {
        self.wrong += 1;
        let said = || format!("{what}: {}", answer.in_line());
        self.first_wrong.get_or_insert_with(said);
    }
}

pub(super) fn repeats(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let requests = if plan.is_quick {
        REQUESTS_QUICK
    } else {
        REQUESTS
    };
    let mut tier = Tier::embedded(Cores::All)?;
    tier.create(NAMESPACE, "{}")?;
    let sent = AtomicU64::new(0);
    let port = tier.ports[0];
    let written = thread::scope(|scope| {
        let writers = (0..WRITERS).map(|number| {
            let writer = Writer::new(port, plan.seed, number, &sent, requests);
            scope.spawn(move || writer.run())
        });
        let writers: Vec<_> = writers.collect();
        for kill in 1..=KILLS {
            wait_for("the writers write", || {
                let is_time = sent.load(Relaxed) >= requests * kill / (KILLS + 1);
                Ok(is_time.then_some(()))
            })?;
            tier.kill(0)?;
            tier.start_again(0)?;
        }
        let mut all = Written::default();
        for writer in writers {
            all.add(writer.join().expect("no writer panics")?);
        }
        Ok::<_, Failure>(all)
    })?;
    let wrong = compare(&mut tier, &written)?;
    tier.stop()?;
    let detail = format!(
        "{} writes by {} requests; {} connections cut, {KILLS} kills, {} answers replayed",
        written.writes,
        sent.load(Relaxed),
        written.cuts,
        written.replayed
    );
    let said = written.first_wrong.unwrap_or_default();
    Ok(vec![
        Verdict::one(
            "repeats: counters and rows but as the oracle",
            Bound::AtMost(0.0),
            wrong,
            detail,
        ),
        Verdict::one(
            "  answers but those of the application",
            Bound::AtMost(0.0),
            written.wrong as f64,
            said,
        ),
        Verdict::one(
            "  answers that were replayed, of all",
            Bound::AtLeast(0.05),
            written.replayed as f64 / written.writes as f64,
            "or nothing was tried",
        ),
    ])
}

/// Returns how many counters and rows are not what the oracle says.
fn compare(tier: &mut Tier, written: &Written) -> Result<f64, Failure> {
    let mut wrong = 0;
    for (counter, added) in written.added.iter().enumerate() {
        let target = format!("/v1/ns/{NAMESPACE}/kv/counter-{counter}");
        let number = ask(tier.ports[0], "GET", &target, b"")?;
        wrong += u32::from(number != added.to_string().as_bytes());
    }
    let file = tier.lab.path("export.ndjson");
    rows::export(tier, NAMESPACE, &file)?;
    let mut stored = BTreeMap::new();
    rows::each(&file, |row| {
        let text = |field: &str| row.get(field).and_then(Value::as_str).unwrap_or_default();
        if !text("pk").starts_with("counter-") {
            let version = row.get("version").and_then(Value::as_u64).unwrap_or(0);
            let key = (text("pk").to_owned(), text("sk").to_owned());
            stored.insert(key, (text("v").to_owned(), version));
        }
    })?;
    let absent_or_other = |(key, row): &(_, _)| stored.get(*key) != Some(*row);
    let lacking = written.rows.iter().filter(absent_or_other).count();
    let beside = stored
        .keys()
        .filter(|key| !written.rows.contains_key(*key))
        .count();
    Ok(f64::from(wrong) + (lacking + beside) as f64)
}

/// Sends writes, each with a key, again and again until it is answered.
struct Writer<'a> {
    port: u16,
    number: u64,
    random: Random,
    sent: &'a AtomicU64,
    requests: u64,
    connection: Option<Connection>,
    written: Written,
    /// Sort key and version of the last row that was created.
    last: Option<(String, u64)>,
}

impl<'a> Writer<'a> {
    fn new(port: u16, seed: u64, number: u64, sent: &'a AtomicU64, requests: u64) -> Self {
        Self {
            port,
            number,
            random: Random::seeded(seed ^ (number + 1).wrapping_mul(0x9E37_79B9)),
            sent,
            requests,
            connection: None,
            written: Written::default(),
            last: None,
        }
    }

    fn run(mut self) -> Result<Written, Failure> {
        while self.sent.load(Relaxed) < self.requests {
            self.written.writes += 1;
            let at = self.written.writes;
            match self.random.below(6) {
                0..=1 => self.increment(at)?,
                2 => self.create(at)?,
                3 => self.batch(at)?,
                4 => self.replace(at)?,
                _ => self.delete(at)?,
            }
        }
        Ok(self.written)
    }

    fn partition(&self) -> String {
        format!("row-{}", self.number)
    }

    fn increment(&mut self, at: u64) -> Result<(), Failure> {
        let counter = self.random.below(COUNTERS as u64) as usize;
        let by = self.random.below(19).cast_signed() - 9;
        let fields = format!("Umbo-Increment: {by}\r\n");
        let path = format!("kv/counter-{counter}");
        if self.write(at, "PATCH", &path, &fields, b"")?.is_some() {
            self.written.added[counter] += by;
        }
        Ok(())
    }

    /// Creates a row that must be absent: a second application would be refused.
    fn create(&mut self, at: u64) -> Result<(), Failure> {
        let (pk, sk) = (self.partition(), at.to_string());
        let path = format!("kv/{pk}/{sk}");
        let answer = self.write(at, "PUT", &path, "If-None-Match: *\r\n", sk.as_bytes())?;
        if let Some(version) = answer.as_ref().and_then(version) {
            self.written
                .rows
                .insert((pk, sk.clone()), (sk.clone(), version));
            self.last = Some((sk, version));
        }
        Ok(())
    }

    /// Replaces the last row if it is the one that was written: a second application would be refused.
    fn replace(&mut self, at: u64) -> Result<(), Failure> {
        let Some((sk, last)) = self.last.take() else {
            return self.create(at);
        };
        let (pk, value) = (self.partition(), at.to_string());
        let fields = format!("If-Match: \"{last}\"\r\n");
        let path = format!("kv/{pk}/{sk}");
        let answer = self.write(at, "PUT", &path, &fields, value.as_bytes())?;
        if let Some(version) = answer.as_ref().and_then(version) {
            self.written.rows.insert((pk, sk.clone()), (value, version));
            self.last = Some((sk, version));
        }
        Ok(())
    }

    /// Deletes the last row if it is the one that was written.
    fn delete(&mut self, at: u64) -> Result<(), Failure> {
        let Some((sk, last)) = self.last.take() else {
            return self.create(at);
        };
        let pk = self.partition();
        let fields = format!("If-Match: \"{last}\"\r\n");
        let path = format!("kv/{pk}/{sk}");
        if self.write(at, "DELETE", &path, &fields, b"")?.is_some() {
            self.written.rows.remove(&(pk, sk));
        }
        Ok(())
    }

    /// Increments every counter and creates a row, in as many partitions.
    fn batch(&mut self, at: u64) -> Result<(), Failure> {
        let (pk, sk) = (self.partition(), at.to_string());
        let by = self.random.below(19).cast_signed() - 9;
        let mut body = String::new();
        for counter in 0..COUNTERS {
            let line = json!({"op": "inc", "pk": format!("counter-{counter}"), "by": by});
            writeln!(body, "{line}").expect("a string takes every write");
        }
        let line = json!({"op": "put", "pk": pk, "sk": sk, "v": sk, "if_none_match": "*"});
        writeln!(body, "{line}").expect("a string takes every write");
        let answer = self.write(at, "POST", "batch/write", "", body.as_bytes())?;
        let Some(answer) = answer else { return Ok(()) };
        let row = answer.lines().get(COUNTERS).cloned().unwrap_or_default();
        let Some(version) = row["version"].as_u64() else {
            self.written.complain("a batch", &answer);
            return Ok(());
        };
        self.written.added.iter_mut().for_each(|added| *added += by);
        self.written.rows.insert((pk, sk.clone()), (sk, version));
        Ok(())
    }

    /// Writes something once; returns the answer, none where it was refused.
    fn write(
        &mut self,
        at: u64,
        method: &str,
        path: &str,
        fields: &str,
        body: &[u8],
    ) -> Result<Option<Answer>, Failure> {
        let target = format!("/v1/ns/{NAMESPACE}/{path}");
        let key = format!("{fields}Idempotency-Key: \"{}-{at}\"\r\n", self.number);
        let request = http(method, &target, &key, body);
        let first = self.until_answered(&request)?;
        if !first.is_success() {
            self.written.complain(path, &first);
            return Ok(None);
        }
        if self.random.unit() < AGAIN_SHARE {
            let again = self.until_answered(&request)?;
            let is_replayed = again.header("umbo-replayed") == Some("?1");
            if !is_replayed || outcome(&again) != outcome(&first) {
                self.written.complain(path, &again);
            }
        }
        Ok(Some(first))
    }

    fn until_answered(&mut self, request: &[u8]) -> Result<Answer, Failure> {
        loop {
            self.sent.fetch_add(1, Relaxed);
            let connection = self.connection.take();
            let connection = connection.map_or_else(|| Connection::open(self.port), Ok);
            // A server that is killed refuses connections for a while.
            let Ok(mut connection) = connection else {
                thread::sleep(PAUSE);
                continue;
            };
            if self.random.unit() < CUT_SHARE {
                self.cut(connection, request);
                continue;
            }
            let Ok(answer) = connection.ask(request) else {
                continue;
            };
            self.connection = Some(connection);
            if is_answered(&answer) {
                self.written.replayed += u64::from(answer.header("umbo-replayed").is_some());
                return Ok(answer);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Sends a part of a request, or all of it and reads a part of the answer, and closes the connection.
    fn cut(&mut self, mut connection: Connection, request: &[u8]) {
        self.written.cuts += 1;
        let whole = request.len();
        let (sent, received) = match self.random.below(3) {
            0 => (self.random.below(whole as u64) as usize, 0),
            1 => (whole, 0),
            _ => (whole, self.random.below(HALF_ANSWER_MAX) as usize),
        };
        if connection.send(&request[..sent]).is_ok() && received > 0 {
            // Whether the server was there for it is part of what is tried.
            let _ = connection.receive(received);
        }
    }
}

/// Returns whether a request came to an end: what failed on the server's side is sent again.
fn is_answered(answer: &Answer) -> bool {
    let is_final = |status: u64| status < 500 && status != 429;
    let rows = if answer.header("content-type").is_some_and(is_ndjson) {
        answer.lines()
    } else {
        Vec::new()
    };
    let mut statuses = rows.iter().filter_map(|row| row["status"].as_u64());
    is_final(answer.status().into()) && statuses.all(is_final)
}

fn is_ndjson(content_type: &str) -> bool {
    content_type.starts_with("application/x-ndjson")
}

/// Returns what an answer says of rows: it is the same for a repetition.
fn outcome(answer: &Answer) -> (u16, Option<&str>, String) {
    let body = if answer.header("content-type").is_some_and(is_ndjson) {
        // The last line has the charge, which is another one.
        let rows = answer
            .lines()
            .into_iter()
            .filter(|row| row["end"].is_null());
        let rows = rows.map(|mut row| {
            row.as_object_mut().map(|row| row.remove("replayed"));
            row
        });
        Value::Array(rows.collect()).to_string()
    } else {
        String::from_utf8_lossy(&answer.body).into_owned()
    };
    (answer.status(), answer.header("etag"), body)
}

fn version(answer: &Answer) -> Option<u64> {
    answer.header("etag")?.trim_matches('"').parse().ok()
}
