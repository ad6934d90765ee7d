//! Opening the parts of a server, in an order that touches nothing before it is known to be free:
//! ports, certificates, tokens, policies, data folder, Umbo's own records.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use umbo_api::ErrorCode;
use umbo_dispatcher::auth::file::read_tokens;
use umbo_dispatcher::auth::{TokenRegistry, TokenSource};
use umbo_tls::{TlsFiles, TlsSource};
use umbo_dispatcher::policies::FilePolicies;
use umbo_dispatcher::{Dispatcher, Parts, PodLimits, edge};
use umbo_hotkey::{KeySeed, Settings as ShieldSettings};
use umbo_quota::{Limiter, LimiterSettings, PolicySet};
use umbo_store::Store;
use umbo_store_redb::{Config, OpenReport, RedbStore};
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_telemetry::trace::{TraceSettings, Tracer};
use umbo_types::Clock;

use super::clock::{SystemClock, warn_if_behind};
use crate::failure::Failure;
use crate::settings::{Loaded, Settings};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// The parts of a server, open.
pub(super) struct Opened {
    pub(super) data_port: TcpListener,
    pub(super) admin_port: TcpListener,
    pub(super) tls: Option<Arc<TlsSource>>,
    pub(super) tokens: Arc<TokenRegistry>,
    pub(super) store: Arc<dyn Store>,
    pub(super) tracer: Arc<Tracer>,
    pub(super) metrics: Arc<RequestMetrics>,
    pub(super) pod: Arc<Dispatcher>,
    pub(super) clock: Arc<dyn Clock>,
    report: OpenReport,
    folder: PathBuf,
}

impl Opened {
    pub(super) async fn open(loaded: &Loaded) -> Result<Self, Failure> {
        let settings = &loaded.settings;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let data_port = bind(settings.server.listen, "server.listen")?;
        let admin_port = bind(settings.server.admin_listen, "server.admin_listen")?;
        let tls = load_tls(settings)?;
        let tokens = Arc::new(load_tokens(settings)?);
        let policies = load_policies(settings)?;
        let redb = open_store(settings, &clock)?;
        let (report, folder) = (redb.report().clone(), redb.folder().to_owned());
        let store: Arc<dyn Store> = Arc::new(redb);
        let quota = Arc::new(start_quota(settings, &*store, &*clock)?);
        let tracer = Arc::new(start_tracer(settings, &clock)?);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let metrics = Arc::new(RequestMetrics::new(codes(), cores + 1));
        let pod = Dispatcher::open(Parts {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            tokens: Arc::clone(&tokens),
            quota,
            policies,
            hot_keys: hot_keys(settings, cores)?,
            overload: settings
                .overload
                .enabled
                .then(|| (&settings.overload).into()),
            metrics: Arc::clone(&metrics),
            tracer: Arc::clone(&tracer),
            limits: pod_limits(settings),
            config_text: loaded.to_toml(),
        })
        .await
        .map_err(|failure| Failure::Start(format!("cannot read Umbo's own records: {failure}")))?;
        let opened = Self {
            data_port,
            admin_port,
            tls,
            tokens,
            store,
            tracer,
            metrics,
            pod,
            clock,
            report,
            folder,
        };
        opened.refuse_open_door(settings.server.insecure)?;
        Ok(opened)
    }

    /// Refuses to serve others without asking who they are.
    fn refuse_open_door(&self, is_insecure: bool) -> Result<(), Failure> {
        let addresses = [&self.data_port, &self.admin_port].map(TcpListener::local_addr);
        let public = addresses
            .into_iter()
            .flatten()
            .find(|address| !address.ip().is_loopback());
        if self.tokens.is_required() {
            if public.is_some() && !is_insecure {
                self.tokens.keep_closed();
            }
            return Ok(());
        }
        match public {
            Some(address) if !is_insecure => Err(Failure::Start(format!(
                "{address} can be reached from other machines and no token is asked for; create a \
                 token file (umbo token create --file tokens.toml --name ops --grant '*:*') and \
                 pass it with --token-file, listen on 127.0.0.1, or say --insecure"
            ))),
            Some(address) => {
                tracing::warn!("anybody who reaches {address} may do everything (--insecure)");
                Ok(())
            }
            None => {
                tracing::info!("no token is asked for; only this machine can reach the server");
                Ok(())
            }
        }
    }

