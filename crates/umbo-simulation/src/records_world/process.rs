//! A dispatcher as a process: start, loops, end, and requests to it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tokio::task::JoinHandle;
use umbo_admin::{FleetPlace, FleetView, PRESENCE_INTERVAL, Service};
use umbo_api::fleet::ProcessInfo;
use umbo_bulk::Bulk;
use umbo_control::auth::TokenRegistry;
use umbo_control::policies::FilePolicies;
use umbo_dispatcher::{Dispatcher, DispatcherLimits, DispatcherParts, LowPriority};
use umbo_quota::{Limiter, LimiterSettings, PolicySet, Weights};
use umbo_store::Store;
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_telemetry::trace::Tracer;
use umbo_types::Clock;

use super::ways::PeerWays;
use crate::simulation::{met, note};

/// Timeout of a client's request.
const PATIENCE: Duration = Duration::from_secs(12);

/// Time in which every dispatcher must see a change while nothing fails: a second, and the intervals of the
/// loops.
pub(super) const LEARNED_WITHIN: Duration = Duration::from_millis(2_500);

/// A process that serves, or is being opened.
#[derive(Debug)]
struct Running {
    dispatcher: Arc<Dispatcher>,
    service: Service,
    is_dead: Arc<AtomicBool>,
    following: JoinHandle<()>,
    loading: JoinHandle<()>,
    announcing: JoinHandle<()>,
    /// Shares quotas with the others.
    counting: JoinHandle<()>,
    address: String,
}

/// A dispatcher that is started again when it ends.
#[derive(Debug, Default)]
pub(crate) struct Process {
    running: RefCell<Option<Running>>,
    /// How often it was opened.
    opened: Cell<u64>,
    /// Its ways to the others; by default it reaches itself alone.
    ways: Arc<PeerWays>,
}

/// An answer to a client.
#[derive(Debug, Clone)]
pub(crate) struct ProcessAnswer {
    pub(crate) status: StatusCode,
    pub(crate) etag: Option<u64>,
    pub(crate) body: Bytes,
}

/// Whether a change took effect, by its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Refused,
    Unknown,
}

impl ProcessAnswer {
    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns the code of a problem; empty for another answer.
    pub(crate) fn code(&self) -> String {
        let json = self.json();
        let uri = json["type"].as_str().unwrap_or_default();
        uri.trim_start_matches("/v1/errors/").to_owned()
    }

    /// Returns whether the change took effect.
    pub(crate) fn told(&self) -> Told {
        if self.status.is_success() {
            return Told::Done;
        }
        let json = self.json();
        // Without an outcome, a client relies on whether it may retry.
        let is_refused = json["outcome"].as_str().map_or_else(
            || json["retry"]["safe"] == true || self.status.is_client_error(),
            |outcome| outcome == "not-applied",
        );
        if is_refused {
            Told::Refused
        } else {
            Told::Unknown
        }
    }
}

impl Process {
    /// Makes a process that reaches the others with the same ways.
    pub(super) fn among(ways: &Arc<PeerWays>) -> Self {
        Self {
            ways: Arc::clone(ways),
            ..Self::default()
        }
    }

    /// Opens the dispatcher of a number on a store. Returns whether it serves.
    pub(crate) async fn open(
        &self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        is_dead: Arc<AtomicBool>,
        (number, refresh): (usize, Duration),
    ) -> bool {
        self.kill();
        let opening = Dispatcher::open(parts(store, clock));
        let opened = tokio::time::timeout(PATIENCE, opening).await;
        let Ok(Ok(dispatcher)) = opened else {
            met("dispatcher that does not open");
            is_dead.store(true, Ordering::Relaxed);
            return false;
        };
        let bulk = Bulk::new(&dispatcher);
        let (following, loading) = loops(&bulk, refresh);
        self.opened.set(self.opened.get() + 1);
        let address = format!("dispatcher-{number}:{}", self.opened.get());
        let place = FleetPlace {
            id: (number as u64 + 1) << 32 | self.opened.get(),
            address: address.clone(),
            connector: Arc::<PeerWays>::clone(&self.ways),
        };
        let fleet = Service::join_fleet(&bulk, Some(place), ProcessInfo::default());
        self.ways.open(address.clone(), &fleet);
        self.running.replace(Some(Running {
            service: Service::data(&bulk).with_fleet(&fleet),
            address,
            announcing: tokio::spawn(announce(Arc::clone(&fleet))),
            counting: tokio::spawn(async move { fleet.share_quotas().await }),
            dispatcher,
            is_dead,
            following,
            loading,
        }));
        true
    }

