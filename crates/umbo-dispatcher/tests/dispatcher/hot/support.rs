//! Pods on one store, and short words for what the cases ask of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use umbo_admin::Service;
use umbo_bulk::Bulk;
use umbo_control::auth::TokenRegistry;
use umbo_control::policies::FilePolicies;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_dispatcher::{Dispatcher, DispatcherLimits, DispatcherParts, LowPriority};
use umbo_hotkey::{KeySeed, ShieldSettings};
use umbo_quota::{Limiter, LimiterSettings, PolicySet, Weights};
use umbo_store::{ManualClock, MemoryStore, Store};
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, Timestamp};

/// What all pods of a case share.
pub(crate) struct Site {
    store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
}

/// One pod.
pub(crate) struct TestDispatcher {
    pub(crate) dispatcher: Arc<Dispatcher>,
    service: Service,
    token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
    pub(crate) body: Value,
}

impl Answer {
    /// Asserts that this is a problem of a code, and returns its detail.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.body["type"], format!("/v1/errors/{code}"), "{self:?}");
        self.body["detail"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
        let store = MemoryStore::new(3, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        Self {
            store: Arc::new(store),
            clock,
        }
    }

    /// Starts a pod with a seed of its own.
    pub(crate) async fn pod(&self, seed: u64) -> TestDispatcher {
        self.pod_with(Some(ShieldSettings::new(2, KeySeed::new(seed))))
            .await
    }

    pub(crate) async fn pod_with(&self, hot_keys: Option<ShieldSettings>) -> TestDispatcher {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max: 1_024,
            buckets_max: 1_024,
            shards: 3,
            seed: 7,
        };
        let limiter = Limiter::new(settings, PolicySet::built_in(), clock.monotonic());
        let code = Code {
            name: "any",
            kind: "refused",
        };
        let codes = vec![code; umbo_api::ErrorCode::ALL.len()];
        let dispatcher = Dispatcher::open(DispatcherParts {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&clock),
            tokens: Arc::new(TokenRegistry::new().unwrap()),
            quota: Arc::new(limiter),
            policies: FilePolicies::default(),
            hot_keys,
            overload: Some(OverloadSettings::default()),
            metrics: Arc::new(RequestMetrics::new(codes, 2)),
            tracer: Arc::new(Tracer::disabled(clock)),
            long_reads: LowPriority::default(),
            limits: DispatcherLimits {
                requests_in_flight_max: 100,
                body_memory_max: 1 << 20,
                answer_memory_max: 256 << 20,
                body_timeout: Duration::from_secs(5),
                default_timeout: Duration::from_secs(5),
                records_stale_max: Duration::from_hours(24),
                request_cost_max: umbo_types::RequestUnits::from_micros(u64::MAX),
            },
            config_text: String::new(),
        });
        let dispatcher = dispatcher.await.unwrap();
        TestDispatcher {
            service: Service::data(&Bulk::new(&dispatcher)),
            dispatcher,
            token: None,
        }
    }

    /// Lets time pass, as the pods see it.
    pub(crate) fn pass(&self, time: Duration, pods: &[&TestDispatcher]) {
        self.clock.advance(time);
        for pod in pods {
            pod.dispatcher.tick();
            pod.dispatcher.maintain();
        }
    }
}

impl TestDispatcher {
    /// Returns the same pod, asked with a token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self {
            dispatcher: Arc::clone(&self.dispatcher),
            service: self.service.clone(),
            token: Some(token.to_owned()),
        }
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        self.ask_with(method, path, &[], body).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let (head, body) = self.service.answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            bytes,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "").await
    }

    pub(crate) async fn create(&self, namespace: &str) {
        let path = format!("/admin/v1/namespaces/{namespace}");
        assert_eq!(self.ask("PUT", &path, "").await.status, 201);
    }

    /// Puts a key, named as the path after the list, on a list.
    pub(crate) async fn list(&self, list: &str, key: &str, body: &str) -> Answer {
        let path = format!("/admin/v1/hot/{list}/{key}");
        self.ask("PUT", &path, body.to_owned()).await
    }

    pub(crate) async fn unlist(&self, list: &str, key: &str) -> Answer {
        self.ask("DELETE", &format!("/admin/v1/hot/{list}/{key}"), "")
            .await
    }

    /// Returns the keys of the report.
    pub(crate) async fn keys(&self) -> Vec<Value> {
        let report = self.get("/admin/v1/hot").await;
        assert_eq!(report.status, 200, "{report:?}");
        report.body["keys"].as_array().unwrap().clone()
    }

    pub(crate) async fn refresh(&self) {
        self.dispatcher.control.refresh().await.unwrap();
    }
}
