//! The sections of the settings: each key with its type, its default and its bounds. `config/umbo.toml` explains each
//! one to operators; a test compares it with this file.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbo_dispatcher::overload::{OverloadSettings, hash_of};
use umbo_overload::{DesignatedClass, QueueSettings};
use umbo_quota::Weights;
use umbo_telemetry::logging::LogFormat;
use umbo_types::{Criticality, RequestUnits};

use super::unit::{ByteCount, TimeSpan, empty_is_none, price};

/// A key, its lowest and its highest value, as the settings file has them.
pub(super) type Bounds = (&'static str, &'static str, &'static str);

/// Declares the sections of [`Settings`]: `key: type = default, lowest to highest;`, with `as` and a module of serde before
/// the default where the type is written in another form, and the bounds only for values that have them.
macro_rules! sections {
    ($(
        $(#[$about:meta])*
        $section:ident struct $name:ident {
            $(
                $(#[$meta:meta])*
                $key:ident: $type:ty $(as $form:literal)? = $default:expr $(, $low:literal to $high:literal)?;
            )+
        }
    )+) => {
        /// All settings.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Settings {
            $($(#[$about])* pub(crate) $section: $name,)+
        }

        $(
            $(#[$about])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub(crate) struct $name {
                $($(#[$meta])* $(#[serde(with = $form)])? pub(crate) $key: $type,)+
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($key: $default,)+ }
                }
            }
        )+

        /// The bounds of single values.
        pub(super) const BOUNDS: &[Bounds] = &[
            $($($((concat!(stringify!($section), ".", stringify!($key)), $low, $high),)?)+)+
        ];
    };
}

sections! {
    /// `[server]`: addresses, limits and time-outs.
    server struct ServerSettings {
        /// Address of the data plane.
        listen: SocketAddr = (Ipv4Addr::LOCALHOST, 8080).into();
        /// Address of metrics, health and the admin API.
        admin_listen: SocketAddr = (Ipv4Addr::LOCALHOST, 8081).into();
        /// Serves a public address without requiring a credential.
        insecure: bool = false;
        /// Origins whose pages may use the data plane: separated by commas, or `*`.
        cors_origins: String = String::new();
        /// Names in `Host` that are served while there is no token: separated by commas, or `*`.
        hosts: String = String::new();
        /// Most open connections; one more closes an idle one.
        connections_max: u32 = 10_000, "1" to "1000000";
        /// Most open connections of one address; 0 for no separate bound.
        connections_per_address_max: u32 = 0, "0" to "1000000";
        /// Most requests in flight; more are shed.
        requests_in_flight_max: u32 = 4_096, "1" to "1000000";
        /// Timeout for the head of a request to arrive.
        header_timeout: TimeSpan = TimeSpan::seconds(10), "100ms" to "1h";
        /// Timeout for the body of a request to arrive.
        body_timeout: TimeSpan = TimeSpan::seconds(30), "100ms" to "1h";
        /// Timeout of a connection without a request.
        idle_timeout: TimeSpan = TimeSpan::seconds(75), "100ms" to "1h";
        /// A client must take 1 KiB for each second of this time, while an answer waits for it.
        write_timeout: TimeSpan = TimeSpan::seconds(30), "100ms" to "1h";
        /// Wait before the server stops, so that load balancers notice.
        drain_delay: TimeSpan = TimeSpan::seconds(1), "0s" to "1h";
        /// Timeout for the requests in flight when the server stops.
        drain_timeout: TimeSpan = TimeSpan::seconds(30), "0s" to "1h";
        /// Timeout of a request that sets none itself.
        default_timeout: TimeSpan = TimeSpan::seconds(10), "100ms" to "1h";
        /// Most request units that a range or scan may cost before it ends with a cursor; 0 for no bound.
        request_ru_max: u32 = 1_000_000, "0" to "1000000000";
        /// Most bytes that request bodies over 4 KiB may hold together.
        body_memory: ByteCount = ByteCount(256 << 20), "16MiB" to "1TiB";
        /// Most bytes that answers over 4 KiB may hold together until their clients have taken them.
        answer_memory: ByteCount = ByteCount(256 << 20), "16MiB" to "1TiB";
    }

    /// `[store]`: where rows are kept.
    store struct StoreSettings {
        /// Where rows are kept.
        engine: StoreEngine = StoreEngine::Redb;
        /// The data folder.
        folder: String = "data".to_owned();
        /// Number of shards; 0 uses the folder's number, or chooses one for a new folder.
        shards: u16 = 0, "0" to "512";
        /// Whether small writes are answered by a log.
        write_log: bool = true;
        /// Memory for cached pages.
        cache: ByteCount = ByteCount(1 << 30), "1MiB" to "16TiB";
    }

    /// `[cassandra]`: the cluster of the engine of this name.
    cassandra struct CassandraSection {
        /// Host and port of some nodes, separated by commas.
        contact_points: String = "127.0.0.1:9042".to_owned();
        /// The data center to read and write in.
        data_center: String = "datacenter1".to_owned();
        /// The keyspace.
        keyspace: String = "umbo".to_owned();
        /// Copies of each row in the data center, where Umbo creates the keyspace.
        replication: u8 = 3, "1" to "9";
        /// Name to log in with; none for a cluster that asks for none.
        user: Option<String> as "empty_is_none" = None;
        /// File of the password.
        password_file: Option<String> as "empty_is_none" = None;
        /// Authorities of the nodes' certificates, PEM; without them there is no TLS.
        ca: Option<String> as "empty_is_none" = None;
        /// Certificate chain for the nodes, PEM.
        certificate: Option<String> as "empty_is_none" = None;
        /// Private key of the certificate, PEM.
        key: Option<String> as "empty_is_none" = None;
        /// Number of this Umbo in the keyspace.
        instance: u32 = 0, "0" to "1000000";
        /// Parts of each namespace.
        buckets: u16 = 256, "1" to "4096";
        /// How long the cluster may take for one request.
        request_timeout: TimeSpan = TimeSpan::seconds(5), "100ms" to "1m";
    }

    /// `[auth]`: authentication of callers.
    auth struct AuthSettings {
        /// File of tokens; without one no token is required.
        token_file: Option<String> as "empty_is_none" = None;
    }

    /// `[tls]`: encryption of connections.
    tls struct TlsSettings {
        /// Certificate chain, PEM; without one the server uses plain HTTP.
        certificate: Option<String> as "empty_is_none" = None;
        /// Private key of the certificate, PEM.
        key: Option<String> as "empty_is_none" = None;
        /// Certificate authorities, PEM; one of them must have signed each client's certificate.
        client_ca: Option<String> as "empty_is_none" = None;
    }

    /// `[records]`: Umbo's own records (namespaces, tokens, policies, lists).
    records struct RecordsSection {
        /// How long requests are served with a copy that could not be confirmed with its home.
        stale_max: TimeSpan = TimeSpan(Duration::from_hours(24)), "5s" to "30days";
    }

    /// `[quota]`: quotas of callers.
    quota struct QuotaSection {
        /// File of policies; without one only the stored and the built-in policies apply.
        policy_file: Option<String> as "empty_is_none" = None;
        /// Most pairs of caller and namespace whose usage is counted separately.
        accounts_max: u32 = 65_536, "64" to "16777216";
        /// Most token buckets.
        buckets_max: u32 = 65_536, "64" to "16777216";
    }

    /// `[hotkey]`: keys that are read so often that the dispatcher answers for their shard.
    hotkey struct HotkeySection {
        /// Whether the layer is on.
        enabled: bool = true;
        /// Lowest rate of a hot key, in reads a second.
        rate_min: u32 = 200, "1" to "1000000000";
        /// Memory for answers of hot keys.
        cache: ByteCount = ByteCount(64 << 20), "1MiB" to "1TiB";
        /// How long an answer is served.
        ttl: TimeSpan = TimeSpan::seconds(3), "100ms" to "1m";
    }

    /// `[overload]`: queues and shedding when a shard cannot keep up.
    overload struct OverloadSection {
        /// Whether requests are queued and shed.
        enabled: bool = true;
        /// Most requests that a shard works on at the same time.
        in_flight_max: u32 = QueueSettings::default().limit.max, "2" to "1000000";
        /// Most requests that wait for a shard.
        waiting_max: u32 = QueueSettings::default().waiting_max as u32, "1" to "1000000";
        /// Normal wait in the queue of a shard.
        queue_target: TimeSpan = TimeSpan(QueueSettings::default().codel.target), "1ms" to "10s";
        /// How long the wait must exceed the target before requests are shed.
        queue_interval: TimeSpan = TimeSpan(QueueSettings::default().codel.interval), "1ms" to "10s";
        /// The highest tier whose price an overload raises.
        price_tier_max: Criticality as "TierName" = Criticality::SheddablePlus;
        /// Callers whose price it raises, separated by commas; empty for all, those above their fair share first.
        price_callers: String = String::new();
    }

    /// `[cost]`: the cost of a request, in request units.
    cost struct CostSection {
        /// Version of this price list.
        version: u32 = Weights::default().version, "1" to "4294967295";
        /// Each read.
        read_base: RequestUnits as "price" = Weights::default().read_base, "0" to "1000";
        /// Each write.
        write_base: RequestUnits as "price" = Weights::default().write_base, "0" to "1000";
        /// Each row read or written.
        row: RequestUnits as "price" = Weights::default().row, "0" to "1000";
        /// Each 4,096 bytes read.
        read_bytes: RequestUnits as "price" = Weights::default().read_bytes, "0" to "1000";
        /// Each 4,096 bytes written.
        write_bytes: RequestUnits as "price" = Weights::default().write_bytes, "0" to "1000";
        /// Each millisecond of the store's service time.
        latency_ms: RequestUnits as "price" = Weights::default().latency_ms, "0" to "1000";
    }

    /// `[cluster]`: the dispatchers and shard nodes that this process works with.
    cluster struct ClusterSection {
        /// File of the map; none for a standalone server.
        map: Option<String> as "empty_is_none" = None;
        /// Name of this node in the map; none for a dispatcher.
        node: Option<String> as "empty_is_none" = None;
        /// Certificate chain that this process presents to other processes, PEM; none disables TLS.
        certificate: Option<String> as "empty_is_none" = None;
        /// Private key of the certificate, PEM.
        key: Option<String> as "empty_is_none" = None;
        /// Certificate authorities, PEM; one of them must have signed the certificates of the other processes.
        ca: Option<String> as "empty_is_none" = None;
        /// Address of a dispatcher for the other dispatchers; none for a free port of its address on the way to the
        /// home.
        listen: Option<SocketAddr> as "empty_is_none" = None;
        /// `host:port` that the others connect to; none for `listen`.
        advertise: Option<String> as "empty_is_none" = None;
    }

    /// `[shard]`: a shard node.
    shard struct ShardSection {
        /// Address for dispatchers.
        listen: SocketAddr = (Ipv4Addr::LOCALHOST, 7_411).into();
        /// Address of metrics and health.
        admin_listen: SocketAddr = (Ipv4Addr::LOCALHOST, 7_412).into();
        /// Most requests in flight; more are refused.
        in_flight_max: u32 = 4_096, "16" to "1000000";
        /// Most bytes that the requests in flight may hold together; half of it must hold the longest message.
        request_memory: ByteCount = ByteCount(256 << 20), "64MiB" to "1TiB";
    }

    /// `[log]`: the log.
    log struct LogSection {
        /// Format of the log.
        format: LogFormat as "LogFormatName" = LogFormat::Auto;
        /// Filter of the log.
        filter: String = "info".to_owned();
        /// Whether its lines go to the collector of `[trace]` too.
        otlp: bool = false;
    }

    /// `[metrics]`: metrics that are sent to a collector.
    metrics struct MetricsSection {
        /// Interval of the export of metrics to the collector of `[trace]`; zero turns the export off. OpenTelemetry's
        /// own exporters have the same default.
        otlp_interval: TimeSpan = TimeSpan::seconds(60), "1s" to "1h";
    }

    /// `[trace]`: spans, and the collector.
    trace struct TraceSection {
        /// Address of an OTLP collector; without one nothing is traced.
        otlp_endpoint: Option<String> as "empty_is_none" = None;
        /// Share of the requests without a trace context that are sampled.
        sample_ratio: f64 = 0.0, "0" to "1";
        /// A request that takes at least this long is always traced.
        slow: TimeSpan = TimeSpan(Duration::from_millis(500)), "1ms" to "1h";
    }
}

/// Engines of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreEngine {
    /// Files of this process.
    Redb,
    /// A Cassandra cluster.
    Cassandra,
}

/// Names of the tiers.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Criticality", rename_all = "kebab-case")]
enum TierName {
    Sheddable,
    SheddablePlus,
    Critical,
    CriticalPlus,
}

impl OverloadSection {
    fn designated(&self) -> DesignatedClass {
        let names = self.price_callers.split(',').map(str::trim);
        let callers: Vec<_> = names.filter(|name| !name.is_empty()).map(hash_of).collect();
        let callers = (!callers.is_empty()).then_some(callers);
        DesignatedClass::new(self.price_tier_max, callers)
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

impl From<&CostSection> for Weights {
    fn from(cost: &CostSection) -> Self {
        Self {
            version: cost.version,
            read_base: cost.read_base,
            write_base: cost.write_base,
            row: cost.row,
            read_bytes: cost.read_bytes,
            write_bytes: cost.write_bytes,
            latency_ms: cost.latency_ms,
        }
    }
}

/// Names of the log's formats.
#[derive(Serialize, Deserialize)]
#[serde(remote = "LogFormat", rename_all = "lowercase")]
enum LogFormatName {
    Auto,
    Human,
    Json,
}
