//! Opens the parts of a node in the order map, certificates, ports, data folder, so that nothing is changed
//! before the earlier parts are valid. The other nodes are asked for their map first.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use umbo_routing::ClusterMap;
use umbo_shard::{Node, NodeLimits, NodeParts, server};
use umbo_store::Store;
use umbo_store_redb::{ClusterMember, Config, OpenReport, RedbStore};
use umbo_telemetry::trace::Tracer;
use umbo_tls::{ListenerTlsFiles, TlsSource};
use umbo_types::{Clock, ShardId};

use super::quota::ShardQuotaReloader;
use crate::cli_error::CliError;
use crate::map_file;
use crate::otlp::{MetricsExport, Otlp};
use crate::server::{SystemClock, warn_if_behind};
use crate::settings::{ClusterSection, Settings};

/// Shards for which an operator allows an exception.
#[derive(Debug, Default)]
pub(crate) struct ShardExceptions {
    /// Created empty if their files are missing.
    pub(crate) create: Vec<ShardId>,
    /// Opened whichever node had their files last.
    pub(crate) accept: Vec<ShardId>,
}

/// The opened parts of a node.
pub(super) struct OpenedNode {
    pub(super) node: Arc<Node>,
    pub(super) store: Arc<RedbStore>,
    pub(super) tls: Option<Arc<TlsSource>>,
    pub(super) port: TcpListener,
    pub(super) admin_port: TcpListener,
    pub(super) shard_quotas: Arc<ShardQuotaReloader>,
    pub(super) tracer: Arc<Tracer>,
    pub(super) metrics_export: Option<MetricsExport>,
    clock: Arc<dyn Clock>,
}

impl OpenedNode {
    pub(super) fn open(
        settings: &Settings,
        (map, name): (Arc<ClusterMap>, String),
        exceptions: ShardExceptions,
    ) -> Result<Self, CliError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let tls = load_tls(&settings.cluster)?;
        refuse_unauthenticated(settings)?;
        let port = bind(settings.shard.listen, "shard.listen")?;
        let admin_port = bind(settings.shard.admin_listen, "shard.admin_listen")?;
        let member = ClusterMember {
            map: Arc::clone(&map),
            node: name.clone(),
            create_missing: exceptions.create,
            accept: exceptions.accept,
        };
        let store = Arc::new(open_store(settings, member, &clock)?);
        let shared: Arc<dyn Store> = store.clone();
        let shard_quotas = Arc::new(ShardQuotaReloader::new(settings, &shared, &clock)?);
        let parts = NodeParts {
            name,
            map,
            store: shared,
            clock: Arc::clone(&clock),
            limits: limits(settings),
        };
        let node = Node::new(parts).map_err(CliError::start)?;
        node.keep_quota(shard_quotas.shard_quotas.clone());
        let otlp = Otlp::begin(settings, &clock, Some(node.name().to_owned()))?;
        node.trace(Arc::clone(&otlp.tracer));
        Ok(Self {
            node: Arc::new(node),
            shard_quotas,
            tracer: otlp.tracer,
            metrics_export: otlp.metrics,
            store,
            tls,
            port,
            admin_port,
            clock,
        })
    }

    /// Logs what was opened and the addresses that it serves.
    pub(super) fn announce(&self) {
        let OpenReport {
            shards,
            others,
            took,
            ..
        } = self.store.report();
        let rows: u64 = shards.iter().map(|shard| shard.rows).sum();
        let ceiling = shards.iter().map(|shard| shard.version_ceiling).max();
        warn_if_behind(&*self.clock, ceiling.unwrap_or_default());
        tracing::info!(
            folder = %self.store.folder().display(),
            shards = shards.len(),
            rows,
            recovered = shards.iter().filter(|shard| shard.was_recovered).count(),
            took_ms = took.as_millis() as u64,
            "the store is open"
        );
        for file in others {
            tracing::warn!(file = %file.display(), "the file of a shard that is on another node");
        }
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

fn load_tls(cluster: &ClusterSection) -> Result<Option<Arc<TlsSource>>, CliError> {
    let (Some(certificate), Some(key)) = (&cluster.certificate, &cluster.key) else {
        return Ok(None);
    };
    let files = ListenerTlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        client_authority: cluster.ca.as_ref().map(PathBuf::from),
    };
    // Clients of shard nodes offer no protocol name in TLS.
    TlsSource::load_for(files, &[])
        .map(|source| Some(Arc::new(source)))
        .map_err(CliError::start)
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

fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, CliError> {
    server::bind(address).map_err(|error| {
        CliError::Start(format!(
            "cannot listen on {address} ({key}): {error}; stop what uses the port, or choose \
             another with --listen and --admin-listen"
        ))
    })
}

fn open_store(
    settings: &Settings,
    member: ClusterMember,
    clock: &Arc<dyn Clock>,
) -> Result<RedbStore, CliError> {
    let config = Config {
        folder: PathBuf::from(&settings.store.folder),
        shards: Some(settings.store.shards).filter(|&shards| shards > 0),
        cluster: Some(member),
        cache_bytes: usize::try_from(settings.store.cache.0).unwrap_or(usize::MAX),
        ..Config::default()
    };
    RedbStore::open(config, Arc::clone(clock)).map_err(CliError::start)
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
