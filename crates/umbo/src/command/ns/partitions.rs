//! `umbo ns partitions`: the largest partitions of a namespace, by rows.
//!
//! Reads keys by a scan in pages, like `umbo kv count`. Each request reads one page, is charged, and is among the first
//! to be shed. The rows of a partition come one after the other in one segment. So the counts are exact, and only the
//! largest partitions are held in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;
use umbo_api::key_text;
use umbo_api::row::JsonRow;
use umbo_client::PageReader;
use umbo_types::Namespace;

use crate::cli_error::CliError;
use crate::command::kv::key_scans;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format, Listing, note};

/// Arguments of `umbo ns partitions`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// Most partitions to show, 1 to 100000
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    limit: u64,
    /// Stop after this many rows [default: read all rows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rows_max: Option<u64>,
}

/// A partition and its rows.
#[derive(Debug, Serialize)]
struct PartitionSize {
    rows: u64,
    /// As the command line writes keys.
    pk: String,
}

/// The largest partitions of a segment. The last one is the partition that is being counted.
#[derive(Debug)]
struct Largest {
    limit: usize,
    held: Vec<PartitionSize>,
}

/// The result of reading a segment.
#[derive(Debug)]
struct ReadSegment {
    largest: Largest,
    rows: u64,
    /// Whether reading ended before the end of the segment.
    is_cut: bool,
}

impl Largest {
    /// Counts a row of a partition. The rows of a partition have to come one after the other.
    fn count(&mut self, pk: String) {
        if let Some(last) = self.held.last_mut().filter(|last| last.pk == pk) {
            last.rows += 1;
            return;
        }
        // Sorting is rare: at least `limit` partitions are counted between two times.
        if self.held.len() >= 2 * self.limit {
            keep_largest(&mut self.held, self.limit);
        }
        self.held.push(PartitionSize { rows: 1, pk });
    }
}

/// Puts the largest partitions first, and drops all others.
fn keep_largest(partitions: &mut Vec<PartitionSize>, limit: usize) {
    partitions.sort_by(|one, other| (other.rows, &one.pk).cmp(&(one.rows, &other.pk)));
    partitions.truncate(limit);
}

impl Arguments {
    /// Prints the largest partitions.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.bulk_client()?;
        let left = Arc::new(AtomicU64::new(self.rows_max.unwrap_or(u64::MAX)));
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut segments = JoinSet::new();
        for keys in key_scans(&client, &self.ns) {
            segments.spawn(largest_of(keys, limit, Arc::clone(&left)));
        }
        let (mut all, mut rows, mut is_cut) = (Vec::new(), 0, false);
        while let Some(segment) = segments.join_next().await {
            let segment = segment.map_err(CliError::start)??;
            rows += segment.rows;
            is_cut |= segment.is_cut;
            all.extend(segment.largest.held);
        }
        keep_largest(&mut all, limit);
        let format = connection.listing_format();
        Listing::new("PK  ROWS").write(format, &all)?;
        if is_cut {
            note!(
                "stopped after {} (--rows-max); larger partitions may be among the others",
                output::counted(rows, "row")
            );
        } else if format == Format::Table {
            note!("of {}", output::counted(rows, "row"));
        }
        Ok(())
    }
}

/// Reads a segment until its end, or until no rows are left to read for all segments together.
async fn largest_of(
    mut reader: PageReader,
    limit: usize,
    left: Arc<AtomicU64>,
) -> Result<ReadSegment, CliError> {
    let mut read = ReadSegment {
        largest: Largest {
            limit,
            held: Vec::new(),
        },
        rows: 0,
        is_cut: false,
    };
    while let Some(rows) = reader.next_rows().await? {
        for row in rows {
            let take = |left: u64| left.checked_sub(1);
            let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            if taken.is_err() {
                read.is_cut = true;
                return Ok(read);
            }
            read.largest.count(partition_of(&row)?);
            read.rows += 1;
        }
    }
    Ok(read)
}

/// Returns the partition key of a row, as the command line writes it.
fn partition_of(row: &JsonRow) -> Result<String, CliError> {
    let key = row.partition().map_err(CliError::malformed)?;
    let key = key.ok_or_else(|| CliError::malformed("a row has no partition key"))?;
    Ok(key_text::format(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_held_and_no_more() {
        let mut largest = Largest {
            limit: 2,
            held: Vec::new(),
        };
        for (pk, rows) in [("a", 3), ("b", 1), ("c", 5), ("d", 2), ("e", 4)] {
            for _ in 0..rows {
                largest.count(pk.to_owned());
            }
            assert!(largest.held.len() <= 4);
        }
        keep_largest(&mut largest.held, 2);
        let found: Vec<_> = largest
            .held
            .iter()
            .map(|one| (one.rows, &*one.pk))
            .collect();
        assert_eq!(found, [(5, "c"), (4, "e")]);
    }

    #[test]
    fn keys_are_written_as_on_the_command_line() {
        for (line, pk) in [
            (r#"{"pk":"US","sk":"CA"}"#, "US"),
            (r#"{"pk64":"_w","sk":""}"#, "0xff"),
        ] {
            let row = serde_json::from_str(line).unwrap();
            assert_eq!(partition_of(&row).unwrap(), pk);
        }
        assert!(partition_of(&JsonRow::default()).is_err());
    }
}
