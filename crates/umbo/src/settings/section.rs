//! The sections of the settings with their defaults. `config/umbo.toml` explains each one to operators; a
//! test compares it with this file.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbo_dispatcher::overload::{OverloadSettings, hash_of};
use umbo_overload::{DesignatedClass, QueueSettings};
use umbo_quota::Weights;
use umbo_telemetry::logging::LogFormat;
use umbo_types::Criticality;

use super::unit::{ByteCount, RequestUnitPrice, TimeSpan, empty_is_none};

/// `[server]`: addresses, limits and time-outs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSettings {
    /// Address of the data plane.
    pub(crate) listen: SocketAddr,
    /// Address of metrics, health and the admin API.
    pub(crate) admin_listen: SocketAddr,
    /// Serves a public address without requiring a credential.
    pub(crate) insecure: bool,
    /// Origins whose pages may use the data plane: separated by commas, or `*`.
    pub(crate) cors_origins: String,
    /// Names in `Host` by which the server is reached while there is no token: separated by commas, or `*`.
    pub(crate) hosts: String,
    /// Most open connections; for one more an idle one is closed.
    pub(crate) connections_max: u32,
    /// Most open connections of one address; 0 for no separate bound.
    pub(crate) connections_per_address_max: u32,
    /// Most requests in flight; more are shed.
    pub(crate) requests_in_flight_max: u32,
    /// Timeout for the head of a request to arrive.
    pub(crate) header_timeout: TimeSpan,
    /// Timeout for the body of a request to arrive.
    pub(crate) body_timeout: TimeSpan,
    /// Timeout of a connection without a request.
    pub(crate) idle_timeout: TimeSpan,
    /// For a client to take 1 KiB a second of an answer that waits for it.
    pub(crate) write_timeout: TimeSpan,
    /// Wait before the server stops, so that load balancers notice.
    pub(crate) drain_delay: TimeSpan,
    /// Timeout for the requests in flight when the server stops.
    pub(crate) drain_timeout: TimeSpan,
    /// Timeout of a request that sets none itself.
    pub(crate) default_timeout: TimeSpan,
    /// Most request units that a range or scan may cost before it ends with a cursor; 0 for no bound.
    pub(crate) request_ru_max: u32,
    /// Most bytes that request bodies over 4 KiB may hold together.
    pub(crate) body_memory: ByteCount,
    /// Most bytes that answers over 4 KiB may hold together until their clients have taken them.
    pub(crate) answer_memory: ByteCount,
}

impl Default for ServerSettings {
    fn default() -> Self {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            admin_listen: (Ipv4Addr::LOCALHOST, 8081).into(),
            insecure: false,
            cors_origins: String::new(),
            hosts: String::new(),
            connections_max: 10_000,
            connections_per_address_max: 0,
            requests_in_flight_max: 4_096,
            header_timeout: seconds(10),
            body_timeout: seconds(30),
            idle_timeout: seconds(75),
            write_timeout: seconds(30),
            drain_delay: seconds(1),
            drain_timeout: seconds(30),
            default_timeout: seconds(10),
            request_ru_max: 1_000_000,
            body_memory: ByteCount(256 << 20),
            answer_memory: ByteCount(256 << 20),
        }
    }
}

/// `[store]`: where rows are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreSettings {
    /// The data folder.
    pub(crate) folder: String,
    /// Number of shards; 0 uses the folder's number, or chooses one for a new folder.
    pub(crate) shards: u16,
    /// Memory for cached pages.
    pub(crate) cache: ByteCount,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            folder: "data".to_owned(),
            shards: 0,
            cache: ByteCount(1 << 30),
        }
    }
}

/// `[auth]`: authentication of callers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthSettings {
    /// File of tokens; without one no token is required.
    #[serde(with = "empty_is_none")]
    pub(crate) token_file: Option<String>,
}

