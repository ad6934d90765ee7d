//! Records of the past for operators: the history of series, the heat map, and events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::hot::{BusySourceInfo, HotCaller, HotKeyInfo};

/// Series of one process over a range of time. Rates are per second already.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "now_ms": 1_790_000_300_250_u64, "start_ms": 1_790_000_000_000_u64, "step_ms": 1000,
    "series": [
        {"name": "served", "labels": {"operation": "get"}, "unit": "requests/s", "values": [1200.0, null, 1180.5]},
        {"name": "cpu", "labels": {}, "unit": "cores", "values": [0.41, 0.4, 0.42]}
    ]
}))]
pub struct HistoryReport {
    /// The server's clock, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Beginning of the first step, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Length of a step, in milliseconds.
    pub step_ms: u64,
    /// The series with a value in the range, ordered by name as in this document, then by label.
    pub series: Vec<SeriesReport>,
}

/// One series.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesReport {
    /// Name of the measured quantity.
    pub name: String,
    /// Labels: `operation`, `tier`, `caller`, `shard`, `policy` or `node`; at most one.
    pub labels: BTreeMap<String, String>,
    /// Unit of the values.
    pub unit: String,
    /// A value for each step, to seven digits; null if nothing was recorded.
    pub values: Vec<Option<f32>>,
}

/// Request units a second by place and time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "start_ms": 1_790_000_000_000_u64, "step_ms": 1000,
    "rows": [{"row": "0", "shard": 0, "values": [310.5, null, 298.0]}]
}))]
pub struct HeatReport {
    /// Beginning of the first step, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Length of a step, in milliseconds.
    pub step_ms: u64,
    /// The places, in the order of their hash slots.
    pub rows: Vec<HeatRow>,
}

/// One place of the heat map.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HeatRow {
    /// Names the place in `/admin/v1/heat/{row}`.
    pub row: String,
    /// Its shard.
    pub shard: u16,
    /// Request units a second in each step; null if nothing was recorded.
    pub values: Vec<Option<f32>>,
}

/// Causes of the load on a place of the heat map, now or in an earlier step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HeatRowReport {
    /// The place.
    pub row: String,
    /// Its shard.
    pub shard: u16,
    /// Beginning of the step whose sources are shown, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Length of the step, in milliseconds.
    pub step_ms: u64,
    /// Request units a second, over the last second or in the step.
    pub ru_rate: f32,
    /// Busy time of the shard as a fraction of the time; above 1 if several threads worked for it.
    pub busy: f64,
    /// Sources of the shard's busy time in the step, largest first; at most eight.
    pub sources: Vec<BusySourceInfo>,
    /// Callers of its hot keys with their share of the reads of these keys, largest first. Empty if no key is hot, and
    /// for an earlier step.
    pub callers: Vec<HotCaller>,
    /// Its hot, pinned and blocked keys, those read most first. Only keys of namespaces that the caller administers.
    /// Empty for an earlier step.
    pub keys: Vec<HotKeyInfo>,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A quota policy was stored or replaced.
    PolicyChanged,
    /// A quota policy was removed.
    PolicyRemoved,
    /// A token was made.
    TokenCreated,
    /// A token was revoked.
    TokenRevoked,
    /// A namespace was created.
    NamespaceCreated,
    /// Settings of a namespace were changed.
    NamespaceChanged,
    /// A namespace was removed.
    NamespaceRemoved,
    /// A load was created, or its state changed.
    LoadChanged,
    /// A key was pinned or blocked.
    HotKeyListed,
    /// A key was taken off its list.
    HotKeyUnlisted,
    /// An operator ended a request that ran.
    RequestKilled,
    /// A shard node is not reachable.
    NodeLost,
    /// A shard node is reachable again.
    NodeBack,
    /// A shard does not serve reads and writes.
    ShardLost,
    /// A shard serves again.
    ShardBack,
    /// A shard is on another node.
    ShardMoved,
    /// An overload of a shard began.
    OverloadEngaged,
    /// An overload of a shard ended.
    OverloadEnded,
    /// The diagnosis found that something is wrong or unusual.
    TroubleBegan,
    /// What the diagnosis had found is over.
    TroubleEnded,
    /// Settings, policies or tokens were read again from their files.
    SettingsReloaded,
    /// The server began to serve.
    Started,
    /// The server began to stop.
    Stopping,
}

impl EventKind {
    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PolicyChanged => "policy-changed",
            Self::PolicyRemoved => "policy-removed",
            Self::TokenCreated => "token-created",
            Self::TokenRevoked => "token-revoked",
            Self::NamespaceCreated => "namespace-created",
            Self::NamespaceChanged => "namespace-changed",
            Self::NamespaceRemoved => "namespace-removed",
            Self::LoadChanged => "load-changed",
            Self::HotKeyListed => "hot-key-listed",
            Self::HotKeyUnlisted => "hot-key-unlisted",
            Self::RequestKilled => "request-killed",
            Self::NodeLost => "node-lost",
            Self::NodeBack => "node-back",
            Self::ShardLost => "shard-lost",
            Self::ShardBack => "shard-back",
            Self::ShardMoved => "shard-moved",
            Self::OverloadEngaged => "overload-engaged",
            Self::OverloadEnded => "overload-ended",
            Self::TroubleBegan => "trouble-began",
            Self::TroubleEnded => "trouble-ended",
            Self::SettingsReloaded => "settings-reloaded",
            Self::Started => "started",
            Self::Stopping => "stopping",
        }
    }
}

/// A change by an operator, or an incident.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Identifies the event. A change has the same id on every server. 0 until an id is given.
    #[serde(default)]
    pub id: u64,
    /// When it was, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Kind of an event.
    pub kind: EventKind,
    /// Subject: name of a policy, namespace, node or caller; id of a token, request or load; hash of a key; number of a
    /// shard; or empty for the server.
    pub subject: String,
    /// Description.
    pub text: String,
    /// Caller who made the change. Absent if no caller did.
    pub by: Option<String>,
    /// Reason for the change, from the header `Umbo-Reason` of its request.
    pub reason: Option<String>,
    /// The state before, at most 1,024 bytes. Absent if there was no such state.
    pub before: Option<String>,
    /// The state afterwards, at most 1,024 bytes. Absent if there is no such state.
    pub after: Option<String>,
}

impl Event {
    /// Makes an event without a caller and without an id.
    pub fn new(
        at_ms: u64,
        kind: EventKind,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            id: 0,
            at_ms,
            kind,
            subject: subject.into(),
            text: text.into(),
            by: None,
            reason: None,
            before: None,
            after: None,
        }
    }
}

/// Events after a cursor, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "events": [{
        "id": 18, "at_ms": 1_790_000_000_250_u64, "kind": "policy-changed",
        "subject": "search-reads", "text": "changed a quota policy", "by": "alice", "reason": "launch on Monday",
        "before": "{\"rate\":100}", "after": "{\"rate\":200}"
    }],
    "next": "18-1832960000256000"
}))]
pub struct EventList {
    /// The events, at most the newest thousand.
    pub events: Vec<Event>,
    /// The value of `since` that continues here, on any server of the cluster.
    pub next: String,
}
