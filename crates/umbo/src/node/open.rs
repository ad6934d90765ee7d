//! Opens the parts of a node in the order map, certificates, ports, data folder, so that nothing is changed
//! before the earlier parts are valid. The other nodes are asked for their map first.

use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use umbo_routing::ClusterMap;
use umbo_shard::{Node, NodeLimits, NodeParts, server};
use umbo_store_redb::{ClusterMember, Config, RedbStore};
use umbo_telemetry::logging::LogHandle;
use umbo_tls::TlsSource;
use umbo_types::{Clock, ShardId};

use crate::cli_error::CliError;
use crate::map_file;
use crate::otlp::Otlp;
use crate::parts;
use crate::server::SystemClock;
use crate::settings::{ClusterSection, Settings};

/// Shards that an operator makes an exception for.
#[derive(Debug, Default)]
pub(crate) struct ShardExceptions {
    /// Created empty if their files are missing.
    pub(crate) create: Vec<ShardId>,
    /// Opened even if another node had their files last.
    pub(crate) accept: Vec<ShardId>,
}

/// The opened parts of a node.
pub(super) struct OpenedNode {
    pub(super) node: Arc<Node>,
    pub(super) store: Arc<RedbStore>,
    pub(super) tls: Option<Arc<TlsSource>>,
    pub(super) port: TcpListener,
    pub(super) admin_port: TcpListener,
    pub(super) otlp: Otlp,
    clock: Arc<dyn Clock>,
}

impl OpenedNode {
    pub(super) fn open(
        settings: &Settings,
        (map, name): (Arc<ClusterMap>, String),
        exceptions: ShardExceptions,
        log: &LogHandle,
    ) -> Result<Self, CliError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        // Clients of shard nodes offer no protocol name in TLS.
        let tls = parts::cluster_tls(&settings.cluster);
        let tls = tls.map(|files| TlsSource::load_for(files, &[]));
        let tls = tls.transpose().map_err(CliError::start)?.map(Arc::new);
        refuse_unauthenticated(settings)?;
        let bind = |key, address| parts::bind(key, address, server::bind);
        let port = bind("shard.listen", settings.shard.listen)?;
        let admin_port = bind("shard.admin_listen", settings.shard.admin_listen)?;
        let member = ClusterMember {
            map: Arc::clone(&map),
            node: name.clone(),
            create_missing: exceptions.create,
            accept: exceptions.accept,
        };
        let config = Config {
            cluster: Some(member),
            ..parts::store_config(settings)
        };
        // Before the store: how its shards open is worth a line.
        let otlp = Otlp::begin(settings, &clock, Some(name.clone()), log)?;
        let store = RedbStore::open(config, Arc::clone(&clock)).map_err(CliError::start)?;
        let store = Arc::new(store);
        let parts = NodeParts {
            name,
            map,
            store: store.clone(),
            clock: Arc::clone(&clock),
            limits: limits(settings),
        };
        let node = Node::new(parts).map_err(CliError::start)?;
        node.trace(Arc::clone(&otlp.tracer));
        Ok(Self {
            node: Arc::new(node),
            otlp,
            store,
            tls,
            port,
            admin_port,
            clock,
        })
    }

    /// Logs the data folder and the addresses of the node.
    pub(super) fn announce(&self) {
        parts::announce_folder(&self.store, &*self.clock);
        let map = self.node.cluster_map();
        let address = |port: &TcpListener| {
            let address = port.local_addr();
            address.map_or_else(|_| "?".to_owned(), |at| at.to_string())
        };
        tracing::info!(
            node = self.node.name(),
            cluster = map.cluster_id(),
            map_version = map.version(),
            listen = address(&self.port),
            admin = address(&self.admin_port),
            "umbo serves shards"
        );
    }
}

/// Reads the map, and the name of this node in it.
pub(super) fn read_map(cluster: &ClusterSection) -> Result<(Arc<ClusterMap>, String), CliError> {
    let named = cluster.map.as_ref().zip(cluster.node.clone());
    let Some((path, name)) = named else {
        return Err(CliError::Start(
            "a shard node needs the map of its cluster and its own name in it: --map and --node, \
             or cluster.map and cluster.node"
                .to_owned(),
        ));
    };
    Ok((Arc::new(map_file::read(Path::new(path))?), name))
}

/// Refuses to serve a public address without client certificates. The admin port changes nothing and shows no
/// rows.
fn refuse_unauthenticated(settings: &Settings) -> Result<(), CliError> {
    let address = settings.shard.listen;
    if address.ip().is_loopback() || settings.cluster.certificate.is_some() {
        return Ok(());
    }
    if settings.server.insecure {
        tracing::warn!("any client that reaches {address} has all permissions (--insecure)");
        return Ok(());
    }
    Err(CliError::Start(format!(
        "{address} can be reached from other machines and dispatchers show no certificate; name \
         certificates (cluster.certificate, cluster.key, cluster.ca), listen on 127.0.0.1, or say \
         --insecure"
    )))
}

fn limits(settings: &Settings) -> NodeLimits {
    let Settings { server, shard, .. } = settings;
    NodeLimits {
        in_flight_max: shard.in_flight_max as usize,
        request_memory_max: usize::try_from(shard.request_memory.0).unwrap_or(usize::MAX),
        handshake_timeout: server.header_timeout.0,
        frame_timeout: server.body_timeout.0,
        drain_timeout: server.drain_timeout.0,
        ..NodeLimits::default()
    }
}
