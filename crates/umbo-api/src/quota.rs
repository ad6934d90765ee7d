//! Policies on the wire and in files: policies as people write them, and the server's reports on them.
//!
//! One shape serves JSON and TOML. Only field names are checked here. The code that interprets policies checks which
//! values go together, and its errors name both values. The files under this one hold the cost of requests and the
//! usage.

mod explain;
mod object;
mod simulate;
mod usage;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::problem::QuotaLimit;
use crate::quantity::Quantity;
pub use explain::{ExplainAnswer, ExplainBody, ExplainBreakdown, ExplainPolicy, ExplainShard};
pub use simulate::{SimulateAnswer, SimulateBody, SimulateRow, SimulatedRange};
pub use usage::{
    CallerList, CallerTotals, CallerUsage, CallerUsageRow, ShardUsage, UsageAnswer, UsageHistory,
    UsageHistoryRow, UsageRow,
};

/// A policy as it is written: the requests that it counts, the unit, and the limit.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// Name: `[a-z0-9][a-z0-9._-]{0,63}`, unique. Rejections contain it.
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub name: String,
    /// The requests to count. Default: all.
    #[serde(
        rename = "match",
        default,
        deserialize_with = "object::read",
        skip_serializing_if = "MatchSpec::is_empty"
    )]
    pub matches: MatchSpec,
    /// Each combination of values of these dimensions has its own bucket: `caller`, `user`, `session`, `org`,
    /// `namespace`, `shard`. Default: one bucket for all requests. A request that lacks one of them is not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 6)]
    pub per: Vec<String>,
    /// Counted unit: `ru`, `requests`, `reads`, `writes`, `read-bytes`, `write-bytes` or `bytes`.
    #[schema(pattern = "^(ru|requests|reads|writes|read-bytes|write-bytes|bytes)$")]
    pub unit: String,
    /// Units a second, above 0: up to 10⁹, of bytes up to 10¹²; at most 6 digits after the point,
    /// whole bytes. Bytes may be written like `"64KiB"`, `"2MiB"` or `"1GiB"`.
    pub rate: Quantity,
    /// Maximum units at once after idle time: at least 1 and the amount of one `refill`, up to 5 × 10¹⁰, of bytes 10¹⁵.
    /// Default: one second of `rate`.
    pub burst: Option<Quantity>,
    /// How often a bucket is refilled: whole milliseconds from `10ms` to `10s`. Default: `50ms`.
    pub refill: Option<String>,
    /// `pod` if a bucket counts the requests of one dispatcher, `fleet` if it counts the requests of all dispatchers
    /// together, `shard` if it counts requests of all dispatchers to one storage shard. Default: `shard` if `per` contains
    /// `shard`, otherwise `pod`.
    #[schema(pattern = "^(pod|shard|fleet)$")]
    pub scope: Option<String>,
    /// `enforce` or `shadow`. Default: `enforce`. `shadow` rejects nothing, and counts the requests that it would
    /// reject.
    #[schema(pattern = "^(enforce|shadow)$")]
    pub mode: Option<String>,
    /// HTTP status of a rejection: 429 (default) or 419.
    #[schema(minimum = 419, maximum = 429)]
    pub status: Option<u16>,
    /// Other limits for some of the buckets. The most specific matching one applies.
    #[serde(
        default,
        deserialize_with = "object::read_list",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(max_items = 256)]
    pub overrides: Vec<OverrideSpec>,
}

impl PolicySpec {
    /// Names the unit and the limit of a policy; all else has its default.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        rate: impl Into<Quantity>,
    ) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            rate: rate.into(),
            matches: MatchSpec::default(),
            per: Vec::new(),
            burst: None,
            refill: None,
            scope: None,
            mode: None,
            status: None,
            overrides: Vec::new(),
        }
    }
}

/// The requests of a policy. Every field that is present must match; an absent field matches anything.
///
/// In a pattern, each `*` matches any run of characters. A pattern over `user`, `session` or `org` matches no request
/// that lacks it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchSpec {
    /// Pattern over the name of the caller that pays.
    pub caller: Option<String>,
    /// Pattern over the namespace.
    pub namespace: Option<String>,
    /// Pattern over the user the caller calls for.
    pub user: Option<String>,
    /// Pattern over the session the caller calls in.
    pub session: Option<String>,
    /// Pattern over the organisation the caller calls for.
    pub org: Option<String>,
    /// Operations of the data plane (`get`, `put`, `delete`, `range`, `delete-range`, `multi-get`, `batch-write`,
    /// `scan`). Default: all. Not in an override.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub operations: Vec<String>,
}

impl MatchSpec {
    /// Returns the dimensions, each with its pattern.
    pub fn patterns(&self) -> [(&'static str, &Option<String>); 5] {
        [
            ("caller", &self.caller),
            ("namespace", &self.namespace),
            ("user", &self.user),
            ("session", &self.session),
            ("org", &self.org),
        ]
    }

    /// Returns the field that holds the pattern over a dimension, or `None` if no dimension has this name.
    pub fn pattern_mut(&mut self, dimension: &str) -> Option<&mut Option<String>> {
        Some(match dimension {
            "caller" => &mut self.caller,
            "namespace" => &mut self.namespace,
            "user" => &mut self.user,
            "session" => &mut self.session,
            "org" => &mut self.org,
            _ => return None,
        })
    }

    /// Returns whether it matches everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Another limit for the buckets that match.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideSpec {
    /// Patterns over dimensions of `per`; they select the buckets.
    #[serde(rename = "match", deserialize_with = "object::read")]
    pub matches: MatchSpec,
    /// As in the policy.
    pub rate: Quantity,
    /// As in the policy. Default: one second of this `rate`.
    pub burst: Option<Quantity>,
}

/// Origin of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicySource {
    /// Built into the program.
    BuiltIn,
    /// The server's policy file.
    File,
    /// The store, written with the admin API.
    Stored,
}

