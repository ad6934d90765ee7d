//! The one codec: from domain types to bytes and back.

pub(crate) mod answers;
mod attributes;
mod chunks;
mod errors;
pub(crate) mod greetings;
mod idempotency;
mod mail;
mod mutations;
mod records;
pub(crate) mod requests;
mod results;
mod rows;
mod sort_range;
mod statuses;

use umbo_types::{Key, Timestamp};

use crate::error::DecodeError;
use crate::wire::{Reader, bad, put_bytes};

fn put_key(out: &mut Vec<u8>, key: &Key) {
    put_bytes(out, key.partition.as_bytes());
    put_bytes(out, key.sort.as_bytes());
}

/// Decodes a key, which shares the frame's memory.
fn shared_key(reader: &mut Reader<'_>) -> Result<Key, DecodeError> {
    let partition = reader.shared()?;
    Key::new(partition, reader.shared()?).map_err(|error| bad("key", &error))
}

/// Decodes a key that may be kept for long.
fn owned_key(reader: &mut Reader<'_>) -> Result<Key, DecodeError> {
    let partition = reader.owned()?;
    Key::new(partition, reader.owned()?).map_err(|error| bad("key", &error))
}

/// Encodes an instant plus one; 0 for none.
fn instant_number(at: Option<Timestamp>) -> u64 {
    at.map_or(0, |at| at.0.saturating_add(1))
}

fn instant(number: u64) -> Option<Timestamp> {
    number.checked_sub(1).map(Timestamp)
}
