//! A pod of four shards with the namespace `listings`, and answers as a client reads them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use umbo_admin::Service;
use umbo_api::quota::{PolicySource, PolicySpec};
use umbo_api::{ErrorCode, Problem};
use umbo_bulk::Bulk;
use umbo_control::auth::TokenRegistry;
use umbo_control::policies::FilePolicies;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_dispatcher::{Dispatcher, DispatcherLimits, DispatcherParts, LowPriority};
use umbo_edge::body::ReplyBody;
use umbo_hotkey::ShieldSettings;
use umbo_quota::{Limiter, LimiterSettings, Policy, PolicySet, UsageReport, Weights};
use umbo_store::ManualClock;
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, RequestUnits, Timestamp};

use crate::cost::store::TestStore;

pub(crate) const SHARDS: u16 = 4;

pub(crate) struct TestDispatcher {
    pub(crate) data: Service,
    pub(crate) admin: Service,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) quota: Arc<Limiter>,
    pub(crate) store: Arc<TestStore>,
    pub(crate) clock: Arc<ManualClock>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the body was cut off.
    pub(crate) is_cut: bool,
}

impl TestDispatcher {
    /// Opens a pod with these policies beside those built in.
    pub(crate) async fn open(specs: &[PolicySpec]) -> Self {
        Self::open_with(specs, None).await
    }

    /// Opens one that also keeps its shards from overload.
    pub(crate) async fn open_with(
        specs: &[PolicySpec],
        overload: Option<OverloadSettings>,
    ) -> Self {
        Self::open_all(specs, overload, None).await
    }

    /// Opens one that also shares reads of one key.
    pub(crate) async fn open_all(
        specs: &[PolicySpec],
        overload: Option<OverloadSettings>,
        hot_keys: Option<ShieldSettings>,
    ) -> Self {
        Self::open_parts(specs, overload, hot_keys, LowPriority::default()).await
    }

    /// Opens one that has threads for long reads.
    pub(crate) async fn open_with_threads() -> Self {
        let threads = LowPriority::for_long_reads(1).unwrap();
        Self::open_parts(&[], None, None, threads).await
    }

