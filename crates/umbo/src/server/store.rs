//! The store behind a dispatcher: in this process, on the nodes of a cluster, or in a Cassandra cluster.

use std::path::Path;
use std::sync::Arc;

use umbo_routing::ClusterNode;
use umbo_store::Store;
use umbo_store_cassandra::{CassandraSettings, CassandraStore};
use umbo_store_redb::RedbStore;
use umbo_store_remote::{RemoteSettings, RemoteStore};
use umbo_tls::PeerTlsFiles;
use umbo_types::Clock;

use crate::cli_error::CliError;
use crate::map_file;
use crate::parts::{announce_folder, store_config};
use crate::settings::{ClusterSection, Settings, StoreEngine};

/// Shards of a store on Cassandra, unless a number is set: parts of it whose overload and quotas are told apart.
const CASSANDRA_SHARDS: u16 = 16;

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
    Cassandra(Arc<CassandraStore>, Vec<ClusterNode>),
}

impl OpenStore {
    pub(super) async fn open(
        role: Role,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, CliError> {
        match role {
            _ if settings.store.engine == StoreEngine::Cassandra => {
                let (cassandra, nodes) = cassandra_settings(settings)?;
                let store = CassandraStore::open(&cassandra, Arc::clone(clock)).await;
                let store = store.map_err(CliError::start)?;
                Ok(Self::Cassandra(Arc::new(store), nodes))
            }
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
            Self::Cassandra(store, _) => Arc::clone(store) as Arc<dyn Store>,
        }
    }

    /// Returns whether other dispatchers use the same store.
    pub(super) const fn is_shared(&self) -> bool {
        !matches!(self, Self::Embedded(_))
    }

    /// Returns nodes of a shared store, the home of Umbo's own records first.
    pub(super) fn nodes(&self) -> Vec<ClusterNode> {
        match self {
            Self::Embedded(_) => Vec::new(),
            Self::Remote(store) => store.nodes_from_home(),
            Self::Cassandra(_, nodes) => nodes.clone(),
        }
    }

    /// Returns the remote store, if it is one.
    pub(super) fn remote(&self) -> Option<&Arc<RemoteStore>> {
        match self {
            Self::Embedded(_) | Self::Cassandra(..) => None,
            Self::Remote(store) => Some(store),
        }
    }

    /// Returns the store in this process, if it is one.
    pub(super) fn embedded(&self) -> Option<&Arc<RedbStore>> {
        match self {
            Self::Embedded(store) => Some(store),
            Self::Remote(_) | Self::Cassandra(..) => None,
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
            Self::Cassandra(store, _) => store.announce(),
        }
    }
}

/// Returns the settings of the engine, and the nodes that they name.
pub(crate) fn cassandra_settings(
    settings: &Settings,
) -> Result<(CassandraSettings, Vec<ClusterNode>), CliError> {
    let section = &settings.cassandra;
    let contact_points = section.contact_points.split(',').map(str::trim);
    let contact_points: Vec<String> = contact_points.map(str::to_owned).collect();
    let node = |address: &String| ClusterNode::new("cassandra", address);
    let nodes: Result<_, _> = contact_points.iter().map(node).collect();
    let nodes = nodes.map_err(|error| {
        CliError::Start(format!(
            "cassandra.contact_points: {error}; name nodes as host:port, separated by commas"
        ))
    })?;
    let password = section.password_file.as_ref().map(|path| {
        let text = std::fs::read_to_string(path).map_err(CliError::file("read", path))?;
        Ok::<_, CliError>(text.trim_end().to_owned())
    });
    let user = section.user.clone();
    Ok((
        CassandraSettings {
            contact_points,
            data_center: section.data_center.clone(),
            keyspace: section.keyspace.clone(),
            replication: section.replication,
            credentials: user.zip(password.transpose()?),
            tls: peer_tls([&section.ca, &section.certificate, &section.key]),
            instance: section.instance,
            shards: match settings.store.shards {
                0 => section.buckets.min(CASSANDRA_SHARDS),
                shards => shards,
            },
            buckets: section.buckets,
            request_timeout: section.request_timeout.0,
        },
        nodes,
    ))
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
        tls: peer_tls([&cluster.ca, &cluster.certificate, &cluster.key]),
        ..RemoteSettings::default()
    }
}

/// Returns the files of TLS towards nodes, or `None` without an authority.
fn peer_tls([authority, certificate, key]: [&Option<String>; 3]) -> Option<PeerTlsFiles> {
    let identity = certificate.as_ref().zip(key.as_ref());
    Some(PeerTlsFiles {
        authority: authority.as_ref()?.into(),
        identity: identity.map(|(certificate, key)| (certificate.into(), key.into())),
    })
}
