//! `umbo-loadtest counted`: answers of one kind, in this process and on one thread, for a tool that counts
//! instructions; it prints how often they asked for memory.
//!
//! Owns a dispatcher in which every answer of a kind takes the same way: its clock stands still, cached results stay
//! fresh, and tokens that are taken never come back. Sockets are not part of it. Each request is sent when the one
//! before has been answered.

mod store;

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::http::Request;
use clap::{Args, ValueEnum};
use umbo_admin::Service;
use umbo_bulk::Bulk;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_hotkey::{KeySeed, ShieldSettings};
use umbo_overload::{LimitSettings, QueueSettings};
use umbo_types::{Clock, Timestamp};

use self::store::OpenStore;
use crate::allocations;
use crate::failure::Failure;
use crate::modelled::{FOR_EVER, Model};

/// Keys that are asked for in turn by all kinds, so that the cost of asking is the same.
const KEYS: u32 = 8;
/// Rows of the partition that ranges and multi-gets read.
pub(crate) const ROWS_MAX: u32 = 128;
/// Length of a value, in bytes.
const VALUE_LEN: usize = 256;
/// More than the log of a shard takes.
const LONG_LEN: usize = 32 << 10;

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Gets of a few keys, by the store
    Get,
    /// Puts of a few keys
    Put,
    /// Ranges
    Range,
    /// Multi-gets
    MultiGet,
    /// Gets of a few keys, from the local cache
    Hit,
    /// Gets whose quota is used up
    Rejected,
    /// Gets that find the queue of their shard full
    ShedGet,
    /// Puts that find the queue of their shard full
    ShedPut,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Range => "range",
            Self::MultiGet => "multi-get",
            Self::Hit => "hit",
            Self::Rejected => "rejected",
            Self::ShedGet => "shed-get",
            Self::ShedPut => "shed-put",
        }
    }

    const fn is_shed(self) -> bool {
        matches!(self, Self::ShedGet | Self::ShedPut)
    }
}

/// Arguments of `umbo-loadtest counted`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What is answered
    #[arg(value_enum)]
    kind: Kind,
    /// How often
    #[arg(long)]
    requests: u32,
    /// Rows of each range and multi-get
    #[arg(long, default_value_t = 10)]
    rows: u32,
    /// Rows are at a shard node, which is in this process too
    #[arg(long)]
    hop: bool,
}

/// A clock that stands still.
#[derive(Debug)]
struct Stopped(Instant);

