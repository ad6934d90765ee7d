//! Hot keys on the wire: the keys that a dispatcher reads most, the reads that it saves, and the lists of operators.
//!
//! Keys are the customer's data: they stand in answers of the admin API and nowhere else. Series of
//! metrics and lines of logs name a key by its [`HotKeyName::hash`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time_to_live::{self, TimeToLive};

use crate::path::{self, base64url};
use crate::row::{RowFieldError, pair_bytes};

/// Longest reason, in bytes.
pub const REASON_LEN_MAX: usize = 256;

/// What is read under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HotKind {
    /// One row.
    Row,
    /// A page of rows of a partition.
    Range,
}

/// Names a key that is read: one row, or one page of rows, which is asked for again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HotKeyName {
    /// Opaque; names the key in `/admin/v1/hot/pinned/id/{id}` and `/admin/v1/hot/blocked/id/{id}`,
    /// on every dispatcher and for as long as its namespace exists.
    pub id: String,
    /// Identifies the key in metrics and logs: 16 hexadecimal digits, the same on every dispatcher.
    pub hash: String,
    /// Name of the namespace.
    pub namespace: String,
    /// Whether it is a row or a range.
    pub kind: HotKind,
    /// Partition key as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk: Option<String>,
    /// Partition key as base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk64: Option<String>,
    /// Sort key as text; of a row only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sk: Option<String>,
    /// Sort key as base64url; of a row only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sk64: Option<String>,
}

impl HotKeyName {
    /// Returns the partition key; empty where the answer carries none.
    pub fn partition(&self) -> Result<Vec<u8>, RowFieldError> {
        let bytes = pair_bytes("pk", self.pk.as_deref(), self.pk64.as_deref())?;
        Ok(bytes.unwrap_or_default())
    }

    /// Returns the sort key; empty where there is none.
    pub fn sort(&self) -> Result<Vec<u8>, RowFieldError> {
        let bytes = pair_bytes("sk", self.sk.as_deref(), self.sk64.as_deref())?;
        Ok(bytes.unwrap_or_default())
    }
}

/// Returns the field pair of some bytes: as text where they are text, else as base64url.
pub fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64url(bytes))),
    }
}

/// What holds of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HotStanding {
    /// It is read so much that its answers are kept.
    Hot,
    /// An operator wants its answers kept, however seldom it is read.
    Pinned,
    /// An operator wants it refused. Of a key that is pinned too this is what counts.
    Blocked,
}

impl HotStanding {
    /// Returns the name used on the wire and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Pinned => "pinned",
            Self::Blocked => "blocked",
        }
    }
}

/// A list that operators keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum HotList {
    /// Keys whose answers are kept.
    Pinned,
    /// Keys that are refused.
    Blocked,
}

impl HotList {
    /// Both lists that operators keep.
    pub const ALL: [Self; 2] = [Self::Pinned, Self::Blocked];

    /// Returns the name used in paths.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Blocked => "blocked",
        }
    }

    /// Returns what holds of a key that is on this list and no other.
    pub const fn standing(self) -> HotStanding {
        match self {
            Self::Pinned => HotStanding::Pinned,
            Self::Blocked => HotStanding::Blocked,
        }
    }
}

/// How a key is put on a list; a body without a field leaves it to its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HotListingSpec {
    /// The reason, shown in the list: one line of 256 bytes at most. Not contained in
    /// refusals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    pub reason: Option<String>,
    /// For how long; if absent, until it is removed from the list.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "time_to_live::nullable"
    )]
    #[schema(value_type = Option<TimeToLive>)]
    pub ttl: Option<u64>,
}

/// The entry of a key in a list: its author, and its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HotListing {
    /// Name of the caller.
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    pub at: u64,
    /// When it ends, in milliseconds since the Unix epoch; never where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of a change of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HotListed {
    /// The key.
    #[serde(flatten)]
    pub key: HotKeyName,
    /// What holds of it now: a key that is pinned and blocked is blocked.
    pub standing: HotStanding,
    /// How it stands on the list.
    #[serde(flatten)]
    pub listing: HotListing,
}

