//! What holds for a shard as a whole, whichever dispatchers ask it: a ceiling that only its node can
//! keep.
//!
//! Owns the question and not the answer: whoever runs the node knows policies, prices and names.

use std::fmt;
use std::time::{Duration, Instant};

use umbo_types::{Names, NamespaceId, Operation, ShardId};

/// A request that is to be charged.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// Who pays.
    pub caller: &'a str,
    /// Whom the caller calls for, as far as the peer says it.
    pub names: Option<&'a Names>,
    /// The namespace.
    pub namespace: NamespaceId,
    /// What is done.
    pub operation: Operation,
    /// Shards that it concerns, each with its share of the work.
    pub shares: &'a [(ShardId, u32)],
    /// Most rows it can touch, where it says so.
    pub rows_max: Option<u64>,
    /// Most bytes it can read, where it says so.
    pub bytes_max: Option<u64>,
    /// Bytes that it writes.
    pub write_bytes: u64,
    /// Whether it goes on with a request that was charged before: it costs what it does, counts as
    /// no request, and is never refused.
    pub is_continued: bool,
}

/// Says that the quota of a shard is spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// Name of the policy.
    pub policy: String,
    /// When there is enough again.
    pub retry_after: Duration,
    /// What was asked for a second, in atoms of the policy's unit.
    pub observed: u64,
}

/// What a request did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows read or written.
    pub rows: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// How long the store took.
    pub service_time: Duration,
}

/// Keeps the ceilings of shards.
pub trait ShardQuota: Send + Sync + fmt::Debug {
    /// Returns how many ceilings there are; where there is none, nothing has to be asked.
    fn ceilings(&self) -> u64;

    /// Charges a request, or says which ceiling it would break. What is charged is put right by
    /// the receipt; one that is dropped leaves the estimate.
    fn charge(&self, charge: &Charge<'_>, now: Instant) -> Result<Box<dyn Receipt>, Spent>;
}

/// A request that was charged by estimate.
pub trait Receipt: Send {
    /// Charges what it did instead.
    fn settle(self: Box<Self>, done: Done);

    /// Gives everything back: the request was turned away before it was begun.
    fn release(self: Box<Self>);
}
