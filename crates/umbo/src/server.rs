//! The server: wires the parts of `umbo serve` and `umbo dispatcher` together, and stops them in order.
//!
//! A stop loses nothing: readiness turns false, requests in flight finish, the store writes all acknowledged
//! rows to the disk, the last metrics, spans and lines of the log are exported. A dispatcher leaves its fleet first. The
//! admin port closes last, so that operators can watch.

mod cluster_port;
mod observe;
mod open;
mod ports;
mod reload;
mod startup;
mod store;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use umbo_admin::{FleetView, RecordWriter, UsageWriter, visit_metrics};
use umbo_api::observe::EventKind;
use umbo_bulk::Bulk;
use umbo_dispatcher::{Dispatcher, LowPriority};
use umbo_store::Store;
use umbo_telemetry::logging::LogHandle;
use umbo_telemetry::metrics::MetricVisitor;
use umbo_types::Clock;

use crate::cli_error::CliError;
use crate::otlp::{MetricsExport, Otlp};
use crate::reload_watch::ReloadWatch;
use crate::settings::{LoadedSettings, SettingsSources};
use crate::signals::Signals;
use crate::tasks::{Tasks, at_each};

use self::cluster_port::keep_present;
pub(crate) use self::observe::HISTORY_FOLDER;
use self::observe::{happened, keep_records, keep_usage, observe};
use self::open::{OpenedServer, cores};
use self::ports::{Doors, Ports};
use self::reload::ServerReload;
pub(crate) use self::store::{Role, cassandra_settings, remote_settings};
use crate::clock::ClockWatch;
pub(crate) use crate::clock::SystemClock;

/// How often the limiter ends its windows.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(1);
/// How often the queues of the shards are serviced.
const QUEUES_INTERVAL: Duration = Duration::from_millis(5);
/// How often hot keys and overloaded shards are detected.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// How often the home of Umbo's own records is asked for a new revision.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);
/// How often the clock is checked.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);
/// How long a stop waits, in addition to the drain, until runs release their loads; runs look for a stop every second.
/// If a run has not released its load, other servers wait for the end of its lease.
const LET_GO_TIME_MAX: Duration = Duration::from_secs(2);

/// A running server.
pub(crate) struct Server {
    dispatcher: Arc<Dispatcher>,
    store: Arc<dyn Store>,
    otlp: Otlp,
    ports: Ports,
    background: Background,
    signals: Signals,
    drain_delay: Duration,
}

/// What the event of a start says.
const STARTED: &str = concat!("the server serves, version ", env!("CARGO_PKG_VERSION"));

impl Server {
    /// Opens everything and begins to serve. A server with its store in this process fails if any part fails. A
    /// dispatcher waits for its shard nodes, and is not ready meanwhile. Returns `None` if a signal stopped it before
    /// it reached any node.
    pub(crate) async fn start(
        role: Role,
        sources: SettingsSources,
        loaded: LoadedSettings,
        log: LogHandle,
    ) -> Result<Option<Self>, CliError> {
        let settings = &loaded.settings;
        let mut signals = Signals::begin()?;
        let watch = ReloadWatch::begin(sources).await?;
        let (mut opened, listeners) = OpenedServer::open(role, settings, &log).await?;
        opened.store.announce(&*opened.clock);
        let doors = Doors::default();
        let begin = || Ports::begin(listeners, &opened, &doors, &settings.server);
        let (bulk, (observer, fleet), ports) = if opened.store.is_shared() {
            let mut ports = begin();
            let (bulk, joined) = tokio::select! {
                biased;
                joined = doors.join(&opened, &loaded, &mut ports) => joined?,
                _ = signals.stop_requested() => {
                    ports.close().await;
                    opened.store.store().close().await;
                    return Ok(None);
                }
            };
            (bulk, joined, ports)
        } else {
            let bulk = Bulk::new(&opened.dispatcher(&loaded).await?);
            // Before the ports open: early connections are served and not refused.
            let opened = doors.open(&bulk, &opened, &settings.server, None).await?;
            (bulk, opened, begin())
        };
        let dispatcher = Arc::clone(bulk.dispatcher());
        happened(&dispatcher, EventKind::Started, STARTED);
        opened.announce();
        let tls: Vec<_> = ports.peer_tls.iter().cloned().chain(opened.tls).collect();
        let reload = ServerReload {
            tls: tls.clone(),
            tokens: opened.tokens,
            dispatcher: Arc::clone(&dispatcher),
            had_policy_file: settings.quota.policy_file.is_some(),
            remote: opened.store.remote().cloned(),
        };
        reload.tell_certificates();
        let load_threads =
            LowPriority::for_background("loads", cores()).map_err(CliError::start)?;
        let background = Background::begin(&bulk, opened.clock, load_threads);
        let tasks = &background.tasks;
        tasks.spawn(watch.run(settings.clone(), log, tls, reload));
        // Records the history until the end, and then writes the rest of it.
        tasks.spawn_stoppable(|stop| observe(observer, stop));
        background.join(fleet, &bulk);
        if let Some(metrics) = opened.otlp.metrics.take() {
            background.export(metrics, &bulk);
        }
        if let Some(store) = opened.store.embedded().cloned() {
            tasks.spawn(async move { store.retry_opening().await });
        }
        Ok(Some(Self {
            dispatcher,
            store: opened.store.store(),
            otlp: opened.otlp,
            ports,
            background,
            signals,
            drain_delay: settings.server.drain_delay.0,
        }))
    }

