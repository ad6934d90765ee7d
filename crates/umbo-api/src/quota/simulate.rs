//! Rejections of a policy, if it had been in effect.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PolicySpec, object};
use crate::whole_number;

/// A policy to replay against the recorded requests of this dispatcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SimulateBody {
    /// The policy; it need not exist, and nothing is changed.
    #[serde(deserialize_with = "object::read")]
    pub policy: PolicySpec,
    /// How far to go back, in seconds. Default: the whole record.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1)]
    pub last_seconds: Option<u64>,
}

/// Results of the policy.
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
    /// Known gaps in these figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Results of one bucket.
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
    /// Amount that would have been rejected, in the unit of the policy.
    pub rejected_amount: f64,
}
