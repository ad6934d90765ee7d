//! Reports for operators and callers: copies of the counters, made on request.

use std::sync::Arc;
use std::time::Duration;

use umbo_types::{NamespaceId, Operation, PriceMultiplier, RequestUnits, ShardId};

use crate::bucket::Bucket;
use crate::policy::{Limit, Policy};
use crate::retry_ticket::RetryTicket;

/// Counters of one caller, namespace and operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that were admitted and are settled.
    pub requests: u64,
    /// Requests that a quota rejected.
    pub rejected: u64,
    /// Sum of their charges.
    pub charged: RequestUnits,
    /// Part of `charged` that overloads added to the plain prices.
    pub penalty: RequestUnits,
    /// Rows read or written.
    pub rows: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl Tally {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            rejected: self.rejected + other.rejected,
            charged: self.charged.saturating_add(other.charged),
            penalty: self.penalty.saturating_add(other.penalty),
            rows: self.rows + other.rows,
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
        }
    }

    /// Returns the counts since `before`.
    pub(crate) fn minus(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            rejected: self.rejected.saturating_sub(before.rejected),
            charged: self.charged.saturating_sub(before.charged),
            penalty: self.penalty.saturating_sub(before.penalty),
            rows: self.rows.saturating_sub(before.rows),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
        }
    }
}

/// One line of the usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageLine {
    /// The caller, or [`OTHERS`] for all callers that are no longer kept one by one.
    pub caller: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// Id of the namespace.
    pub namespace_id: NamespaceId,
    /// The operation.
    pub operation: Operation,
    /// The counters.
    pub tally: Tally,
}

/// Stands for the callers that are no longer kept one by one. It holds a space, so that neither a token
/// nor a header can name it.
pub const OTHERS: &str = "(all others)";

/// Usage of a shard by a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceShardUsage {
    /// The namespace.
    pub namespace: Arc<str>,
    /// Id of the namespace.
    pub namespace_id: NamespaceId,
    /// The shard.
    pub shard: ShardId,
    /// Requests that concerned the shard.
    pub requests: u64,
    /// The shard's part of the charges of the namespace's requests.
    pub charged: RequestUnits,
}

/// Classes of the ratio actual / estimate: the middle one is from 1/√2 to √2, each other one a
/// factor of two, and the outer ones are open.
pub const RESIDUAL_CLASSES: usize = 9;

/// How far the estimates of an operation were off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residual {
    /// The operation.
    pub operation: Operation,
    /// Requests by the ratio actual / estimate, of one request in eight: the middle class is from
    /// 1/√2 to √2, each other one a factor of two, the outer ones are open.
    pub counts: [u64; RESIDUAL_CLASSES],
    /// Sum of the estimates of those requests.
    pub estimated: RequestUnits,
    /// Sum of their plain prices.
    pub actual: RequestUnits,
}

/// All usage since the start. Sums never shrink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// By caller, namespace and operation, those with any.
    pub rows: Vec<UsageLine>,
    /// By namespace and shard, those with any.
    pub shards: Vec<NamespaceShardUsage>,
    /// By operation, those with any.
    pub residuals: Vec<Residual>,
}

/// Counters of a policy.
#[derive(Debug, Clone)]
pub struct PolicyReport {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Requests it rejected.
    pub rejected: u64,
    /// Requests it would have rejected, had it been enforced.
    pub shadow_rejected: u64,
    /// Debt beyond what a bucket may owe, written off; in atoms.
    pub forgiven: u64,
    /// Buckets it has now.
    pub buckets: u64,
    /// Highest share of its limit that any of its buckets was asked for in the last second.
    pub utilisation: f64,
}

/// A bucket of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketReport {
    /// Dimension values of the bucket.
    pub label: String,
    /// Rate and burst of the bucket.
    pub limit: Limit,
    /// Balance of the bucket in atoms; negative in debt.
    pub balance: i64,
    /// Atoms asked for a second.
    pub observed: u64,
    /// Requests rejected, or that a shadow policy would have rejected.
    pub rejected: u64,
}

