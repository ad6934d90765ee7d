//! Pods on one store, and short words for what the cases ask of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use umbo_admin::Service;
use umbo_bulk::Bulk;
use umbo_control::ControlError;
use umbo_control::auth::TokenRegistry;
use umbo_control::policies::FilePolicies;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_dispatcher::{Dispatcher, DispatcherLimits, DispatcherParts, LowPriority};
use umbo_quota::{Limiter, LimiterSettings, PolicySet, Weights};
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, Durability, ManualClock, MemoryStore,
    Mutation, ScanRequest, Store, WriteRequest,
};
use umbo_telemetry::metrics::{Code, RequestMetrics};
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, Key, NamespaceId, Timestamp, Value as StoredValue, Version};

use crate::quotas::slow_store::SlowStore;

/// What all pods of a case share.
pub(crate) struct Site {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
    /// Accounts that the limiter of a pod has room for.
    pub(crate) accounts_max: usize,
    pub(crate) folder: tempfile::TempDir,
}

/// One pod.
pub(crate) struct TestDispatcher {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) limiter: Arc<Limiter>,
    service: Service,
}

/// An answer of the admin API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// Returns the tag, which must be there.
    pub(crate) fn tag(&self) -> String {
        let tag = self.headers.get("etag");
        let tag = tag.unwrap_or_else(|| panic!("no ETag: {self:?}"));
        tag.to_str().unwrap().to_owned()
    }

    /// Asserts that this is a problem of a code, and returns its detail.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.body["type"], format!("/v1/errors/{code}"), "{self:?}");
        self.body["detail"].as_str().unwrap().to_owned()
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
        let store = MemoryStore::new(3, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        Self {
            store: Arc::new(SlowStore(store)),
            clock,
            accounts_max: 1_024,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) async fn pod(&self) -> TestDispatcher {
        self.pod_with(FilePolicies::default()).await
    }

    /// Starts a pod with a policy file of this text.
    pub(crate) async fn pod_with_file(&self, text: &str) -> TestDispatcher {
        self.pod_with(self.file(text)).await
    }

    /// Reads policies from a file of this text.
    pub(crate) fn file(&self, text: &str) -> FilePolicies {
        let path = self.folder.path().join("quotas.toml");
        std::fs::write(&path, text).unwrap();
        FilePolicies::read(&path).unwrap()
    }

    /// Returns why a file of this text is refused.
    pub(crate) fn file_refusal(&self, text: &str) -> String {
        let path = self.folder.path().join("quotas.toml");
        std::fs::write(&path, text).unwrap();
        FilePolicies::read(&path).unwrap_err().to_string()
    }

    pub(crate) async fn pod_with(&self, policies: FilePolicies) -> TestDispatcher {
        self.try_pod_with(policies).await.unwrap()
    }

    /// Starts a pod, or returns why that is refused.
    pub(crate) async fn try_pod_with(
        &self,
        policies: FilePolicies,
    ) -> Result<TestDispatcher, ControlError> {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max: self.accounts_max,
            buckets_max: self.accounts_max,
            shards: 3,
            seed: 7,
        };
        let limiter = Limiter::new(settings, PolicySet::built_in(), clock.monotonic());
        let limiter = Arc::new(limiter);
        let code = Code {
            name: "any",
            kind: "refused",
        };
        let codes = vec![code; umbo_api::ErrorCode::ALL.len()];
        let dispatcher = Dispatcher::open(DispatcherParts {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&clock),
            tokens: Arc::new(TokenRegistry::new().unwrap()),
            quota: Arc::clone(&limiter),
            policies,
            hot_keys: None,
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
        let dispatcher = dispatcher.await?;
        Ok(TestDispatcher {
            limiter,
            service: Service::admin(&Bulk::new(&dispatcher)),
            dispatcher,
        })
    }

    /// Returns all rows of Umbo's own.
    pub(crate) async fn records(&self) -> Vec<(Key, Bytes)> {
        let request = ScanRequest {
            namespace: NamespaceId::SYSTEM,
            slots: 0..=umbo_types::limits::SLOTS - 1,
            after: None,
            rows_max: 10_000,
            bytes_max: 1 << 20,
            keys_only: false,
        };
        let call = CallContext::internal();
        let rows = self.store.scan_all(&call, &request).await.unwrap();
        let copy = Bytes::copy_from_slice;
        let row = |row: umbo_store::RowRef<'_>| {
            let key = Key::new(copy(row.partition), copy(row.sort)).unwrap();
            (key, copy(row.value))
        };
        rows.iter().map(row).collect()
    }

    /// Writes a content into the record of a policy, or removes it, as a server of another version may.
    pub(crate) async fn spoil(&self, name: &str, content: Option<&[u8]>) {
        let records = self.records().await;
        let head = records
            .iter()
            .find(|(key, _)| key.sort.as_bytes() == b"head");
        let (head, text) = head.unwrap();
        let mut text: Value = serde_json::from_slice(text).unwrap();
        text["number"] = json!(text["number"].as_u64().unwrap() + 1);
        let partition = Bytes::copy_from_slice(head.partition.as_bytes());
        let spoilt = Key::new(partition, format!("quota/{name}")).unwrap();
        let head_content = text.to_string().into_bytes();
        let mutations = [(spoilt, content), (head.clone(), Some(&head_content[..]))];
        let mutations = mutations.map(|(key, content)| Mutation {
            key,
            change: content.map_or(Change::Delete, |content| Change::Put {
                value: StoredValue {
                    bytes: Bytes::copy_from_slice(content),
                    ..StoredValue::default()
                },
                expires_at: None,
            }),
            condition: Condition::Always,
        });
        let request = WriteRequest {
            namespace: NamespaceId::SYSTEM,
            epoch: 0,
            mutations: mutations.into(),
            atomicity: Atomicity::Partition,
            durability: Durability::Sync,
            proposed: Version::proposed_at(self.clock.wall()),
            idempotency: None,
            not_before: None,
            run: None,
        };
        let written = self
            .store
            .write_rows(&CallContext::internal(), request)
            .await;
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }
}