/// `[tls]`: encryption of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    /// Certificate chain, PEM; without one the server uses plain HTTP.
    #[serde(with = "empty_is_none")]
    pub(crate) certificate: Option<String>,
    /// Private key of the certificate, PEM.
    #[serde(with = "empty_is_none")]
    pub(crate) key: Option<String>,
    /// Certificate authorities, PEM, one of which must have signed each client's certificate.
    #[serde(with = "empty_is_none")]
    pub(crate) client_ca: Option<String>,
}

/// `[quota]`: quotas of callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaSection {
    /// File of policies; without one only the stored and the built-in policies apply.
    #[serde(with = "empty_is_none")]
    pub(crate) policy_file: Option<String>,
    /// Most pairs of caller and namespace whose usage is counted separately.
    pub(crate) accounts_max: u32,
    /// Most token buckets.
    pub(crate) buckets_max: u32,
}

impl Default for QuotaSection {
    fn default() -> Self {
        Self {
            policy_file: None,
            accounts_max: 65_536,
            buckets_max: 65_536,
        }
    }
}

/// `[records]`: Umbo's own records (namespaces, tokens, policies, lists).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordsSection {
    /// How long requests are served with a copy that could not be confirmed with its home.
    pub(crate) stale_max: TimeSpan,
}

impl Default for RecordsSection {
    fn default() -> Self {
        Self {
            stale_max: TimeSpan(Duration::from_hours(24)),
        }
    }
}

/// `[hotkey]`: keys that are read so often that the dispatcher answers for their shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HotkeySection {
    /// Whether the layer is on.
    pub(crate) enabled: bool,
    /// Lowest rate of a hot key, in reads a second.
    pub(crate) rate_min: u32,
    /// Memory for answers of hot keys.
    pub(crate) cache: ByteCount,
    /// How long an answer is served.
    pub(crate) ttl: TimeSpan,
}

impl Default for HotkeySection {
    fn default() -> Self {
        Self {
            enabled: true,
            rate_min: 200,
            cache: ByteCount(64 << 20),
            ttl: TimeSpan(Duration::from_secs(3)),
        }
    }
}

/// `[overload]`: queues and shedding when a shard cannot keep up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverloadSection {
    /// Whether requests are queued and shed.
    pub(crate) enabled: bool,
    /// Most requests that a shard works on at the same time.
    pub(crate) in_flight_max: u32,
    /// Most requests that wait for a shard.
    pub(crate) waiting_max: u32,
    /// Normal wait in the queue of a shard.
    pub(crate) queue_target: TimeSpan,
    /// How long the wait must exceed the target before requests are shed.
    pub(crate) queue_interval: TimeSpan,
    /// The highest tier whose price an overload raises.
    pub(crate) price_tier_max: TierName,
    /// Callers whose price it raises, separated by commas; empty for all, those above their fair share first.
    pub(crate) price_callers: String,
}

/// Names of the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TierName {
    /// Work that can wait.
    Sheddable,
    /// The usual tier.
    SheddablePlus,
    /// Work that users wait for.
    Critical,
    /// Work without which nothing goes on.
    CriticalPlus,
}

impl From<TierName> for Criticality {
    fn from(name: TierName) -> Self {
        match name {
            TierName::Sheddable => Self::Sheddable,
            TierName::SheddablePlus => Self::SheddablePlus,
            TierName::Critical => Self::Critical,
            TierName::CriticalPlus => Self::CriticalPlus,
        }
    }
}

impl OverloadSection {
    fn designated(&self) -> DesignatedClass {
        let names = self.price_callers.split(',').map(str::trim);
        let callers: Vec<_> = names.filter(|name| !name.is_empty()).map(hash_of).collect();
        let callers = (!callers.is_empty()).then_some(callers);
        DesignatedClass::new(self.price_tier_max.into(), callers)
    }
}

impl Default for OverloadSection {
    fn default() -> Self {
        let queue = QueueSettings::default();
        Self {
            enabled: true,
            in_flight_max: queue.limit.max,
            waiting_max: queue.waiting_max as u32,
            queue_target: TimeSpan(queue.codel.target),
            queue_interval: TimeSpan(queue.codel.interval),
            price_tier_max: TierName::SheddablePlus,
            price_callers: String::new(),
        }
    }
}

