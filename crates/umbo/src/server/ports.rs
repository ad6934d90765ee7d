//! The ports of a server, the services behind them, and the events of their connections.

use std::io;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_admin::{
    CorsPolicy, DispatcherObserver, FleetPlace, FleetView, HostNames, Service, StartupResponder,
};
use umbo_api::ErrorCode;
use umbo_bulk::Bulk;
use umbo_edge::{DrainStats, EdgeLimits, Handler, NoObserver, Observer};
use umbo_telemetry::metrics::RequestMetrics;
use umbo_tls::TlsSource;

use super::open::{Listeners, OpenedServer};
use super::{cluster_port, startup};
use crate::cli_error::CliError;
use crate::settings::{LoadedSettings, ServerSettings};

/// Most connections of other dispatchers: one of each in the largest fleet.
const CLUSTER_CONNECTIONS_MAX: usize = 1_024;

/// The services of the ports.
#[derive(Default)]
pub(super) struct Doors {
    data: Arc<StartupResponder>,
    admin: Arc<StartupResponder>,
}

impl Doors {
    /// Passes requests on to a dispatcher from now on, unless its address is public and no token is required. Returns the
    /// observer of the dispatcher and its view of its fleet.
    pub(super) async fn open(
        &self,
        bulk: &Arc<Bulk>,
        opened: &OpenedServer,
        settings: &ServerSettings,
        place: Option<FleetPlace>,
    ) -> Result<(DispatcherObserver, Arc<FleetView>), CliError> {
        // The first request sees the history.
        let observer = opened.observer(bulk);
        opened.refuse_unauthenticated(settings.insecure)?;
        let fleet = Service::join_fleet(bulk, place, opened.process_info());
        // Its share of a quota depends on how many dispatchers there are.
        fleet.announce().await;
        // The check of the settings has refused texts that cannot be read.
        let cors = CorsPolicy::parse(&settings.cors_origins).unwrap_or_default();
        let hosts = Arc::new(HostNames::parse(&settings.hosts).unwrap_or_default());
        let open = |port: &StartupResponder, service: Service| {
            port.open(service.with_fleet(&fleet).with_hosts(&hosts));
        };
        open(&self.data, Service::data(bulk).with_cors(cors));
        open(&self.admin, Service::admin(bulk));
        Ok((observer, fleet))
    }

    /// Waits for the shard nodes, passes requests on as [`Self::open`] does, and opens the port for other dispatchers.
    /// Returns both planes too.
    pub(super) async fn join(
        &self,
        opened: &OpenedServer,
        loaded: &LoadedSettings,
        ports: &mut Ports,
    ) -> Result<(Arc<Bulk>, (DispatcherObserver, Arc<FleetView>)), CliError> {
        let bulk = Bulk::new(&startup::dispatcher(opened, loaded).await);
        let settings = &loaded.settings;
        let nodes = opened.store.nodes();
        let (listener, tls, place) = cluster_port::bind(&settings.cluster, nodes).await?;
        let entered = self
            .open(&bulk, opened, &settings.server, Some(place))
            .await?;
        let limits = EdgeLimits {
            connections_max: CLUSTER_CONNECTIONS_MAX,
            ..edge_limits(&settings.server)
        };
        ports.peer_tls.clone_from(&tls);
        let (fleet, observer) = (Arc::clone(&entered.1), Arc::new(NoObserver));
        ports.cluster = Some(Port::serve(listener, tls, fleet, limits, observer));
        Ok((bulk, entered))
    }
}

/// The listening ports.
pub(super) struct Ports {
    data: Port,
    admin: Port,
    /// The port for other dispatchers, from the time when there is a fleet.
    cluster: Option<Port>,
    pub(super) peer_tls: Option<Arc<TlsSource>>,
}

struct Port {
    stop: CancellationToken,
    task: JoinHandle<DrainStats>,
}

impl Ports {
    pub(super) fn begin(
        listeners: Listeners,
        opened: &OpenedServer,
        doors: &Doors,
        settings: &ServerSettings,
    ) -> Self {
        let watcher = Arc::new(Watcher {
            metrics: Arc::clone(&opened.metrics),
        });
        let limits = edge_limits(settings);
        let serve = |listener, door: &Arc<StartupResponder>| {
            let (tls, door) = (opened.tls.clone(), Arc::clone(door));
            Port::serve(listener, tls, door, limits.clone(), watcher.clone())
        };
        Self {
            data: serve(listeners.data, &doors.data),
            admin: serve(listeners.admin, &doors.admin),
            cluster: None,
            peer_tls: None,
        }
    }

    /// Lets requests in flight finish. The admin port is the last, so that operators can watch.
    pub(super) async fn close(self) {
        self.data.close("data").await;
        if let Some(cluster) = self.cluster {
            cluster.close("cluster").await;
        }
        self.admin.close("admin").await;
    }
}

impl Port {
    fn serve<H: Handler>(
        listener: TcpListener,
        tls: Option<Arc<TlsSource>>,
        handler: Arc<H>,
        limits: EdgeLimits,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let stop = CancellationToken::new();
        let serving = umbo_edge::serve(listener, tls, handler, limits, stop.clone(), observer);
        let task = tokio::spawn(serving);
        Self { stop, task }
    }

    async fn close(self, name: &str) {
        self.stop.cancel();
        match self.task.await {
            Ok(DrainStats { open, aborted }) => {
                tracing::info!(open, aborted, "the {name} port is closed");
            }
            Err(error) => tracing::error!(%error, "the {name} port ended with an error"),
        }
    }
}

fn edge_limits(server: &ServerSettings) -> EdgeLimits {
    EdgeLimits {
        connections_max: server.connections_max as usize,
        connections_per_address_max: server.connections_per_address_max as usize,
        header_timeout: server.header_timeout.0,
        idle_timeout: server.idle_timeout.0,
        write_timeout: server.write_timeout.0,
        drain_timeout: server.drain_timeout.0,
        ..EdgeLimits::default()
    }
}

/// Passes events of connections to the counters and the log.
struct Watcher {
    metrics: Arc<RequestMetrics>,
}

impl Observer for Watcher {
    fn connection_opened(&self) {
        self.metrics.record_connection_opened();
    }

    fn connection_closed(&self) {
        self.metrics.record_connection_closed();
    }

    fn evicted(&self, count: usize) {
        self.metrics.record_connections_evicted(count);
    }

    fn turned_away(&self) {
        self.metrics.record_connection_turned_away();
    }

    fn refused(&self, code: ErrorCode) {
        self.metrics.record_refused(code as usize);
    }

    fn stalled(&self) {
        self.metrics.record_stream_aborted();
        tracing::debug!("closed a connection whose client reads nothing");
    }

    fn handshake_failed(&self, reason: &str) {
        self.metrics.record_tls_handshake_failed();
        tracing::debug!(reason, "a TLS handshake failed");
    }

    fn accept_failed(&self, error: &io::Error) {
        tracing::warn!(%error, "no connection can be accepted; trying again");
    }
}
