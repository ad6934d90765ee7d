//! Loads: datasets that are uploaded in parts and applied to a namespace by the server.
//!
//! Owns the bodies of `/v1/ns/{ns}/loads` in both directions, the names of the states, and the bounds that clients
//! need to know. Times are milliseconds since the Unix epoch.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::columns::TableColumns;
use crate::whole_number;

/// Longest part, in bytes as sent.
pub const PART_LEN_MAX: u64 = 256 << 20;
/// Highest number of a part; the lowest is 0.
pub const PART_NUMBER_MAX: u16 = 9_999;
/// Rejected rows of a load that are kept, and most of them on a page.
pub const REJECTS_LISTED_MAX: u64 = 1_000;
/// Header field with the number of bytes of a part that the server has kept.
pub const UPLOAD_OFFSET: &str = "upload-offset";
/// Header field that says whether a part is whole: `?1` or `?0`.
pub const UPLOAD_COMPLETE: &str = "upload-complete";
/// Header field with digests of a body (RFC 9530): `sha-256=:…:`, in base64.
pub const CONTENT_DIGEST: &str = "content-digest";

/// What a load makes of the rows that the namespace has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadMode {
    /// Rows of the load become visible one by one, beside those that are there.
    #[default]
    Merge,
    /// Rows of the load become the next version of the namespace, which replaces the live one at once when it is
    /// activated. Writes that come meanwhile win over rows of the load.
    Replace,
}

/// How far a load is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LoadState {
    /// It takes parts, and has none.
    Created,
    /// It takes parts. Rows of an import and of mode `replace` that come in the order of their keys are applied meanwhile.
    Uploading,
    /// It has all its parts, and waits to be applied; in mode `merge`, but for an import, they are being checked.
    Sealed,
    /// Its rows are being applied.
    Building,
    /// Of mode `replace`: its version is built, and is being read back and held against the guards.
    Verifying,
    /// Of mode `replace`: its version can be activated.
    Ready,
    /// All its rows are applied, but for those that were skipped or rejected; in mode `replace`, its version is the live one.
    Live,
    /// Of mode `replace`: a later version was activated instead of its own.
    Superseded,
    /// Of mode `replace`: an earlier version was activated again instead of its own.
    #[serde(rename = "rolled-back")]
    RolledBack,
    /// It ended before all of its rows were applied; the reason says why. What was applied in mode `merge` stays.
    Failed,
    /// A caller ended it. What was applied in mode `merge` stays.
    Aborted,
}

impl LoadState {
    /// All states, in the order in which a load comes through them.
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

    /// Returns whether nothing is left to do for the load. Only an activation of a version changes it then.
    pub const fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Live | Self::Superseded | Self::RolledBack | Self::Failed | Self::Aborted
        )
    }

    /// Returns whether the parts of the load are needed no more.
    pub const fn is_applied(self) -> bool {
        matches!(self, Self::Ready) || self.is_ended()
    }
}

impl fmt::Display for LoadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Bounds that a version is held against before it is ready; the load fails beyond them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadGuards {
    /// Most by which the number of rows may differ from the live version's, as a part of it; 0.3 where absent. A live
    /// version without rows bounds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub rows_change_max: Option<f64>,
    /// Fewest rows that the version may have.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional_int64"
    )]
    pub rows_min: Option<u64>,
}

/// Body of a request to create a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// What the load makes of the rows that the namespace has.
    #[serde(default)]
    pub mode: LoadMode,
    /// Instant of the data: a row of the load does not replace what was written after it. The creation of the load
    /// where absent; at most that. Mode `replace` takes none: the data has to be read after the load was created.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional_int64"
    )]
    pub as_of: Option<u64>,
    /// Rows of all parts. With another number the load fails before any is applied.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional_int64"
    )]
    pub expected_rows: Option<u64>,
    /// Part of the rows, from 0 to 1, that may be rejected; above it the load fails. 0 where absent.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    pub max_reject_ratio: f64,
    /// Columns of CSV and Parquet; `pk`, `sk` and `v` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<TableColumns>,
    /// Whether rows of the load replace newer ones too. Not of mode `replace`.
    #[serde(default)]
    pub force: bool,
    /// Of mode `merge`: whether the load is the import of a file. Its rows are applied while parts arrive, rejected rows
    /// never fail it, and it counts apart from other loads. Without effect with `expected_rows`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub import: bool,
    /// Of mode `replace`: bounds that the version is held against before it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<LoadGuards>,
    /// Of mode `replace`: whether the version is activated as soon as it is ready.
    #[serde(default)]
    pub activate: bool,
}