    /// Says what was opened and where it serves.
    pub(super) fn announce(&self) {
        let rows: u64 = self.report.shards.iter().map(|shard| shard.rows).sum();
        let ceiling = self
            .report
            .shards
            .iter()
            .map(|shard| shard.version_ceiling)
            .max();
        warn_if_behind(&*self.clock, ceiling.unwrap_or_default());
        let recovered = self
            .report
            .shards
            .iter()
            .filter(|shard| shard.was_recovered)
            .count();
        tracing::info!(
            folder = %self.folder.display(),
            shards = self.report.shards.len(),
            rows,
            recovered,
            took_ms = self.report.took.as_millis(),
            "the store is open"
        );
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = |port: &TcpListener| {
            port.local_addr()
                .map_or_else(|_| "?".to_owned(), |at| format!("{scheme}://{at}"))
        };
        tracing::info!(
            data = url(&self.data_port),
            admin = url(&self.admin_port),
            "umbo serves"
        );
    }
}

fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    edge::bind(address, BACKLOG).map_err(|error| {
        Failure::Start(format!(
            "cannot listen on {address} ({key}): {error}; stop what uses the port, or choose \
             another with --listen and --admin-listen"
        ))
    })
}

fn codes() -> Vec<Code> {
    let code = |code: &ErrorCode| Code {
        name: code.as_str(),
        kind: code.kind().as_str(),
    };
    ErrorCode::ALL.iter().map(code).collect()
}

fn load_tls(settings: &Settings) -> Result<Option<Arc<TlsSource>>, Failure> {
    let (Some(certificate), Some(key)) = (&settings.tls.certificate, &settings.tls.key) else {
        return Ok(None);
    };
    let files = TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        client_authority: settings.tls.client_ca.as_ref().map(PathBuf::from),
    };
    TlsSource::load(files)
        .map(|source| Some(Arc::new(source)))
        .map_err(Failure::start)
}

fn load_tokens(settings: &Settings) -> Result<TokenRegistry, Failure> {
    let tokens = TokenRegistry::new().map_err(Failure::start)?;
    if let Some(path) = &settings.auth.token_file {
        let records = read_tokens(Path::new(path)).map_err(Failure::start)?;
        tokens.replace(TokenSource::File, records);
    }
    Ok(tokens)
}

fn load_policies(settings: &Settings) -> Result<FilePolicies, Failure> {
    let path = settings.quota.policy_file.as_deref();
    let policies = path.map(|path| FilePolicies::read(Path::new(path)));
    Ok(policies
        .transpose()
        .map_err(Failure::start)?
        .unwrap_or_default())
}

fn open_store(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<RedbStore, Failure> {
    let config = Config {
        folder: PathBuf::from(&settings.store.folder),
        shards: Some(settings.store.shards).filter(|&shards| shards > 0),
        cache_bytes: usize::try_from(settings.store.cache.0).unwrap_or(usize::MAX),
        ..Config::default()
    };
    RedbStore::open(config, Arc::clone(clock)).map_err(Failure::start)
}

fn start_quota(
    settings: &Settings,
    store: &dyn Store,
    clock: &dyn Clock,
) -> Result<Limiter, Failure> {
    let settings = LimiterSettings {
        weights: (&settings.cost).into(),
        accounts_max: settings.quota.accounts_max as usize,
        buckets_max: settings.quota.buckets_max as usize,
        shards: u16::try_from(store.shard_map().shards()).unwrap_or(u16::MAX),
        seed: getrandom::u64().map_err(Failure::start)?,
    };
    Ok(Limiter::new(
        settings,
        PolicySet::built_in(),
        clock.monotonic(),
    ))
}

/// Returns when a key is hot, and what is kept of it; none where the layer is turned off.
fn hot_keys(settings: &Settings, workers: usize) -> Result<Option<ShieldSettings>, Failure> {
    let hotkey = &settings.hotkey;
    if !hotkey.enabled {
        return Ok(None);
    }
    let seed = KeySeed::new(getrandom::u64().map_err(Failure::start)?);
    let mut shield = ShieldSettings::new(workers, seed);
    shield.rule.rate_min = f64::from(hotkey.rate_min);
    shield.cache.bytes_max = hotkey.cache.0;
    shield.cache.ttl = hotkey.ttl.0;
    shield.cache.negative_ttl = hotkey.ttl.0 / 3;
    Ok(Some(shield))
}

fn start_tracer(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Tracer, Failure> {
    let settings = TraceSettings {
        otlp_endpoint: settings.trace.otlp_endpoint.clone(),
        sample_ratio: settings.trace.sample_ratio,
        slow: settings.trace.slow.0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: clock.wall().0,
    };
    Tracer::from_settings(&settings, Arc::clone(clock)).map_err(Failure::start)
}

fn pod_limits(settings: &Settings) -> PodLimits {
    PodLimits {
        requests_in_flight_max: settings.server.requests_in_flight_max as usize,
        body_memory_max: usize::try_from(settings.server.body_memory.0).unwrap_or(usize::MAX),
        body_timeout: settings.server.body_timeout.0,
        default_timeout: settings.server.default_timeout.0,
    }
}
