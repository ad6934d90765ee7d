//! The dispatchers of a cluster, and what each of them answers to the same question.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The routes of the admin API that a fleet is asked for, without `/admin/v1/`.
pub const FLEET_ROUTES: [&str; 15] = [
    "namespaces",
    "loads",
    "callers",
    "quotas",
    "hot",
    "shed",
    "why",
    "requests",
    "events",
    "history",
    "heat",
    "metrics",
    "shards",
    "cluster",
    "config",
];

/// A server, as it tells of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Name of the machine and number of the process.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Address of its data plane, as it listens.
    pub url: String,
    /// Address of its admin port, as it listens.
    pub admin_url: String,
    /// When it began to serve, in milliseconds since the Unix epoch.
    pub started_ms: u64,
}

/// Whether a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// It answers.
    Live,
    /// It does not answer now; it did before.
    Away,
}

/// A server of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetProcess {
    /// Identifies the process; another one after a restart.
    pub id: String,
    /// What it tells of itself.
    pub about: ProcessInfo,
    /// Whether it is the one that answers.
    pub is_self: bool,
    /// Whether it answers.
    pub state: ProcessState,
    /// When it was last seen, in milliseconds since the Unix epoch, by the clock of the one that answers.
    pub seen_ms: u64,
}

/// The fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetList {
    /// Its servers: this one first, then by name. One that is away is listed for an hour.
    pub processes: Vec<FleetProcess>,
}

/// What a server answered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetAnswer {
    /// The server.
    pub process: FleetProcess,
    /// Status of its answer; absent where it has never answered this question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// When it answered, in milliseconds since the Unix epoch: of a server that is away, its last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_ms: Option<u64>,
    /// Its answer, as the same route of that server gives it, a text where that is no JSON: a problem where `status`
    /// says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub answer: Option<Box<RawValue>>,
}

/// What the servers of the fleet answered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetAnswers {
    /// By server: this one first, then by name.
    pub processes: Vec<FleetAnswer>,
}
