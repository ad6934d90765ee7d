//! Loads: datasets that are uploaded in parts and applied to a namespace by the server.
//!
//! Owns the bodies of `/v1/ns/{ns}/loads` in both directions, the names of the states, and the bounds that clients
//! need. Times are milliseconds since the Unix epoch.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::columns::TableColumns;
use crate::whole_number;

/// Longest part, in bytes as sent.
pub const PART_LEN_MAX: u64 = 256 << 20;
/// Highest number of a part; the lowest is 0.
pub const PART_NUMBER_MAX: u16 = 9_999;
/// Maximum number of rejected rows that are kept for a load, and maximum number on a page.
pub const REJECTS_LISTED_MAX: u64 = 1_000;
/// Header field: how many bytes of a part the server has kept.
pub const UPLOAD_OFFSET: &str = "upload-offset";
/// Header field: whether a part is complete, `?1` or `?0`.
pub const UPLOAD_COMPLETE: &str = "upload-complete";
/// Header field with digests of a body (RFC 9530): `sha-256=:…:`, in base64.
pub const CONTENT_DIGEST: &str = "content-digest";

/// Effect of a load on the existing rows of the namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadMode {
    /// Rows of the load become visible one by one, among the existing rows.
    #[default]
    Merge,
    /// Rows of the load become the next version of the namespace, which replaces the live one at once on activation.
    /// Writes made meanwhile win over rows of the load.
    Replace,
}

/// How far a load is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LoadState {
    /// It takes parts, and has no part yet.
    Created,
    /// It takes parts. Meanwhile, rows of an import or of mode `replace` are applied if they arrive in key order.
    Uploading,
    /// It has all its parts, and waits to be applied. In mode `merge`, except for an import, its parts are checked
    /// meanwhile.
    Sealed,
    /// Its rows are being applied.
    Building,
    /// In mode `replace`: its version is built, is read back, and is checked against the guards.
    Verifying,
    /// In mode `replace`: its version can be activated.
    Ready,
    /// All its rows are applied, except skipped and rejected ones. In mode `replace`, its version is live.
    Live,
    /// In mode `replace`: a later version was activated.
    Superseded,
    /// In mode `replace`: an earlier version was activated again.
    #[serde(rename = "rolled-back")]
    RolledBack,
    /// It ended before all of its rows were applied; `reason` says why. Rows applied in mode `merge` stay.
    Failed,
    /// A caller ended it. Rows applied in mode `merge` stay.
    Aborted,
}

impl LoadState {
    /// All states, in the order of a load's life.
    pub const ALL: [Self; 11] = [
        Self::Created,
        Self::Uploading,
        Self::Sealed,
        Self::Building,
        Self::Verifying,
        Self::Ready,
        Self::Live,
        Self::Superseded,
        Self::RolledBack,
        Self::Failed,
        Self::Aborted,
    ];

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Uploading => "uploading",
            Self::Sealed => "sealed",
            Self::Building => "building",
            Self::Verifying => "verifying",
            Self::Ready => "ready",
            Self::Live => "live",
            Self::Superseded => "superseded",
            Self::RolledBack => "rolled-back",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }

    /// Returns whether the load takes parts.
    pub const fn takes_parts(self) -> bool {
        matches!(self, Self::Created | Self::Uploading)
    }

    /// Returns whether the load has no work left. Only an activation of a version can change it then.
    pub const fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Live | Self::Superseded | Self::RolledBack | Self::Failed | Self::Aborted
        )
    }

    /// Returns whether the parts of the load are no longer needed.
    pub const fn is_applied(self) -> bool {
        matches!(self, Self::Ready) || self.is_ended()
    }
}

impl fmt::Display for LoadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Bounds that a version must meet to become ready. Otherwise the load fails.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadGuards {
    /// Largest allowed difference from the live version's number of rows, as a fraction of it. Default: 0.3. Not
    /// checked if the live version has no rows.
    #[schema(minimum = 0)]
    pub rows_change_max: Option<f64>,
    /// Minimum number of rows of the version.
    #[serde(default, deserialize_with = "whole_number::optional_int64")]
    pub rows_min: Option<u64>,
}

/// Body of a request to create a load.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of its own on the wire"
)]
pub struct LoadSpec {
    /// Effect on the existing rows of the namespace.
    #[serde(default)]
    pub mode: LoadMode,
    /// Instant of the data: rows of the load do not replace newer writes. Default and maximum: the creation of the
    /// load. Not allowed in mode `replace`: its data must be read after the load was created.
    #[serde(default, deserialize_with = "whole_number::optional_int64")]
    pub as_of: Option<u64>,
    /// Number of rows of all parts. With another number, the load fails; in mode `merge`, before any row is applied.
    #[serde(default, deserialize_with = "whole_number::optional_int64")]
    pub expected_rows: Option<u64>,
    /// Fraction of the rows, from 0 to 1, that may be rejected, apart from blocked keys. Above it, the load fails.
    /// Default: 0.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    pub max_reject_ratio: f64,
    /// Columns of CSV and Parquet. Default: `pk`, `sk` and `v`.
    pub columns: Option<TableColumns>,
    /// Whether rows of the load replace newer rows too. Not in mode `replace`.
    #[serde(default)]
    pub force: bool,
    /// In mode `merge`: whether the load is the import of a file. Its rows are applied while parts arrive, rejected
    /// rows never fail it, and imports are counted separately from other loads. No effect with `expected_rows`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub import: bool,
    /// In mode `replace`: bounds that the version must meet to become ready.
    pub guards: Option<LoadGuards>,
    /// In mode `replace`: whether the version is activated as soon as it is ready.
    #[serde(default)]
    pub activate: bool,
    /// In mode `replace`: whether rows keep the versions (`ETag`s) of their export. Only for a namespace without rows. A
    /// row without a version, or with one of the future, is rejected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_row_versions: bool,
}

