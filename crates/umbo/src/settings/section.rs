//! The sections of the settings with their defaults. `config/umbo.toml` tells an operator what
//! each one does; this file is its twin, and a test compares them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbo_dispatcher::overload::OverloadSettings;
use umbo_quota::Weights;
use umbo_shed::GateSettings;
use umbo_telemetry::logging::LogFormat;

use super::unit::{Price, Size, Span, empty_is_none};

/// `[server]`: addresses, limits and time-outs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSettings {
    /// Address of the data plane.
    pub(crate) listen: SocketAddr,
    /// Address of metrics, health and the admin API.
    pub(crate) admin_listen: SocketAddr,
    /// Serves a public address though no credential is asked for.
    pub(crate) insecure: bool,
    /// Open connections; more wait to be accepted.
    pub(crate) connections_max: u32,
    /// Requests in flight; more are shed.
    pub(crate) requests_in_flight_max: u32,
    /// For the head of a request to arrive.
    pub(crate) header_timeout: Span,
    /// For the body of a request to arrive.
    pub(crate) body_timeout: Span,
    /// For a connection without a request.
    pub(crate) idle_timeout: Span,
    /// For a client that reads nothing of its answer.
    pub(crate) write_timeout: Span,
    /// For load balancers to see that the server is about to stop.
    pub(crate) drain_delay: Span,
    /// For the requests in flight to finish when the server stops.
    pub(crate) drain_timeout: Span,
    /// For a request that names no budget of its own.
    pub(crate) default_timeout: Span,
    /// Bytes that request bodies over 64 KiB may hold together.
    pub(crate) body_memory: Size,
}

impl Default for ServerSettings {
    fn default() -> Self {
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            admin_listen: (Ipv4Addr::LOCALHOST, 8081).into(),
            insecure: false,
            connections_max: 10_000,
            requests_in_flight_max: 4_096,
            header_timeout: seconds(10),
            body_timeout: seconds(30),
            idle_timeout: seconds(75),
            write_timeout: seconds(30),
            drain_delay: seconds(1),
            drain_timeout: seconds(30),
            default_timeout: seconds(10),
            body_memory: Size(256 << 20),
        }
    }
}

/// `[store]`: where rows are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreSettings {
    /// The data folder.
    pub(crate) folder: String,
    /// Number of shards; 0 takes what the folder says, or chooses when it is created.
    pub(crate) shards: u16,
    /// Memory for cached pages.
    pub(crate) cache: Size,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            folder: "data".to_owned(),
            shards: 0,
            cache: Size(1 << 30),
        }
    }
}

/// `[auth]`: who may call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthSettings {
    /// File of tokens; none asks for no token.
    #[serde(with = "empty_is_none")]
    pub(crate) token_file: Option<String>,
}

/// `[tls]`: encryption of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    /// Certificate chain, PEM; none serves plain HTTP.
    #[serde(with = "empty_is_none")]
    pub(crate) certificate: Option<String>,
    /// Private key of the certificate, PEM.
    #[serde(with = "empty_is_none")]
    pub(crate) key: Option<String>,
    /// Authorities, PEM, one of which must have signed each client's certificate.
    #[serde(with = "empty_is_none")]
    pub(crate) client_ca: Option<String>,
}

/// `[quota]`: who may spend how much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaSection {
    /// File of policies; none leaves those of the store and those built in.
    #[serde(with = "empty_is_none")]
    pub(crate) policy_file: Option<String>,
    /// How often the pod looks for what other pods have changed.
    pub(crate) refresh: Span,
    /// Callers in namespaces whose usage is kept apart.
    pub(crate) accounts_max: u32,
    /// Token buckets.
    pub(crate) buckets_max: u32,
}

impl Default for QuotaSection {
    fn default() -> Self {
        Self {
            policy_file: None,
            refresh: Span(Duration::from_secs(30)),
            accounts_max: 65_536,
            buckets_max: 65_536,
        }
    }
}

/// `[hotkey]`: keys that are read so often that the server answers for their shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HotkeySection {
    /// Whether there is such a layer.
    pub(crate) enabled: bool,
    /// Lowest rate of a hot key, in reads a second.
    pub(crate) rate_min: u32,
    /// Memory for answers of hot keys.
    pub(crate) cache: Size,
    /// How long an answer is served.
    pub(crate) ttl: Span,
}

impl Default for HotkeySection {
    fn default() -> Self {
        Self {
            enabled: true,
            rate_min: 200,
            cache: Size(64 << 20),
            ttl: Span(Duration::from_secs(3)),
        }
    }
}

/// `[overload]`: what waits and what is shed when a shard cannot keep up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverloadSection {
    /// Whether anything is.
    pub(crate) enabled: bool,
    /// Most requests that a shard works on at the same time.
    pub(crate) in_flight_max: u32,
    /// Most requests that wait for a shard.
    pub(crate) waiting_max: u32,
    /// Wait in the queue of a shard that is normal.
    pub(crate) queue_target: Span,
    /// Time for which it has to be longer before anything is shed.
    pub(crate) queue_interval: Span,
}

impl Default for OverloadSection {
    fn default() -> Self {
        let gate = GateSettings::default();
        Self {
            enabled: true,
            in_flight_max: gate.limit.max,
            waiting_max: gate.waiting_max as u32,
            queue_target: Span(gate.codel.target),
            queue_interval: Span(gate.codel.interval),
        }
    }
}

impl From<&OverloadSection> for OverloadSettings {
    fn from(section: &OverloadSection) -> Self {
        let mut settings = Self::default();
        let gate = &mut settings.gate;
        gate.limit.max = section.in_flight_max;
        gate.limit.initial = gate.limit.initial.min(section.in_flight_max);
        gate.waiting_max = section.waiting_max as usize;
        gate.codel.target = section.queue_target.0;
        gate.codel.interval = section.queue_interval.0;
        settings
    }
}

/// `[cost]`: what a request costs, in request units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostSection {
    /// Number of this list of prices.
    pub(crate) version: u32,
    /// Any read.
    pub(crate) read_base: Price,
    /// Any write.
    pub(crate) write_base: Price,
    /// Each row read or written.
    pub(crate) row: Price,
    /// 4,096 bytes read.
    pub(crate) read_bytes: Price,
    /// 4,096 bytes written.
    pub(crate) write_bytes: Price,
    /// A millisecond of the store's service time.
    pub(crate) latency_ms: Price,
}

impl Default for CostSection {
    fn default() -> Self {
        let weights = Weights::default();
        Self {
            version: weights.version,
            read_base: Price(weights.read_base),
            write_base: Price(weights.write_base),
            row: Price(weights.row),
            read_bytes: Price(weights.read_bytes),
            write_bytes: Price(weights.write_bytes),
            latency_ms: Price(weights.latency_ms),
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
    /// How it is written.
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
    /// For people on a terminal, else for machines.
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

/// `[trace]`: spans.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceSection {
    /// Address of an OTLP collector; none traces nothing.
    #[serde(with = "empty_is_none")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Share of the requests without a trace of their own that are sampled.
    pub(crate) sample_ratio: f64,
    /// A request that took this long gets a span in any case.
    pub(crate) slow: Span,
}

impl Default for TraceSection {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            sample_ratio: 0.0,
            slow: Span(Duration::from_millis(500)),
        }
    }
}