/// Parts of an estimate; they add up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// For the operation as such.
    pub base: RequestUnits,
    /// For rows read or written.
    pub rows: RequestUnits,
    /// For bytes read.
    pub read_bytes: RequestUnits,
    /// For bytes written.
    pub write_bytes: RequestUnits,
    /// For the time the store takes.
    pub latency: RequestUnits,
    /// For the overload of a shard: what the price multiplier adds to all of the above.
    pub penalty: RequestUnits,
}

/// What a request would cost and meet.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The estimate.
    pub estimate: RequestUnits,
    /// The parts of the estimate.
    pub breakdown: Breakdown,
    /// The price multiplier of an overload.
    pub price_multiplier: PriceMultiplier,
    /// Requests of the same caller, namespace and operation that the estimate has learned from.
    pub samples: u64,
    /// The policies it meets, in the order of their names.
    pub meets: Vec<Meeting>,
}

/// What a request would cost.
#[derive(Debug, Clone, Copy)]
pub struct PricedRequest {
    /// The estimate.
    pub estimate: RequestUnits,
    /// The parts of the estimate.
    pub breakdown: Breakdown,
    /// Requests of the same caller, namespace and operation that the estimate has learned from.
    pub samples: u64,
}

/// A policy that a request meets, as it is shown to a visitor.
#[derive(Debug, Clone, Copy)]
pub struct MetPolicy<'a> {
    /// The policy.
    pub policy: &'a Arc<Policy>,
    /// The shard, for a policy that counts by shard.
    pub shard: Option<ShardId>,
    /// Price of the request, in atoms.
    pub price: u64,
    /// Balance in atoms.
    pub balance: i64,
    /// Whether the balance covers the price now.
    pub is_covered: bool,
    /// Whether the policy decides, or only counts.
    pub is_enforced: bool,
    /// Time until the balance covers the price; zero if it does now.
    pub wait: Duration,
    pub(crate) bucket: &'a Bucket,
}

impl MetPolicy<'_> {
    /// Returns rate and burst.
    pub fn limit(&self) -> Limit {
        self.bucket.limit()
    }
}

/// A policy that a request meets.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Dimension values of the bucket that counts the request.
    pub label: String,
    /// The shard, for a policy that counts by shard.
    pub shard: Option<ShardId>,
    /// Rate and burst.
    pub limit: Limit,
    /// Price of the request, in atoms.
    pub price: u64,
    /// Balance in atoms.
    pub balance: i64,
    /// Whether it would be admitted now.
    pub admits: bool,
    /// Wait that the request would be told; zero if it is admitted.
    pub wait: Duration,
}

/// The budget in a caller's headers.
#[derive(Debug, Clone, Copy)]
pub struct Advertised<'a> {
    /// The tightest enforced policy that an operator configured.
    pub policy: &'a Arc<Policy>,
    /// Rate and burst.
    pub limit: Limit,
    /// Remaining balance, in atoms; negative in debt.
    pub balance: i64,
    /// Time until the bucket is full again.
    pub reset: Duration,
}

/// Why a request was rejected.
#[derive(Debug, Clone)]
pub struct Rejection {
    /// The policy that asks for the longest wait.
    pub policy: Arc<Policy>,
    /// The shard that the request was counted for, if the policy counts by shard.
    pub shard: Option<ShardId>,
    /// Dimension values of the bucket that counted the request.
    pub label: String,
    /// Rate and burst.
    pub limit: Limit,
    /// Atoms asked for a second, this request and other rejected ones included.
    pub observed: u64,
    /// Balance in atoms.
    pub balance: i64,
    /// Wait after which the request would be admitted; at least one refill quantum.
    pub wait: Duration,
    /// Price of the request, in atoms.
    pub price: u64,
    /// The part of the price that the overload of a shard adds; zero if the policy does not cover the plain price
    /// either.
    pub penalty: RequestUnits,
    /// A retry with this ticket has priority over new requests once the wait is over. `None` if the policy covers the
    /// plain price, and not the price of an overload.
    pub ticket: Option<RetryTicket>,
    /// The price multiplier of an overload, for prices in request units.
    pub price_multiplier: PriceMultiplier,
}
