//! Opens the parts of a server in the order ports, certificates, tokens, policies, data folder, Umbo's own
//! records, so that nothing is changed before the earlier parts are available.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use umbo_admin::DispatcherObserver;
use umbo_api::ErrorCode;
use umbo_api::fleet::ProcessInfo;
use umbo_bulk::Bulk;
use umbo_control::auth::file::read_tokens;
use umbo_control::auth::{TokenRegistry, TokenSource};
use umbo_control::policies::FilePolicies;
use umbo_dispatcher::{
    Dispatcher, DispatcherLimits, DispatcherParts, KeySeed, LowPriority, ShieldSettings,
};
use umbo_quota::{Limiter, PolicySet};
use umbo_telemetry::logging::LogHandle;
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_tls::TlsSource;
use umbo_types::{Clock, RequestUnits};

use super::observe::HISTORY_FOLDER;
use super::store::{OpenStore, Role};
use crate::cli_error::CliError;
use crate::clock::SystemClock;
use crate::otlp::Otlp;
use crate::parts;
use crate::settings::{LoadedSettings, Settings};

/// Length of the kernel's queue of connections that wait to be accepted.
pub(super) const BACKLOG: u32 = 1_024;

/// Bound sockets.
pub(super) struct Listeners {
    pub(super) data: TcpListener,
    pub(super) admin: TcpListener,
}

/// The opened parts of a server; [`OpenedServer::dispatcher`] makes the dispatcher from them.
pub(super) struct OpenedServer {
    /// Addresses of the data plane and of the admin port.
    addresses: [SocketAddr; 2],
    pub(super) tls: Option<Arc<TlsSource>>,
    pub(super) tokens: Arc<TokenRegistry>,
    pub(super) store: OpenStore,
    pub(super) otlp: Otlp,
    pub(super) metrics: Arc<RequestMetrics>,
    pub(super) clock: Arc<dyn Clock>,
    policies: FilePolicies,
    quota: Arc<Limiter>,
    hot_keys: Option<ShieldSettings>,
}

impl OpenedServer {
    pub(super) async fn open(
        role: Role,
        settings: &Settings,
        log: &LogHandle,
    ) -> Result<(Self, Listeners), CliError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let bind =
            |key, address| parts::bind(key, address, |address| umbo_edge::bind(address, BACKLOG));
        let listeners = Listeners {
            data: bind("server.listen", settings.server.listen)?,
            admin: bind("server.admin_listen", settings.server.admin_listen)?,
        };
        let address = |port: &TcpListener| port.local_addr().map_err(CliError::start);
        let addresses = [address(&listeners.data)?, address(&listeners.admin)?];
        let tls = parts::client_tls(&settings.tls).map(TlsSource::load);
        let tls = tls.transpose().map_err(CliError::start)?.map(Arc::new);
        let tokens = Arc::new(load_tokens(settings)?);
        let policies = parts::read_policies(settings).map_err(CliError::start)?;
        // Before the store: how its shards open is worth a line.
        let otlp = Otlp::begin(settings, &clock, None, log)?;
        let store = OpenStore::open(role, settings, &clock).await?;
        let built_in = PolicySet::built_in();
        let quota = parts::limiter(settings, built_in, &*store.store(), &*clock)?;
        let cores = cores();
        let metrics = Arc::new(RequestMetrics::new(codes(), cores + 1));
        let opened = Self {
            addresses,
            tls,
            tokens,
            store,
            otlp,
            metrics,
            clock,
            policies,
            quota: Arc::new(quota),
            hot_keys: hot_keys(settings, cores)?,
        };
        Ok((opened, listeners))
    }

    /// Makes the observer of the dispatcher, and restores the history that the data folder keeps.
    pub(super) fn observer(&self, bulk: &Arc<Bulk>) -> DispatcherObserver {
        let store = self.store.embedded();
        let folder = store.map(|store| store.folder().join(HISTORY_FOLDER));
        DispatcherObserver::new(bulk, folder.as_deref())
    }

    /// Opens the dispatcher, which reads Umbo's own records.
    pub(super) async fn dispatcher(
        &self,
        loaded: &LoadedSettings,
    ) -> Result<Arc<Dispatcher>, CliError> {
        let settings = &loaded.settings;
        Dispatcher::open(DispatcherParts {
            store: self.store.store(),
            clock: Arc::clone(&self.clock),
            tokens: Arc::clone(&self.tokens),
            quota: Arc::clone(&self.quota),
            policies: self.policies.clone(),
            hot_keys: self.hot_keys,
            overload: settings
                .overload
                .enabled
                .then(|| (&settings.overload).into()),
            metrics: Arc::clone(&self.metrics),
            tracer: Arc::clone(&self.otlp.tracer),
            long_reads: LowPriority::for_long_reads(cores()).map_err(CliError::start)?,
            limits: dispatcher_limits(settings),
            config_text: loaded.to_toml(),
        })
        .await
        .map_err(|failure| CliError::Start(format!("cannot read Umbo's own records: {failure}")))
    }

    /// Refuses to serve a public address without requiring a token.
    pub(super) fn refuse_unauthenticated(&self, is_insecure: bool) -> Result<(), CliError> {
        let public = self.addresses.iter().find(|at| !at.ip().is_loopback());
        if self.tokens.is_required() {
            if public.is_some() && !is_insecure {
                self.tokens.keep_closed();
            }
            return Ok(());
        }
        match public {
            Some(address) if !is_insecure => Err(CliError::Start(format!(
                "{address} can be reached from other machines and no token is asked for; create a \
                 token file (umbo token create --file tokens.toml --name ops --grant '*:*') and \
                 pass it with --token-file, listen on 127.0.0.1, or say --insecure"
            ))),
            Some(address) => {
                tracing::warn!(
                    "any client that reaches {address} has all permissions (--insecure)"
                );
                Ok(())
            }
            None => {
                tracing::info!("no token is required; only this machine can reach the server");
                Ok(())
            }
        }
    }

    /// Returns the addresses of the data plane and of the admin port, as a client writes them.
    pub(super) fn urls(&self) -> [String; 2] {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.addresses
            .map(|address| format!("{scheme}://{address}"))
    }

    /// Returns what other dispatchers are told of this one.
    pub(super) fn process_info(&self) -> ProcessInfo {
        let [url, admin_url] = self.urls();
        let machine = rustix::system::uname();
        ProcessInfo {
            name: format!(
                "{}/{}",
                machine.nodename().to_string_lossy(),
                std::process::id()
            ),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url,
            admin_url,
            started_ms: self.clock.wall().as_millis(),
        }
    }

    /// Logs the addresses of the server and of the operators' page.
    pub(super) fn announce(&self) {
        let [data, admin] = self.urls();
        let page = format!("{admin}/");
        tracing::info!(data, admin, page, "umbo serves");
    }
}

