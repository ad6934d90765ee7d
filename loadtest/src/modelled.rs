//! `umbo-loadtest modelled`: a dispatcher over a store of known capacity, that fails when it is told.
//!
//! What the scenarios of overload attack: the dispatcher is the one of the `umbo` binary, sockets and
//! all, and only the store below it is a model, because how much a real one can do is another figure
//! on every machine. The release binary knows nothing of it.

mod store;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, sleep_until};
use tokio_util::sync::CancellationToken;
use umbo_admin::Service;
use umbo_api::ErrorCode;
use umbo_bulk::Bulk;
use umbo_control::auth::TokenRegistry;
use umbo_control::policies::FilePolicies;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_dispatcher::{Dispatcher, DispatcherLimits, DispatcherParts, LowPriority};
use umbo_edge::EdgeLimits;
use umbo_quota::{Limiter, LimiterSettings, PolicySet, Weights};
use umbo_store::{MemoryStore, Store};
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, RequestUnits, Timestamp};

use self::store::ModelledStore;
pub(crate) use self::store::{Capacity, Fault};
use crate::failure::Failure;

/// As often as the server does it.
const GATES_INTERVAL: Duration = Duration::from_millis(5);
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `umbo-loadtest modelled`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Port on this machine
    #[arg(long)]
    port: u16,
    /// Shards
    #[arg(long, default_value_t = 4)]
    shards: u16,
    /// Calls that a shard works on at once without becoming slower
    #[arg(long, default_value_t = 4)]
    places: u32,
    /// Mean time of a call, in milliseconds
    #[arg(long, default_value_t = 20.0)]
    service_ms: f64,
    /// A fault, as shard:slowness:from:to in seconds; `*` for all shards, `stall` for no answer
    #[arg(long, value_parser = fault)]
    fault: Vec<Fault>,
    /// Shed nothing because of a shard
    #[arg(long)]
    unprotected: bool,
    /// Let so many wait for each shard, and for as long as they want
    #[arg(long)]
    waiting: Option<usize>,
}

/// A dispatcher in this process.
pub(crate) struct Model {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hot_keys: Option<umbo_hotkey::ShieldSettings>,
    pub(crate) overload: Option<OverloadSettings>,
}

/// A patience that nobody's deadline reaches.
pub(crate) const FOR_EVER: Duration = Duration::from_hours(1);

fn fault(text: &str) -> Result<Fault, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [shard, slowness, from, to] = parts[..] else {
        return Err("expected shard:slowness:from:to".to_owned());
    };
    let seconds = |text: &str| text.parse().map_err(|_| format!("'{text}' is no time"));
    Ok(Fault {
        shard: match shard {
            "*" => None,
            number => Some(
                number
                    .parse()
                    .map_err(|_| format!("'{number}' is no shard"))?,
            ),
        },
        slowness: match slowness {
            "stall" => None,
            factor => Some(
                factor
                    .parse()
                    .map_err(|_| format!("'{factor}' is no factor"))?,
            ),
        },
        from_s: seconds(from)?,
        to_s: seconds(to)?,
    })
}

struct Unobserved;

impl umbo_edge::Observer for Unobserved {}

/// The time of this machine.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp(since.unwrap_or_default().as_micros() as u64)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

impl Arguments {
    /// Serves until the process is ended.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(Failure::io("cannot start the runtime"))?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<(), Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener = TcpListener::bind(address)
            .await
            .map_err(Failure::io(format!("cannot listen on {address}")))?;
        let pod = self.pod().await?;
        let (gates, signal) = (Arc::clone(&pod), Arc::clone(&pod));
        tokio::spawn(async move {
            let mut due = tokio::time::Instant::now();
            loop {
                due += GATES_INTERVAL;
                sleep_until(due).await;
                let now = tokio::time::Instant::now();
                gates.tick_queues(now.saturating_duration_since(due));
                due = now;
            }
        });
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(TICK_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                signal.tick();
            }
        });
        let limits = EdgeLimits {
            connections_max: 200_000,
            // Slow clients are to be there for as long as they are looked at.
            header_timeout: FOR_EVER,
            ..EdgeLimits::default()
        };
        let (service, stop) = (
            Arc::new(Service::data(&Bulk::new(&pod))),
            CancellationToken::new(),
        );
        umbo_edge::serve(listener, None, service, limits, stop, Arc::new(Unobserved)).await;
        Ok(())
    }

    async fn pod(&self) -> Result<Arc<Dispatcher>, Failure> {
        let mut overload = OverloadSettings::default();
        if let Some(waiting) = self.waiting {
            overload.queue.waiting_max = waiting;
            overload.queue.codel.target = FOR_EVER;
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let capacity = Capacity {
            places: self.places,
            service_time: Duration::from_secs_f64(self.service_ms / 1e3),
        };
        let model = Model {
            store: modelled_store(self.shards, capacity, self.fault.clone(), &clock)?,
            clock,
            // Every request is to reach its shard.
            hot_keys: None,
            overload: (!self.unprotected).then_some(overload),
        };
        model.pod().await
    }
}

/// Makes an empty store of known capacity.
pub(crate) fn modelled_store(
    shards: u16,
    capacity: Capacity,
    faults: Vec<Fault>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Store>, Failure> {
    let memory = MemoryStore::new(shards, Arc::clone(clock))
        .map_err(|error| Failure::Contradiction(error.to_string()))?;
    let store = ModelledStore::new(Arc::new(memory), capacity, faults);
    Ok(Arc::new(store))
}

impl Model {
    /// Opens it.
    pub(crate) async fn pod(self) -> Result<Arc<Dispatcher>, Failure> {
        let Self { store, clock, .. } = self;
        let wrong = |error: &dyn std::fmt::Display| Failure::Contradiction(error.to_string());
        let quota = LimiterSettings {
            weights: Weights::default(),
            accounts_max: 65_536,
            buckets_max: 65_536,
            shards: store.shard_map().shards() as u16,
            seed: 1,
        };
        let quota = Limiter::new(quota, PolicySet::built_in(), clock.monotonic());
        let codes = ErrorCode::ALL.iter().map(|code| Code {
            name: code.as_str(),
            kind: code.kind().as_str(),
        });
        let parts = DispatcherParts {
            store,
            clock: Arc::clone(&clock),
            tokens: Arc::new(TokenRegistry::new().map_err(|e| wrong(&e))?),
            quota: Arc::new(quota),
            policies: FilePolicies::default(),
            hot_keys: self.hot_keys,
            overload: self.overload,
            metrics: Arc::new(RequestMetrics::new(codes.collect::<Vec<_>>(), 3)),
            tracer: Arc::new(Tracer::disabled(clock)),
            long_reads: LowPriority::default(),
            limits: DispatcherLimits {
                requests_in_flight_max: 100_000,
                body_memory_max: 256 << 20,
                answer_memory_max: 256 << 20,
                body_timeout: Duration::from_secs(10),
                default_timeout: Duration::from_secs(1),
                records_stale_max: Duration::from_hours(24),
                request_cost_max: RequestUnits::from_micros(u64::MAX),
            },
            config_text: String::new(),
        };
        Dispatcher::open(parts).await.map_err(|e| wrong(&e))
    }
}
