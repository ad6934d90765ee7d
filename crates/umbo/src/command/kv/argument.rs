//! Arguments of several commands, and their parsers.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use umbo_api::key_text::{self, KeyTextError};
use umbo_api::time_to_live;
use umbo_client::Condition;
use umbo_types::{Namespace, PartitionKey};

use crate::cli_error::{CliError, usage};

/// A key of the command line, in any of its forms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::command) struct Key(pub(in crate::command) Vec<u8>);

impl FromStr for Key {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        key_text::parse(text).map(Self)
    }
}

/// The key of a row: `PK [SK]`.
#[derive(Debug, Args)]
pub(super) struct RowKey {
    /// Namespace
    pub(super) ns: Namespace,
    /// Partition key
    #[arg(value_parser = partition_key)]
    pub(super) pk: Key,
    /// Sort key [default: empty]
    pub(super) sk: Option<Key>,
}

impl RowKey {
    pub(super) fn sort(&self) -> &[u8] {
        self.sk.as_ref().map_or(&[], |key| &key.0)
    }
}

/// Reads a partition key, which unlike other keys must not be empty.
pub(in crate::command) fn partition_key(text: &str) -> Result<Key, String> {
    let key: Key = text
        .parse()
        .map_err(|error: KeyTextError| error.to_string())?;
    PartitionKey::new(key.0.clone()).map_err(|error| error.to_string())?;
    Ok(key)
}

/// Reads a time to live: 1 second to ten years.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let seconds = time_to_live::parse(text);
    let bad = || format!("a time to live is {}", time_to_live::EXPECTED);
    seconds.map(Duration::from_secs).ok_or_else(bad)
}

/// Reads a condition: a version, an `ETag`, or `*` for any.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    if text == "*" {
        return Ok(Condition::Exists);
    }
    let version = text.trim_matches('"').split(';').next();
    version
        .unwrap_or_default()
        .parse()
        .map(Condition::Version)
        .map_err(|_| "a version is a number, as 'umbo kv range' and ETag show it, or *".to_owned())
}

/// Reads a whole file, `-` for stdin, up to a bound.
pub(in crate::command) fn read_file(path: &Path, len_max: usize) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let bound = len_max as u64 + 1;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(bound).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(bound).read_to_end(&mut bytes))
    };
    read.map_err(CliError::file("read", path))?;
    if bytes.len() > len_max {
        let path = path.display();
        return Err(usage!("{path} has more than {len_max} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_has_two_ends() {
        assert_eq!(ttl("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(
            ttl("3650d"),
            Ok(Duration::from_secs(time_to_live::SECONDS_MAX))
        );
        assert_eq!(ttl("60"), ttl("1m"));
        for text in ["0s", "999ms", "3650d 1ns", "11y", "soon", ""] {
            assert!(ttl(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_partition_key_holds_something_and_not_too_much() {
        assert_eq!(partition_key("0x00"), Ok(Key(vec![0])));
        assert!(partition_key(&"k".repeat(1_024)).is_ok());
        for text in ["", "0x", "b64:", "0x0", &"k".repeat(1_025)] {
            assert!(partition_key(text).is_err(), "{text}");
        }
    }
}
