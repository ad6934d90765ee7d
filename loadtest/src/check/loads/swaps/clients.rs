//! The clients: writers that know what is under their keys, and readers of keys that no writer has.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};

use super::dataset::{
    NAMESPACE, STILL_PARTITIONS, STILL_ROWS, WRITERS, WRITTEN_ROWS, still_key, written_key,
};
use crate::check::connection::{Answer, Connection};
use crate::check::loads::timeline::{Holds, Span, Timeline};
use crate::failure::Failure;
use crate::load::requests::http;
use crate::random::Random;

/// Rows of a page of a range.
const PAGE_ROWS: usize = 7;
/// One in so many writes removes all rows of the writer.
const REMOVES_ALL: u64 = 40;
/// Reads are answered by the store, not by a copy of up to three seconds of age.
const NO_CACHE: &str = "Cache-Control: no-cache\r\n";

/// What clients saw.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) writes: u64,
    pub(super) reads: u64,
    /// Writes that are not there, and rows that are there after their removal.
    pub(super) lost: u64,
    pub(super) back: u64,
    /// Answers with values of several datasets, and those of one that was not live.
    pub(super) mixed: u64,
    pub(super) strange: u64,
    pub(super) errors: u64,
    /// Milliseconds of the longest write beside an activation, and of the longest other one.
    pub(super) beside_max_ms: f64,
    pub(super) apart_max_ms: f64,
    /// The first of all complaints.
    pub(super) first: Option<String>,
}

impl Seen {
    pub(super) fn add(&mut self, other: Self) {
        self.writes += other.writes;
        self.reads += other.reads;
        self.lost += other.lost;
        self.back += other.back;
        self.mixed += other.mixed;
        self.strange += other.strange;
        self.errors += other.errors;
        self.beside_max_ms = self.beside_max_ms.max(other.beside_max_ms);
        self.apart_max_ms = self.apart_max_ms.max(other.apart_max_ms);
        self.first = self.first.take().or(other.first);
    }
}

/// The last write of a key: its value, none where it was removed.
struct LastWrite {
    value: Option<String>,
    span: Span,
}

/// A client with a connection to each dispatcher.
pub(super) struct Client<'a> {
    number: usize,
    connections: Vec<Connection>,
    ports: Vec<u16>,
    random: Random,
    timeline: &'a Timeline,
    is_over: &'a AtomicBool,
    last: BTreeMap<usize, LastWrite>,
    seen: Seen,
}

impl<'a> Client<'a> {
    /// Writers, and one reader of each kind: gets, multi-gets and ranges.
    pub(super) const KINDS: usize = WRITERS + 3;

