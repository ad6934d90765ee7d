//! The callers that flood: closed loops of ten connections, polite or rude.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::flood::Requests;
use crate::bench::lab::UMBO;
use crate::check::connection::{Answer, Connection};
use crate::failure::Failure;
use crate::random::Random;

/// Connections of the flood.
const CONNECTIONS: usize = 10;
/// Longest sleep of a connection, so that the end of the flood is seen.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Wait of a polite caller after a refusal that names no time.
const WAIT_MS: f64 = 1_000.0;

/// Who floods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Culprit {
    /// Callers that share the connections.
    pub(super) callers: usize,
    /// Whether refusals are answered by asking again at once.
    pub(super) is_rude: bool,
}

/// What became of the requests of a flood.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    /// Of those answered with success: when.
    pub(super) answered: Vec<Instant>,
    /// Refusals by reason: the code of the problem, with the signal where there is one.
    pub(super) refused: BTreeMap<String, u64>,
    /// The first of them.
    pub(super) first_refusal: Option<Instant>,
}

impl Culprit {
    /// Returns the name of one of its callers.
    pub(super) fn name(at: usize) -> String {
        format!("culprit-{at}")
    }

    /// Returns the fields of one of its callers.
    pub(super) fn fields(at: usize) -> String {
        fields(&Self::name(at), "sheddable")
    }

    /// Floods until `is_over`.
    pub(super) fn flood(
        self,
        requests: &Requests,
        seed: u64,
        is_over: &AtomicBool,
    ) -> Result<Tally, Failure> {
        thread::scope(|scope| {
            let connect = |number: usize| {
                let callers = (0..self.callers.div_ceil(CONNECTIONS))
                    .map(|turn| (turn * CONNECTIONS + number) % self.callers);
                let callers: Vec<usize> = callers.collect();
                let random = Random::seeded(seed + number as u64);
                scope.spawn(move || self.connection(&callers, requests, random, is_over))
            };
            let threads: Vec<_> = (0..CONNECTIONS).map(connect).collect();
            let mut all = Tally::default();
            for thread in threads {
                all.add(thread.join().expect("no client panics")?);
            }
            Ok(all)
        })
    }

    /// Asks for the callers of a connection by turns.
    fn connection(
        self,
        callers: &[usize],
        requests: &Requests,
        mut random: Random,
        is_over: &AtomicBool,
    ) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let mut connection = Connection::open(UMBO)?;
        let mut callers: Vec<_> = callers
            .iter()
            .map(|&caller| (Instant::now(), Self::fields(caller)))
            .collect();
        while !is_over.load(Relaxed) {
            callers.sort_by_key(|(from, _)| *from);
            let (from, fields) = &mut callers[0];
            if let Some(wait) = from.checked_duration_since(Instant::now()) {
                sleep(wait.min(LOOK_INTERVAL));
                continue;
            }
            let Ok(answer) = connection.ask(&requests.next(fields, &mut random)) else {
                tally.refuse("connection closed".to_owned());
                connection = Connection::open(UMBO)?;
                continue;
            };
            let now = Instant::now();
            *from = now;
            if answer.is_success() {
                tally.answered.push(now);
            } else {
                tally.refuse(reason(&answer));
                if !self.is_rude {
                    let wait_ms = answer.number("\r\numbo-retry-after-ms:").unwrap_or(WAIT_MS);
                    *from = now + Duration::from_secs_f64(wait_ms / 1_000.0);
                }
            }
            if answer.header("connection") == Some("close") {
                connection = Connection::open(UMBO)?;
            }
        }
        Ok(tally)
    }
}

impl Tally {
    fn refuse(&mut self, reason: String) {
        self.first_refusal.get_or_insert_with(Instant::now);
        *self.refused.entry(reason).or_default() += 1;
    }

    fn add(&mut self, other: Self) {
        self.answered.extend(other.answered);
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        let both = [self.first_refusal, other.first_refusal];
        self.first_refusal = both.into_iter().flatten().min();
    }

    /// Returns the refusals with their reasons.
    pub(super) fn reasons(&self) -> String {
        if self.refused.is_empty() {
            return "none refused".to_owned();
        }
        let reasons = self.refused.iter();
        let reasons: Vec<_> = reasons
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        reasons.join(", ")
    }
}

/// Returns the fields of a caller and its tier: without tokens, a request may name whom it is charged to.
pub(super) fn fields(caller: &str, tier: &str) -> String {
    format!("Umbo-Quota-User: {caller}\r\nUmbo-Criticality: {tier}\r\n")
}

/// Returns why a request was refused.
pub(super) fn reason(answer: &Answer) -> String {
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = answer.header("umbo-problem").map(str::to_owned);
    let code = code.unwrap_or_else(|| answer.status().to_string());
    match problem
        .get("signal")
        .or_else(|| problem.get("policy"))
        .and_then(Value::as_str)
    {
        Some(detail) => format!("{code} ({detail})"),
        None => code,
    }
}
