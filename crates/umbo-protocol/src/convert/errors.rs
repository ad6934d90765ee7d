//! Errors of a node as numbers, and back. A number that is not known is an unavailable shard of
//! which nothing is known.

use std::time::Duration;

use umbo_store::{Outcome, StoreError};
use umbo_types::ShardId;

use crate::error::NodeError;
use crate::message;

const UNAVAILABLE: u32 = 1;
const FULL: u32 = 2;
const IO: u32 = 3;
const CORRUPT: u32 = 4;
const QUEUE_FULL: u32 = 5;
const NODE_BUSY: u32 = 6;
const QUOTA_EXCEEDED: u32 = 7;
const DEADLINE_PASSED: u32 = 8;
const CLOSING: u32 = 9;
const NOT_OWNER: u32 = 10;
const BAD_REQUEST: u32 = 11;
const UNSUPPORTED: u32 = 12;

pub(super) fn encode(error: NodeError) -> message::Error {
    let (kind, shard, reason, outcome) = match error {
        NodeError::Store(error) => return encode_store(error),
        NodeError::NotOwner { shard, map_version } => {
            return message::Error {
                kind: NOT_OWNER,
                shard: shard.0.into(),
                outcome: outcome_number(Outcome::NotApplied),
                map_version,
                ..message::Error::default()
            };
        }
        NodeError::BadRequest(reason) => (BAD_REQUEST, ShardId(0), reason, Outcome::NotApplied),
        NodeError::Unsupported => (UNSUPPORTED, ShardId(0), String::new(), Outcome::NotApplied),
    };
    message::Error {
        kind,
        shard: shard.0.into(),
        reason,
        outcome: outcome_number(outcome),
        ..message::Error::default()
    }
}

fn encode_store(error: StoreError) -> message::Error {
    let outcome = error.outcome();
    let (mut retry_after, mut observed) = (Duration::ZERO, None);
    let (kind, shard, reason) = match error {
        StoreError::Unavailable { shard, reason, .. } => (UNAVAILABLE, shard, reason),
        StoreError::Full { shard, .. } => (FULL, shard, String::new()),
        StoreError::Io { shard, reason, .. } => (IO, shard, reason),
        StoreError::Corrupt { shard, reason } => (CORRUPT, shard, reason),
        StoreError::QueueFull { shard } => (QUEUE_FULL, shard, String::new()),
        StoreError::NodeBusy { shard } => (NODE_BUSY, shard, String::new()),
        StoreError::QuotaExceeded {
            shard,
            policy,
            retry_after: wait,
            observed: asked,
        } => {
            (retry_after, observed) = (wait, asked);
            (QUOTA_EXCEEDED, shard, policy)
        }
        StoreError::DeadlinePassed { shard } => (DEADLINE_PASSED, shard, String::new()),
        StoreError::Closing => (CLOSING, ShardId(0), String::new()),
    };
    message::Error {
        kind,
        shard: shard.0.into(),
        reason,
        outcome: outcome_number(outcome),
        retry_after_us: u64::try_from(retry_after.as_micros()).unwrap_or(u64::MAX),
        map_version: 0,
        observed,
    }
}

pub(super) fn decode(error: message::Error) -> NodeError {
    let shard = ShardId(u16::try_from(error.shard).unwrap_or(u16::MAX));
    let (reason, outcome) = (error.reason, outcome_of(error.outcome));
    let store = match error.kind {
        FULL => StoreError::Full { shard, outcome },
        IO => StoreError::Io {
            shard,
            reason,
            outcome,
        },
        CORRUPT => StoreError::Corrupt { shard, reason },
        QUEUE_FULL => StoreError::QueueFull { shard },
        NODE_BUSY => StoreError::NodeBusy { shard },
        QUOTA_EXCEEDED => StoreError::QuotaExceeded {
            shard,
            policy: reason,
            retry_after: Duration::from_micros(error.retry_after_us),
            observed: error.observed,
        },
        DEADLINE_PASSED => StoreError::DeadlinePassed { shard },
        CLOSING => StoreError::Closing,
        NOT_OWNER => {
            let map_version = error.map_version;
            return NodeError::NotOwner { shard, map_version };
        }
        BAD_REQUEST => return NodeError::BadRequest(reason),
        UNSUPPORTED => return NodeError::Unsupported,
        _ => StoreError::Unavailable {
            shard,
            reason,
            outcome,
        },
    };
    NodeError::Store(store)
}

const fn outcome_number(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Unknown => 0,
        Outcome::NotApplied => 1,
        Outcome::Applied => 2,
    }
}

const fn outcome_of(number: u32) -> Outcome {
    match number {
        1 => Outcome::NotApplied,
        2 => Outcome::Applied,
        _ => Outcome::Unknown,
    }
}
