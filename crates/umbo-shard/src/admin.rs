//! The admin port of a node: health, readiness, metrics, and the map in effect.
//!
//! It exposes no key, value or caller, and changes nothing.

use std::fmt::Write;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_store::{ShardState, ShardStatus};
use umbo_telemetry::metrics::{CONTENT_TYPE, NodeScrape, ProcessSample, ShardGauges};

use crate::node::Node;
use crate::quota::ShardQuota;
use crate::server::ACCEPT_BACKOFF;

/// Open connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// Serves the admin port on `listener` until `stop`. Pending answers are finished.
pub async fn serve(listener: TcpListener, node: Arc<Node>, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tasks = TaskTracker::new();
    let router = router(&node);
    let accepting = async {
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await;
            match listener.accept().await {
                Ok((socket, _)) => {
                    let connection = serve_connection(&node, socket, router.clone());
                    let stop = stop.clone();
                    tasks.spawn(async move {
                        let _ = stop.run_until_cancelled(connection).await;
                        drop(permit);
                    });
                }
                Err(error) => say_unaccepted(&error).await,
            }
        }
    };
    stop.run_until_cancelled(accepting).await;
    tasks.close();
    tasks.wait().await;
}

async fn say_unaccepted(error: &io::Error) {
    tracing::warn!(%error, "accepting a connection of the admin port failed; trying again");
    sleep(ACCEPT_BACKOFF.1).await;
}

fn serve_connection(
    node: &Node,
    socket: TcpStream,
    router: Router,
) -> impl Future<Output = hyper::Result<()>> + use<> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(node.limits().handshake_timeout)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router))
}

fn router(node: &Arc<Node>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .route("/cluster-map", get(cluster_map))
        .with_state(Arc::clone(node))
}

/// Succeeds while the node accepts requests and any of its shards serves. The body lists the problems, one
/// per line.
async fn readiness(State(node): State<Arc<Node>>) -> (StatusCode, String) {
    let shards = node.shards();
    let is_up = |state: &ShardState| !matches!(state, ShardState::Unavailable(_));
    let serves = shards.is_empty() || shards.iter().any(|shard| is_up(&shard.state));
    let (code, word) = match (node.is_ready(), serves) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        (true, true) => (StatusCode::OK, "ok"),
    };
    let mut text = format!("{word}\n");
    for ShardStatus { shard, state, .. } in shards {
        // The reasons contain file names, which only the log and dispatchers may see.
        let state = match state {
            ShardState::Available => continue,
            ShardState::ReadOnly(_) => "read-only",
            ShardState::Unavailable(_) => "unavailable",
        };
        // Writing to a text cannot fail.
        let _ = writeln!(text, "shard {shard} is {state}");
    }
    (code, text)
}

async fn metrics(State(node): State<Arc<Node>>) -> impl IntoResponse {
    let process = tokio::task::spawn_blocking(ProcessSample::read);
    let process = process.await.unwrap_or_default();
    let bad_reads = node.bad_reads();
    let shards = node.shards();
    let shards: Vec<_> = (shards.iter())
        .map(|status| ShardGauges {
            bad_reads: (bad_reads.iter())
                .find(|(shard, _)| *shard == status.shard)
                .map_or(0, |(_, count)| *count),
            ..gauges(status)
        })
        .collect();
    let text = node.metrics().render(&NodeScrape {
        version: env!("CARGO_PKG_VERSION"),
        shards: &shards,
        in_flight: node.requests_in_flight() as u64,
        request_memory: node.request_memory() as u64,
        connections: node.connections_open() as u64,
        map_version: node.cluster_map().version(),
        ceilings: node.quota().map_or(0, ShardQuota::quota_count),
        process,
    });
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text)
}

fn gauges(status: &ShardStatus) -> ShardGauges {
    ShardGauges {
        shard: status.shard.0,
        is_available: status.state == ShardState::Available,
        rows: status.rows,
        file_bytes: status.file_bytes,
        queued_mutations: status.queued,
        commits: status.commits,
        mutations: status.mutations,
        reclaimed_rows: status.reclaimed,
        lost_async_writes: status.lost_async,
        expired_rows: status.expired,
        purging_namespaces: status.purging,
        ..ShardGauges::default()
    }
}

async fn cluster_map(State(node): State<Arc<Node>>) -> String {
    node.cluster_map().to_toml()
}
