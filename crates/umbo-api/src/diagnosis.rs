//! The diagnosis of a server: faults and unusual loads, with their begin, their cause and advice.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FindingSeverity {
    /// Requests fail, or will soon.
    Problem,
    /// Something works worse than usual, or needs attention.
    Warning,
    /// Something is unusual, and no request is worse for it.
    Notice,
}

/// Something that is wrong or unusual.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiagnosisFinding {
    /// Name of the rule that found it. Later versions have more rules.
    pub rule: String,
    /// Name of the caller, node, policy, load, partition or key; numbers of the shards; or empty for the server.
    pub subject: String,
    /// How much it matters.
    pub severity: FindingSeverity,
    /// When it began, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Description, one sentence.
    pub sentence: String,
    /// What to do about it.
    pub advice: String,
    /// View of the operators' page that shows more.
    pub view: String,
}

/// Faults and unusual loads at the answering server, and at the shard nodes behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "checked_ms": 1_790_000_000_000_u64,
    "findings": [{
        "rule": "caller-unusual", "subject": "crawler", "severity": "warning", "since_ms": 1_789_999_991_000_u64,
        "sentence": "caller crawler sends 315 requests/s, 21 times its usual 15, and takes 94 % of the request units",
        "advice": "ask its owner; 'umbo quota set' holds it back", "view": "callers"
    }]
}))]
pub struct Diagnosis {
    /// When the server looked last, in milliseconds since the Unix epoch.
    pub checked_ms: u64,
    /// The findings, the most severe first, then the oldest. Empty if nothing is wrong.
    pub findings: Vec<DiagnosisFinding>,
}
