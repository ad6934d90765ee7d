//! The check of the client: how it comes back after an overload, over sockets and in real time.
//!
//! A small server refuses whatever it is asked, then accepts it. What a service offers meanwhile is steady, so that the
//! requests that the server sees in each second say how much of it the client sends.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use umbo_api::{ErrorCode, Outcome, Problem};
use umbo_client::{Client, Options};

use super::plan::{Check, Plan};
use crate::failure::Failure;
use crate::verdict::{Bound, Verdict};

/// Seconds of overload, and those that are watched afterwards.
const DOWN_SECONDS: usize = 30;
const DOWN_SECONDS_QUICK: usize = 5;
const BACK_SECONDS: usize = 20;
/// Requests a second that a service offers.
const OFFERED: usize = 200;
/// Share of the offered load that counts as all of it: some requests fall into the second after their own.
const ALL: f64 = 0.95;

pub(super) const CHECKS: [Check; 1] = [Check {
    name: "recovery",
    about: "after an overload: half of the load within 5 s, all within 15 s, no step above 0.4",
    run: recovery,
}];

/// What the server does, and what it saw.
#[derive(Debug)]
struct Server {
    is_refusing: AtomicBool,
    /// Requests of each second since the beginning.
    seen: Vec<AtomicUsize>,
    began: RwLock<Instant>,
}

impl Server {
    fn note(&self) {
        let began = *self.began.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(second) = self.seen.get(began.elapsed().as_secs() as usize) {
            second.fetch_add(1, Relaxed);
        }
    }
}

async fn handle(State(server): State<Arc<Server>>) -> Response<Body> {
    server.note();
    if !server.is_refusing.load(Relaxed) {
        return Response::new(Body::empty());
    }
    let mut problem = Problem::new(ErrorCode::Overloaded, "for a check");
    problem.outcome = Some(Outcome::NotApplied);
    let text = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    response
}

fn recovery(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let down = if plan.is_quick {
        DOWN_SECONDS_QUICK
    } else {
        DOWN_SECONDS
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::io("cannot start the runtime"))?;
    let seen = runtime.block_on(drive(plan.seed, down))?;
    let back = &seen[down..];
    let share = |requests: usize| requests as f64 / OFFERED as f64;
    let until = |part: f64| {
        let second = back.iter().position(|&requests| share(requests) >= part);
        second.map_or(f64::INFINITY, |second| second as f64)
    };
    let steps = back
        .windows(2)
        .map(|two| share(two[1].saturating_sub(two[0])));
    let step = steps.fold(share(back[0]), f64::max);
    let detail = format!("requests of each second, of {OFFERED}: {back:?}");
    let last = share(seen[down - 1]);
    Ok(vec![
        Verdict::one(
            "recovery: seconds until half",
            Bound::AtMost(5.0),
            until(0.5),
            detail,
        ),
        Verdict::one("  seconds until all", Bound::AtMost(15.0), until(ALL), ""),
        Verdict::one("  largest step, of all", Bound::AtMost(0.4), step, ""),
        Verdict::one(
            "  sent at the end of the overload, of all",
            Bound::AtMost(0.1),
            last,
            "",
        ),
    ])
}

/// Offers the load, and returns what the server saw in each second.
async fn drive(seed: u64, down: usize) -> Result<Vec<usize>, Failure> {
    let seconds = down + BACK_SECONDS;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.map_err(Failure::io("cannot listen"))?;
    let address = listener.local_addr().map_err(Failure::io("no address"))?;
    let server = Arc::new(Server {
        is_refusing: AtomicBool::new(true),
        seen: (0..seconds).map(|_| AtomicUsize::new(0)).collect(),
        began: RwLock::new(Instant::now()),
    });
    let router = Router::new()
        .fallback(handle)
        .with_state(Arc::clone(&server));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let mut options = Options::new(format!("http://{address}"));
    options.seed = Some(seed);
    options.retry.attempts_max = 1;
    let client =
        Client::new(&options).map_err(|error| Failure::Contradiction(error.to_string()))?;
    let began = Instant::now();
    *server.began.write().unwrap_or_else(PoisonError::into_inner) = began;
    for number in 0..seconds * OFFERED {
        let at = began + Duration::from_secs(number as u64) / OFFERED as u32;
        tokio::time::sleep_until(at.into()).await;
        if number == down * OFFERED {
            server.is_refusing.store(false, Relaxed);
        }
        let client = client.clone();
        // Refused, given up or answered: the server counts.
        tokio::spawn(async move { client.get("n", b"a", b"").await.is_ok() });
    }
    serving.abort();
    Ok(server.seen.iter().map(|seen| seen.load(Relaxed)).collect())
}
