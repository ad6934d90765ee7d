//! The dispatchers of a cluster, and the answers of each to the same question.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The routes of the admin API that can be asked of a whole fleet, without `/admin/v1/`.
pub const FLEET_ROUTES: [&str; 16] = [
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
    "diagnosis",
    "config",
];

/// A server, as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Name of the machine and number of the process.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Listening address of its data plane.
    pub url: String,
    /// Listening address of its admin port.
    pub admin_url: String,
    /// When it began to serve, in milliseconds since the Unix epoch.
    pub started_ms: u64,
}

/// Whether a server is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// It is a member of the fleet, and answers if it is asked.
    Live,
    /// It cannot be reached now, or is no member any more.
    Away,
}

/// A server of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetProcess {
    /// Identifies the process. A restart changes it.
    pub id: String,
    /// Its description of itself.
    pub about: ProcessInfo,
    /// Whether it is the server that answers.
    pub is_self: bool,
    /// Whether it is there.
    pub state: ProcessState,
    /// When it was last seen, in milliseconds since the Unix epoch, by the clock of the answering server.
    pub seen_ms: u64,
    /// Whether it owns counters of quotas of the scopes `fleet` and `shard`. Absent if it does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owns_quotas: bool,
}

/// The fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetList {
    /// The servers: the answering one first, then by name. A server that is away is listed for an hour.
    pub processes: Vec<FleetProcess>,
}

/// What a server answered.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetAnswer {
    /// The server.
    pub process: FleetProcess,
    /// Why it did not answer now: it cannot be reached, a certificate was refused, it refused the question, or it was not
    /// heard in time. Absent if it answered.
    pub error: Option<String>,
    /// HTTP status of its answer. Absent if it has never answered this question.
    pub status: Option<u16>,
    /// When it answered, in milliseconds since the Unix epoch. For a server that is away: its last answer.
    pub answered_ms: Option<u64>,
    /// The body of its answer from the same route: JSON, or its text as a string. By `status`, it may be a problem.
    #[schema(value_type = Option<serde_json::Value>)]
    pub answer: Option<Box<RawValue>>,
}

/// What the servers of the fleet answered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetAnswers {
    /// By server: the answering one first, then by name.
    pub processes: Vec<FleetAnswer>,
}

impl FleetAnswers {
    /// Returns the name of each server that did not answer now, with the reason.
    pub fn unreached(&self) -> Vec<String> {
        let named = |one: &FleetAnswer| {
            Some(format!(
                "{}: {}",
                one.process.about.name,
                one.error.as_ref()?
            ))
        };
        self.processes.iter().filter_map(named).collect()
    }
}