    pub(super) fn new(
        number: usize,
        ports: &[u16],
        seed: u64,
        timeline: &'a Timeline,
        is_over: &'a AtomicBool,
    ) -> Self {
        Self {
            number,
            connections: Vec::new(),
            ports: ports.to_vec(),
            random: Random::seeded(seed ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9)),
            timeline,
            is_over,
            last: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    pub(super) fn run(mut self) -> Result<Seen, Failure> {
        for &port in &self.ports {
            self.connections.push(Connection::open(port)?);
        }
        while !self.is_over.load(Relaxed) {
            match self.number.checked_sub(WRITERS) {
                None => self.write_and_read()?,
                Some(0) => self.get_still()?,
                Some(1) => self.get_many()?,
                Some(_) => self.range()?,
            }
        }
        if self.number < WRITERS {
            for row in 0..WRITTEN_ROWS {
                self.check(row, 0)?;
            }
        }
        Ok(self.seen)
    }

    /// Asks a dispatcher; none where the answer is an error, which is counted.
    fn ask(
        &mut self,
        dispatcher: usize,
        (method, path): (&str, &str),
        fields: &str,
        body: &[u8],
        statuses: &[u16],
    ) -> Result<(Span, Option<Answer>), Failure> {
        let target = format!("/v1/ns/{NAMESPACE}/{path}");
        let request = http(method, &target, fields, body);
        let (span, answer) = Span::of(|| self.connections[dispatcher].ask(&request));
        let answer = answer?;
        if statuses.contains(&answer.status()) {
            return Ok((span, Some(answer)));
        }
        self.seen.errors += 1;
        self.complain(|| format!("{method} {path}: {}", answer.in_line()));
        Ok((span, None))
    }

    fn complain(&mut self, what: impl FnOnce() -> String) {
        self.seen.first.get_or_insert_with(what);
    }

    /// Changes a row or removes all, through one dispatcher, and reads one through another.
    fn write_and_read(&mut self) -> Result<(), Failure> {
        let dispatcher = self.random.below(self.ports.len() as u64) as usize;
        let row = self.random.below(WRITTEN_ROWS as u64) as usize;
        let (pk, sk) = written_key(self.number, row);
        self.seen.writes += 1;
        if self.random.below(REMOVES_ALL) == 0 {
            let path = format!("range/{pk}?all=true");
            let asked = self.ask(dispatcher, ("DELETE", &path), "", b"", &[200]);
            let (span, answer) = asked?;
            if answer.is_some() {
                for row in 0..WRITTEN_ROWS {
                    self.last.insert(row, LastWrite { value: None, span });
                }
            } else {
                self.last.clear();
            }
        } else {
            let is_put = self.random.below(3) > 0;
            let value = is_put.then(|| format!("w{}", self.seen.writes));
            let body = value.clone().unwrap_or_default();
            let path = format!("kv/{pk}/{sk}");
            let method = if is_put { "PUT" } else { "DELETE" };
            let statuses = [200, 201, 204];
            let asked = self.ask(dispatcher, (method, &path), "", body.as_bytes(), &statuses);
            let (span, answer) = asked?;
            self.time(&span);
            if answer.is_some() {
                self.last.insert(row, LastWrite { value, span });
            } else {
                // Whether it was applied is not known.
                self.last.remove(&row);
            }
        }
        let row = if self.random.below(2) == 0 {
            row
        } else {
            self.random.below(WRITTEN_ROWS as u64) as usize
        };
        self.check(row, (dispatcher + 1) % self.ports.len())
    }

    fn time(&mut self, write: &Span) {
        let ms = write.ended.duration_since(write.begun).as_secs_f64() * 1e3;
        let longest = if self.timeline.is_beside_activation(write) {
            &mut self.seen.beside_max_ms
        } else {
            &mut self.seen.apart_max_ms
        };
        *longest = longest.max(ms);
    }

    /// Reads a row of this writer, and holds it against what may be there.
    fn check(&mut self, row: usize, dispatcher: usize) -> Result<(), Failure> {
        let (pk, sk) = written_key(self.number, row);
        let path = format!("kv/{pk}/{sk}");
        let (span, answer) = self.ask(dispatcher, ("GET", &path), NO_CACHE, b"", &[200, 404])?;
        let (Some(answer), Some(last)) = (answer, self.last.get(&row)) else {
            return Ok(());
        };
        self.seen.reads += 1;
        let is_there = answer.status() == 200;
        let found = is_there.then(|| String::from_utf8_lossy(&answer.body).into_owned());
        let datasets = self.timeline.seen_by(&span);
        let may_be = datasets.iter().any(|&dataset| {
            let of_load = Some(dataset.to_string());
            match self.timeline.holds(dataset, &last.span) {
                Holds::Certainly => found == last.value,
                Holds::Perhaps => found == last.value || found == of_load,
                Holds::CertainlyNot => found == of_load,
            }
        });
        if !may_be {
            let was_removed = last.value.is_none();
            let said = format!(
                "{path} is {found:?} after {:?}, datasets {datasets:?}",
                last.value
            );
            if was_removed {
                self.seen.back += 1;
            } else {
                self.seen.lost += 1;
            }
            self.complain(|| said);
        }
        Ok(())
    }

    /// Holds the values of an answer, or of the pages of one cursor, against the datasets that were live.
    fn compare(&mut self, what: &str, span: &Span, values: &[String], expected: usize) {
        self.seen.reads += 1;
        let datasets = self.timeline.seen_by(span);
        let first = values.first();
        if values.len() != expected || values.iter().any(|value| Some(value) != first) {
            self.seen.mixed += 1;
            self.complain(|| format!("{what}: {values:?} of {expected}"));
        } else if !first
            .is_some_and(|first| datasets.iter().any(|dataset| *first == dataset.to_string()))
        {
            self.seen.strange += 1;
            self.complain(|| format!("{what}: {first:?} while {datasets:?} were live"));
        }
    }

    fn any_still(&mut self) -> (String, String) {
        let partition = self.random.below(STILL_PARTITIONS as u64) as usize;
        let row = self.random.below(STILL_ROWS as u64) as usize;
        still_key(partition, row)
    }

    fn any_dispatcher(&mut self) -> usize {
        self.random.below(self.ports.len() as u64) as usize
    }

    fn get_still(&mut self) -> Result<(), Failure> {
        let (pk, sk) = self.any_still();
        let dispatcher = self.any_dispatcher();
        let path = format!("kv/{pk}/{sk}");
        let (span, answer) = self.ask(dispatcher, ("GET", &path), NO_CACHE, b"", &[200])?;
        if let Some(answer) = answer {
            let value = String::from_utf8_lossy(&answer.body).into_owned();
            self.compare(&path, &span, &[value], 1);
        }
        Ok(())
    }

    /// Reads keys of all partitions, so of all shards, at once.
    fn get_many(&mut self) -> Result<(), Failure> {
        let dispatcher = self.any_dispatcher();
        let keys: Vec<Value> = (0..2 * STILL_PARTITIONS)
            .map(|at| {
                let row = self.random.below(STILL_ROWS as u64) as usize;
                let (pk, sk) = still_key(at % STILL_PARTITIONS, row);
                json!({"pk": pk, "sk": sk})
            })
            .collect();
        let expected = keys.len();
        let body = json!({ "keys": keys }).to_string();
        let asked = self.ask(
            dispatcher,
            ("POST", "batch/get"),
            NO_CACHE,
            body.as_bytes(),
            &[200],
        );
        let (span, answer) = asked?;
        if let Some(answer) = answer {
            self.compare("batch/get", &span, &values(&answer), expected);
        }
        Ok(())
    }

    /// Reads a partition page by page, each through any dispatcher.
    fn range(&mut self) -> Result<(), Failure> {
        let (pk, _) = self.any_still();
        let mut found = Vec::new();
        let mut cursor = String::new();
        let mut pages: Option<Span> = None;
        loop {
            let dispatcher = self.any_dispatcher();
            let path = format!("range/{pk}?limit={PAGE_ROWS}{cursor}");
            let target = format!("/v1/ns/{NAMESPACE}/{path}");
            let request = http("GET", &target, "", b"");
            let (span, answer) = Span::of(|| self.connections[dispatcher].ask(&request));
            let answer = answer?;
            let pages = pages.get_or_insert(span);
            pages.ended = span.ended;
            if !answer.is_success() {
                // A cursor ends with its dataset, which is kept for one activation. The values name it.
                let dataset = found.first().and_then(|value: &String| value.parse().ok());
                let is_over = |dataset| self.timeline.activations_after(dataset) >= 2;
                if !dataset.is_some_and(is_over) {
                    self.seen.errors += 1;
                    self.complain(|| format!("{path}: {}", answer.in_line()));
                }
                return Ok(());
            }
            found.extend(values(&answer));
            let end = answer.lines().pop().unwrap_or_default();
            if end["end"]["more"] != true {
                let pages = *pages;
                self.compare("a range by pages", &pages, &found, STILL_ROWS);
                return Ok(());
            }
            let next = end["end"]["cursor"].as_str().unwrap_or_default();
            cursor = format!("&cursor={next}");
        }
    }
}

/// Returns the values of the rows of an answer.
fn values(answer: &Answer) -> Vec<String> {
    let rows = answer.lines().into_iter();
    rows.filter_map(|row| row["v"].as_str().map(str::to_owned))
        .collect()
}
