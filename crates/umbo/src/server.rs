//! The server: the parts of `umbo serve` wired together, and the order in which they stop.
//!
//! Stopping loses nothing: readiness says no, requests in flight finish, the store writes down what
//! it acknowledged, spans leave. The admin port is the last to close, so that operators can watch.

mod clock;
mod open;
mod reload;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_dispatcher::edge::{self, DrainStats, EdgeLimits};
use umbo_dispatcher::{Dispatcher, Service};
use umbo_store::Store;
use umbo_telemetry::logging::LogHandle;
use umbo_telemetry::trace::Tracer;
use umbo_types::Clock;

use crate::failure::Failure;
use crate::settings::{Loaded, ServerSettings, Sources};

use self::clock::ClockWatch;
pub(crate) use self::clock::SystemClock;
use self::open::Opened;
use self::reload::Reload;
use self::watcher::Watcher;

/// How often the limiter ends its windows.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(1);
/// How often those who wait for a shard are looked after.
const GATES_INTERVAL: Duration = Duration::from_millis(5);
/// How often it is found out which keys are hot and which shards are overloaded.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// How often removed namespaces are looked for; their space is not urgent.
const PURGE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait after purges that failed.
const PURGE_WAIT_MAX: Duration = Duration::from_mins(5);
/// Time for the last spans to leave.
const TRACE_SHUTDOWN: Duration = Duration::from_secs(2);

/// A server under way.
pub(crate) struct Server {
    pod: Arc<Dispatcher>,
    store: Arc<dyn Store>,
    tracer: Arc<Tracer>,
    data: Port,
    admin: Port,
    background: TaskTracker,
    background_stop: CancellationToken,
    drain_delay: Duration,
}

/// A listening port.
struct Port {
    stop: CancellationToken,
    task: JoinHandle<DrainStats>,
}

impl Server {
    /// Opens everything and begins to serve. Refuses to start half.
    pub(crate) async fn start(
        sources: Sources,
        loaded: Loaded,
        log: LogHandle,
    ) -> Result<Self, Failure> {
        let settings = &loaded.settings;
        // Until somebody waits for it, SIGHUP ends the process: so before anything is announced.
        let hangup = signal(SignalKind::hangup()).map_err(Failure::start)?;
        let seen = reload::seen(&sources).await;
        let opened = Opened::open(&loaded).await?;
        opened.announce();
        let watcher = Arc::new(Watcher::new(opened.metrics));
        let limits = edge_limits(&settings.server);
        let serve = |listener, service: Service| {
            let stop = CancellationToken::new();
            let task = tokio::spawn(edge::serve(
                listener,
                opened.tls.clone(),
                Arc::new(service),
                limits.clone(),
                stop.clone(),
                watcher.clone(),
            ));
            Port { stop, task }
        };
        let data = serve(opened.data_port, Service::data(&opened.pod));
        let admin = serve(opened.admin_port, Service::admin(&opened.pod));
        let background = TaskTracker::new();
        let background_stop = CancellationToken::new();
        let reload = Reload {
            sources,
            started_with: settings.clone(),
            log,
            tls: opened.tls,
            tokens: opened.tokens,
            pod: Arc::clone(&opened.pod),
            hangup,
            seen,
        };
        let stop = background_stop.clone();
        background.spawn(async move { stop.run_until_cancelled(reload.run()).await });
        let (pod, clock) = (Arc::clone(&opened.pod), opened.clock);
        let stop = background_stop.clone();
        let refresh = settings.quota.refresh.0;
        background.spawn(async move {
            let following = follow(&pod, &*clock, refresh);
            stop.run_until_cancelled(following).await
        });
        let (pod, stop) = (Arc::clone(&opened.pod), background_stop.clone());
        background.spawn(async move { stop.run_until_cancelled(maintain(&pod)).await });
        let (pod, stop) = (Arc::clone(&opened.pod), background_stop.clone());
        background.spawn(async move { stop.run_until_cancelled(tick_gates(&pod)).await });
        let (pod, stop) = (Arc::clone(&opened.pod), background_stop.clone());
        background.spawn(async move { stop.run_until_cancelled(tick(&pod)).await });
        let (pod, stop) = (Arc::clone(&opened.pod), background_stop.clone());
        background.spawn(async move { stop.run_until_cancelled(reclaim(&pod)).await });
        Ok(Self {
            pod: opened.pod,
            store: opened.store,
            tracer: opened.tracer,
            data,
            admin,
            background,
            background_stop,
            drain_delay: settings.server.drain_delay.0,
        })
    }

