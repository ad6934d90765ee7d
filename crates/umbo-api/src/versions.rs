//! Versions: the datasets of a namespace that loads of mode `replace` have built.
//!
//! Owns the bodies of `/v1/ns/{ns}/versions` in both directions. Reads see the live version; writes go to it and to all
//! others that are kept or being built. Times are milliseconds since the Unix epoch.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a version is to its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VersionState {
    /// A load builds it.
    Building,
    /// It is built and was checked; it can be activated.
    Ready,
    /// Reads see it.
    Live,
    /// It was the live one, and can be activated again.
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

/// A version in one shard, as it was when its load had built it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionShard {
    /// Number of the shard.
    pub shard: u16,
    /// Rows that were read back.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Digest of their keys, values, media types and expiries, in hexadecimal: equal rows have equal digests, whatever
    /// their order.
    pub digest: String,
}

/// A version of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Its number; never given twice in a namespace. The rows that were there before the first load of mode `replace`
    /// are version 1.
    pub number: u32,
    /// What it is to its namespace.
    pub state: VersionState,
    /// Load that has built it; absent of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Rows that it has now, as far as the shards tell.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// When it was last activated; absent where it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated_at: Option<u64>,
    /// When a kept version is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_until: Option<u64>,
    /// What was read back of it, by shard, when its load had built it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<VersionShard>,
}

/// The versions of a namespace, by number: the oldest first. Empty where no load of mode `replace` was ever made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    /// Number of activations so far.
    pub activations: u32,
    /// The versions.
    pub versions: Vec<VersionInfo>,
}

/// What an activation, rollback or removal of a version changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionChange {
    /// Number of the version that was the live one.
    pub before: u32,
    /// Number of the version that is the live one now.
    pub live: u32,
    /// Numbers of the versions that are dropped by it.
    #[serde(default)]
    pub dropped: Vec<u32>,
    /// Whether nothing was changed because it was a dry run; absent where it was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}