impl LoadSpec {
    /// Returns whether the load is applied as an import. With `expected_rows`, all rows must be counted before any is
    /// applied, so the load is not an import.
    pub const fn is_import(&self) -> bool {
        self.import && self.expected_rows.is_none()
    }
}

/// A part of a load.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartInfo {
    /// Its number.
    #[schema(maximum = 9999)]
    pub number: u16,
    /// Bytes kept, as sent.
    pub bytes: u64,
    /// SHA-256 of all its bytes as sent, in hexadecimal. Absent until it is complete.
    pub sha256: Option<String>,
    /// Media type.
    pub content_type: String,
    /// Content coding. Absent if uncompressed.
    pub coding: Option<String>,
    /// Whether all its bytes are kept.
    pub complete: bool,
    /// Rows in it, including rejected ones. Absent until they are counted.
    pub rows: Option<u64>,
    /// Rows of it that were rejected so far.
    pub rejected: Option<u64>,
    /// Rows of it that were applied, skipped or rejected so far. Absent until it is read for that.
    pub applied: Option<u64>,
}

/// Progress of a load in one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadShard {
    /// Number of the shard.
    pub shard: u16,
    /// Rows applied in it.
    pub rows_applied: u64,
}

/// A load.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of its own on the wire"
)]
pub struct LoadInfo {
    /// Its id; ids sort by the time of creation.
    pub id: String,
    /// Name of the namespace.
    pub namespace: String,
    /// Its effect on the existing rows of the namespace.
    pub mode: LoadMode,
    /// Its state.
    pub state: LoadState,
    /// Instant of the data.
    pub as_of: u64,
    /// When it was created.
    pub created_at: u64,
    /// Caller who created it; the work is charged to it.
    pub created_by: String,
    /// When it ended. Absent until then.
    pub ended_at: Option<u64>,
    /// Its parts, by number. Empty in the list of loads.
    #[serde(default)]
    pub parts: Vec<PartInfo>,
    /// Rows in all its parts, including rejected ones. Absent until they are counted.
    pub rows_total: Option<u64>,
    /// Rows applied: stored or removed.
    #[serde(default)]
    pub rows_applied: u64,
    /// Rows skipped because the namespace has newer data or because they had expired.
    #[serde(default)]
    pub rows_skipped: u64,
    /// Rows rejected: unreadable, impossible to store, or with a blocked key.
    #[serde(default)]
    pub rows_rejected: u64,
    /// Its progress in each shard that it has rows for.
    #[serde(default)]
    pub shards: Vec<LoadShard>,
    /// Why it failed or waits, or, in the list, why its rows cannot be counted now.
    pub reason: Option<String>,
    /// Expected number of rows of all parts.
    pub expected_rows: Option<u64>,
    /// Fraction of the rows that may be rejected.
    pub max_reject_ratio: f64,
    /// Columns of CSV and Parquet. Absent if the load was created without them.
    pub columns: Option<TableColumns>,
    /// Whether its rows replace newer rows too.
    #[serde(default)]
    pub force: bool,
    /// Whether it is the import of a file.
    #[serde(default)]
    pub import: bool,
    /// Whether no row is applied until it is resumed.
    pub paused: bool,
    /// In mode `replace`: number of the version that it builds.
    pub version: Option<u32>,
    /// In mode `replace`: bounds that the version must meet to become ready.
    pub guards: Option<LoadGuards>,
    /// In mode `replace`: whether the version is activated as soon as it is ready.
    #[serde(default)]
    pub activate: bool,
    /// In mode `replace`: whether rows keep the versions of their export. Absent once the load has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_row_versions: bool,
    /// Whether nothing was changed because it was a dry run. Absent otherwise.
    pub dry_run: Option<bool>,
}

/// Loads by id: the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoadList {
    /// The loads, without their parts.
    pub loads: Vec<LoadInfo>,
    /// Number of loads that did not fit in the list.
    #[serde(default, skip_serializing_if = "whole_number::is_zero")]
    pub left_out: u64,
}

/// Body of a request to seal a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SealBody {
    /// Number of parts of the load. Their numbers are all those below it.
    #[schema(minimum = 0, maximum = 10000)]
    pub parts: u32,
}

/// A line of the rejects of a load.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RejectLine {
    /// Number of the part.
    pub part: u16,
    /// Line of the part, from 1; in Parquet the row, from 1.
    pub line: u64,
    /// Why the row was rejected.
    pub reason: String,
    /// The bytes of the row as text, at most 4 KiB.
    pub text: Option<String>,
    /// The same as base64url without padding, if they are not text.
    pub b64: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::TableValue;

    #[test]
    fn states_have_the_names_of_their_json() {
        for state in LoadState::ALL {
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(json, format!("\"{state}\""));
        }
    }

    #[test]
    fn a_spec_may_be_empty_and_names_no_unknown_field() {
        let spec: LoadSpec = serde_json::from_str("{}").unwrap();
        assert_eq!(spec, LoadSpec::default());
        let columns = r#"{"columns":{"pk":"id","value":"rest"}}"#;
        let spec: LoadSpec = serde_json::from_str(columns).unwrap();
        assert_eq!(spec.columns.unwrap().value, TableValue::Rest);
        let columns = r#"{"columns":{"value":{"column":"name"}}}"#;
        let spec: LoadSpec = serde_json::from_str(columns).unwrap();
        let columns = spec.columns.unwrap();
        assert_eq!(columns.pk, "pk");
        assert_eq!(columns.value, TableValue::Column("name".to_owned()));
        assert!(serde_json::from_str::<LoadSpec>(r#"{"mod":"merge"}"#).is_err());
    }
}
