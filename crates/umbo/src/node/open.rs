//! Opening the parts of a node, in an order that touches nothing before it is known to be right:
//! map, ports, certificates, data folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use umbo_routing::ClusterMap;
use umbo_shard::{Node, NodeLimits, NodeParts, server};
use umbo_store::Store;
use umbo_store_redb::{ClusterMember, Config, OpenReport, RedbStore};
use umbo_telemetry::trace::Tracer;
use umbo_tls::{ALPN_HTTP2, TlsFiles, TlsSource};
use umbo_types::{Clock, ShardId};

use super::quota::CeilingsReader;
use crate::failure::Failure;
use crate::map_file;
use crate::server::{SystemClock, warn_if_behind};
use crate::settings::{ClusterSection, Settings};
use crate::spans;

/// Shards that an operator vouches for.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// Begun empty where their files are missing.
    pub(crate) create: Vec<ShardId>,
    /// Opened whichever node had them last.
    pub(crate) accept: Vec<ShardId>,
}

/// The parts of a node, open.
pub(super) struct Opened {
    pub(super) node: Arc<Node>,
    pub(super) store: Arc<RedbStore>,
    pub(super) tls: Option<Arc<TlsSource>>,
    pub(super) port: TcpListener,
    pub(super) admin_port: TcpListener,
    pub(super) ceilings: Arc<CeilingsReader>,
    pub(super) tracer: Arc<Tracer>,
    clock: Arc<dyn Clock>,
}

impl Opened {
    pub(super) fn open(settings: &Settings, exceptions: Exceptions) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (map, name) = read_map(&settings.cluster)?;
        let tls = load_tls(&settings.cluster)?;
        refuse_open_door(settings)?;
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
        let ceilings = Arc::new(CeilingsReader::new(settings, &shared, &clock)?);
        let parts = NodeParts {
            name,
            map,
            store: shared,
            clock: Arc::clone(&clock),
            limits: limits(settings),
        };
        let node = Node::new(parts).map_err(Failure::start)?;
        node.keep_quota(ceilings.ceilings.clone());
        let tracer = spans::begin(settings, &clock)?;
        node.trace(Arc::clone(&tracer));
        Ok(Self {
            node: Arc::new(node),
            ceilings,
            tracer,
            store,
            tls,
            port,
            admin_port,
            clock,
        })
    }

    /// Says what was opened and where it serves.
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
            took_ms = took.as_millis(),
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
            grpc = address(&self.port),
            admin = address(&self.admin_port),
            "umbo serves shards"
        );
    }
}

fn read_map(cluster: &ClusterSection) -> Result<(Arc<ClusterMap>, String), Failure> {
    let named = cluster.map.as_ref().zip(cluster.node.clone());
    let Some((path, name)) = named else {
        return Err(Failure::Start(
            "a shard node needs the map of its cluster and its own name in it: --map and --node, \
             or cluster.map and cluster.node"
                .to_owned(),
        ));
    };
    Ok((Arc::new(map_file::read(Path::new(path))?), name))
}

fn load_tls(cluster: &ClusterSection) -> Result<Option<Arc<TlsSource>>, Failure> {
    let (Some(certificate), Some(key)) = (&cluster.certificate, &cluster.key) else {
        return Ok(None);
    };
    let files = TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        client_authority: cluster.ca.as_ref().map(PathBuf::from),
    };
    TlsSource::load_for(files, &[ALPN_HTTP2])
        .map(|source| Some(Arc::new(source)))
        .map_err(Failure::start)
}

/// Refuses to serve others without asking who they are. The admin port changes nothing and shows
/// no rows.
fn refuse_open_door(settings: &Settings) -> Result<(), Failure> {
    let address = settings.shard.listen;
    if address.ip().is_loopback() || settings.cluster.certificate.is_some() {
        return Ok(());
    }
    if settings.server.insecure {
        tracing::warn!("anybody who reaches {address} may do everything (--insecure)");
        return Ok(());
    }
    Err(Failure::Start(format!(
        "{address} can be reached from other machines and dispatchers show no certificate; name \
         certificates (cluster.certificate, cluster.key, cluster.ca), listen on 127.0.0.1, or say \
         --insecure"
    )))
}

fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    server::bind(address).map_err(|error| {
        Failure::Start(format!(
            "cannot listen on {address} ({key}): {error}; stop what uses the port, or choose \
             another with --listen and --admin-listen"
        ))
    })
}

fn open_store(
    settings: &Settings,
    member: ClusterMember,
    clock: &Arc<dyn Clock>,
) -> Result<RedbStore, Failure> {
    let config = Config {
        folder: PathBuf::from(&settings.store.folder),
        shards: Some(settings.store.shards).filter(|&shards| shards > 0),
        cluster: Some(member),
        cache_bytes: usize::try_from(settings.store.cache.0).unwrap_or(usize::MAX),
        ..Config::default()
    };
    RedbStore::open(config, Arc::clone(clock)).map_err(Failure::start)
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