    /// Serves until SIGTERM or SIGINT, then stops; a second signal aborts the requests in flight.
    pub(crate) async fn run_until_stopped(self) -> Result<(), CliError> {
        let Self {
            dispatcher,
            store,
            otlp,
            ports,
            background,
            mut signals,
            drain_delay,
        } = self;
        let is_patient = signals.stop_requested().await;
        let stopping = async {
            dispatcher.begin_drain();
            happened(&dispatcher, EventKind::Stopping, "the server stops");
            tracing::info!("stopping: /readyz fails from now on");
            // Load balancers must see it before the port closes.
            let delay = if is_patient {
                drain_delay
            } else {
                Duration::ZERO
            };
            // Others do not ask it while its ports close.
            tokio::join!(background.presence.end(), sleep(delay));
            ports.close().await;
            dispatcher.finish().await;
            background.end().await;
        };
        tokio::select! {
            biased;
            () = stopping => {}
            _ = signals.stop_requested() => {
                tracing::warn!("second stop signal: requests in flight are aborted");
            }
        }
        store.close().await;
        otlp.end().await;
        Ok(())
    }
}

/// The background tasks of a server.
#[derive(Default)]
struct Background {
    tasks: Tasks,
    /// The membership in the fleet, which ends as soon as the server stops.
    presence: Tasks,
    /// The runner of loads, which ends by itself once the dispatcher drains.
    loads: Tasks,
}

impl Background {
    fn begin(bulk: &Arc<Bulk>, clock: Arc<dyn Clock>, load_threads: LowPriority) -> Self {
        let background = Self::default();
        let tasks = &background.tasks;
        let shared = {
            let dispatcher = Arc::clone(bulk.dispatcher());
            move || Arc::clone(&dispatcher)
        };
        tasks.spawn(tick_queues(shared()));
        let mut watch = ClockWatch::begin(&*clock);
        tasks.spawn(at_each(CLOCK_INTERVAL, move || {
            watch.look(&*clock);
            ready(())
        }));
        let of = shared.clone();
        tasks.spawn(at_each(FOLLOW_INTERVAL, move || follow_records(of())));
        let of = shared.clone();
        tasks.spawn(at_each(MAINTAIN_INTERVAL, move || maintain(of())));
        tasks.spawn(at_each(TICK_INTERVAL, move || {
            shared().tick();
            ready(())
        }));
        tasks.spawn_stoppable(|stop| keep_usage(UsageWriter::new(bulk.dispatcher()), stop));
        let bulk = Arc::clone(bulk);
        let loads = async move { bulk.run(&load_threads).await };
        background.loads.spawn(loads);
        background
    }

    /// Takes part in the fleet. Quotas are shared until the ports are closed: requests in flight count, too.
    fn join(&self, fleet: Arc<FleetView>, bulk: &Bulk) {
        let writer = RecordWriter::new(bulk.dispatcher(), fleet.name());
        self.tasks
            .spawn_stoppable(|stop| keep_records(writer, stop));
        let quotas = Arc::clone(&fleet);
        self.tasks.spawn(async move { quotas.share_quotas().await });
        self.presence
            .spawn_stoppable(|stop| keep_present(fleet, stop));
    }

    /// Exports the metrics until the end, and then the last ones.
    fn export(&self, metrics: MetricsExport, bulk: &Arc<Bulk>) {
        let bulk = Arc::clone(bulk);
        let visit = move |visitor: &mut dyn MetricVisitor| visit_metrics(&bulk, visitor);
        self.tasks.spawn_stoppable(|stop| metrics.run(visit, stop));
    }

    async fn end(self) {
        drop(timeout(LET_GO_TIME_MAX, self.loads.ended()).await);
        // Usage of loads is counted before the last usage is written.
        self.loads.end().await;
        self.tasks.end().await;
    }
}

/// Follows Umbo's own records.
async fn follow_records(dispatcher: Arc<Dispatcher>) {
    if let Err(error) = dispatcher.control.follow_records().await {
        tracing::debug!(%error, "the newest records could not be confirmed; trying again");
    }
}

/// Maintains the quotas. The maintenance visits every bucket and account, and must not block requests.
async fn maintain(dispatcher: Arc<Dispatcher>) {
    if let Err(error) = tokio::task::spawn_blocking(move || dispatcher.maintain()).await {
        tracing::error!(%error, "the maintenance of quotas failed; trying again");
    }
}

/// Services the queues of the shards, in an endless loop.
async fn tick_queues(dispatcher: Arc<Dispatcher>) {
    let mut due = Instant::now();
    loop {
        due += QUEUES_INTERVAL;
        sleep_until(due).await;
        let now = Instant::now();
        // The delay of this task is the delay of every task on the runtime.
        dispatcher.tick_queues(now.saturating_duration_since(due));
        due = now;
    }
}
