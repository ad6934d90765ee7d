//! Bounds of single values, and constraints between two of them. Checked once, at the start.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use toml::Value;
use umbo_admin::{BadHostName, BadOrigin, CorsPolicy, HostNames};
use umbo_routing::ClusterNode;
use umbo_telemetry::logging;

use super::layer::Layers;
use super::section::BOUNDS;
use super::unit::{ByteCount, TimeSpan};
use super::{Settings, SettingsError, StoreEngine};

/// Zero turns the export off, and is the only value below its bounds.
const OTLP_INTERVAL: &str = "metrics.otlp_interval";

/// Checks all values; returns an error for the first invalid one.
pub(super) fn check(settings: &Settings, layers: &Layers) -> Result<(), SettingsError> {
    let out_of_bounds = |key: &'static str, value: &str, bounds: &str| {
        let message = format!("{key} is {value}, and must be {bounds}");
        Err(SettingsError::at(&layers.place(key), message))
    };
    let is_off = |key| key == OTLP_INTERVAL && settings.metrics.otlp_interval.0.is_zero();
    for &(key, low, high) in BOUNDS.iter().filter(|(key, ..)| !is_off(*key)) {
        if let Some(value) = outside(layers.value(key), low, high) {
            return out_of_bounds(key, &value, &format!("{low} to {high}"));
        }
    }
    if settings.store.folder.is_empty() {
        return out_of_bounds("store.folder", "empty", "a text");
    }
    if let Err(BadOrigin(origin)) = CorsPolicy::parse(&settings.server.cors_origins) {
        let bounds = "origins like https://app.example.org, or \"*\"";
        return out_of_bounds("server.cors_origins", &origin, bounds);
    }
    if let Err(BadHostName(name)) = HostNames::parse(&settings.server.hosts) {
        let bounds = "names like kv.example.org or .example.org, or \"*\"";
        return out_of_bounds("server.hosts", &name, bounds);
    }
    if let Some(address) = &settings.cluster.advertise
        && !is_reachable(address)
    {
        let bounds =
            "host:port, of a name or an address (IPv6 in brackets, not 0.0.0.0 or [::]) and a port";
        return out_of_bounds("cluster.advertise", address, bounds);
    }
    logging::check_filter(&settings.log.filter).map_err(|error| {
        let message = format!("log.filter: {error}");
        SettingsError::at(&layers.place("log.filter"), message)
    })?;
    let mut pairs = CONTRADICTIONS.into_iter();
    let found = pairs.find(|(is_so, _)| is_so(settings));
    let Some((keys, reason)) = found.and_then(|(_, text)| text.split_once(": ")) else {
        return Ok(());
    };
    let written = |key| format!("{} ({})", layers.written(key), layers.place(key));
    let both: Vec<_> = keys.split(' ').map(written).collect();
    let places = format!("{} contradict each other", both.join(" and "));
    Err(SettingsError::at(&places, reason))
}

/// Returns whether a text is an address at which others may reach a dispatcher.
fn is_reachable(address: &str) -> bool {
    ClusterNode::new("dispatcher", address).is_ok_and(|node| {
        let ip: Option<IpAddr> = node.host().parse().ok();
        ip.is_none_or(|ip| !ip.is_unspecified())
    })
}

/// Returns a value that is outside its bounds, as text.
fn outside(value: &Value, low: &str, high: &str) -> Option<String> {
    fn parsed<T: FromStr + PartialOrd + Display>(texts: [&str; 3]) -> Option<String> {
        let [Ok(value), Ok(low), Ok(high)] = texts.map(str::parse::<T>) else {
            return None;
        };
        (!(low..=high).contains(&value)).then(|| value.to_string())
    }
    match value {
        Value::String(text) => {
            parsed::<TimeSpan>([text, low, high]).or_else(|| parsed::<ByteCount>([text, low, high]))
        }
        number => parsed::<f64>([&number.to_string(), low, high]),
    }
}

/// A contradiction between two settings: a test for it, and the keys of both with the reason after a colon.
type Contradiction = (fn(&Settings) -> bool, &'static str);

const CONTRADICTIONS: [Contradiction; 15] = [
    (
        |of| of.server.listen == of.server.admin_listen && of.server.listen.port() != 0,
        "server.listen server.admin_listen: two servers cannot listen on one address",
    ),
    (
        |of| of.server.drain_timeout < of.server.default_timeout,
        "server.drain_timeout server.default_timeout: a request may take longer than a stopping server waits for it",
    ),
    (
        |of| of.tls.certificate.is_some() != of.tls.key.is_some(),
        "tls.certificate tls.key: a certificate needs its key and a key its certificate",
    ),
    (
        |of| of.tls.client_ca.is_some() && of.tls.certificate.is_none(),
        "tls.client_ca tls.certificate: clients can show a certificate only over TLS",
    ),
    (
        |of| of.trace.sample_ratio > 0.0 && of.trace.otlp_endpoint.is_none(),
        "trace.sample_ratio trace.otlp_endpoint: sampled spans have nowhere to go",
    ),
    (
        |of| of.log.otlp && of.trace.otlp_endpoint.is_none(),
        "log.otlp trace.otlp_endpoint: the log has nowhere to go",
    ),
    (
        |of| of.cassandra.user.is_some() != of.cassandra.password_file.is_some(),
        "cassandra.user cassandra.password_file: a name needs its password and a password its name",
    ),
    (
        |of| of.cassandra.certificate.is_some() != of.cassandra.key.is_some(),
        "cassandra.certificate cassandra.key: a certificate needs its key and a key its certificate",
    ),
    (
        |of| of.cassandra.certificate.is_some() && of.cassandra.ca.is_none(),
        "cassandra.certificate cassandra.ca: a certificate is shown only over TLS, and that needs the authorities of the nodes",
    ),
    (
        |of| of.store.engine == StoreEngine::Cassandra && of.cluster.map.is_some(),
        "store.engine cluster.map: rows in Cassandra have no shard nodes, and so no map",
    ),
    (
        |of| of.cluster.node.is_some() && of.cluster.map.is_none(),
        "cluster.node cluster.map: a node needs the map of its cluster",
    ),
    (
        |of| of.cluster.node.is_some() && of.store.shards > 0,
        "store.shards cluster.node: in a cluster the map has the number of shards",
    ),
    (
        |of| of.cluster.certificate.is_some() != of.cluster.key.is_some(),
        "cluster.certificate cluster.key: a certificate needs its key and a key its certificate",
    ),
    (
        |of| of.cluster.certificate.is_some() != of.cluster.ca.is_some(),
        "cluster.certificate cluster.ca: a process that presents a certificate to the others needs the authorities of theirs",
    ),
    (
        |of| of.shard.listen == of.shard.admin_listen && of.shard.listen.port() != 0,
        "shard.listen shard.admin_listen: two servers cannot listen on one address",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_quota::Weights;

    #[test]
    fn bounds_are_of_the_type_of_their_setting() {
        let defaults = Layers::defaults();
        for (key, low, high) in BOUNDS {
            let is_text = defaults.value(key).is_str();
            let value = |text: &str| {
                if is_text {
                    Value::String(text.to_owned())
                } else {
                    Value::Float(text.parse().unwrap())
                }
            };
            assert_eq!(outside(&value(low), low, high), None, "{key}");
            // The highest is above a range that ends with the lowest.
            assert!(outside(&value(high), low, low).is_some(), "{key}");
        }
        assert_eq!(Weights::HIGHEST.as_f64().to_string(), "1000");
    }
}
