//! Versions: the datasets of a namespace that loads of mode `replace` have built.
//!
//! Owns the bodies of `/v1/ns/{ns}/versions` in both directions. Reads see the live version. Writes go to the live
//! version and to all others that are kept or being built. Times are milliseconds since the Unix epoch.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VersionState {
    /// A load builds it.
    Building,
    /// It is built and verified, and can be activated.
    Ready,
    /// Reads see it.
    Live,
    /// It was live, and can be activated again.
    Kept,
}

impl VersionState {
    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Live => "live",
            Self::Kept => "kept",
        }
    }
}

impl fmt::Display for VersionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A version in one shard, as its load had built it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionShard {
    /// Number of the shard.
    pub shard: u16,
    /// Rows that were read back.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Digest of their keys, values, media types and expiries, in hexadecimal. Equal rows have equal digests in any
    /// order.
    pub digest: String,
}

/// A version of a namespace.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Its number; never given twice in a namespace. Version 1 holds the rows from before the first load of mode
    /// `replace`.
    pub number: u32,
    /// Its state.
    pub state: VersionState,
    /// Load that built it. Absent for version 1.
    pub load: Option<String>,
    /// Rows that it has now, in the shards that have reported.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// When it was last activated. Absent if never.
    pub activated_at: Option<u64>,
    /// When a kept version is dropped.
    pub keep_until: Option<u64>,
    /// The rows that were read back, by shard, when its load had built it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<VersionShard>,
}

/// The versions of a namespace, by number: the oldest first. Empty if it never had a load of mode `replace`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    /// Number of activations so far.
    pub activations: u32,
    /// The versions.
    pub versions: Vec<VersionInfo>,
}

/// Effect of an activation, rollback or removal of a version.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionChange {
    /// Number of the live version before.
    pub before: u32,
    /// Number of the live version now.
    pub live: u32,
    /// Numbers of the versions that it drops.
    #[serde(default)]
    pub dropped: Vec<u32>,
    /// Whether nothing was changed because it was a dry run. Absent otherwise.
    pub dry_run: Option<bool>,
}