    async fn open_parts(
        specs: &[PolicySpec],
        overload: Option<OverloadSettings>,
        hot_keys: Option<ShieldSettings>,
        long_reads: LowPriority,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_800_000_000_000)));
        let store = Arc::new(TestStore::new(SHARDS, clock.clone()));
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max: 1_024,
            buckets_max: 1_024,
            shards: SHARDS,
            seed: 7,
        };
        let built_in = PolicySet::built_in();
        let quota = Arc::new(Limiter::new(settings, built_in, clock.monotonic()));
        let code = |code: &ErrorCode| Code {
            name: code.as_str(),
            kind: code.kind().as_str(),
        };
        let codes: Vec<Code> = ErrorCode::ALL.iter().map(code).collect();
        let pod = Dispatcher::open(DispatcherParts {
            store: store.clone(),
            clock: clock.clone(),
            tokens: Arc::new(TokenRegistry::new().unwrap()),
            quota: quota.clone(),
            policies: FilePolicies::default(),
            hot_keys,
            overload,
            metrics: Arc::new(RequestMetrics::new(codes, 2)),
            tracer: Arc::new(Tracer::disabled(clock.clone())),
            long_reads,
            limits: DispatcherLimits {
                requests_in_flight_max: 1_000,
                body_memory_max: 64 << 20,
                answer_memory_max: 256 << 20,
                body_timeout: Duration::from_secs(10),
                default_timeout: Duration::from_secs(10),
                records_stale_max: Duration::from_hours(24),
                request_cost_max: RequestUnits::from_micros(u64::MAX),
            },
            config_text: String::new(),
        });
        let pod = pod.await.unwrap();
        quota.replace(policies(specs));
        let pod = Self {
            data: Service::data(&Bulk::new(&pod)),
            admin: Service::admin(&Bulk::new(&pod)),
            dispatcher: pod,
            quota,
            store,
            clock,
        };
        let made = pod.ask("PUT", "/admin/v1/namespaces/listings", &[], "");
        assert_eq!(made.await.status, 201);
        pod
    }

    /// Sends a request to the data port and reads the answer to its end.
    pub(crate) async fn ask(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let request = request(method, target, fields, body.into());
        Reply::read(self.data.answer(request).await).await
    }

    /// Reads an answer; does something once its first piece is there.
    pub(crate) async fn ask_and_then(&self, target: &str, then: impl FnOnce()) -> Reply {
        let request = request("GET", target, &[], Bytes::new());
        let (head, mut body) = self.data.answer(request).await.into_parts();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        then();
        let rest = Reply::read(Response::from_parts(head, body)).await;
        Reply {
            body: [first, rest.body.clone()].concat().into(),
            ..rest
        }
    }

    /// Sends a request and leaves while the store is asked for the rows.
    pub(crate) fn ask_and_leave(&self, method: &str, target: &str, body: &'static str) {
        use futures_util::FutureExt as _;
        self.store.set_hangs(true);
        let request = request(method, target, &[], body.into());
        let left = self.data.answer(request).now_or_never();
        assert!(left.is_none(), "{method} {target} was answered");
        self.store.set_hangs(false);
    }

    /// Makes a token; returns the value of `Authorization`.
    pub(crate) async fn token(&self, by: &str, name: &str, grants: &[&str]) -> String {
        let body = serde_json::json!({"name": name, "grants": grants}).to_string();
        let fields: &[_] = if by.is_empty() {
            &[]
        } else {
            &[("authorization", by)]
        };
        let made = self.ask("POST", "/admin/v1/tokens", fields, body).await;
        assert_eq!(made.status, 201, "{made:?}");
        format!("Bearer {}", made.json()["token"].as_str().unwrap())
    }

    /// Returns the scrape of the admin port.
    pub(crate) async fn scrape(&self) -> String {
        let request = request("GET", "/metrics", &[], Bytes::new());
        let reply = Reply::read(self.admin.answer(request).await).await;
        String::from_utf8(reply.body.to_vec()).unwrap()
    }

    /// Returns all that was charged, as the ledger has it.
    pub(crate) fn ledger(&self) -> RequestUnits {
        charged(&self.quota.usage())
    }
}

pub(crate) fn charged(usage: &UsageReport) -> RequestUnits {
    let rows = usage.rows.iter().map(|row| row.tally.charged);
    rows.fold(RequestUnits::ZERO, RequestUnits::saturating_add)
}

/// Makes a policy by callers that counts request units.
pub(crate) fn by_caller(name: &str, rate: &str, burst: &str) -> PolicySpec {
    PolicySpec {
        per: vec!["caller".to_owned()],
        burst: Some(burst.into()),
        ..PolicySpec::new(name, "ru", rate)
    }
}

fn policies(specs: &[PolicySpec]) -> PolicySet {
    let built_in = PolicySet::built_in();
    let written = specs.iter();
    let written = written.map(|spec| Policy::parse(spec, PolicySource::File).unwrap());
    let built_in = built_in.iter().map(|policy| (**policy).clone());
    PolicySet::new(built_in.chain(written).collect()).unwrap()
}

fn request(
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: Bytes,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).unwrap()
}

impl Reply {
    async fn read(response: Response<ReplyBody>) -> Self {
        let (head, mut body) = response.into_parts();
        let (mut bytes, mut is_cut) = (Vec::new(), false);
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap()),
                Err(_) => is_cut = true,
            }
        }
        Self {
            status: StatusCode::as_u16(&head.status),
            headers: head.headers,
            body: bytes.into(),
            is_cut,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// What `Umbo-RU` says.
    pub(crate) fn ru(&self) -> &str {
        self.header("umbo-ru").expect("Umbo-RU is on every answer")
    }

    pub(crate) fn units(&self) -> RequestUnits {
        self.ru().parse().unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn problem(&self) -> Problem {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The last line.
    pub(crate) fn last_line(&self) -> Value {
        let text = std::str::from_utf8(&self.body).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}
