//! What a policy would have rejected, had it been there.

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
    /// How far to go back, in seconds; as far as the record reaches where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1)]
    pub last_seconds: Option<u64>,
}

/// What it would have done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulateAnswer {
    /// The policy, with its defaults written out.
    pub policy: PolicySpec,
    /// How far back the record goes that was used, in seconds.
    pub seconds: f64,
    /// Requests it would have counted.
    pub requests: u64,
    /// Requests it would have rejected.
    pub rejected: u64,
    /// By bucket, the most rejected first; at most 1,000.
    pub rows: Vec<SimulateRow>,
    /// What these figures leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What it would have done to one bucket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulateRow {
    /// Whose bucket, like `caller=search namespace=listings`; `everything` where one serves all.
    pub label: String,
    /// Requests it would have counted.
    pub requests: u64,
    /// Requests it would have rejected.
    pub rejected: u64,
    /// Charged for all of them, in request units.
    pub ru: f64,
    /// What would have been rejected, in the unit of the policy.
    pub rejected_amount: f64,
}
