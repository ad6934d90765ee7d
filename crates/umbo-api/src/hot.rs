//! Hot keys on the wire: the keys that a dispatcher reads most, the saved reads, and the lists of operators.
//!
//! Keys are the customer's data: only answers of the admin API contain them. Series of metrics and lines of logs name a
//! key by its [`HotKeyName::hash`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time_to_live::{self, TimeToLive};

use crate::path::{self, base64url};
use crate::row::{RowFieldError, pair_bytes};

/// Longest reason, in bytes.
pub const REASON_LEN_MAX: usize = 256;

/// Kind of a hot key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HotKind {
    /// One row.
    Row,
    /// A page of rows of a partition.
    Range,
}

/// A key that is read: one row, or one page of rows that is requested repeatedly.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HotKeyName {
    /// Opaque; names the key in `/admin/v1/hot/pinned/id/{id}` and `/admin/v1/hot/blocked/id/{id}`, on every
    /// dispatcher, while its namespace exists.
    pub id: String,
    /// Identifies the key in metrics and logs: 16 hexadecimal digits, the same on every dispatcher.
    pub hash: String,
    /// Name of the namespace.
    pub namespace: String,
    /// Whether it is a row or a range.
    pub kind: HotKind,
    /// Partition key as text.
    pub pk: Option<String>,
    /// Partition key as base64url.
    pub pk64: Option<String>,
    /// Sort key as text; of a row only.
    pub sk: Option<String>,
    /// Sort key as base64url; of a row only.
    pub sk64: Option<String>,
}

impl HotKeyName {
    /// Returns the partition key, or no bytes if the answer carries none.
    pub fn partition(&self) -> Result<Vec<u8>, RowFieldError> {
        let bytes = pair_bytes("pk", self.pk.as_deref(), self.pk64.as_deref())?;
        Ok(bytes.unwrap_or_default())
    }

    /// Returns the sort key, or no bytes if the answer carries none.
    pub fn sort(&self) -> Result<Vec<u8>, RowFieldError> {
        let bytes = pair_bytes("sk", self.sk.as_deref(), self.sk64.as_deref())?;
        Ok(bytes.unwrap_or_default())
    }
}

/// Returns the field pair of some bytes: text if they are UTF-8, otherwise base64url.
pub fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64url(bytes))),
    }
}

/// Status of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HotStanding {
    /// It is read so much that its answers are cached.
    Hot,
    /// An operator has pinned it: its answers are cached at any read rate.
    Pinned,
    /// An operator has blocked it: its requests are refused, also if it is pinned too.
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
    /// Keys whose answers are cached.
    Pinned,
    /// Keys whose requests are refused.
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

    /// Returns the status of a key that is on this list only.
    pub const fn standing(self) -> HotStanding {
        match self {
            Self::Pinned => HotStanding::Pinned,
            Self::Blocked => HotStanding::Blocked,
        }
    }
}

/// How a key is put on a list. Absent fields have their defaults.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HotListingSpec {
    /// The reason, shown in the list: one line of at most 256 bytes. Refusals do not contain it.
    #[schema(max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    pub reason: Option<String>,
    /// For how long. If absent, until the key is removed from the list.
    #[serde(default, deserialize_with = "time_to_live::nullable")]
    #[schema(value_type = Option<TimeToLive>)]
    pub ttl: Option<u64>,
}

/// The entry of a key in a list.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HotListing {
    /// Caller who listed the key.
    pub by: String,
    /// When it was listed, in milliseconds since the Unix epoch.
    pub at: u64,
    /// When it ends, in milliseconds since the Unix epoch. Absent if never.
    pub until: Option<u64>,
    /// Why.
    pub reason: Option<String>,
}

