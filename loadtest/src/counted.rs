//! `umbo-loadtest counted`: so many answers of one kind, in this process and on one thread, for a tool
//! that counts instructions.
//!
//! Owns a pod in which every answer of a kind comes by in the same way: its clock stands still, what is
//! kept stays fresh, and what is taken is never given back. Sockets are not part of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use clap::{Args, ValueEnum};
use umbo_admin::Service;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_hotkey::{KeySeed, ShieldSettings};
use umbo_overload::{LimitSettings, QueueSettings};
use umbo_types::{Clock, Timestamp};

use crate::failure::Failure;
use crate::modelled::{Capacity, FOR_EVER, Fault, Model};

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Gets of a few keys, from the local cache
    Hit,
    /// Gets that find the queue of their shard full
    ShedGet,
    /// Puts that do
    ShedPut,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::ShedGet => "shed-get",
            Self::ShedPut => "shed-put",
        }
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
        runtime.block_on(self.answer())
    }

    async fn answer(self) -> Result<(), Failure> {
        let service = Arc::new(self.service().await?);
        ask(&service, "PUT", "/admin/v1/namespaces/n", "critical", 201).await?;
        match self.kind {
            Kind::Hit => {
                for number in 0..KEYS {
                    let path = path(number);
                    ask(&service, "PUT", &path, "critical", 201).await?;
                    let pinned = path.replace("/v1/", "/admin/v1/hot/pinned/");
                    ask(&service, "PUT", &pinned, "critical", 201).await?;
                }
                for number in 0..self.requests {
                    ask(&service, "GET", &path(number), "sheddable", 200).await?;
                }
            }
            Kind::ShedGet | Kind::ShedPut => {
                let method = if self.kind == Kind::ShedGet {
                    "GET"
                } else {
                    "PUT"
                };
                // One request in flight and one waiting are the maximum, of reads and of writes each.
                for name in ["taken", "waiting"] {
                    let service = Arc::clone(&service);
                    let path = format!("/v1/ns/n/kv/p/{name}");
                    tokio::spawn(async move { ask(&service, method, &path, "critical", 0).await });
                }
                tokio::task::yield_now().await;
                for number in 0..self.requests {
                    ask(&service, method, &path(number), "sheddable", 503).await?;
                }
            }
        }
        Ok(())
    }

    async fn service(&self) -> Result<Service, Failure> {
        let only = LimitSettings {
            min: 1,
            max: 1,
            initial: 1,
        };
        let mut queue = QueueSettings {
            limit: only,
            waiting_max: 1,
            ..QueueSettings::default()
        };
        queue.codel.target = FOR_EVER;
        let asleep = Fault {
            shard: None,
            slowness: None,
            from_s: 0.0,
            to_s: FOR_EVER.as_secs_f64(),
        };
        let is_awake = self.kind == Kind::Hit;
        let model = Model {
            shards: 1,
            capacity: Capacity {
                places: 1,
                service_time: if is_awake { Duration::ZERO } else { FOR_EVER },
            },
            faults: if is_awake { Vec::new() } else { vec![asleep] },
            clock: Arc::new(Stopped(Instant::now())),
            hot_keys: Some(ShieldSettings::new(1, KeySeed::new(1))),
            overload: Some(OverloadSettings {
                queue,
                ..OverloadSettings::default()
            }),
        };
        Ok(Service::data(&model.pod().await?))
    }
}

/// Keys that are asked for, one after the other: by all kinds, so that what the asking costs is the same.
const KEYS: u32 = 8;

fn path(number: u32) -> String {
    format!("/v1/ns/n/kv/p/{}", number % KEYS)
}

/// Asks and reads the answer to its end; it has to have this status, where one is given.
async fn ask(
    service: &Service,
    method: &str,
    path: &str,
    tier: &str,
    status: u16,
) -> Result<(), Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("umbo-criticality", tier)
        .header("umbo-timeout-ms", "600000")
        .body(Body::empty())
        .map_err(|error| Failure::Contradiction(error.to_string()))?;
    let answer = service.answer(request).await;
    let answered = answer.status().as_u16();
    let bytes = axum::body::to_bytes(Body::new(answer.into_body()), 1 << 20).await;
    let bytes = bytes.map_err(|error| Failure::WrongAnswer(error.to_string()))?;
    if status != 0 && answered != status {
        let text = String::from_utf8_lossy(&bytes);
        return Err(Failure::WrongAnswer(format!("{path}: {answered} {text}")));
    }
    Ok(())
}
