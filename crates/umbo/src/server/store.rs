//! The store behind a dispatcher: in this process, or on the nodes of a cluster.

use std::path::Path;
use std::sync::Arc;

use umbo_store::Store;
use umbo_store_redb::RedbStore;
use umbo_store_remote::{RemoteSettings, RemoteStore, TlsFiles, TlsIdentity};
use umbo_types::Clock;

use crate::cli_error::CliError;
use crate::map_file;
use crate::parts::{announce_folder, store_config};
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
    Embedded(Arc<RedbStore>),
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
                let store = RedbStore::open(store_config(settings), Arc::clone(clock));
                Ok(Self::Embedded(Arc::new(store.map_err(CliError::start)?)))
            }
            Role::Dispatcher => connect(&settings.cluster, clock).map(Self::Remote),
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Remote(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }

    /// Returns the remote store, if it is one.
    pub(super) fn remote(&self) -> Option<&Arc<RemoteStore>> {
        match self {
            Self::Embedded(_) => None,
            Self::Remote(store) => Some(store),
        }
    }

    /// Returns the store in this process, if it is one.
    pub(super) fn embedded(&self) -> Option<&Arc<RedbStore>> {
        match self {
            Self::Embedded(store) => Some(store),
            Self::Remote(_) => None,
        }
    }

    /// Logs the opened store.
    pub(super) fn announce(&self, clock: &dyn Clock) {
        match self {
            Self::Embedded(store) => announce_folder(store, clock),
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
