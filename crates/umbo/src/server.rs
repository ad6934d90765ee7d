//! The server: the parts of `umbo serve` and `umbo dispatcher` wired together, and the order in which they stop.
//!
//! Stopping loses nothing: readiness says no, requests in flight finish, the store writes down what
//! it acknowledged, spans leave. The admin port is the last to close, so that operators can watch.

mod clock;
mod open;
mod ports;
mod reach;
mod reload;
mod store;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_dispatcher::Dispatcher;
use umbo_store::Store;
use umbo_telemetry::logging::LogHandle;
use umbo_telemetry::trace::Tracer;
use umbo_types::Clock;

use crate::failure::Failure;
use crate::reload_watch::ReloadWatch;
use crate::settings::{Loaded, Sources};
use crate::signals::Signals;
use crate::spans;

pub(crate) use self::clock::{ClockWatch, SystemClock, warn_if_behind};
use self::open::Opened;
use self::ports::{Doors, Ports};
use self::reload::Reload;
pub(crate) use self::store::Role;

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

/// A server under way.
pub(crate) struct Server {
    pod: Arc<Dispatcher>,
    store: Arc<dyn Store>,
    tracer: Arc<Tracer>,
    ports: Ports,
    background: Background,
    signals: Signals,
    drain_delay: Duration,
}

impl Server {
    /// Opens everything and begins to serve. A server with its store in this process refuses to
    /// start half. A dispatcher waits for its shard nodes, not ready meanwhile; none is returned
    /// where it was told to stop before it reached any.
    pub(crate) async fn start(
        role: Role,
        sources: Sources,
        loaded: Loaded,
        log: LogHandle,
    ) -> Result<Option<Self>, Failure> {
        let settings = &loaded.settings;
        let mut signals = Signals::begin()?;
        let watch = ReloadWatch::begin(sources).await?;
        let (opened, listeners) = Opened::open(role, settings)?;
        opened.store.announce(&*opened.clock);
        let doors = Doors::default();
        let begin = || Ports::begin(listeners, &opened, &doors, &settings.server);
        let (pod, ports) = match role {
            Role::Serve => {
                let pod = opened.dispatcher(&loaded).await?;
                opened.refuse_open_door(settings.server.insecure)?;
                // Before anybody is let in: who connected early is served and not sent away.
                doors.open(&pod);
                (pod, begin())
            }
            Role::Dispatcher => {
                let ports = begin();
                let pod = tokio::select! {
                    pod = reach::dispatcher(&opened, &loaded) => pod,
                    _ = signals.told() => {
                        ports.close().await;
                        opened.store.store().close().await;
                        return Ok(None);
                    }
                };
                opened.refuse_open_door(settings.server.insecure)?;
                doors.open(&pod);
                (pod, ports)
            }
        };
        opened.announce();
        let reload = Reload {
            watch,
            started_with: settings.clone(),
            log,
            tls: opened.tls,
            tokens: opened.tokens,
            pod: Arc::clone(&pod),
            remote: opened.store.remote(),
        };
        let clock = Arc::clone(&opened.clock);
        let background = Background::begin(&pod, clock, settings.quota.refresh.0, reload);
        Ok(Some(Self {
            pod,
            store: opened.store.store(),
            tracer: opened.tracer,
            ports,
            background,
            signals,
            drain_delay: settings.server.drain_delay.0,
        }))
    }

    /// Serves until SIGTERM or SIGINT, then stops; a second signal cuts off what is in flight.
    pub(crate) async fn run_until_told(self) -> Result<(), Failure> {
        let (store, tracer) = (Arc::clone(&self.store), Arc::clone(&self.tracer));
        let Self {
            pod,
            ports,
            background,
            mut signals,
            drain_delay,
            ..
        } = self;
        let is_patient = signals.told().await;
        let stopping = async {
            pod.begin_drain();
            tracing::info!("stopping: /readyz says no from now on");
            // Load balancers see it first.
            if is_patient {
                sleep(drain_delay).await;
            }
            ports.close().await;
            pod.finish().await;
            background.end().await;
        };
        tokio::select! {
            () = stopping => {}
            _ = signals.told() => {
                tracing::warn!("told to stop again: requests in flight are cut off");
            }
        }
        store.close().await;
        spans::end(tracer).await;
        Ok(())
    }
}

/// What goes on beside the requests.
struct Background {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Background {
    fn begin(
        pod: &Arc<Dispatcher>,
        clock: Arc<dyn Clock>,
        refresh: Duration,
        reload: Reload,
    ) -> Self {
        let background = Self {
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        background.go_on(reload.run());
        let own = || Arc::clone(pod);
        let pod = own();
        background.go_on(async move { follow(&pod, &*clock, refresh).await });
        let pod = own();
        background.go_on(async move { maintain(&pod).await });
        let pod = own();
        background.go_on(async move { tick_gates(&pod).await });
        let pod = own();
        background.go_on(async move { tick(&pod).await });
        let pod = own();
        background.go_on(async move { reclaim(&pod).await });
        background
    }

    fn go_on(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks
            .spawn(async move { stop.run_until_cancelled(work).await });
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
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
