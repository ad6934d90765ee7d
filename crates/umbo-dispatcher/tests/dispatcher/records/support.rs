//! Dispatchers on one store, each with a way of its own to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use umbo_admin::Service;
use umbo_bulk::Bulk;
use umbo_control::ControlError;
use umbo_control::auth::TokenRegistry;
use umbo_control::policies::FilePolicies;
use umbo_dispatcher::{Dispatcher, DispatcherLimits, DispatcherParts, LowPriority};
use umbo_quota::{Limiter, LimiterSettings, PolicySet, Weights};
use umbo_store::{ManualClock, MemoryStore};
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, Timestamp};

use crate::records::store::FaultyStore;

/// What all dispatchers of a case share.
pub(crate) struct Site {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
}

/// One dispatcher.
pub(crate) struct TestDispatcher {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) store: Arc<FaultyStore>,
    service: Service,
    token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) bytes: Bytes,
}

impl Answer {
    /// Asserts that this is a problem of a code, and returns its detail.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.body["type"], format!("/v1/errors/{code}"), "{self:?}");
        self.body["detail"].as_str().unwrap().to_owned()
    }

    /// Asserts that nothing was applied, and that the answer says so.
    pub(crate) fn not_applied(&self) {
        assert_eq!(self.body["outcome"], "not-applied", "{self:?}");
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
        let store = MemoryStore::new(4, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        Self {
            store: Arc::new(store),
            clock,
        }
    }

    pub(crate) async fn pod(&self) -> TestDispatcher {
        self.try_pod(FaultyStore::new(&self.store)).await.unwrap()
    }

    pub(crate) async fn try_pod(
        &self,
        store: Arc<FaultyStore>,
    ) -> Result<TestDispatcher, ControlError> {
        self.pod_by(store, &self.clock).await
    }

    /// Returns a dispatcher with a clock of its own.
    pub(crate) async fn pod_with_clock(&self, clock: &Arc<ManualClock>) -> TestDispatcher {
        let store = FaultyStore::new(&self.store);
        self.pod_by(store, clock).await.unwrap()
    }

    async fn pod_by(
        &self,
        store: Arc<FaultyStore>,
        clock: &Arc<ManualClock>,
    ) -> Result<TestDispatcher, ControlError> {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max: 1_024,
            buckets_max: 1_024,
            shards: 4,
            seed: 7,
        };
        let limiter = Limiter::new(settings, PolicySet::built_in(), clock.monotonic());
        let code = Code {
            name: "any",
            kind: "refused",
        };
        let codes = vec![code; umbo_api::ErrorCode::ALL.len()];
        let dispatcher = Dispatcher::open(DispatcherParts {
            store: Arc::clone(&store) as _,
            clock: Arc::clone(&clock),
            tokens: Arc::new(TokenRegistry::new().unwrap()),
            quota: Arc::new(limiter),
            policies: FilePolicies::default(),
            hot_keys: None,
            overload: None,
            metrics: Arc::new(RequestMetrics::new(codes, 2)),
            tracer: Arc::new(Tracer::disabled(clock)),
            long_reads: LowPriority::default(),
            limits: DispatcherLimits {
                requests_in_flight_max: 100,
                body_memory_max: 8 << 20,
                answer_memory_max: 256 << 20,
                body_timeout: Duration::from_secs(5),
                default_timeout: Duration::from_secs(5),
                records_stale_max: Duration::from_hours(24),
                request_cost_max: umbo_types::RequestUnits::from_micros(u64::MAX),
            },
            config_text: String::new(),
        })
        .await?;
        Ok(TestDispatcher {
            service: Service::data(&Bulk::new(&dispatcher)),
            dispatcher,
            store,
            token: None,
        })
    }
}

impl TestDispatcher {
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self {
            dispatcher: Arc::clone(&self.dispatcher),
            store: Arc::clone(&self.store),
            service: self.service.clone(),
            token: Some(token.to_owned()),
        }
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        self.send(request, body).await
    }

    /// Asks with header fields.
    pub(crate) async fn ask_with(
        &self,
        (method, path): (&str, &str),
        fields: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let with = |request: http::request::Builder, (name, value): &(&str, &str)| {
            request.header(*name, *value)
        };
        self.send(fields.iter().fold(request, with), body).await
    }

    /// Uploads a part of a load.
    pub(crate) async fn upload(&self, path: &str, lines: &str) -> Answer {
        let fields = [("content-type", "application/x-ndjson")];
        self.ask_with(("PUT", path), &fields, lines).await
    }

    async fn send(&self, mut request: http::request::Builder, body: &str) -> Answer {
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let (head, body) = self.service.answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status.as_u16(),
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            bytes,
        }
    }

    pub(crate) async fn create(&self, namespace: &str) -> u64 {
        let answer = self.ask("PUT", &path(namespace), "").await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.body["id"].as_u64().unwrap()
    }

    pub(crate) async fn remove(&self, namespace: &str) -> Answer {
        self.ask("DELETE", &path(namespace), "").await
    }

    /// Returns what the list says of a namespace.
    pub(crate) async fn listed(&self, namespace: &str) -> Option<Value> {
        let answer = self.ask("GET", "/admin/v1/namespaces", "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let all = answer.body["namespaces"].as_array().unwrap().clone();
        all.into_iter().find(|info| info["name"] == namespace)
    }

    pub(crate) async fn put_row(&self, namespace: &str, key: &str, value: &str) -> Answer {
        let path = format!("/v1/ns/{namespace}/kv/{key}");
        self.ask("PUT", &path, value).await
    }

    pub(crate) async fn get_row(&self, namespace: &str, key: &str) -> Answer {
        let path = format!("/v1/ns/{namespace}/kv/{key}");
        self.ask("GET", &path, "").await
    }

    pub(crate) async fn follow(&self) {
        self.dispatcher.control.follow_records().await.unwrap();
    }

    /// Returns the revision in effect, as the metrics tell it.
    pub(crate) async fn revision(&self) -> u64 {
        let text = self.ask("GET", "/admin/v1/metrics", "").await.bytes;
        let text = String::from_utf8(text.to_vec()).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("umbo_records_revision "));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }
}

pub(crate) fn path(namespace: &str) -> String {
    format!("/admin/v1/namespaces/{namespace}")
}
