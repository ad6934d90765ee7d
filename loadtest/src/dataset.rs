//! The scenario's rows: partitions `pNNNNNN` of 100 sort keys `sNNN`, values of 256 bytes.
//!
//! Any row can be made on its own, from its number; nothing is read from anywhere. Values are
//! letters, digits, `-` and `_`, so they are as long in JSON as they are in the store.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::random::Random;

/// Rows of a partition.
pub(crate) const PARTITION_ROWS: u64 = 100;
/// Length of a value.
pub(crate) const VALUE_LEN: usize = 256;

const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
const SEED: u64 = 0x756D_626F;

/// In which order rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Of their keys.
    Key,
    /// At random, the same every time.
    Random,
}

/// Arguments of `umbo-loadtest rows`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many rows
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// In which order
    #[arg(long, value_enum, default_value_t = Order::Key)]
    order: Order,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        write_rows(io::stdout().lock(), self.rows, self.order)
            .map_err(Failure::io("standard output"))
    }
}

/// Writes rows as the NDJSON that `umbo kv import` reads.
pub(crate) fn write_rows(out: impl io::Write, rows: u64, order: Order) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let mut line = String::new();
    for row in numbers(rows, order) {
        line.clear();
        write_line(&mut line, row);
        out.write_all(line.as_bytes())?;
    }
    out.flush()
}

/// Returns the numbers of the rows in an order.
fn numbers(rows: u64, order: Order) -> Box<dyn Iterator<Item = u64>> {
    match order {
        Order::Key => Box::new(0..rows),
        Order::Random => {
            let mut numbers: Vec<u64> = (0..rows).collect();
            Random::seeded(SEED).shuffle(&mut numbers);
            Box::new(numbers.into_iter())
        }
    }
}

/// Adds `{"pk":…,"sk":…,"v":…}` and a line feed.
fn write_line(line: &mut String, row: u64) {
    let value = value(row);
    writeln!(
        line,
        r#"{{"pk":"{}","sk":"{}","v":"{value}"}}"#,
        partition(row),
        sort(row)
    )
    .expect("a string takes every write");
}

/// Adds a row as a line of a batch write.
pub(crate) fn write_put(lines: &mut Vec<u8>, row: u64) {
    let mut line = String::from(r#"{"op":"put","#);
    let mut plain = String::new();
    write_line(&mut plain, row);
    line.push_str(plain.trim_start_matches('{'));
    lines.extend_from_slice(line.as_bytes());
}

/// Returns the partition key of a row.
pub(crate) fn partition(row: u64) -> String {
    format!("p{:06}", row / PARTITION_ROWS)
}

/// Returns the sort key of a row.
pub(crate) fn sort(row: u64) -> String {
    format!("s{:03}", row % PARTITION_ROWS)
}

/// Returns the path of a row within its namespace.
pub(crate) fn resource(row: u64) -> String {
    format!("kv/{}/{}", partition(row), sort(row))
}

/// Returns the value of a row.
pub(crate) fn value(row: u64) -> String {
    let mut random = Random::seeded(SEED ^ row.wrapping_mul(0x9E37_79B9));
    let mut value = String::with_capacity(VALUE_LEN);
    while value.len() < VALUE_LEN {
        let mut bits = random.next();
        for _ in 0..8 {
            value.push(char::from(ALPHABET[(bits & 63) as usize]));
            bits >>= 8;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_hold_the_same_rows() {
        let lines = |order| {
            let mut text = Vec::new();
            write_rows(&mut text, 250, order).unwrap();
            let text = String::from_utf8(text).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let (sorted, mut shuffled) = (lines(Order::Key), lines(Order::Random));
        assert!(sorted.is_sorted() && sorted != shuffled);
        shuffled.sort();
        assert_eq!(sorted, shuffled);
        assert!(sorted[249].starts_with(r#"{"pk":"p000002","sk":"s049","v":""#));
    }

    #[test]
    fn a_value_has_its_length_and_its_own_content() {
        assert_eq!(value(7).len(), VALUE_LEN);
        assert_eq!(value(7), value(7));
        assert_ne!(value(7), value(8));
    }
}
