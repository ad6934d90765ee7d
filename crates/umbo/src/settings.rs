//! Settings of an operator: defaults, then a file, then the environment, then flags.
//!
//! Owns the tree of [`Settings`] and how the layers are read, checked and shown. Does not act on any of them.
//! An invalid value is refused before anything starts, with its place: the file and line, the variable, or
//! the flag.

mod check;
mod error;
mod layer;
mod loaded;
mod memory;
mod section;
mod unit;

use serde::{Deserialize, Serialize};

pub(crate) use self::error::SettingsError;
pub(crate) use self::layer::Flag;
pub(crate) use self::loaded::{LoadedSettings, SettingsSources};
pub(crate) use self::section::{
    AuthSettings, ClusterSection, CostSection, HotkeySection, LogSection, MetricsSection,
    OverloadSection, QuotaSection, RecordsSection, ServerSettings, ShardSection, StoreSettings,
    TlsSettings, TraceSection,
};

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Addresses, limits and time-outs.
    pub(crate) server: ServerSettings,
    /// Where rows are kept.
    pub(crate) store: StoreSettings,
    /// Authentication.
    pub(crate) auth: AuthSettings,
    /// Encryption of connections.
    pub(crate) tls: TlsSettings,
    /// Umbo's own records.
    pub(crate) records: RecordsSection,
    /// Quotas of callers.
    pub(crate) quota: QuotaSection,
    /// Keys that are read very often.
    pub(crate) hotkey: HotkeySection,
    /// Queues and shedding.
    pub(crate) overload: OverloadSection,
    /// What a request costs.
    pub(crate) cost: CostSection,
    /// The dispatchers and shard nodes that this process works with.
    pub(crate) cluster: ClusterSection,
    /// Settings of a shard node.
    pub(crate) shard: ShardSection,
    /// The log.
    pub(crate) log: LogSection,
    /// Metrics that are sent to a collector.
    pub(crate) metrics: MetricsSection,
    /// Spans.
    pub(crate) trace: TraceSection,
}

#[cfg(test)]
mod tests;
