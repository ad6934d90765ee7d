//! The state of a dispatcher: the store, the snapshots the path reads, and the bounds.
//!
//! No state here outlives the dispatcher or matters to another one: kill it and the next one carries on.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use umbo_api::backup::CompletedBackup;
use umbo_control::auth::TokenRegistry;
use umbo_control::policies::FilePolicies;
use umbo_control::{ControlError, ControlParts, ControlPlane};
use umbo_edge::body::{BodyRoom, InFlightCounter};
use umbo_edge::bounds::{ANSWER_PARTS, BODY_PARTS, CROWD_PARTS};
use umbo_edge::memory::{CallerMemory, Memory};
use umbo_hotkey::BusySources;
use umbo_http::cursor::CursorKey;
use umbo_http::retry_ticket::TicketKey;
use umbo_http::{RequestError, RequestIds};
use umbo_observe::{Findings, TopCallers};
use umbo_quota::{FleetQuota, Limiter, UsageSteps};
use umbo_routing::ShardMap;
use umbo_store::Store;
use umbo_telemetry::history::History;
use umbo_telemetry::metrics::{RequestMetrics, ShardLatencies};
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, Operation, RequestUnits, ShardId, Timestamp};

use crate::hot_keys::HotKeys;
use crate::low_priority::LowPriority;
use crate::overload::{Overload, OverloadSettings};
use crate::request_recorder::RequestRecorder;
use crate::running::RunningRequests;

/// Most reports of usage at once: each reads up to some hundred MiB from the home of Umbo's own records, and holds up to
/// 40 MiB until its answer is written. Further ones wait.
const USAGE_REPORTS_MAX: usize = 2;

/// Bounds of a dispatcher.
#[derive(Debug, Clone)]
pub struct DispatcherLimits {
    /// Requests in flight beyond which new ones are shed.
    pub requests_in_flight_max: usize,
    /// Memory that request bodies over 4 KiB may hold together, in bytes.
    pub body_memory_max: usize,
    /// Memory that answers over 4 KiB hold together until their clients have taken them, in bytes.
    pub answer_memory_max: usize,
    /// Time for a request body to arrive. A streamed body has to bring 1 KiB for each second of it, again and again.
    pub body_timeout: Duration,
    /// Deadline of requests that name none; streamed pages without a named one have no deadline.
    pub default_timeout: Duration,
    /// How long requests are served by a copy of Umbo's own records that could not be confirmed with
    /// their home.
    pub records_stale_max: Duration,
    /// A range or scan ends with a cursor when its cost reaches this.
    pub request_cost_max: RequestUnits,
}

/// A dispatcher.
#[derive(Debug)]
pub struct Dispatcher {
    /// The store of the rows.
    pub store: Arc<dyn Store>,
    /// Which shard has which hash slot.
    pub shard_map: Arc<ShardMap>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Umbo's own records.
    pub control: ControlPlane,
    pub(crate) cursor_key: CursorKey,
    /// Signs and checks retry tickets.
    pub(crate) ticket_key: TicketKey,
    /// The quotas of callers.
    pub quota: Arc<Limiter>,
    /// The quotas of the scopes `fleet` and `shard`, once the dispatcher is in a fleet.
    pub fleet_quotas: OnceLock<Arc<FleetQuotas>>,
    /// The hot keys and their shield.
    pub hot_keys: Arc<HotKeys>,
    /// Whose work keeps the shards busy.
    pub busy: BusySources,
    /// How long calls of the shards took in the last seconds.
    pub latencies: ShardLatencies,
    /// `None` if no request is shed because of a shard.
    pub overload: Option<Overload>,
    /// Counters of requests.
    pub metrics: Arc<RequestMetrics>,
    pub(crate) tracer: Arc<Tracer>,
    /// Records of requests.
    pub recorder: RequestRecorder,
    /// Requests that run, for operators.
    pub running: Arc<RunningRequests>,
    /// The past of the metrics. Locked for a sample each second, and by who reads it.
    pub history: Mutex<History>,
    /// Which callers use most now.
    pub top_callers: Mutex<TopCallers>,
    /// The findings of the diagnosis: states, at each request for them too, and rates, once a second.
    pub findings: Mutex<[Findings; 2]>,
    /// The files of the certificates of the process, and when the first certificate of each ends.
    pub certificates: Mutex<Vec<(String, Timestamp)>>,
    /// Versions of the program of the other dispatchers of the fleet.
    pub fleet_versions: Mutex<Vec<String>>,
    /// The last completed backups, newest first, as the home has told them.
    pub backups: Mutex<Vec<CompletedBackup>>,
    /// Usage in steps of ten minutes that is not written yet. Locked for a sample each second, and by who writes or reads
    /// it.
    pub usage_steps: Mutex<UsageSteps>,
    /// Permits are reports of usage under way.
    pub usage_reports: Semaphore,
    /// Bounds.
    pub limits: DispatcherLimits,
    in_flight: AtomicUsize,
    /// Requests that are to give way to others.
    places_wanted: AtomicUsize,
    /// Memory of the bodies that are being read, and of inflated ones.
    pub body_memory: CallerMemory,
    /// Memory of the answers that clients have not taken yet.
    pub answer_memory: Arc<Memory>,
    pub(crate) request_ids: RequestIds,
    pub(crate) long_reads: LowPriority,
    /// The settings in effect, as the admin API shows them.
    pub config_text: String,
    /// Tasks that outlive the request they came from: changes of Umbo's own records, writes that were abandoned, and
    /// reads that others may wait for.
    tasks: TaskTracker,
    is_draining: AtomicBool,
}