    /// Returns whether the process runs.
    pub(crate) fn is_open(&self) -> bool {
        self.running.borrow().is_some()
    }

    /// Begins to stop the process in order: it still serves, and lets the loads go that it runs.
    pub(crate) fn begin_drain(&self) {
        if let Some(running) = &*self.running.borrow() {
            running.dispatcher.begin_drain();
        }
    }

    /// Returns whether its runner of loads has ended by itself.
    pub(crate) fn has_let_loads_go(&self) -> bool {
        let running = self.running.borrow();
        running
            .as_ref()
            .is_some_and(|one| one.loading.is_finished())
    }

    /// Ends the process as `kill -9` does.
    pub(crate) fn kill(&self) {
        if let Some(running) = self.running.replace(None) {
            running.is_dead.store(true, Ordering::Relaxed);
            running.following.abort();
            running.loading.abort();
            running.announcing.abort();
            running.counting.abort();
            self.ways.close(&running.address);
        }
    }

    /// Sends a request to the dispatcher. None if the dispatcher ended, or did not answer in time.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> Option<ProcessAnswer> {
        let (service, is_dead) = {
            let running = self.running.borrow();
            let running = running.as_ref()?;
            (running.service.clone(), Arc::clone(&running.is_dead))
        };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.expect("the simulation asks well-formed requests");
        let answering = async {
            let (head, body) = service.answer(request).await.into_parts();
            // A piece that is kept holds its memory, as one does that a client has not read.
            let mut read = BytesMut::new();
            let mut body = std::pin::pin!(body);
            while let Some(frame) = body.frame().await {
                read.extend_from_slice(frame.ok()?.data_ref().map_or(&[], |data| &data[..]));
            }
            let etag = head.headers.get("etag").and_then(|tag| tag.to_str().ok());
            let etag = etag.and_then(|tag| tag.trim_matches('"').parse().ok());
            Some(ProcessAnswer {
                status: head.status,
                etag,
                body: read.freeze(),
            })
        };
        let answer = tokio::time::timeout(PATIENCE, answering).await;
        if is_dead.load(Ordering::Relaxed) {
            note!("{method} {path}: the dispatcher was killed");
            return None;
        }
        let Ok(answer) = answer else {
            met("request without an answer");
            note!("{method} {path}: no answer");
            return None;
        };
        answer
    }
}

/// Starts the background tasks of a server. `follow` is the interval at which it checks the records.
fn loops(bulk: &Arc<Bulk>, follow: Duration) -> (JoinHandle<()>, JoinHandle<()>) {
    let (following, loading) = (Arc::clone(bulk.dispatcher()), Arc::clone(bulk));
    (
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(follow).await;
                // A failure is tried again.
                let _ = following.control.follow_records().await;
                following.maintain();
                following.tick();
            }
        }),
        tokio::spawn(async move { loading.run(&LowPriority::default()).await }),
    )
}

/// Keeps the presence of a dispatcher, as a server does.
async fn announce(fleet: Arc<FleetView>) {
    loop {
        fleet.announce().await;
        tokio::time::sleep(PRESENCE_INTERVAL).await;
    }
}

fn parts(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> DispatcherParts {
    let settings = LimiterSettings {
        weights: Weights::default(),
        accounts_max: 1_024,
        buckets_max: 1_024,
        shards: store.shard_map().shards() as u16,
        seed: 7,
    };
    let limiter = Limiter::new(settings, PolicySet::built_in(), clock.monotonic());
    let code = Code {
        name: "any",
        kind: "refused",
    };
    let codes = vec![code; umbo_api::ErrorCode::ALL.len()];
    DispatcherParts {
        store,
        clock: Arc::clone(&clock),
        tokens: Arc::new(TokenRegistry::new().expect("a registry begins empty")),
        quota: Arc::new(limiter),
        policies: FilePolicies::default(),
        hot_keys: None,
        overload: None,
        metrics: Arc::new(RequestMetrics::new(codes, 2)),
        tracer: Arc::new(Tracer::disabled(clock)),
        long_reads: LowPriority::default(),
        limits: DispatcherLimits {
            requests_in_flight_max: 1_000,
            body_memory_max: 16 << 20,
            answer_memory_max: 16 << 20,
            body_timeout: Duration::from_secs(5),
            default_timeout: Duration::from_secs(10),
            records_stale_max: Duration::from_hours(1),
            request_cost_max: umbo_types::RequestUnits::from_micros(u64::MAX),
        },
        config_text: String::new(),
    }
}
