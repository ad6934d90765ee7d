//! Rejections of a policy, if it had been in effect.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PolicySpec, object};
use crate::whole_number;

/// A policy to replay against the recorded requests of this dispatcher, or against the kept usage of all.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SimulateBody {
    /// The policy; it need not exist, and nothing is changed.
    #[serde(deserialize_with = "object::read")]
    pub policy: PolicySpec,
    /// How far to go back, in seconds. Default: the whole record of this dispatcher, up to an hour. More than an hour
    /// replays the kept usage of all dispatchers, up to 35 days.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(minimum = 1)]
    pub last_seconds: Option<u64>,
}

/// Results of the policy.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulateAnswer {
    /// The policy, with its defaults written out.
    pub policy: PolicySpec,
    /// Length of the replayed part of the record, in seconds.
    pub seconds: f64,
    /// Requests it would have counted.
    pub requests: u64,
    /// Requests it would have rejected.
    pub rejected: u64,
    /// By bucket, the most rejected first; at most 1,000.
    pub rows: Vec<SimulateRow>,
    /// Range of the rejected amount of all buckets. Only for kept usage.
    pub range: Option<SimulatedRange>,
    /// Known gaps in these figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Results of one bucket.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulateRow {
    /// Owner of the bucket, like `caller=search namespace=listings`; `everything` for the only bucket.
    pub label: String,
    /// Requests it would have counted.
    pub requests: u64,
    /// Requests it would have rejected.
    pub rejected: u64,
    /// Charge for all of them, in request units.
    pub ru: f64,
    /// Amount that would have been rejected, in the unit of the policy; the least, if there is a range.
    pub rejected_amount: f64,
    /// Range of the rejected amount. Only for kept usage.
    pub range: Option<SimulatedRange>,
}

/// Amount that a policy would have rejected, as kept usage tells it: in the unit of the policy.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulatedRange {
    /// Amount that it would certainly have rejected.
    pub lowest: f64,
    /// Amount that it may have rejected.
    pub highest: f64,
    /// Begin of the worst ten minutes of a bucket, in milliseconds since the Unix epoch.
    /// Absent if nothing would have been rejected.
    pub worst_at_ms: Option<u64>,
    /// Amount that the bucket would certainly have rejected in these ten minutes.
    pub worst_lowest: f64,
    /// Amount that it may have rejected in them.
    pub worst_highest: f64,
}
