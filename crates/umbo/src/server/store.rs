//! The store behind a dispatcher: in this process, or on the nodes of a cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbo_store::{Fleet, Store};
use umbo_store_redb::{Config, OpenReport, RedbStore};
use umbo_store_remote::{RemoteSettings, RemoteStore, TlsFiles, TlsIdentity};
use umbo_types::Clock;

use super::clock::warn_if_behind;
use crate::cli_error::CliError;
use crate::map_file;
use crate::settings::{ClusterSection, Settings};

/// Kind of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Dispatcher and store in one process.
    Serve,
    /// A dispatcher in front of shard nodes.
    Dispatcher,
}

/// An open store.
pub(super) enum OpenStore {
    Embedded {
        store: Arc<RedbStore>,
        report: OpenReport,
        folder: PathBuf,
    },
    Remote(Arc<RemoteStore>),
}

impl OpenStore {
    pub(super) fn open(
        role: Role,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, CliError> {
        match role {
            Role::Serve => {
                let store = open_folder(settings, clock)?;
                Ok(Self::Embedded {
                    report: store.report().clone(),
                    folder: store.folder().to_owned(),
                    store: Arc::new(store),
                })
            }
            Role::Dispatcher => connect(&settings.cluster, clock).map(Self::Remote),
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded { store, .. } => Arc::clone(store) as Arc<dyn Store>,
            Self::Remote(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }

    /// Returns the fleet; none where the store is in this process.
    pub(super) fn fleet(&self) -> Option<Arc<dyn Fleet>> {
        match self {
            Self::Embedded { .. } => None,
            Self::Remote(store) => Some(Arc::clone(store) as Arc<dyn Fleet>),
        }
    }

    /// Returns the remote store, if it is one.
    pub(super) fn remote(&self) -> Option<Arc<RemoteStore>> {
        match self {
            Self::Embedded { .. } => None,
            Self::Remote(store) => Some(Arc::clone(store)),
        }
    }

    /// Returns the data folder, if the store is in this process.
    pub(super) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Embedded { folder, .. } => Some(folder),
            Self::Remote(_) => None,
        }
    }

    /// Returns the store in this process, if it is one.
    pub(super) fn embedded(&self) -> Option<Arc<RedbStore>> {
        match self {
            Self::Embedded { store, .. } => Some(Arc::clone(store)),
            Self::Remote(_) => None,
        }
    }

    /// Logs what was opened.
    pub(super) fn announce(&self, clock: &dyn Clock) {
        match self {
            Self::Embedded { report, folder, .. } => announce_folder(report, folder, clock),
            Self::Remote(store) => {
                let map = store.map();
                tracing::info!(
                    cluster = map.cluster_id(),
                    map_version = map.version(),
                    nodes = map.nodes().len(),
                    shards = map.shards(),
                    "the shards are on the nodes of a cluster"
                );
            }
        }
    }
}

fn announce_folder(report: &OpenReport, folder: &Path, clock: &dyn Clock) {
    let shards = || report.shards.iter();
    let rows: u64 = shards().map(|shard| shard.rows).sum();
    let ceiling = shards().map(|shard| shard.version_ceiling).max();
    warn_if_behind(clock, ceiling.unwrap_or_default());
    let recovered = shards().filter(|shard| shard.was_recovered).count();
    tracing::info!(
        folder = %folder.display(),
        shards = report.shards.len(),
        rows,
        recovered,
        took_ms = report.took.as_millis() as u64,
        "the store is open"
    );
}

fn open_folder(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<RedbStore, CliError> {
    let config = Config {
        folder: PathBuf::from(&settings.store.folder),
        shards: Some(settings.store.shards).filter(|&shards| shards > 0),
        cache_bytes: usize::try_from(settings.store.cache.0).unwrap_or(usize::MAX),
        ..Config::default()
    };
    RedbStore::open(config, Arc::clone(clock)).map_err(CliError::start)
}

fn connect(cluster: &ClusterSection, clock: &Arc<dyn Clock>) -> Result<Arc<RemoteStore>, CliError> {
    let Some(map) = &cluster.map else {
        return Err(CliError::Start(
            "a dispatcher needs the map of its cluster: name its file with --map or cluster.map, \
             or run everything in one process (umbo serve)"
                .to_owned(),
        ));
    };
    let map = map_file::read(Path::new(map))?;
    Ok(RemoteStore::connect(
        remote_settings(cluster),
        map,
        Arc::clone(clock),
    ))
}

/// Returns the settings for connections to the nodes of a cluster.
pub(crate) fn remote_settings(cluster: &ClusterSection) -> RemoteSettings {
    RemoteSettings {
        tls: tls_of(cluster),
        ..RemoteSettings::default()
    }
}

fn tls_of(cluster: &ClusterSection) -> Option<TlsFiles> {
    let files = cluster.certificate.as_ref().zip(cluster.key.as_ref());
    let identity = files.map(|(certificate, key)| TlsIdentity {
        certificate: certificate.into(),
        key: key.into(),
    });
    let authority = cluster.ca.as_ref()?.into();
    Some(TlsFiles {
        authority,
        identity,
    })
}