impl Clock for Stopped {
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
    }

    fn monotonic(&self) -> Instant {
        self.0
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::io("cannot start the runtime"))?;
        // Far ahead, so that no deadline passes by the timers of the runtime, which do not stand still.
        let clock: Arc<dyn Clock> = Arc::new(Stopped(Instant::now() + FOR_EVER));
        let prepared = runtime.block_on(self.prepare(&clock))?;
        // Whatever is made at the first request of a kind is no part of an answer.
        runtime.block_on(self.ask(&prepared, 2 * KEYS))?;
        if self.kind == Kind::Put {
            // The log does not take so long a value: with it the file gets all rows, and no apply comes for a second.
            let long = "v".repeat(LONG_LEN);
            let written = put(&prepared.service, "/v1/ns/n/kv/long/1", &long, 201);
            runtime.block_on(written)?;
        }
        let (allocated, result) =
            allocations::count(|| runtime.block_on(self.ask(&prepared, self.requests)));
        println!("{allocated}");
        // The store is not closed: that would be counted, and nothing is to be kept.
        result
    }

    /// Opens the store and the dispatcher, and brings them into the state that the kind needs.
    async fn prepare(&self, clock: &Arc<dyn Clock>) -> Result<Prepared, Failure> {
        // Rows are in the file at once, as after an apply: one that came between two runs would count.
        let has_log = self.kind == Kind::Put;
        let store = match (self.kind.is_shed(), self.hop) {
            (true, _) => OpenStore::asleep(clock)?,
            (false, true) => OpenStore::remote(clock, has_log).await?,
            (false, false) => OpenStore::embedded(clock, has_log)?,
        };
        let service = Arc::new(Service::data(&Bulk::new(
            &self.model(&store, clock).pod().await?,
        )));
        put(&service, "/admin/v1/namespaces/n", "", 201).await?;
        if !self.kind.is_shed() {
            let value = "v".repeat(VALUE_LEN);
            for number in 0..ROWS_MAX {
                let path = format!("/v1/ns/n/kv/p/{number}");
                put(&service, &path, &value, 201).await?;
            }
        }
        match self.kind {
            Kind::Hit => {
                for number in 0..KEYS {
                    let path = format!("/admin/v1/hot/pinned{}", &path(number)["/v1".len()..]);
                    put(&service, &path, "", 201).await?;
                }
            }
            Kind::Rejected => {
                let policy = r#"{"name":"none","unit":"requests","rate":1,"burst":1,"match":{"operations":["get"]}}"#;
                put(&service, "/admin/v1/quotas/none", policy, 201).await?;
                // The last of these is rejected.
                for number in 0..2 {
                    let _ = self.answer(&service, &Bytes::new(), number).await?;
                }
            }
            Kind::ShedGet | Kind::ShedPut => {
                // One request in flight and one waiting are the maximum, of reads and of writes each.
                for name in ["taken", "waiting"] {
                    let service = Arc::clone(&service);
                    let method = self.method();
                    let path = format!("/v1/ns/n/kv/p/{name}");
                    tokio::spawn(async move {
                        let request = request(method, &path, "critical", Body::empty());
                        service.answer(request).await
                    });
                }
                tokio::task::yield_now().await;
            }
            Kind::Get | Kind::Put | Kind::Range | Kind::MultiGet => {}
        }
        let keys = (0..self.rows).map(|number| format!(r#"{{"pk":"p","sk":"{number}"}}"#));
        Ok(Prepared {
            service,
            keys: format!(r#"{{"keys":[{}]}}"#, keys.collect::<Vec<_>>().join(",")).into(),
            _store: store,
        })
    }

    fn model(&self, store: &OpenStore, clock: &Arc<dyn Clock>) -> Model {
        let mut queue = QueueSettings::default();
        if self.kind.is_shed() {
            queue.limit = LimitSettings {
                min: 1,
                max: 1,
                initial: 1,
            };
            queue.waiting_max = 1;
            queue.codel.target = FOR_EVER;
        }
        Model {
            store: Arc::clone(&store.store),
            clock: Arc::clone(clock),
            hot_keys: Some(ShieldSettings::new(1, KeySeed::new(1))),
            overload: Some(OverloadSettings {
                queue,
                ..OverloadSettings::default()
            }),
        }
    }

    /// Sends requests, each when the one before has been answered.
    async fn ask(&self, prepared: &Prepared, requests: u32) -> Result<(), Failure> {
        let expected = match self.kind {
            Kind::Get | Kind::Range | Kind::MultiGet | Kind::Hit => 200,
            Kind::Put => 204,
            Kind::Rejected => 429,
            Kind::ShedGet | Kind::ShedPut => 503,
        };
        for number in 0..requests {
            let (status, text) = self
                .answer(&prepared.service, &prepared.keys, number)
                .await?;
            if status != expected {
                return Err(unexpected(self.kind.as_str(), status, &text));
            }
        }
        Ok(())
    }

    const fn method(&self) -> &'static str {
        match self.kind {
            Kind::Get | Kind::Hit | Kind::Rejected | Kind::ShedGet | Kind::Range => "GET",
            Kind::Put | Kind::ShedPut => "PUT",
            Kind::MultiGet => "POST",
        }
    }

    /// Answers one request, and reads the answer to its end.
    async fn answer(
        &self,
        service: &Service,
        keys: &Bytes,
        number: u32,
    ) -> Result<(u16, Bytes), Failure> {
        let (path, body) = match self.kind {
            Kind::Range => (
                format!("/v1/ns/n/range/p?limit={}", self.rows),
                Body::empty(),
            ),
            Kind::MultiGet => ("/v1/ns/n/batch/get".to_owned(), Body::from(keys.clone())),
            Kind::Put => (path(number), Body::from("v".repeat(VALUE_LEN))),
            _ => (path(number), Body::empty()),
        };
        answer(service, request(self.method(), &path, "sheddable", body)).await
    }
}

/// What is asked.
struct Prepared {
    service: Arc<Service>,
    /// Body of a multi-get.
    keys: Bytes,
    /// Its folder is there for as long as it is.
    _store: OpenStore,
}

fn path(number: u32) -> String {
    format!("/v1/ns/n/kv/p/{}", number % KEYS)
}

fn request(method: &str, path: &str, tier: &str, body: Body) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("umbo-criticality", tier)
        .header("umbo-timeout-ms", "600000")
        .body(body)
        .expect("paths and headers of requests are valid")
}

async fn answer(service: &Service, request: Request<Body>) -> Result<(u16, Bytes), Failure> {
    let answer = service.answer(request).await;
    let status = answer.status().as_u16();
    let bytes = axum::body::to_bytes(Body::new(answer.into_body()), 1 << 20).await;
    let bytes = bytes.map_err(|error| Failure::WrongAnswer(error.to_string()))?;
    Ok((status, bytes))
}

/// Puts something that the requests need.
async fn put(service: &Service, path: &str, body: &str, status: u16) -> Result<(), Failure> {
    let request = request("PUT", path, "critical", Body::from(body.to_owned()));
    let (answered, text) = answer(service, request).await?;
    if answered == status {
        Ok(())
    } else {
        Err(unexpected(path, answered, &text))
    }
}

fn unexpected(what: &str, status: u16, text: &[u8]) -> Failure {
    Failure::WrongAnswer(format!(
        "{what}: {status} {}",
        String::from_utf8_lossy(text)
    ))
}
