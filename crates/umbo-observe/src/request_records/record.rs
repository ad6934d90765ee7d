//! The record of one request, small enough that a hundred thousand fit into the bound of the ring.
//!
//! Names that many requests share are shared here too; times are microseconds in 32 bits, which saturate
//! after 71 minutes.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use umbo_api::ErrorCode;
use umbo_types::{CallerId, Criticality, Operation, RequestUnits, ShardId, Timestamp};

/// Longest detail that is kept, in bytes; a longer one is cut.
pub const DETAIL_LEN_MAX: usize = 240;

/// The id of a request, at most 64 bytes.
pub type RecordId = SmallVec<[u8; 24]>;

/// Why a record of a request is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptAs {
    /// The request was refused or failed, or its client left before it was answered.
    Refused,
    /// The request took longer than 99 of 100 of its operation lately; than 100 ms where too few were counted.
    Slow,
    /// The request is one of the sample of all others.
    Sample,
}

/// Where the time of a request went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// From the request's head until a shard was asked for, or the whole time if no shard was.
    pub prepare_micros: u32,
    /// Until the shard's queue gave a permit.
    pub wait_micros: u32,
    /// In the shard.
    pub fetch_micros: u32,
    /// On the way to the shard and back, and in the queue of its node.
    pub network_micros: u32,
    /// From the shard's answer until the answer was made; of a stream, until the client had taken it.
    pub answer_micros: u32,
    /// From the request's head to the end.
    pub total_micros: u32,
}

/// How the shard was at that moment: as of the last tick, at most 100 ms before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ShardMoment {
    /// From 0 to 1, of the class that it is greatest for.
    pub pressure: f32,
    /// Permits there were.
    pub limit: u32,
    /// Permits that were taken.
    pub in_flight: u32,
    /// Requests that waited for one.
    pub waiting: u32,
}

/// What a policy said of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// The policy was debited for the request, if the request came so far.
    Admitted,
    /// The policy refused the request, or would have, had another one not refused it first.
    Rejected,
    /// The policy would have let the request pass: another one refused it, or this one is not enforced.
    WouldAdmit,
    /// The policy is not enforced, and would have refused the request.
    WouldReject,
}

impl PolicyVerdict {
    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Rejected => "rejected",
            Self::WouldAdmit => "would-admit",
            Self::WouldReject => "would-reject",
        }
    }
}

/// A policy that was asked, with its bucket at the end of the request. Amounts are atoms of the unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRecord {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// Balance of the bucket; negative in debt.
    pub balance: i64,
    /// What the request would take.
    pub price: u64,
    /// Refill a second.
    pub rate: u64,
    /// Requested rate, including this request; 0 unless the policy rejected it.
    pub observed: u64,
    /// Wait that the refusal named, in milliseconds; 0 where the request was admitted.
    pub wait_millis: u32,
    /// Place of its unit in the list of units.
    pub unit: u8,
    /// Whether it counts by shard.
    pub is_of_shard: bool,
    /// Whether it counts over all dispatchers.
    pub is_of_fleet: bool,
    /// Its verdict.
    pub verdict: PolicyVerdict,
}

/// What a request cost, and the policies that were asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChargeRecord {
    /// The estimate.
    pub estimate: RequestUnits,
    /// The final charge.
    pub actual: RequestUnits,
    /// Parts of the estimate: base, rows, read bytes, write bytes, latency, penalty.
    pub parts: [RequestUnits; 6],
    /// By how much an overload raised it; 1 for the plain price.
    pub price_multiplier: f32,
    /// Every policy that was asked; the rejecting policy is the first.
    pub policies: Box<[PolicyRecord]>,
}

/// The record of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRecord {
    /// Id of the request; a client may have chosen it.
    pub id: RecordId,
    /// When it ended.
    pub at: Timestamp,
    /// The operation.
    pub operation: Operation,
    /// The payer, or `None` if the caller was not known yet.
    pub caller: Option<CallerId>,
    /// The caller whose token the request carried, if it is not the payer.
    pub called_by: Option<CallerId>,
    /// The namespace.
    pub namespace: Option<Arc<str>>,
    /// The tier in effect.
    pub criticality: Option<Criticality>,
    /// Status of the answer; 0 where the client left before.
    pub status: u16,
    /// Why it was refused or failed.
    pub code: Option<ErrorCode>,
    /// Why the record is kept.
    pub kept_as: KeptAs,
    /// The last phase of the request.
    pub phase: &'static str,
    /// Where the time went.
    pub times: RequestTimes,
    /// How a read was answered: `hit`, `collapsed`, `miss` or `bypass`.
    pub cache: Option<&'static str>,
    /// The shard, if the request concerned a single one.
    pub shard: Option<ShardId>,
    /// How often it was sent to a shard node; 0 where no node was asked.
    pub attempts: u8,
    /// How that shard was.
    pub moment: Option<ShardMoment>,
    /// Cost and policies; none before a price was known, and of a request that a shard's queue shed.
    pub charge: Option<Box<ChargeRecord>>,
    /// Text of the answer, if it does not follow from the other fields.
    pub detail: Option<Box<str>>,
}

impl RequestRecord {
    /// Returns the memory of the record in bytes, without the names that it shares with other records.
    pub(crate) fn bytes(&self) -> usize {
        // The counts of references to a record; and what an allocator adds to each piece.
        const SHARED: usize = 2 * size_of::<usize>();
        const OVERHEAD: usize = 16;
        let piece = |bytes: usize| if bytes == 0 { 0 } else { bytes + OVERHEAD };
        let id = if self.id.spilled() {
            piece(self.id.capacity())
        } else {
            0
        };
        let charge = self.charge.as_ref().map_or(0, |charge| {
            piece(size_of::<ChargeRecord>()) + piece(size_of_val::<[_]>(&charge.policies))
        });
        let detail = self.detail.as_ref().map_or(0, |detail| piece(detail.len()));
        piece(size_of::<Self>() + SHARED) + id + charge + detail
    }

    /// Returns the name under which the record is filed.
    pub(crate) fn filed_under(&self) -> &str {
        let caller = self.caller.as_ref();
        caller.map_or(super::UNIDENTIFIED, CallerId::as_str)
    }

    /// Returns whether it is to be written down: all but answers and the sample are.
    pub(crate) fn is_to_be_written(&self) -> bool {
        self.kept_as != KeptAs::Sample && !self.code.is_some_and(ErrorCode::is_answer)
    }

    /// Returns the policy that refused it.
    pub fn rejected_by(&self) -> Option<&PolicyRecord> {
        let policies = self.charge.as_ref().map(|charge| charge.policies.iter());
        let mut policies = policies.into_iter().flatten();
        policies.find(|policy| policy.verdict == PolicyVerdict::Rejected)
    }
}

/// Returns a time in whole microseconds; saturates after 71 minutes.
pub fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Returns a detail as it is kept: at most [`DETAIL_LEN_MAX`] bytes.
pub fn detail(text: &str) -> Box<str> {
    let mut end = text.len().min(DETAIL_LEN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}
