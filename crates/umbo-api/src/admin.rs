//! Types of the admin API (`/admin/v1`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, Object, Type};

use crate::time_to_live::{self, TimeToLive};
use crate::whole_number;

/// A namespace.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceInfo {
    /// Name.
    pub name: String,
    /// Number under which its rows are stored.
    pub id: u32,
    /// When it was created, in milliseconds since the Unix epoch.
    pub created_at: u64,
    /// Whether it can be used.
    #[serde(default)]
    pub state: NamespaceState,
    /// Shards that have not confirmed its removal; only while it is being removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<u16>,
    /// What a request to create it or to change its settings did; absent elsewhere.
    pub change: Option<NamespaceChange>,
    /// How large it is; absent in answers to changes.
    pub size: Option<NamespaceSize>,
    /// Settings.
    #[serde(flatten)]
    pub settings: NamespaceSettings,
}

/// Size of a namespace, counted by its shards with every commit. For a shard that is away, the size that it reported
/// last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceSize {
    /// Rows stored, expired ones that await reclaiming included.
    pub rows: u64,
    /// Bytes of their keys and values, plus about 20 bytes for each row.
    pub bytes: u64,
    /// Bytes saved by compression; `bytes` does not include them. Absent if 0.
    #[serde(default, skip_serializing_if = "whole_number::is_zero")]
    pub bytes_saved: u64,
    /// Shards whose rows are not counted: the server has no report of them, or the report named only their thousand
    /// largest namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_shards: Vec<u16>,
}

impl NamespaceSize {
    /// Returns the uncompressed size divided by the stored size, or 1 if nothing is stored.
    #[expect(
        clippy::cast_precision_loss,
        reason = "two digits of the ratio are of use"
    )]
    pub fn compression_ratio(&self) -> f64 {
        if self.bytes == 0 {
            return 1.0;
        }
        (self.bytes + self.bytes_saved) as f64 / self.bytes as f64
    }
}

/// What a request to create a namespace or to change its settings did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceChange {
    /// It is new.
    Created,
    /// It has other settings than before.
    Changed,
    /// It exists, and nothing was changed.
    Unchanged,
}

/// Whether a namespace can be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceState {
    /// It can be used.
    #[default]
    Live,
    /// It was removed. Its name is free once every shard has confirmed the removal.
    Removing,
}

/// The settings of a namespace.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceSettings {
    /// Default time to live of rows, in seconds. If absent, they do not expire.
    #[schema(minimum = 1, maximum = 315_360_000)]
    pub default_ttl: Option<u64>,
    /// Default durability of writes.
    #[serde(default)]
    pub durability: DurabilitySetting,
    /// How values are kept. Default: `off`.
    #[serde(default, skip_serializing_if = "CompressionSetting::is_off")]
    pub compression: CompressionSetting,
    /// How long the previous version is kept after an activation, in seconds. Default: one day.
    #[schema(minimum = 1, maximum = 315_360_000)]
    pub versions_kept_for: Option<u64>,
    /// How rows are written. Default: `exact`.
    #[serde(default, skip_serializing_if = "WriteSetting::is_exact")]
    pub writes: WriteSetting,
}

/// Settings of a namespace in a request. An absent field changes nothing; null sets the default.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Default time to live of rows; null: they do not expire.
    #[serde(default, deserialize_with = "time_to_live::named")]
    #[schema(value_type = Option<TimeToLive>)]
    pub default_ttl: Option<Option<u64>>,
    /// Default durability of writes; null: `sync`.
    #[serde(default, deserialize_with = "named_durability")]
    #[schema(value_type = Option<DurabilitySetting>)]
    pub durability: Option<Option<DurabilitySetting>>,
    /// How values are kept that are written from now on; null: `off`.
    #[serde(default, deserialize_with = "named_compression")]
    #[schema(value_type = Option<CompressionSetting>)]
    pub compression: Option<Option<CompressionSetting>>,
    /// How long the previous version is kept for a rollback. It takes space, and every write goes to it too. Applies
    /// from the next activation on; null: one day.
    #[serde(default, deserialize_with = "time_to_live::named")]
    #[schema(value_type = Option<TimeToLive>)]
    pub versions_kept_for: Option<Option<u64>>,
    /// How rows are written: fixed at the creation. Only Cassandra has `fast`.
    pub writes: Option<WriteSetting>,
}

impl NamespaceSpec {
    /// Returns these settings, completed from `others`.
    pub fn over(&self, others: NamespaceSettings) -> NamespaceSettings {
        NamespaceSettings {
            default_ttl: self.default_ttl.unwrap_or(others.default_ttl),
            durability: self
                .durability
                .map_or(others.durability, Option::unwrap_or_default),
            compression: self
                .compression
                .map_or(others.compression, Option::unwrap_or_default),
            versions_kept_for: self.versions_kept_for.unwrap_or(others.versions_kept_for),
            writes: self.writes.unwrap_or(others.writes),
        }
    }
}

impl From<NamespaceSettings> for NamespaceSpec {
    /// Names every field.
    fn from(settings: NamespaceSettings) -> Self {
        Self {
            default_ttl: Some(settings.default_ttl),
            durability: Some(Some(settings.durability)),
            compression: Some(Some(settings.compression)),
            versions_kept_for: Some(settings.versions_kept_for),
            writes: Some(settings.writes),
        }
    }
}