/// The quotas of the scopes `fleet` and `shard` at a dispatcher, and how many of its messages about them were answered.
#[derive(Debug)]
pub struct FleetQuotas {
    /// The counters.
    pub core: FleetQuota,
    /// Messages to owners that were answered.
    pub answered: AtomicU64,
    /// Messages to owners that were not answered in time.
    pub unanswered: AtomicU64,
}

/// The parts that a dispatcher is made of.
#[derive(Debug)]
pub struct DispatcherParts {
    /// The store of the rows.
    pub store: Arc<dyn Store>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// The tokens of the token file.
    pub tokens: Arc<TokenRegistry>,
    /// The quotas of callers.
    pub quota: Arc<Limiter>,
    /// The policies of the policy file.
    pub policies: FilePolicies,
    /// Settings of hot keys and the local cache; `None` turns the shield off.
    pub hot_keys: Option<umbo_hotkey::ShieldSettings>,
    /// How shards are kept from overload; with `None` no request is shed because of a shard.
    pub overload: Option<OverloadSettings>,
    /// Counters of requests.
    pub metrics: Arc<RequestMetrics>,
    /// Receives the spans.
    pub tracer: Arc<Tracer>,
    /// Threads of long reads.
    pub long_reads: LowPriority,
    /// Bounds.
    pub limits: DispatcherLimits,
    /// The settings in effect, as `/admin/v1/config` shows them.
    pub config_text: String,
}

impl Dispatcher {
    /// Returns the time of day of the home, which all dispatchers know about alike.
    pub fn home_time(&self) -> Timestamp {
        self.store
            .time_at(self.store.home().shard, self.clock.wall())
    }

    /// Returns the begin of the life of a row that is written to a shard now.
    pub fn lives_from(&self, shard: ShardId) -> Timestamp {
        self.store.lives_from(shard, self.clock.wall())
    }

    /// Opens a dispatcher. Reads Umbo's own records, at home or from a copy, and creates them if they do not exist.
    /// Fails if they cannot be read.
    pub async fn open(parts: DispatcherParts) -> Result<Arc<Self>, ControlError> {
        let DispatcherParts {
            store,
            clock,
            tokens,
            quota,
            policies,
            hot_keys,
            overload,
            metrics,
            tracer,
            long_reads,
            limits,
            config_text,
        } = parts;
        let tasks = TaskTracker::new();
        let begun = clock.monotonic();
        let hot_keys = Arc::new(HotKeys::new(hot_keys, &tasks, begun));
        let control = ControlPlane::open(ControlParts {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            tokens,
            quota: Arc::clone(&quota),
            policies,
            listed_keys: Arc::clone(&hot_keys) as _,
            records_stale_max: limits.records_stale_max,
            tasks: tasks.clone(),
        });
        let control = control.await?;
        let shards = store.shard_map().shards();
        let is_one_place = store.capabilities().answers_at_once;
        let overload =
            overload.map(|settings| Overload::new(settings, shards, is_one_place, begun));
        Ok(Arc::new(Self {
            cursor_key: CursorKey::new(control.secret()),
            ticket_key: TicketKey::new(&control.secret()),
            control,
            shard_map: store.shard_map(),
            body_memory: CallerMemory::new(limits.body_memory_max, BODY_PARTS),
            answer_memory: Memory::new(limits.answer_memory_max, ANSWER_PARTS),
            in_flight: AtomicUsize::new(0),
            places_wanted: AtomicUsize::new(0),
            request_ids: RequestIds::random_start(),
            tasks,
            is_draining: AtomicBool::new(false),
            overload,
            store,
            clock,
            quota,
            fleet_quotas: OnceLock::new(),
            hot_keys,
            busy: BusySources::new(shards),
            latencies: ShardLatencies::new(shards),
            metrics,
            tracer,
            recorder: RequestRecorder::default(),
            running: Arc::default(),
            history: Mutex::new(History::new()),
            top_callers: Mutex::new(TopCallers::new()),
            findings: Mutex::default(),
            certificates: Mutex::default(),
            fleet_versions: Mutex::default(),
            backups: Mutex::default(),
            usage_steps: Mutex::new(UsageSteps::new(RandomState::new().hash_one(()))),
            usage_reports: Semaphore::new(USAGE_REPORTS_MAX),
            long_reads,
            limits,
            config_text,
        }))
    }

