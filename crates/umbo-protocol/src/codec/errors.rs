//! Encoding of a node's errors as numbers. An unknown number is decoded as an unavailable shard with unknown
//! outcome.

use umbo_store::{Outcome, StoreError};
use umbo_types::{NamespaceId, ShardId};

use super::field::Field;
use crate::error::{DecodeError, NodeError};
use crate::wire::{Reader, put_bytes, put_nested, put_optional_varint};

const UNAVAILABLE: u8 = 1;
const FULL: u8 = 2;
const IO: u8 = 3;
const CORRUPT: u8 = 4;
const QUEUE_FULL: u8 = 5;
const NODE_BUSY: u8 = 6;
const DEADLINE_PASSED: u8 = 8;
const CLOSING: u8 = 9;
const NOT_OWNER: u8 = 10;
const BAD_REQUEST: u8 = 11;
const UNSUPPORTED: u8 = 12;
const NAMESPACE_GONE: u8 = 13;
const OVERTAKEN: u8 = 14;
const TOO_EARLY: u8 = 15;
const MISPLACED: u8 = 16;

/// Tags of fields that only some kinds have. 1 and 2, and the kind 7, belong to quotas that nodes of earlier releases count.
const MAP_VERSION: u8 = 3;
const NAMESPACE: u8 = 4;

pub(super) fn put_store_error(out: &mut Vec<u8>, error: &StoreError) {
    let (kind, shard, reason) = match error {
        StoreError::Unavailable { shard, reason, .. } => (UNAVAILABLE, *shard, reason.as_str()),
        StoreError::Full { shard, .. } => (FULL, *shard, ""),
        StoreError::Io { shard, reason, .. } => (IO, *shard, reason.as_str()),
        StoreError::Corrupt { shard, reason } => (CORRUPT, *shard, reason.as_str()),
        StoreError::QueueFull { shard } => (QUEUE_FULL, *shard, ""),
        StoreError::NodeBusy { shard } => (NODE_BUSY, *shard, ""),
        StoreError::DeadlinePassed { shard } => (DEADLINE_PASSED, *shard, ""),
        StoreError::NamespaceGone { shard, .. } => (NAMESPACE_GONE, *shard, ""),
        StoreError::TooEarly { shard } => (TOO_EARLY, *shard, ""),
        StoreError::Overtaken { shard } => (OVERTAKEN, *shard, ""),
        StoreError::Closing => (CLOSING, ShardId(0), ""),
    };
    put_nested(out, |out| {
        put_head(out, kind, shard, error.outcome(), reason);
        if let StoreError::NamespaceGone { namespace, .. } = error {
            put_optional_varint(out, NAMESPACE, namespace.0.into());
        }
    });
}

fn put_head(out: &mut Vec<u8>, kind: u8, shard: ShardId, outcome: Outcome, reason: &str) {
    out.push(kind);
    shard.put(out);
    out.push(match outcome {
        Outcome::Unknown => 0,
        Outcome::NotApplied => 1,
        Outcome::Applied => 2,
    });
    put_bytes(out, reason.as_bytes());
}

impl Field for NodeError {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, shard, reason) = match self {
            Self::Store(error) => return put_store_error(out, error),
            Self::NotOwner { shard, .. } => (NOT_OWNER, *shard, ""),
            Self::Misplaced { shard, reason } => (MISPLACED, *shard, reason.as_str()),
            Self::BadRequest(reason) => (BAD_REQUEST, ShardId(0), reason.as_str()),
            Self::Unsupported => (UNSUPPORTED, ShardId(0), ""),
        };
        put_nested(out, |out| {
            put_head(out, kind, shard, Outcome::NotApplied, reason);
            if let Self::NotOwner { map_version, .. } = self {
                put_optional_varint(out, MAP_VERSION, *map_version);
            }
        });
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let mut reader = reader.nested()?;
        let kind = reader.byte()?;
        let shard = ShardId::read(&mut reader, "shard")?;
        let outcome = match reader.byte()? {
            1 => Outcome::NotApplied,
            2 => Outcome::Applied,
            _ => Outcome::Unknown,
        };
        let reason = String::read(&mut reader, "reason")?;
        let (mut map_version, mut namespace) = (0, NamespaceId::SYSTEM);
        while let Some((tag, mut field)) = reader.optional()? {
            match tag {
                MAP_VERSION => map_version = field.varint()?,
                NAMESPACE => namespace = Field::read(&mut field, "namespace")?,
                tag => field.ignored(tag)?,
            }
        }
        let store = match kind {
            FULL => StoreError::Full { shard, outcome },
            IO => StoreError::Io {
                shard,
                reason,
                outcome,
            },
            CORRUPT => StoreError::Corrupt { shard, reason },
            QUEUE_FULL => StoreError::QueueFull { shard },
            NODE_BUSY => StoreError::NodeBusy { shard },
            DEADLINE_PASSED => StoreError::DeadlinePassed { shard },
            NAMESPACE_GONE => StoreError::NamespaceGone { shard, namespace },
            TOO_EARLY => StoreError::TooEarly { shard },
            OVERTAKEN => StoreError::Overtaken { shard },
            CLOSING => StoreError::Closing,
            NOT_OWNER => return Ok(Self::NotOwner { shard, map_version }),
            MISPLACED => return Ok(Self::Misplaced { shard, reason }),
            BAD_REQUEST => return Ok(Self::BadRequest(reason)),
            UNSUPPORTED => return Ok(Self::Unsupported),
            _ => StoreError::Unavailable {
                shard,
                reason,
                outcome,
            },
        };
        Ok(Self::Store(store))
    }
}