impl PolicySource {
    /// Returns the name used on the wire and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::File => "file",
            Self::Stored => "stored",
        }
    }
}

/// A policy in effect.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyInfo {
    /// The policy, with its defaults written out.
    pub policy: PolicySpec,
    /// Its origin.
    pub source: PolicySource,
    /// Version: the `ETag` without its quotes. Only of stored policies.
    pub version: Option<u64>,
    /// Its counters on this dispatcher.
    pub counters: PolicyCounters,
}

/// Counters of a policy on this dispatcher since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyCounters {
    /// Requests it rejected.
    pub rejected: u64,
    /// Requests it would have rejected, had its mode not been `shadow`.
    pub shadow_rejected: u64,
    /// Buckets it has now.
    pub buckets: u64,
    /// Highest ratio of requested rate to limit among its buckets; above 1 if the limit is exceeded.
    pub utilisation: f64,
}

/// The policies in effect, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    /// All of them.
    pub policies: Vec<PolicyInfo>,
}

/// Effect of a change of a stored policy, made or tried in a dry run.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyChange {
    /// Name.
    pub name: String,
    /// The policy of this name in effect before. Absent if no policy had it.
    pub before: Option<PolicySpec>,
    /// The policy of this name in effect afterwards. Absent if no policy has it.
    pub after: Option<PolicySpec>,
    /// Version of the stored policy afterwards; absent in a dry run and after a removal.
    pub version: Option<u64>,
    /// Whether nothing was changed because it was a dry run.
    pub dry_run: bool,
}

/// The callers with a bucket of a policy on this dispatcher, the busiest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QuotaUsers {
    /// Name of the policy.
    pub policy: String,
    /// The busiest of them.
    pub users: Vec<QuotaUser>,
    /// Number of all users.
    pub total: u64,
}

/// A bucket of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QuotaUser {
    /// Owner, like `caller=search namespace=listings`; `everything` for the only bucket.
    pub label: String,
    /// Its limit, with overrides applied.
    pub limit: QuotaLimit,
    /// Units left; negative in debt.
    pub balance: f64,
    /// Requested units a second, over about the last second.
    pub observed: f64,
    /// Requests rejected so far.
    pub rejected: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
        "name": "listing-reads",
        "match": {"caller": "search-*", "namespace": "listings", "user": "u*", "session": "*",
                  "org": "acme", "operations": ["get", "range"]},
        "per": ["caller", "user"],
        "unit": "read-bytes",
        "rate": "64KiB", "burst": 131072.5, "refill": "50ms", "scope": "shard",
        "mode": "shadow", "status": 419,
        "overrides": [{"match": {"caller": "search-web"}, "rate": 0.1, "burst": "2"}]
    }"#;

    #[test]
    fn a_policy_is_written_as_it_was_read() {
        let value: serde_json::Value = serde_json::from_str(FULL).unwrap();
        let policy: PolicySpec = serde_json::from_str(FULL).unwrap();
        assert_eq!(policy.rate.as_str(), "64KiB");
        assert_eq!(serde_json::to_value(&policy).unwrap(), value);
    }

    #[test]
    fn little_needs_to_be_said() {
        let json = r#"{"name":"a","unit":"ru","rate":1000}"#;
        let policy: PolicySpec = serde_json::from_str(json).unwrap();
        assert!(policy.matches.is_empty() && policy.per.is_empty() && policy.burst.is_none());
        assert_eq!(serde_json::to_string(&policy).unwrap(), json);
    }

    #[test]
    fn a_field_nobody_knows_is_refused() {
        for (from, to) in [
            ("\"refill\"", "\"refil\""),
            ("\"user\": \"u*\"", "\"users\": \"u*\""),
            ("\"burst\": \"2\"", "\"bursts\": \"2\""),
        ] {
            let wrong = FULL.replace(from, to);
            let error = serde_json::from_str::<PolicySpec>(&wrong).unwrap_err();
            assert!(error.to_string().starts_with("unknown field"), "{error}");
        }
    }

    #[test]
    fn a_list_is_no_object() {
        for (from, to) in [
            (
                r#"{"match": {"caller": "search-web"}, "rate": 0.1, "burst": "2"}"#,
                r#"[{"caller": "x"}, 1]"#,
            ),
            (
                r#""match": {"caller": "search-web"}"#,
                r#""match": ["search-web"]"#,
            ),
        ] {
            let wrong = FULL.replace(from, to);
            assert_ne!(wrong, FULL);
            let error = serde_json::from_str::<PolicySpec>(&wrong).unwrap_err();
            assert!(error.to_string().contains("expected an object"), "{error}");
        }
        let wrong = r#"{"name":"a","match":["x"],"unit":"ru","rate":1}"#;
        assert!(serde_json::from_str::<PolicySpec>(wrong).is_err());
        let wrong = r#"{"policy":["a",{},[],"ru",1]}"#;
        assert!(serde_json::from_str::<SimulateBody>(wrong).is_err());
    }
}