    /// Maintains the quotas (observed rates, the record of usage), removes expired entries from the lists of hot
    /// keys, and updates which requests count as slow. To be called once a second.
    pub fn maintain(&self) {
        self.quota.maintain(self.clock.monotonic());
        self.control.maintain();
        self.recorder.maintain(&self.metrics);
    }

    /// Brings up to date which keys are hot and which shards are overloaded. To be called every
    /// 100 ms.
    pub fn tick(&self) {
        let now = self.clock.monotonic();
        self.hot_keys.tick(now);
        if let Some(overload) = &self.overload {
            overload.tick_pressure(now);
        }
    }

    /// Looks after the requests that wait for a shard. To be called every few milliseconds; `lag` is by how
    /// much the runtime was late to do so.
    pub fn tick_queues(&self, lag: Duration) {
        if let Some(overload) = &self.overload {
            overload.tick_queues(self.clock.monotonic(), lag);
        }
    }

    /// Runs work to its end after its request has ended.
    pub(crate) fn go_on(&self, work: impl Future<Output = ()> + Send + 'static) {
        // When the process ends there is no runtime, and the work is dropped.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tasks.spawn_on(work, &runtime);
        }
    }

    /// Waits for the tasks under way. To be called once no request comes any more.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns why the system refused long reads their lower priority; `None` if it did not. It decides by the same
    /// rule for threads of any lower priority.
    pub fn priority_refusal(&self) -> Option<&str> {
        self.long_reads.refusal()
    }

    /// Makes `/readyz` say that no new work should come.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Self::begin_drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight; [`InFlightCounter::request_ended`] takes it back.
    pub(crate) fn begin_request(&self, operation: Operation) {
        if is_bounded(operation) {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        self.metrics.begin_request(operation);
    }

    /// Refuses a request if more than the maximum are in flight. Then up to one of [`CROWD_PARTS`] parts of them give
    /// way, if they wait for slow clients.
    pub(crate) fn check_in_flight(&self) -> Result<(), RequestError> {
        let max = self.limits.requests_in_flight_max;
        if self.requests_in_flight() > max {
            let wanted = max.div_ceil(CROWD_PARTS);
            self.places_wanted.store(wanted, Ordering::Relaxed);
            return Err(RequestError::TooManyInFlight { max });
        }
        Ok(())
    }

    /// Returns the memory for a body of a caller. The body waits for room for up to `patience`.
    pub fn body_room(&self, caller: u64, patience: Duration) -> BodyRoom<'_> {
        BodyRoom {
            memory: &self.body_memory,
            caller,
            patience,
            requests: self,
        }
    }

    /// Returns the number of bounded requests in flight.
    pub(crate) fn requests_in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl InFlightCounter for Dispatcher {
    fn request_ended(&self, operation: Operation) {
        if is_bounded(operation) {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        self.metrics.end_request(operation);
    }

    fn gives_way(&self) -> bool {
        let max = self.limits.requests_in_flight_max;
        self.requests_in_flight() >= max - max / CROWD_PARTS && {
            let one_less = |wanted: usize| wanted.checked_sub(1);
            let taken =
                self.places_wanted
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
            taken.is_ok()
        }
    }
}

/// Returns whether an operation counts towards the bound on requests in flight. Operators are let in
/// when services are not.
const fn is_bounded(operation: Operation) -> bool {
    !matches!(operation, Operation::Admin | Operation::Service)
}