impl TestDispatcher {
    /// Returns the same pod, to be asked on its data port.
    pub(crate) fn on_data_port(&self) -> Self {
        Self {
            dispatcher: Arc::clone(&self.dispatcher),
            limiter: Arc::clone(&self.limiter),
            service: Service::data(&Bulk::new(&self.dispatcher)),
        }
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let (head, body) = self.service.answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Answer {
        self.ask("GET", &format!("/admin/v1/quotas/{name}"), &[], "")
            .await
    }

    /// Stores a policy, in the place of the stored one of its name if there is one.
    pub(crate) async fn put(&self, policy: &Value) -> Answer {
        let stored = self.get(policy["name"].as_str().unwrap()).await;
        let tag = stored.headers.get("etag").map(|tag| tag.to_str().unwrap());
        let condition = tag.map(|tag| ("if-match", tag));
        self.put_if(policy, condition.as_slice()).await
    }

    pub(crate) async fn put_if(&self, policy: &Value, headers: &[(&str, &str)]) -> Answer {
        let path = format!("/admin/v1/quotas/{}", policy["name"].as_str().unwrap());
        self.ask("PUT", &path, headers, policy.to_string()).await
    }

    pub(crate) async fn remove(&self, name: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask("DELETE", &format!("/admin/v1/quotas/{name}"), headers, "")
            .await
    }

    /// Returns the names of the policies in effect, with where each stands.
    pub(crate) async fn names(&self) -> Vec<(String, String)> {
        let answer = self.ask("GET", "/admin/v1/quotas", &[], "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let policies = answer.body["policies"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let names: Vec<_> = policies
            .map(|info| (text(&info["policy"]["name"]), text(&info["source"])))
            .collect();
        // What is shown is what decides.
        let set = self.limiter.policies();
        let deciding = set.iter().map(|policy| policy.name.to_string());
        assert_eq!(
            deciding.collect::<Vec<_>>(),
            names
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        );
        names
    }

    pub(crate) async fn refresh(&self) {
        self.dispatcher.control.refresh().await.unwrap();
    }
}

/// A policy of so many request units a second for each caller.
pub(crate) fn policy(name: &str, rate: u64) -> Value {
    json!({"name": name, "per": ["caller"], "unit": "ru", "rate": rate})
}

/// Pairs of names and sources, to compare with.
pub(crate) fn names(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |&(name, source): &(&str, &str)| (name.to_owned(), source.to_owned());
    pairs.iter().map(owned).collect()
}

pub(crate) const BUILT_IN: (&str, &str) = ("default-caller", "built-in");