/// A caller of a hot key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotCaller {
    /// Name.
    pub caller: String,
    /// Its share of the key's reads, of 1; from samples.
    pub share: f64,
}

/// A key that is hot, pinned or blocked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotKeyInfo {
    /// The key.
    #[serde(flatten)]
    pub key: HotKeyName,
    /// What holds of it.
    pub standing: HotStanding,
    /// Whether it is read as much as a hot key at this moment, whatever its standing is.
    pub is_hot: bool,
    /// Reads a second that are certain, decayed with a half-life of two seconds; 0 where it is not
    /// hot.
    pub rate: f64,
    /// How much higher the rate may be.
    pub rate_error: f64,
    /// Mean reads a second over the last three seconds.
    pub rate_now: f64,
    /// Request units a second that its reads would cost if each asked the store, as estimated, over the
    /// last three seconds.
    pub ru_rate: f64,
    /// For how long it has been hot, in milliseconds.
    pub hot_for_ms: u64,
    /// Reads since it is in this list; of a blocked key all that was refused.
    pub reads: u64,
    /// Those of them that the local cache has answered.
    pub hits: u64,
    /// Hits over reads, of 1; 0 before the first read.
    pub hit_ratio: f64,
    /// Callers that read it most, largest first; eight at most.
    pub callers: Vec<HotCaller>,
    /// How it was pinned, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<HotListing>,
    /// How it was blocked, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<HotListing>,
}

/// What the layer of hot keys does in a dispatcher; totals since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotPod {
    /// Reads a second of the whole dispatcher, decayed.
    pub reads_rate: f64,
    /// Reads a second that make a key hot at this moment.
    pub threshold_rate: f64,
    /// Share of all reads that did not go to the store, of 1.
    pub saved_share: f64,
    /// Reads that the detection has counted.
    pub reads: u64,
    /// Reads that the local cache has answered.
    pub hits: u64,
    /// Those of them that found nothing.
    pub negative_hits: u64,
    /// Reads of the store that others could join.
    pub leaders: u64,
    /// Reads that joined one in flight.
    pub followers: u64,
    /// Leaders that failed and were replaced.
    pub elections: u64,
    /// Reads refused because too many waited.
    pub crowded: u64,
    /// Reads in flight that others stopped joining because of a write or their deadline.
    pub overtaken: u64,
    /// Results not cached because a write came in between.
    pub stale: u64,
    /// Reads not counted, because the detector held the sketch at that moment.
    pub uncounted: u64,
    /// Reads of the store that others can join at this moment.
    pub flights: u64,
    /// Results in the local cache.
    pub cache_entries: u64,
    /// Bytes that they take.
    pub cache_bytes: u64,
    /// Memory of the detection, in bytes.
    pub detection_bytes: u64,
}

/// Hot keys, and what the layer does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotReport {
    /// Keys that are hot, pinned or blocked, of namespaces on which the caller holds the grant
    /// `observe`; those read most come first.
    pub keys: Vec<HotKeyInfo>,
    /// The dispatcher.
    pub pod: HotPod,
}

/// Whose work kept a shard busy, and where: a caller, an operation, a namespace and a partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BusySourceInfo {
    /// Its share of the shard's busy time, of 1; from samples.
    pub share: f64,
    /// Name of the caller that pays; absent for Umbo's own work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// What the caller does, like `put` or `range`.
    pub operation: String,
    /// Name of the namespace; absent if it is one of Umbo's or was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Partition key as text; no partition is named for work in several, and for all smaller partitions of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk: Option<String>,
    /// Partition key as base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk64: Option<String>,
}

impl BusySourceInfo {
    /// Returns the partition key; empty where the answer carries none.
    pub fn partition(&self) -> Result<Vec<u8>, RowFieldError> {
        let bytes = pair_bytes("pk", self.pk.as_deref(), self.pk64.as_deref())?;
        Ok(bytes.unwrap_or_default())
    }
}

