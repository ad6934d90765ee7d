//! What a redrive leaves alone: a row that was written after the line of a file of failed rows had failed is newer
//! than the line. The current versions are read before lines are sent, and each line is sent on the condition that
//! the row is still the same.
//!
//! A version is the time of its write in microseconds ([`umbo_types::Version`]), so it compares with the time of
//! the failure as well as the clocks of server and import agree.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::{Duration, Instant};

use serde::Deserialize;
use umbo_api::batch::{KeyFields, MultiGetRow, WriteLine};
use umbo_api::row::JsonRow;
use umbo_client::{Client, Error};
use umbo_types::Namespace;
use umbo_types::limits::MULTI_GET_KEYS_MAX;

use super::line::{self, LineKind};
use crate::cli_error::CliError;
use crate::command::kv::patience::{Patience, is_temporary};

/// Longest wait before versions are read again if the server gives no wait.
const UNNAMED_WAIT: Duration = Duration::from_secs(1);

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RedriveLine {
    /// The line is sent, in this form.
    Send(Vec<u8>),
    /// A newer row is there.
    LeaveAlone,
}

/// Hashes of the keys of lines that were sent before.
pub(super) type SentKeys = HashSet<u64>;

/// A line that is sent on a condition.
#[derive(Debug)]
struct Conditional {
    /// Place of the line among all lines that are checked, from 0.
    at: usize,
    key: KeyFields,
    hash: u64,
    row: Vec<u8>,
    /// When it failed, in microseconds since the Unix epoch; 0 if that is not known.
    failed_at: u64,
}

/// Reads the current versions of the rows of entries, and decides which are sent, and on which condition.
pub(super) async fn check(
    client: &Client,
    namespace: &Namespace,
    lines: &[&[u8]],
    sent: &mut SentKeys,
    limit: Duration,
) -> Result<Vec<RedriveLine>, CliError> {
    let mut checked: Vec<RedriveLine> = lines
        .iter()
        .map(|line| RedriveLine::Send(line.to_vec()))
        .collect();
    let conditional: Vec<Conditional> = (0..)
        .zip(lines)
        .filter_map(|(at, line)| conditional(at, namespace, line))
        .collect();
    let mut patience = Patience::new(limit);
    for group in conditional.chunks(MULTI_GET_KEYS_MAX) {
        let keys: Vec<KeyFields> = group.iter().map(|line| line.key.clone()).collect();
        let rows = read(client, namespace, &keys, &mut patience).await?;
        for (line, row) in group.iter().zip(rows) {
            let version = row.row.version.filter(|_| row.status == 200);
            let is_newer = version.is_some_and(|version| version > line.failed_at);
            checked[line.at] = if sent.contains(&line.hash) {
                // Of two lines with one key the second finds what the first has written.
                RedriveLine::Send(line.row.clone())
            } else if is_newer && !line.has_value(&row) {
                RedriveLine::LeaveAlone
            } else {
                sent.insert(line.hash);
                RedriveLine::Send(with_condition(&line.row, version))
            };
        }
    }
    Ok(checked)
}

/// Returns an entry whose row has a key and no condition of its own.
fn conditional(at: usize, namespace: &Namespace, entry: &[u8]) -> Option<Conditional> {
    #[derive(Deserialize)]
    struct Entry {
        failed: FailedAt,
    }
    #[derive(Deserialize)]
    struct FailedAt {
        #[serde(default)]
        at: u64,
    }
    let Ok(LineKind::Failed(range)) = line::read(entry, &mut Vec::new()) else {
        return None;
    };
    let row = &entry[range];
    let parsed: WriteLine<'_> = serde_json::from_slice(row).ok()?;
    if parsed.if_match.is_some() || parsed.if_none_match.is_some() {
        return None;
    }
    let mut key = Vec::new();
    let Ok(LineKind::Write { partition_len }) = line::read(row, &mut key) else {
        return None;
    };
    let (partition, sort) = key.split_at(partition_len.into());
    let entry: Entry = serde_json::from_slice(entry).ok()?;
    Some(Conditional {
        at,
        hash: BuildHasherDefault::<DefaultHasher>::default().hash_one((namespace, &key)),
        key: KeyFields::of(partition, &sort[1..]),
        row: row.to_vec(),
        failed_at: entry.failed.at.saturating_mul(1_000),
    })
}

impl Conditional {
    /// Returns whether a row has the value of the line: an interrupted redrive may have written it.
    fn has_value(&self, row: &MultiGetRow) -> bool {
        let line = serde_json::from_slice::<JsonRow>(&self.row);
        let values = line.map(|line| (line.value().ok(), row.row.value().ok()));
        values.is_ok_and(|(own, there)| {
            own.flatten()
                .is_some_and(|own| there.flatten() == Some(own))
        })
    }
}

fn with_condition(row: &[u8], version: Option<u64>) -> Vec<u8> {
    let condition = match version {
        Some(version) => format!("{{\"if_match\":{version},"),
        None => "{\"if_none_match\":\"*\",".to_owned(),
    };
    let inside = row.strip_prefix(b"{").unwrap_or(row);
    [condition.as_bytes(), inside].concat()
}

/// Reads rows, as long as patience lasts.
async fn read(
    client: &Client,
    namespace: &Namespace,
    keys: &[KeyFields],
    patience: &mut Patience,
) -> Result<Vec<MultiGetRow>, CliError> {
    for attempts in 1.. {
        let error = match client.multi_get(namespace.as_str(), keys.to_vec()).await {
            Ok(rows) => match rows.iter().find_map(|row| row.error.clone()) {
                None => {
                    patience.progress();
                    return Ok(rows);
                }
                Some(problem) => Error::Problem {
                    problem: Box::new(problem),
                },
            },
            Err(error) => error,
        };
        let named = error.retry_after();
        let is_over = !is_temporary(&error) || !patience.goes_on(attempts, named, Instant::now());
        if is_over {
            return Err(error.into());
        }
        tokio::time::sleep(named.unwrap_or_else(|| client.jitter(UNNAMED_WAIT))).await;
    }
    Err(CliError::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_without_a_condition_of_their_own_get_one() {
        let namespace = Namespace::new("n").unwrap();
        let entry = br#"{"failed":{"at":7,"line":1},"row":{"pk":"a","sk":"b","v":"x"}}"#;
        let found = conditional(3, &namespace, entry).unwrap();
        assert_eq!((found.at, found.failed_at), (3, 7_000));
        assert_eq!(found.key, KeyFields::of(b"a", b"b"));
        assert_eq!(
            with_condition(&found.row, Some(9)),
            br#"{"if_match":9,"pk":"a","sk":"b","v":"x"}"#
        );
        assert_eq!(
            with_condition(&found.row, None),
            br#"{"if_none_match":"*","pk":"a","sk":"b","v":"x"}"#
        );
        for other in [
            &br#"{"pk":"a","v":"x"}"#[..],
            br#"{"failed":{"line":1},"row":{"pk":"a","if_match":3}}"#,
            br#"{"failed":{"line":1},"row":{"sk":"a"}}"#,
            br#"{"failed":{"line":1},"text":"{"}"#,
        ] {
            assert!(conditional(0, &namespace, other).is_none());
        }
        let of_before = br#"{"failed":{"line":1},"row":{"pk":"a"}}"#;
        assert_eq!(conditional(0, &namespace, of_before).unwrap().failed_at, 0);
    }
}