impl LoadSpec {
    /// Returns whether the load is applied as an import: with a number of rows to expect none may be applied before all
    /// are counted.
    pub const fn is_import(&self) -> bool {
        self.import && self.expected_rows.is_none()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A part of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartInfo {
    /// Its number.
    #[schema(maximum = 9999)]
    pub number: u16,
    /// Bytes that are kept, as sent.
    pub bytes: u64,
    /// SHA-256 of all its bytes as sent, in hexadecimal; absent until it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Media type.
    pub content_type: String,
    /// Content coding; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coding: Option<String>,
    /// Whether all its bytes are kept.
    pub complete: bool,
    /// Rows that it holds, rejected ones included; absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Rows of it that were rejected, as far as it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<u64>,
    /// Rows of it that were read and applied, skipped or rejected; absent until it is read for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
}

/// How far a load is in one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadShard {
    /// Number of the shard.
    pub shard: u16,
    /// Rows applied in it.
    pub rows_applied: u64,
}

/// A load.
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
    /// What it makes of the rows that the namespace has.
    pub mode: LoadMode,
    /// How far it is.
    pub state: LoadState,
    /// Instant of the data.
    pub as_of: u64,
    /// When it was created.
    pub created_at: u64,
    /// Caller who created it; the work is charged to it.
    pub created_by: String,
    /// When it ended; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Its parts, by number. Empty in the list of loads.
    #[serde(default)]
    pub parts: Vec<PartInfo>,
    /// Rows that all its parts hold together, rejected ones included; absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_total: Option<u64>,
    /// Rows applied: stored or removed.
    #[serde(default)]
    pub rows_applied: u64,
    /// Rows skipped, because the namespace has newer data or because they have expired.
    #[serde(default)]
    pub rows_skipped: u64,
    /// Rows rejected: they cannot be read.
    #[serde(default)]
    pub rows_rejected: u64,
    /// How far it is in each shard that it has rows for.
    #[serde(default)]
    pub shards: Vec<LoadShard>,
    /// Why it failed, what it waits for, or in the list why its rows cannot be counted now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Rows that the parts are to hold together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_rows: Option<u64>,
    /// Part of the rows that may be rejected.
    pub max_reject_ratio: f64,
    /// Which columns of CSV and Parquet are what; absent where the load was created without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<TableColumns>,
    /// Whether its rows replace newer ones too.
    #[serde(default)]
    pub force: bool,
    /// Whether it is the import of a file.
    #[serde(default)]
    pub import: bool,
    /// Whether no row is applied until it is resumed.
    pub paused: bool,
    /// Of mode `replace`: number of the version that it builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Of mode `replace`: bounds that the version is held against before it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<LoadGuards>,
    /// Of mode `replace`: whether the version is activated as soon as it is ready.
    #[serde(default)]
    pub activate: bool,
    /// Whether nothing was changed because it was a dry run; absent where it was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Loads by id: the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoadList {
    /// The loads, without their parts.
    pub loads: Vec<LoadInfo>,
    /// How many loads more there are than the list has room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// Body of a request to seal a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SealBody {
    /// Number of parts that the load has: those of the numbers below it.
    #[schema(minimum = 0, maximum = 10000)]
    pub parts: u32,
}

/// A line of the rejects of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RejectLine {
    /// Number of the part.
    pub part: u16,
    /// Line of the part, from 1; of Parquet the row, from 1.
    pub line: u64,
    /// Why the row was rejected.
    pub reason: String,
    /// The bytes of the row as text, at most 4 KiB of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The same as base64url without padding, where they are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