#[expect(
    clippy::option_option,
    reason = "absent, null and a value are three things (RFC 7396)"
)]
fn named_durability<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<DurabilitySetting>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[expect(
    clippy::option_option,
    reason = "absent, null and a value are three things (RFC 7396)"
)]
fn named_compression<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<CompressionSetting>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// How values are kept at rest. A change applies only to later writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompressionSetting {
    /// As they were sent.
    #[default]
    Off,
    /// As zstd, if that saves a tenth or more. Clients receive the original bytes.
    Zstd,
}

impl CompressionSetting {
    /// Returns whether values are kept as they were sent.
    pub const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Zstd => "zstd",
        }
    }
}

/// How rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WriteSetting {
    /// With all that the contract promises.
    #[default]
    Exact,
    /// Without a read: the highest version stays, by the dispatchers' clocks. Rows are not counted.
    Fast,
}

impl WriteSetting {
    /// Returns whether the contract holds whole.
    pub const fn is_exact(&self) -> bool {
        matches!(self, Self::Exact)
    }

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
        }
    }
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DurabilitySetting {
    /// Once it is on the disk.
    #[default]
    Sync,
    /// Once readers see it.
    Async,
}

/// The namespaces, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceList {
    /// All of them.
    pub namespaces: Vec<NamespaceInfo>,
}

/// What a removal of a namespace would remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceRemoval {
    /// Name.
    pub name: String,
    /// Visible rows in it.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Always true: nothing was removed.
    pub dry_run: bool,
}

/// A removal of a namespace that some shards have not confirmed yet. It continues by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceRemoving {
    /// Name; free again once all shards have confirmed.
    pub name: String,
    /// `removing`.
    pub state: NamespaceState,
    /// Shards that have not confirmed.
    pub waiting_for: Vec<u16>,
}

/// A token, without its secret.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    /// Id, the middle part of the token.
    pub id: String,
    /// Name: requests with this token are counted for the caller of this name.
    pub name: String,
    /// Grants, each `permissions:namespace-pattern`.
    pub grants: Vec<String>,
    /// Highest criticality it may claim.
    pub criticality_max: String,
    /// When it was created, in milliseconds since the Unix epoch.
    pub created_at: u64,
    /// When it expires, in milliseconds since the Unix epoch. Absent if never.
    pub expires_at: Option<u64>,
    /// `file` for a token of the token file, `store` for one made with the admin API.
    pub source: String,
}

/// What the caller of a request may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnGrants {
    /// Caller that the requests are counted for.
    pub caller: String,
    /// Grants, each `permissions:namespace-pattern`.
    pub grants: Vec<String>,
}

/// The tokens, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// All of them.
    pub tokens: Vec<TokenInfo>,
}

/// A token to create.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Name of the caller: 1 to 64 characters of `[A-Za-z0-9._-]`.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    pub name: String,
    /// Grants, each `permissions:namespace-pattern`; at least one.
    #[schema(schema_with = grants)]
    pub grants: Vec<String>,
    /// Highest criticality it may claim. Default: `sheddable-plus`.
    #[schema(pattern = "^(critical-plus|critical|sheddable-plus|sheddable)$")]
    pub criticality_max: Option<String>,
    /// Lifetime of the token. If absent, it does not expire.
    #[serde(default, deserialize_with = "time_to_live::nullable")]
    #[schema(value_type = Option<TimeToLive>)]
    pub ttl: Option<u64>,
}

fn grants() -> Array {
    let mut grant = Object::with_type(Type::String);
    let permissions = r"(read|write|scan|delegate|observe|admin)";
    grant.pattern = Some(format!(
        r"^(\*|{permissions}(,{permissions})*):[a-z0-9*][a-z0-9*._-]{{0,63}}$"
    ));
    grant.examples = vec!["read,scan:listing-*".into()];
    let mut grants = Array::new(grant);
    grants.description = Some("Grants, each `permissions:namespace-pattern`; at least one.".into());
    grants.min_items = Some(1);
    grants.max_items = Some(64);
    grants
}

/// A token just created. The only answer that ever shows the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The token to send as `Authorization: Bearer …`. It is not kept and cannot be shown again.
    pub token: String,
    /// Its properties.
    #[serde(flatten)]
    pub info: TokenInfo,
}

/// State of a shard.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardInfo {
    /// Number.
    pub shard: u16,
    /// Name of its node. Absent if the server itself holds the shard.
    pub node: Option<String>,
    /// `available`, `read-only` or `unavailable`.
    pub state: String,
    /// Why it is not available.
    pub reason: Option<String>,
    /// Slots it owns.
    pub slots: u32,
    /// Rows stored, expired ones that await reclaiming included.
    pub rows: u64,
    /// Bytes of the disk that its file takes.
    pub file_bytes: u64,
    /// Mutations that wait for a commit.
    pub queued: u64,
    /// Median time of its calls that are not heavy over the last five seconds, from the permit to the answer, in
    /// milliseconds. Absent without calls.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the same times.
    pub p99_ms: Option<f64>,
}

/// The shards, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardList {
    /// All of them.
    pub shards: Vec<ShardInfo>,
}

/// Answer of `/`: the service, and the paths of its documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceInfo {
    /// `umbo`.
    pub name: String,
    /// Version of the server.
    pub version: String,
    /// Short description.
    pub about: String,
    /// The `OpenAPI` document.
    pub openapi: String,
    /// The contract for services, as text.
    pub contract: String,
    /// Whether it takes requests.
    pub status: String,
    /// The operators' page, for browsers.
    pub page: String,
}

/// Answer of `/healthz` and `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, `degraded` (serving, but not with every shard or not with every thread at its priority), `draining` or
    /// `unavailable`.
    pub status: String,
    /// The problems, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}
