//! What the culprit asks for.

use std::fmt::Write as _;

use crate::bench::lab::{NAMESPACE, UMBO};
use crate::check::connection::Connection;
use crate::failure::Failure;
use crate::load::requests::http;
use crate::random::Random;

/// Length of a large value, in bytes: of a plain row still.
const LARGE_LEN: usize = 1_000_000;
/// Large values that are put again and again, so that files stop growing.
const LARGE_KEYS: u64 = 400;
/// Rows of the partition that ranges read, and of all that scans read.
const MANY_ROWS: u64 = 100_000;
/// Length of a small value, in bytes.
const SMALL_LEN: usize = 100;
/// Rows of a batch, and keys of a multi-get.
const BATCH_ROWS: u64 = 1_000;
/// Partitions of the rows that batches and multi-gets name.
const PARTITIONS: u64 = 200;
/// Rows that each of them has.
const PARTITION_ROWS: u64 = 100;
/// Rows of a batch that expire soon.
const EXPIRING_ROWS: u64 = 200;
/// Seconds after which they do.
const TTL_SECONDS: u64 = 2;
/// Longest page in bytes, so that the number of rows ends it.
const PAGE_BYTES: u64 = 1 << 28;

/// A flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flood {
    /// Puts of 1 MB.
    LargePuts,
    /// Ranges of 100,000 rows.
    Ranges,
    /// Scans of 100,000 rows.
    Scans,
    /// Multi-gets of 1,000 keys.
    MultiGets,
    /// Batches of 1,000 rows.
    Batches,
    /// Batches of rows that expire within the flood.
    TtlStorm,
}

/// Its requests.
#[derive(Debug)]
pub(super) struct Requests {
    flood: Flood,
    /// Of those whose body is the same each time.
    body: Vec<u8>,
}

impl Flood {
    /// Returns whether it writes.
    pub(super) const fn is_write(self) -> bool {
        matches!(self, Self::LargePuts | Self::Batches | Self::TtlStorm)
    }

    /// Writes the rows that it reads, and makes its requests.
    pub(super) fn prepare(self) -> Result<Requests, Failure> {
        let mut random = Random::seeded(7);
        match self {
            Self::Ranges | Self::Scans => {
                for first in (0..MANY_ROWS).step_by(BATCH_ROWS as usize) {
                    let rows = first..first + BATCH_ROWS;
                    write(&lines(rows, |_| "big".to_owned(), None, &mut random))?;
                }
            }
            Self::MultiGets => {
                for first in (0..PARTITIONS * PARTITION_ROWS).step_by(BATCH_ROWS as usize) {
                    let rows = first..first + BATCH_ROWS;
                    write(&lines(rows, partition, None, &mut random))?;
                }
            }
            Self::LargePuts | Self::Batches | Self::TtlStorm => {}
        }
        let body = match self {
            Self::LargePuts => value(LARGE_LEN, &mut random).into_bytes(),
            _ => Vec::new(),
        };
        Ok(Requests { flood: self, body })
    }
}

impl Requests {
    /// Makes the next request of a caller, whose fields of the head are given.
    pub(super) fn next(&self, fields: &str, random: &mut Random) -> Vec<u8> {
        let path = |rest: &str| format!("/v1/ns/{NAMESPACE}/{rest}");
        match self.flood {
            Flood::LargePuts => {
                let target = path(&format!("kv/large{:04}/s", random.below(LARGE_KEYS)));
                http("PUT", &target, fields, &self.body)
            }
            Flood::Ranges => {
                let target = format!("range/big?limit={MANY_ROWS}&max_bytes={PAGE_BYTES}");
                http("GET", &path(&target), fields, b"")
            }
            Flood::Scans => {
                let body = format!(r#"{{"limit":{MANY_ROWS},"max_bytes":{PAGE_BYTES}}}"#);
                let fields = format!("{fields}Content-Type: application/json\r\n");
                http("POST", &path("scan"), &fields, body.as_bytes())
            }
            Flood::MultiGets => {
                let mut keys = Vec::new();
                for _ in 0..BATCH_ROWS {
                    let row = random.below(PARTITIONS * PARTITION_ROWS);
                    keys.push(format!(r#"{{"pk":"{}","sk":"s{row:06}"}}"#, partition(row)));
                }
                let body = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
                let fields = format!("{fields}Content-Type: application/json\r\n");
                http("POST", &path("batch/get"), &fields, body.as_bytes())
            }
            Flood::Batches => {
                let first = random.below(PARTITIONS * PARTITION_ROWS - BATCH_ROWS);
                batch(
                    &lines(first..first + BATCH_ROWS, partition, None, random),
                    fields,
                )
            }
            Flood::TtlStorm => {
                let first = random.below(1 << 40);
                let rows = first..first + EXPIRING_ROWS;
                batch(
                    &lines(rows, |row| format!("t{row}"), Some(TTL_SECONDS), random),
                    fields,
                )
            }
        }
    }
}

/// Returns the partition of a row: neighbours are in different ones, so that a batch is for all shards.
fn partition(row: u64) -> String {
    format!("b{:04}", row % PARTITIONS)
}

/// Returns letters that no compression makes much shorter.
fn value(len: usize, random: &mut Random) -> String {
    let letter = |_| char::from(b'0' + (random.below(75)) as u8);
    (0..len)
        .map(letter)
        .map(|letter| if letter == '\\' { '_' } else { letter })
        .collect()
}

/// Returns the lines of a batch that puts rows.
fn lines(
    rows: std::ops::Range<u64>,
    partition: impl Fn(u64) -> String,
    ttl: Option<u64>,
    random: &mut Random,
) -> String {
    let value = value(SMALL_LEN, random);
    let ttl = ttl.map_or_else(String::new, |seconds| format!(r#","ttl":{seconds}"#));
    let mut lines = String::new();
    for row in rows {
        let pk = partition(row);
        writeln!(
            lines,
            r#"{{"op":"put","pk":"{pk}","sk":"s{row:06}","v":"{value}"{ttl}}}"#
        )
        .expect("a string takes every write");
    }
    lines
}

fn batch(lines: &str, fields: &str) -> Vec<u8> {
    let target = format!("/v1/ns/{NAMESPACE}/batch/write");
    http(
        "POST",
        &target,
        &format!("{fields}Prefer: return=minimal\r\n"),
        lines.as_bytes(),
    )
}

/// Sends a batch that must succeed.
fn write(lines: &str) -> Result<(), Failure> {
    let answer = Connection::open(UMBO)?.ask(&batch(lines, ""))?;
    if answer.is_success() {
        Ok(())
    } else {
        Err(answer.unexpected())
    }
}
