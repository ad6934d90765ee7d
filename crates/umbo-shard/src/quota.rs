//! Per-shard quotas, which only the node of a shard can enforce for all dispatchers together.
//!
//! Owns the interface, not the implementation: the binary of the node has the policies, prices and names.

use std::fmt;
use std::time::{Duration, Instant};

use umbo_types::{NamespaceId, Operation, OwnedAttributes, ShardId};

/// A request to charge.
#[derive(Debug, Clone, Copy)]
pub struct ShardCharge<'a> {
    /// The caller that pays.
    pub caller: &'a str,
    /// Names of the user, session and organisation, if the peer sends them.
    pub attributes: Option<&'a OwnedAttributes>,
    /// The namespace.
    pub namespace: NamespaceId,
    /// The operation.
    pub operation: Operation,
    /// The shard that is asked, and the number of its rows that the request names.
    pub share: (ShardId, u32),
    /// Most rows that it can touch, if it has a bound.
    pub rows_max: Option<u64>,
    /// Most bytes that it can read, if it has a bound.
    pub bytes_max: Option<u64>,
    /// Bytes that it writes.
    pub write_bytes: u64,
    /// Whether it continues a request that was charged before: its work is charged, it does not count as a
    /// request, and it is never refused.
    pub is_continued: bool,
}

/// The quota of a shard is exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Name of the policy.
    pub policy: String,
    /// When the quota suffices again.
    pub retry_after: Duration,
    /// Requested rate per second, in atoms of the policy's unit.
    pub observed: u64,
}

/// The actual work of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActualWork {
    /// Rows read or written.
    pub rows: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Service time of the store.
    pub service_time: Duration,
}

/// Enforces the quotas of shards.
pub trait ShardQuota: Send + Sync + fmt::Debug {
    /// Returns the number of per-shard quotas; with 0 no request has to be charged.
    fn quota_count(&self) -> u64;

    /// Charges a request, or returns the quota that it would exceed. The receipt corrects the charge;
    /// dropping it keeps the estimate.
    fn charge(
        &self,
        charge: &ShardCharge<'_>,
        now: Instant,
    ) -> Result<Box<dyn ChargeHandle>, QuotaExceeded>;
}

/// A request that was charged by an estimate.
pub trait ChargeHandle: Send {
    /// Charges the actual work instead.
    fn settle(self: Box<Self>, done: ActualWork);

    /// Returns the whole charge: the request was refused before it was begun.
    fn release(self: Box<Self>);
}