impl From<&OverloadSection> for OverloadSettings {
    fn from(section: &OverloadSection) -> Self {
        let mut settings = Self::default();
        let queue = &mut settings.queue;
        queue.limit.max = section.in_flight_max;
        queue.limit.min = queue.limit.min.min(section.in_flight_max);
        queue.limit.initial = queue.limit.initial.min(section.in_flight_max);
        queue.waiting_max = section.waiting_max as usize;
        queue.codel.target = section.queue_target.0;
        queue.codel.interval = section.queue_interval.0;
        settings.pressure.designated = section.designated();
        settings
    }
}

/// `[cost]`: the cost of a request, in request units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostSection {
    /// Version of this price list.
    pub(crate) version: u32,
    /// Each read.
    pub(crate) read_base: RequestUnitPrice,
    /// Each write.
    pub(crate) write_base: RequestUnitPrice,
    /// Each row read or written.
    pub(crate) row: RequestUnitPrice,
    /// Each 4,096 bytes read.
    pub(crate) read_bytes: RequestUnitPrice,
    /// Each 4,096 bytes written.
    pub(crate) write_bytes: RequestUnitPrice,
    /// Each millisecond of the store's service time.
    pub(crate) latency_ms: RequestUnitPrice,
}

impl Default for CostSection {
    fn default() -> Self {
        let weights = Weights::default();
        Self {
            version: weights.version,
            read_base: RequestUnitPrice(weights.read_base),
            write_base: RequestUnitPrice(weights.write_base),
            row: RequestUnitPrice(weights.row),
            read_bytes: RequestUnitPrice(weights.read_bytes),
            write_bytes: RequestUnitPrice(weights.write_bytes),
            latency_ms: RequestUnitPrice(weights.latency_ms),
        }
    }
}

impl From<&CostSection> for Weights {
    fn from(cost: &CostSection) -> Self {
        Self {
            version: cost.version,
            read_base: cost.read_base.0,
            write_base: cost.write_base.0,
            row: cost.row.0,
            read_bytes: cost.read_bytes.0,
            write_bytes: cost.write_bytes.0,
            latency_ms: cost.latency_ms.0,
        }
    }
}

/// `[log]`: the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogSection {
    /// Format of the log.
    pub(crate) format: LogFormatName,
    /// What is logged.
    pub(crate) filter: String,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            format: LogFormatName::Auto,
            filter: "info".to_owned(),
        }
    }
}

/// Names of the log's formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormatName {
    /// For people on a terminal, for machines elsewhere.
    Auto,
    /// For people.
    Human,
    /// For machines.
    Json,
}

impl From<LogFormatName> for LogFormat {
    fn from(name: LogFormatName) -> Self {
        match name {
            LogFormatName::Auto => Self::Auto,
            LogFormatName::Human => Self::Human,
            LogFormatName::Json => Self::Json,
        }
    }
}

/// `[metrics]`: metrics that are sent to a collector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsSection {
    /// How often metrics are sent to the collector of `[trace]`; never at zero.
    pub(crate) otlp_interval: TimeSpan,
}

impl Default for MetricsSection {
    fn default() -> Self {
        Self {
            // The default of OpenTelemetry's own exporters.
            otlp_interval: TimeSpan(Duration::from_mins(1)),
        }
    }
}

/// `[trace]`: spans, and the collector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceSection {
    /// Address of an OTLP collector; without one nothing is traced.
    #[serde(with = "empty_is_none")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Share of the requests without a trace context that are sampled.
    pub(crate) sample_ratio: f64,
    /// A request that takes at least this long is always traced.
    pub(crate) slow: TimeSpan,
}

impl Default for TraceSection {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            sample_ratio: 0.0,
            slow: TimeSpan(Duration::from_millis(500)),
        }
    }
}
