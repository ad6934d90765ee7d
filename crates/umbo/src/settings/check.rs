//! Bounds of single values, and constraints between two of them. Checked once, at the start.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use umbo_admin::{BadHostName, BadOrigin, CorsPolicy, HostNames};
use umbo_quota::Weights;
use umbo_telemetry::logging;
use umbo_types::RequestUnits;

use super::layer::Layers;
use super::unit::{ByteCount, RequestUnitPrice, TimeSpan};
use super::{
    CostSection, HotkeySection, OverloadSection, QuotaSection, ServerSettings, Settings,
    SettingsError, ShardSection,
};

/// Checks all values; returns an error for the first invalid one.
pub(super) fn check(settings: &Settings, layers: &Layers) -> Result<(), SettingsError> {
    let checker = Checker { layers };
    checker.check_bounds(settings)?;
    checker.check_relations(settings)
}

struct Checker<'a> {
    layers: &'a Layers,
}

impl Checker<'_> {
    fn check_bounds(&self, settings: &Settings) -> Result<(), SettingsError> {
        let server = &settings.server;
        self.within(
            "server.connections_per_address_max",
            &server.connections_per_address_max,
            0..=1_000_000,
        )?;
        for (key, most) in [
            ("server.connections_max", server.connections_max),
            (
                "server.requests_in_flight_max",
                server.requests_in_flight_max,
            ),
        ] {
            self.within(key, &most, 1..=1_000_000)?;
        }
        self.within(
            "server.request_ru_max",
            &server.request_ru_max,
            0..=1_000_000_000,
        )?;
        for (key, span) in [
            ("server.header_timeout", server.header_timeout),
            ("server.body_timeout", server.body_timeout),
            ("server.idle_timeout", server.idle_timeout),
            ("server.write_timeout", server.write_timeout),
            ("server.default_timeout", server.default_timeout),
        ] {
            self.within(key, &span, milliseconds(100)..=HOUR)?;
        }
        for (key, span) in [
            ("server.drain_timeout", server.drain_timeout),
            ("server.drain_delay", server.drain_delay),
        ] {
            self.within(key, &span, milliseconds(0)..=HOUR)?;
        }
        self.check_names(server)?;
        let memory = ByteCount(16 << 20)..=ByteCount(1 << 40);
        self.within("server.body_memory", &server.body_memory, memory.clone())?;
        self.within("server.answer_memory", &server.answer_memory, memory)?;

        self.within("store.shards", &settings.store.shards, 0..=512)?;
        let caches = ByteCount(1 << 20)..=ByteCount(1 << 44);
        self.within("store.cache", &settings.store.cache, caches)?;
        self.not_empty("store.folder", &settings.store.folder)?;

        let ages = milliseconds(5_000)..=TimeSpan(Duration::from_hours(30 * 24));
        self.within("records.stale_max", &settings.records.stale_max, ages)?;
        self.check_quota(&settings.quota)?;
        self.check_hotkey(&settings.hotkey)?;
        self.check_overload(&settings.overload)?;
        self.check_cost(&settings.cost)?;
        self.check_shard(&settings.shard)?;

        self.within(
            "trace.sample_ratio",
            &settings.trace.sample_ratio,
            0.0..=1.0,
        )?;
        let interval = &settings.metrics.otlp_interval;
        if !interval.0.is_zero() {
            let intervals = milliseconds(1_000)..=HOUR;
            self.within("metrics.otlp_interval", interval, intervals)?;
        }
        self.within("trace.slow", &settings.trace.slow, milliseconds(1)..=HOUR)?;
        logging::check_filter(&settings.log.filter).map_err(|error| SettingsError::BadValue {
            place: self.layers.place("log.filter"),
            key: "log.filter".to_owned(),
            message: error.to_string(),
        })
    }

    fn check_names(&self, server: &ServerSettings) -> Result<(), SettingsError> {
        let (key, value, bounds) =
            if let Err(BadOrigin(origin)) = CorsPolicy::parse(&server.cors_origins) {
                let bounds = "origins like https://app.example.org, or \"*\"";
                ("server.cors_origins", origin, bounds)
            } else if let Err(BadHostName(name)) = HostNames::parse(&server.hosts) {
                let bounds = "names like kv.example.org or .example.org, or \"*\"";
                ("server.hosts", name, bounds)
            } else {
                return Ok(());
            };
        Err(SettingsError::OutOfBounds {
            place: self.layers.place(key),
            key,
            value,
            bounds: bounds.to_owned(),
        })
    }

    fn check_quota(&self, quota: &QuotaSection) -> Result<(), SettingsError> {
        let places = 64..=16_777_216;
        self.within("quota.accounts_max", &quota.accounts_max, places.clone())?;
        self.within("quota.buckets_max", &quota.buckets_max, places)
    }

    fn check_hotkey(&self, hotkey: &HotkeySection) -> Result<(), SettingsError> {
        self.within("hotkey.rate_min", &hotkey.rate_min, 1..=1_000_000_000)?;
        let caches = ByteCount(1 << 20)..=ByteCount(1 << 40);
        self.within("hotkey.cache", &hotkey.cache, caches)?;
        let times = milliseconds(100)..=milliseconds(60_000);
        self.within("hotkey.ttl", &hotkey.ttl, times)
    }

    fn check_overload(&self, overload: &OverloadSection) -> Result<(), SettingsError> {
        let in_flight = 2..=1_000_000;
        self.within("overload.in_flight_max", &overload.in_flight_max, in_flight)?;
        let waiting = 1..=1_000_000;
        self.within("overload.waiting_max", &overload.waiting_max, waiting)?;
        let times = milliseconds(1)..=milliseconds(10_000);
        self.within(
            "overload.queue_target",
            &overload.queue_target,
            times.clone(),
        )?;
        self.within("overload.queue_interval", &overload.queue_interval, times)
    }

    fn check_cost(&self, cost: &CostSection) -> Result<(), SettingsError> {
        self.within("cost.version", &cost.version, 1..=u32::MAX)?;
        for (key, price) in [
            ("cost.read_base", cost.read_base),
            ("cost.write_base", cost.write_base),
            ("cost.row", cost.row),
            ("cost.read_bytes", cost.read_bytes),
            ("cost.write_bytes", cost.write_bytes),
            ("cost.latency_ms", cost.latency_ms),
        ] {
            self.within(
                key,
                &price,
                RequestUnitPrice(RequestUnits::default())..=PRICE_MAX,
            )?;
        }
        Ok(())
    }

    fn check_shard(&self, shard: &ShardSection) -> Result<(), SettingsError> {
        let in_flight = 16..=1_000_000;
        self.within("shard.in_flight_max", &shard.in_flight_max, in_flight)?;
        // Half of it must hold the longest message.
        let memory = ByteCount(64 << 20)..=ByteCount(1 << 40);
        self.within("shard.request_memory", &shard.request_memory, memory)
    }

    fn check_relations(&self, settings: &Settings) -> Result<(), SettingsError> {
        let Settings {
            server, tls, trace, ..
        } = settings;
        if server.listen == server.admin_listen && server.listen.port() != 0 {
            return Err(self.relation(
                "server.listen",
                "server.admin_listen",
                "two servers cannot listen on one address",
            ));
        }
        if server.drain_timeout < server.default_timeout {
            return Err(self.relation(
                "server.drain_timeout",
                "server.default_timeout",
                "a request may take longer than a stopping server waits for it",
            ));
        }
        if tls.certificate.is_some() != tls.key.is_some() {
            return Err(self.relation(
                "tls.certificate",
                "tls.key",
                "a certificate needs its key and a key its certificate",
            ));
        }
        if tls.client_ca.is_some() && tls.certificate.is_none() {
            return Err(self.relation(
                "tls.client_ca",
                "tls.certificate",
                "clients can show a certificate only over TLS",
            ));
        }
        self.check_cluster(settings)?;
        if trace.sample_ratio > 0.0 && trace.otlp_endpoint.is_none() {
            return Err(self.relation(
                "trace.sample_ratio",
                "trace.otlp_endpoint",
                "sampled spans have nowhere to go",
            ));
        }
        Ok(())
    }

    fn check_cluster(&self, settings: &Settings) -> Result<(), SettingsError> {
        let Settings {
            store,
            cluster,
            shard,
            ..
        } = settings;
        if cluster.node.is_some() && cluster.map.is_none() {
            return Err(self.relation(
                "cluster.node",
                "cluster.map",
                "a node needs the map of its cluster",
            ));
        }
        if cluster.node.is_some() && store.shards > 0 {
            return Err(self.relation(
                "store.shards",
                "cluster.node",
                "in a cluster the map has the number of shards",
            ));
        }
        if cluster.certificate.is_some() != cluster.key.is_some() {
            return Err(self.relation(
                "cluster.certificate",
                "cluster.key",
                "a certificate needs its key and a key its certificate",
            ));
        }
        if cluster.certificate.is_some() != cluster.ca.is_some() {
            return Err(self.relation(
                "cluster.certificate",
                "cluster.ca",
                "a process that presents a certificate to the others needs the authorities of theirs",
            ));
        }
        if shard.listen == shard.admin_listen && shard.listen.port() != 0 {
            return Err(self.relation(
                "shard.listen",
                "shard.admin_listen",
                "two servers cannot listen on one address",
            ));
        }
        Ok(())
    }

    fn within<T: PartialOrd + Display>(
        &self,
        key: &'static str,
        value: &T,
        bounds: RangeInclusive<T>,
    ) -> Result<(), SettingsError> {
        if bounds.contains(value) {
            return Ok(());
        }
        Err(SettingsError::OutOfBounds {
            place: self.layers.place(key),
            key,
            value: value.to_string(),
            bounds: format!("{} to {}", bounds.start(), bounds.end()),
        })
    }

    fn not_empty(&self, key: &'static str, value: &str) -> Result<(), SettingsError> {
        if !value.is_empty() {
            return Ok(());
        }
        Err(SettingsError::OutOfBounds {
            place: self.layers.place(key),
            key,
            value: "empty".to_owned(),
            bounds: "a text".to_owned(),
        })
    }

    fn relation(
        &self,
        first: &'static str,
        second: &'static str,
        reason: &'static str,
    ) -> SettingsError {
        SettingsError::Relation {
            first: self.layers.written(first),
            first_place: self.layers.place(first),
            second: self.layers.written(second),
            second_place: self.layers.place(second),
            reason,
        }
    }
}

const PRICE_MAX: RequestUnitPrice = RequestUnitPrice(Weights::HIGHEST);
const HOUR: TimeSpan = TimeSpan(Duration::from_hours(1));

const fn milliseconds(millis: u64) -> TimeSpan {
    TimeSpan(Duration::from_millis(millis))
}