fn codes() -> Vec<Code> {
    let code = |code: &ErrorCode| Code {
        name: code.as_str(),
        kind: code.kind().as_str(),
    };
    ErrorCode::ALL.iter().map(code).collect()
}

fn load_tokens(settings: &Settings) -> Result<TokenRegistry, CliError> {
    let tokens = TokenRegistry::new().map_err(CliError::start)?;
    if let Some(path) = &settings.auth.token_file {
        let records = read_tokens(Path::new(path)).map_err(CliError::start)?;
        tokens.replace(TokenSource::File, records);
    }
    Ok(tokens)
}

/// Returns the settings of the hot-key layer, or `None` if it is turned off.
fn hot_keys(settings: &Settings, workers: usize) -> Result<Option<ShieldSettings>, CliError> {
    let hotkey = &settings.hotkey;
    if !hotkey.enabled {
        return Ok(None);
    }
    let seed = KeySeed::new(getrandom::u64().map_err(CliError::start)?);
    let mut shield = ShieldSettings::new(workers, seed);
    shield.rule.rate_min = f64::from(hotkey.rate_min);
    shield.cache.bytes_max = hotkey.cache.0;
    shield.cache.ttl = hotkey.ttl.0;
    shield.cache.negative_ttl = hotkey.ttl.0 / 3;
    Ok(Some(shield))
}

/// Returns the number of cores that the process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn dispatcher_limits(settings: &Settings) -> DispatcherLimits {
    DispatcherLimits {
        requests_in_flight_max: settings.server.requests_in_flight_max as usize,
        body_memory_max: usize::try_from(settings.server.body_memory.0).unwrap_or(usize::MAX),
        answer_memory_max: usize::try_from(settings.server.answer_memory.0).unwrap_or(usize::MAX),
        body_timeout: settings.server.body_timeout.0,
        default_timeout: settings.server.default_timeout.0,
        records_stale_max: settings.records.stale_max.0,
        request_cost_max: match settings.server.request_ru_max {
            0 => RequestUnits::from_micros(u64::MAX),
            units => RequestUnits::from_micros(u64::from(units) * 1_000_000),
        },
    }
}