/// How busy a shard was, and with whose work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BusyShardInfo {
    /// Number.
    pub shard: u16,
    /// Busy time over time, of 1; more than 1 if several threads worked for it.
    pub busy: f64,
    /// The largest sources, largest first; eight at most.
    pub sources: Vec<BusySourceInfo>,
}

/// The sources of the busy time of shards in a step of time, of requests to the server that answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "start_ms": 1_790_000_300_000_u64, "step_ms": 2000,
    "shards": [{"shard": 3, "busy": 0.82, "sources": [
        {"share": 0.91, "caller": "crawler", "operation": "range", "namespace": "shop", "pk": "listing:17"}
    ]}]
}))]
pub struct BusyReport {
    /// Beginning of the step, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Length of the step, in milliseconds.
    pub step_ms: u64,
    /// The shards that were busy in it, by number.
    pub shards: Vec<BusyShardInfo>,
}

/// Returns path and query under which a row is put on a list or taken off it, written so that no
/// proxy changes what it means.
pub fn row_target(list: HotList, namespace: &str, partition: &[u8], sort: &[u8]) -> String {
    let data = path::kv_target(namespace, partition, sort);
    // What follows the version is the same as in the data plane.
    let rest = data.strip_prefix("/v1").unwrap_or(&data);
    format!("/admin/v1/hot/{}{rest}", list.as_str())
}

/// Returns the path under which the key of an id is put on a list or taken off it.
pub fn id_target(list: HotList, id: &str) -> String {
    let id = path::percent_encode(id.as_bytes());
    format!("/admin/v1/hot/{}/id/{id}", list.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(partition: &[u8], sort: &[u8]) -> HotKeyName {
        let ((pk, pk64), (sk, sk64)) = (text_or_base64(partition), text_or_base64(sort));
        HotKeyName {
            id: "AAE".to_owned(),
            hash: "00f1".to_owned(),
            namespace: "n".to_owned(),
            kind: HotKind::Row,
            pk,
            pk64,
            sk,
            sk64,
        }
    }

    #[test]
    fn a_listed_key_is_one_flat_object_and_reads_back() {
        let listed = HotListed {
            key: name(b"\xff\x00", b"a"),
            standing: HotStanding::Blocked,
            listing: HotListing {
                by: "ops".to_owned(),
                at: 5,
                until: None,
                reason: Some("crawler".to_owned()),
            },
        };
        let json = serde_json::to_value(&listed).unwrap();
        let expected = serde_json::json!({
            "id": "AAE", "hash": "00f1", "namespace": "n", "kind": "row", "pk64": "_wA", "sk": "a",
            "standing": "blocked", "by": "ops", "at": 5, "reason": "crawler"
        });
        assert_eq!(json, expected);
        let back: HotListed = serde_json::from_value(json).unwrap();
        assert_eq!(back.key.partition().unwrap(), b"\xff\x00");
        assert_eq!(back.key.sort().unwrap(), b"a");
        assert_eq!(back, listed);
    }

    #[test]
    fn a_misspelt_field_is_refused_and_an_empty_body_is_none() {
        let read = |text| serde_json::from_str::<HotListingSpec>(text);
        assert_eq!(read("{}").unwrap(), HotListingSpec::default());
        assert!(read(r#"{"reson": "x"}"#).is_err());
    }

    #[test]
    fn targets_name_a_row_as_the_data_plane_does() {
        let target = row_target(HotList::Blocked, "shop", b"listing:17", b"");
        let plain = row_target(HotList::Pinned, "shop", b"a", b"b");
        assert_eq!(plain, "/admin/v1/hot/pinned/ns/shop/kv/a/b");
        // A colon is reserved, so the key is written as base64url.
        assert_eq!(
            target,
            "/admin/v1/hot/blocked/ns/shop/kv/bGlzdGluZzoxNw?enc=b64u"
        );
        assert_eq!(
            id_target(HotList::Pinned, "A-_"),
            "/admin/v1/hot/pinned/id/A-_"
        );
    }
}
