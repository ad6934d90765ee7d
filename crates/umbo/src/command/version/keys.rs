//! Keys whose rows differ between two versions.
//!
//! Both versions have each partition in the same slot, so the same segment of both is compared; the order of their rows
//! does not matter. Segments are so small that a few thousand rows are held at a time.

use std::collections::BTreeMap;

use serde::Serialize;
use umbo_api::batch::KeyFields;
use umbo_api::row::JsonRow;
use umbo_client::{Client, ScanOptions};
use umbo_types::Namespace;

use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::{self, Listing};

/// Rows of a segment, about.
const SEGMENT_ROWS: u64 = 5_000;
/// Most segments of a scan.
const SEGMENTS_MAX: u64 = 4_096;

/// A key whose rows differ.
#[derive(Debug, PartialEq, Serialize)]
struct DifferentRow {
    /// Number of the only version with the row; absent if both have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    only_in: Option<u32>,
    #[serde(flatten)]
    key: KeyFields,
}

/// Lists up to `max` keys whose rows differ between two versions. `rows` is the number of rows of the larger version.
pub(super) async fn list(
    connection: &ConnectionArgs,
    ns: &Namespace,
    (numbers, rows): ([u32; 2], u64),
    max: usize,
) -> Result<(), CliError> {
    let client = connection.client()?;
    let segments = rows.div_ceil(SEGMENT_ROWS).clamp(1, SEGMENTS_MAX) as u32;
    let mut different = Vec::new();
    for segment in 0..segments {
        let one = read(&client, ns, numbers[0], (segment, segments)).await?;
        let other = read(&client, ns, numbers[1], (segment, segments)).await?;
        different.extend(differences(numbers, one, other));
        if different.len() >= max {
            break;
        }
    }
    different.truncate(max);
    Listing::new("PK  SK  ONLY IN")
        .with("PK", |row: &DifferentRow| {
            output::key(row.key.key().map(|(pk, _)| pk))
        })
        .with("SK", |row| output::key(row.key.key().map(|(_, sk)| sk)))
        .with("ONLY IN", |row| output::or_empty(row.only_in))
        .write(connection.listing_format(), &different)
}

/// Rows by partition key and sort key.
type RowsByKey = BTreeMap<(Vec<u8>, Vec<u8>), JsonRow>;

async fn read(
    client: &Client,
    ns: &Namespace,
    version: u32,
    segment: (u32, u32),
) -> Result<RowsByKey, CliError> {
    let options = ScanOptions {
        segment: Some(segment),
        version: Some(version),
        ..ScanOptions::default()
    };
    let mut reader = client.scan(ns.as_str(), options);
    let mut rows = RowsByKey::new();
    while let Some(some) = reader.next_rows().await? {
        for row in some {
            let key = row.partition().and_then(|pk| Ok((pk, row.sort()?)));
            let (pk, sk) = key.map_err(CliError::malformed)?;
            let pk = pk.ok_or_else(|| CliError::malformed("a row has no partition key"))?;
            rows.insert((pk, sk), row);
        }
    }
    Ok(rows)
}

/// Returns the rows that differ between both; the versions of rows are ignored.
fn differences(numbers: [u32; 2], one: RowsByKey, mut other: RowsByKey) -> Vec<DifferentRow> {
    let key_of = |JsonRow {
                      pk, pk64, sk, sk64, ..
                  }: JsonRow,
                  only_in| DifferentRow {
        only_in,
        key: KeyFields { pk, pk64, sk, sk64 },
    };
    let mut different = Vec::new();
    for (key, row) in one {
        match other.remove(&key) {
            None => different.push(key_of(row, Some(numbers[0]))),
            Some(found) if content(&found) != content(&row) => different.push(key_of(row, None)),
            Some(_) => {}
        }
    }
    let only_in_other = other.into_values();
    different.extend(only_in_other.map(|row| key_of(row, Some(numbers[1]))));
    different
}

/// Returns a row without its version.
fn content(row: &JsonRow) -> JsonRow {
    JsonRow {
        version: None,
        ..row.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[(&str, &str, u64)]) -> RowsByKey {
        let row = |&(pk, v, version): &(&str, &str, u64)| {
            let row = JsonRow {
                pk: Some(pk.to_owned()),
                v: Some(v.to_owned()),
                version: Some(version),
                ..JsonRow::default()
            };
            ((pk.into(), Vec::new()), row)
        };
        values.iter().map(row).collect()
    }

    #[test]
    fn rows_differ_by_what_they_hold_and_not_by_their_tags() {
        let one = rows(&[("a", "1", 1), ("b", "1", 2), ("c", "1", 3)]);
        let other = rows(&[("a", "1", 9), ("b", "2", 2), ("d", "1", 4)]);
        let found = differences([2, 3], one, other);
        let found: Vec<_> = found
            .iter()
            .map(|row| (row.key.pk.as_deref(), row.only_in))
            .collect();
        let expected = [
            (Some("b"), None),
            (Some("c"), Some(2)),
            (Some("d"), Some(3)),
        ];
        assert_eq!(found, expected);
    }
}