/// Result of a change of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HotListed {
    /// The key.
    #[serde(flatten)]
    pub key: HotKeyName,
    /// Its status now. A key that is pinned and blocked is blocked.
    pub standing: HotStanding,
    /// Its entry in the list.
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
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotKeyInfo {
    /// The key.
    #[serde(flatten)]
    pub key: HotKeyName,
    /// Its status.
    pub standing: HotStanding,
    /// Whether its present read rate makes it hot, independent of `standing`.
    pub is_hot: bool,
    /// Certain reads a second, decayed with a half-life of two seconds; 0 if it is not hot.
    pub rate: f64,
    /// How much higher the rate may be.
    pub rate_error: f64,
    /// Mean reads a second over the last three seconds.
    pub rate_now: f64,
    /// Request units a second that its reads would cost if each asked the store: an estimate over the last three
    /// seconds.
    pub ru_rate: f64,
    /// For how long it has been hot, in milliseconds.
    pub hot_for_ms: u64,
    /// Reads since it entered this list. For a blocked key: all refused requests.
    pub reads: u64,
    /// Reads answered from the local cache.
    pub hits: u64,
    /// Hits over reads, of 1; 0 before the first read.
    pub hit_ratio: f64,
    /// Callers that read it most, largest first; eight at most.
    pub callers: Vec<HotCaller>,
    /// Its entry among the pinned keys.
    pub pinned: Option<HotListing>,
    /// Its entry among the blocked keys.
    pub blocked: Option<HotListing>,
}

/// Activity of hot key handling in a dispatcher. Totals count from its start.
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
    /// Reads answered from the local cache with "no such row".
    pub negative_hits: u64,
    /// Store reads that other reads could join.
    pub leaders: u64,
    /// Reads that joined a store read in flight.
    pub followers: u64,
    /// Reads whose leader failed. Each of them was made again.
    pub elections: u64,
    /// Reads refused because too many waited.
    pub crowded: u64,
    /// Store reads that others stopped joining because of a write or their deadline.
    pub overtaken: u64,
    /// Results not cached because of a write during the read.
    pub stale: u64,
    /// Reads not counted, because the detector held the sketch at that moment.
    pub uncounted: u64,
    /// Store reads that others can join now.
    pub flights: u64,
    /// Results in the local cache.
    pub cache_entries: u64,
    /// Bytes of these results.
    pub cache_bytes: u64,
    /// Memory of the detection, in bytes.
    pub detection_bytes: u64,
}

/// Hot keys, and the activity of hot key handling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotReport {
    /// Keys that are hot, pinned or blocked, those read most first. Only of namespaces on which the caller holds the
    /// grant `observe`.
    pub keys: Vec<HotKeyInfo>,
    /// The dispatcher.
    pub pod: HotPod,
}

/// A source of a shard's busy time: a caller, an operation, a namespace and a partition.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BusySourceInfo {
    /// Its share of the shard's busy time, of 1; from samples.
    pub share: f64,
    /// Name of the caller that pays; absent for Umbo's own work.
    pub caller: Option<String>,
    /// What the caller does, like `put` or `range`.
    pub operation: String,
    /// Name of the namespace; absent if it is one of Umbo's or was removed.
    pub namespace: Option<String>,
    /// Partition key as text. Absent for work in several partitions, and for all smaller partitions of the caller.
    pub pk: Option<String>,
    /// Partition key as base64url.
    pub pk64: Option<String>,
}

impl BusySourceInfo {
    /// Returns the partition key, or no bytes if the answer carries none.
    pub fn partition(&self) -> Result<Vec<u8>, RowFieldError> {
        let bytes = pair_bytes("pk", self.pk.as_deref(), self.pk64.as_deref())?;
        Ok(bytes.unwrap_or_default())
    }
}

/// Busy time of a shard, and its sources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BusyShardInfo {
    /// Number.
    pub shard: u16,
    /// Busy time over time, of 1; more than 1 if several threads worked for it.
    pub busy: f64,
    /// The largest sources, largest first; eight at most.
    pub sources: Vec<BusySourceInfo>,
}

/// The sources of the busy time of shards in a step of time. Only requests to the answering server count.
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
    /// The shards that were busy in the step, by number.
    pub shards: Vec<BusyShardInfo>,
}

/// Returns path and query of the listing of a row, encoded so that proxies do not change their meaning.
pub fn row_target(list: HotList, namespace: &str, partition: &[u8], sort: &[u8]) -> String {
    let data = path::kv_target(namespace, partition, sort);
    // The rest of the path is the same as in the data plane.
    let rest = data.strip_prefix("/v1").unwrap_or(&data);
    format!("/admin/v1/hot/{}{rest}", list.as_str())
}

/// Returns the path of the listing of the key with this id.
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