    /// Serves until SIGTERM or SIGINT, then stops; a second signal cuts off what is in flight.
    pub(crate) async fn run_until_told(self) -> Result<(), Failure> {
        let mut terminate = signal(SignalKind::terminate()).map_err(Failure::start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::start)?;
        let is_patient = told(&mut terminate, &mut interrupt).await;
        let (store, tracer) = (Arc::clone(&self.store), Arc::clone(&self.tracer));
        tokio::select! {
            () = self.stop(is_patient) => {}
            _ = told(&mut terminate, &mut interrupt) => {
                tracing::warn!("told to stop again: requests in flight are cut off");
            }
        }
        store.close().await;
        let spans = tokio::task::spawn_blocking(move || tracer.shutdown(TRACE_SHUTDOWN));
        if spans.await.is_err() {
            tracing::warn!("the last spans did not leave");
        }
        Ok(())
    }

    /// Stops the parts one after the other. A patient stop first lets load balancers see it.
    async fn stop(self, is_patient: bool) {
        self.pod.begin_drain();
        tracing::info!("stopping: /readyz says no from now on");
        if is_patient {
            sleep(self.drain_delay).await;
        }
        self.data.close("data").await;
        self.admin.close("admin").await;
        self.pod.finish().await;
        self.background_stop.cancel();
        self.background.close();
        self.background.wait().await;
    }
}

impl Port {
    async fn close(self, name: &str) {
        self.stop.cancel();
        match self.task.await {
            Ok(DrainStats { open, aborted }) => {
                tracing::info!(open, aborted, "the {name} port is closed");
            }
            Err(error) => tracing::error!(%error, "the {name} port ended badly"),
        }
    }
}

/// Waits for a signal; says whether it was SIGTERM.
async fn told(terminate: &mut Signal, interrupt: &mut Signal) -> bool {
    tokio::select! {
        _ = terminate.recv() => true,
        _ = interrupt.recv() => false,
    }
}

/// Follows what other pods change and watches the clock, for ever.
async fn follow(pod: &Dispatcher, clock: &dyn Clock, refresh: Duration) {
    let mut watch = ClockWatch::begin(clock);
    let mut ticks = tokio::time::interval(refresh);
    loop {
        ticks.tick().await;
        watch.look(clock);
        if let Err(error) = pod.refresh().await {
            tracing::warn!(%error, "what other pods changed could not be read; trying again");
        }
    }
}

/// Looks after the quotas, for ever.
async fn maintain(pod: &Arc<Dispatcher>) {
    let mut ticks = tokio::time::interval(MAINTAIN_INTERVAL);
    // Late rounds are not caught up on: what they would do, the next one does.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let pod = Arc::clone(pod);
        // It looks at every account, and requests must not wait for that.
        if let Err(error) = tokio::task::spawn_blocking(move || pod.maintain()).await {
            tracing::error!(%error, "the quotas could not be looked after; trying again");
        }
    }
}

/// Looks after those who wait for a shard, for ever.
async fn tick_gates(pod: &Dispatcher) {
    let mut due = Instant::now();
    loop {
        due += GATES_INTERVAL;
        sleep_until(due).await;
        let now = Instant::now();
        // As late as this task comes to its turn, so late comes everything on the runtime.
        pod.tick_gates(now.saturating_duration_since(due));
        due = now;
    }
}

/// Finds out which keys are hot and which shards are overloaded, for ever.
async fn tick(pod: &Dispatcher) {
    let mut ticks = tokio::time::interval(TICK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        pod.tick();
    }
}

/// Reclaims the rows of removed namespaces, for ever.
async fn reclaim(pod: &Dispatcher) {
    let mut wait = PURGE_INTERVAL;
    loop {
        // A removal on this pod is purged at once, one on another pod or a failure later.
        tokio::select! {
            () = sleep(wait) => {}
            () = pod.removal() => {}
        }
        wait = match pod.purge().await {
            Ok(()) => PURGE_INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "a removed namespace could not be purged; trying again");
                (wait * 2).min(PURGE_WAIT_MAX)
            }
        };
    }
}

fn edge_limits(server: &ServerSettings) -> EdgeLimits {
    EdgeLimits {
        connections_max: server.connections_max as usize,
        header_timeout: server.header_timeout.0,
        idle_timeout: server.idle_timeout.0,
        write_timeout: server.write_timeout.0,
        drain_timeout: server.drain_timeout.0,
        ..EdgeLimits::default()
    }
}
