//! Parts that a server and a shard node open alike, from the settings: ports, certificates, policies, the limiter, the data
//! folder.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;
use umbo_control::policies::{FilePolicies, PolicyFileError};
use umbo_quota::{Limiter, LimiterSettings, PolicySet};
use umbo_store::Store;
use umbo_store_redb::{Config, OpenReport, RedbStore};
use umbo_tls::ListenerTlsFiles;
use umbo_types::Clock;

use crate::cli_error::CliError;
use crate::clock::warn_if_behind;
use crate::settings::{ClusterSection, Settings, TlsSettings};

/// Binds the port of a setting.
pub(crate) fn bind(
    key: &str,
    address: SocketAddr,
    bind: impl FnOnce(SocketAddr) -> io::Result<TcpListener>,
) -> Result<TcpListener, CliError> {
    bind(address).map_err(|error| {
        CliError::Start(format!(
            "cannot listen on {address} ({key}): {error}; stop what uses the port, or choose \
             another with --listen and --admin-listen"
        ))
    })
}

/// Returns the certificate of the ports for clients, if there is one.
pub(crate) fn client_tls(tls: &TlsSettings) -> Option<ListenerTlsFiles> {
    tls_files([&tls.certificate, &tls.key, &tls.client_ca])
}

/// Returns the certificate of a process of a cluster, if there is one.
pub(crate) fn cluster_tls(cluster: &ClusterSection) -> Option<ListenerTlsFiles> {
    tls_files([&cluster.certificate, &cluster.key, &cluster.ca])
}

/// Returns the certificate that a Cassandra cluster sees, if there is one.
pub(crate) fn cassandra_tls(settings: &Settings) -> Option<ListenerTlsFiles> {
    let section = &settings.cassandra;
    tls_files([&section.certificate, &section.key, &section.ca])
}

fn tls_files([certificate, key, authority]: [&Option<String>; 3]) -> Option<ListenerTlsFiles> {
    let (certificate, key) = certificate.as_ref().zip(key.as_ref())?;
    Some(ListenerTlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        client_authority: authority.as_ref().map(PathBuf::from),
    })
}

/// Reads the policy file of the settings; without one there are no policies.
pub(crate) fn read_policies(settings: &Settings) -> Result<FilePolicies, PolicyFileError> {
    let path = settings.quota.policy_file.as_deref();
    let policies = path.map(|path| FilePolicies::read(Path::new(path)));
    Ok(policies.transpose()?.unwrap_or_default())
}

/// Makes a limiter of the shards of a store.
pub(crate) fn limiter(
    settings: &Settings,
    policies: PolicySet,
    store: &dyn Store,
    clock: &dyn Clock,
) -> Result<Limiter, CliError> {
    let settings = LimiterSettings {
        weights: (&settings.cost).into(),
        accounts_max: settings.quota.accounts_max as usize,
        buckets_max: settings.quota.buckets_max as usize,
        shards: u16::try_from(store.shard_map().shards()).unwrap_or(u16::MAX),
        seed: getrandom::u64().map_err(CliError::start)?,
    };
    Ok(Limiter::new(settings, policies, clock.monotonic()))
}

/// Returns the data folder of the settings, and how it is opened outside a cluster.
pub(crate) fn store_config(settings: &Settings) -> Config {
    Config {
        folder: PathBuf::from(&settings.store.folder),
        shards: Some(settings.store.shards).filter(|&shards| shards > 0),
        has_log: settings.store.write_log,
        cache_bytes: usize::try_from(settings.store.cache.0).unwrap_or(usize::MAX),
        ..Config::default()
    }
}

/// Logs a data folder that was opened, and warns if the clock is behind its versions.
pub(crate) fn announce_folder(store: &RedbStore, clock: &dyn Clock) {
    let OpenReport {
        shards,
        others,
        took,
        ..
    } = store.report();
    let rows: u64 = shards.iter().map(|shard| shard.rows).sum();
    let ceiling = shards.iter().map(|shard| shard.version_ceiling).max();
    warn_if_behind(clock, ceiling.unwrap_or_default());
    tracing::info!(
        folder = %store.folder().display(),
        shards = shards.len(),
        rows,
        recovered = shards.iter().filter(|shard| shard.was_recovered).count(),
        took_ms = took.as_millis() as u64,
        "the store is open"
    );
    for file in others {
        tracing::warn!(file = %file.display(), "the file of a shard that is on another node");
    }
}
