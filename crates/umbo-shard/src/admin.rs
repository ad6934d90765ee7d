//! The admin port of a node: health, readiness, metrics and their history, and the map in effect.
//!
//! It exposes no key, value or caller, and changes nothing.

use std::fmt::Write;
use std::io;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::{RawQuery, State};
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
use umbo_telemetry::history::Range;
use umbo_telemetry::metric_names as names;
use umbo_telemetry::metrics::{
    CONTENT_TYPE, Families, MetricVisitor, MetricsText, ProcessSample, visit_disk, visit_shards,
};

use crate::node::Node;
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
        .route("/history", get(history))
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
    let text = move || MetricsText::render(|visitor| visit(&node, visitor));
    let text = tokio::task::spawn_blocking(text).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text)
}

/// Shows the history in the form of the dispatchers' `/admin/v1/history`. `range` is as there.
async fn history(
    State(node): State<Arc<Node>>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, (StatusCode, &'static str)> {
    let range = match query.as_deref() {
        None | Some("") => Some(Range::Hour),
        Some(query) => {
            let range = query.strip_prefix("range=");
            range.and_then(|range| Range::by_name(range.as_bytes()))
        }
    };
    let range = range.ok_or((StatusCode::BAD_REQUEST, "range is 5m, 1h, 24h or 30d\n"))?;
    let now_ms = node.clock().wall().as_millis();
    let history = node
        .history()
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let view = history.view(range, |_| true);
    drop(history);
    Ok(axum::Json(view.report(now_ms)))
}

/// Shows the metrics of a node to a visitor.
pub fn visit(node: &Node, visitor: &mut dyn MetricVisitor) {
    let families = &mut Families::new(visitor);
    let version = env!("CARGO_PKG_VERSION");
    families.family(&names::BUILD_INFO, [([version], 1_u64)]);
    node.metrics().visit(families);
    families.single(&names::NODE_IN_FLIGHT, node.requests_in_flight());
    families.single(&names::NODE_REQUEST_MEMORY, node.request_memory());
    families.single(&names::NODE_CONNECTIONS, node.connections_open());
    families.single(&names::NODE_MAP_VERSION, node.cluster_map().version());
    visit_shards(families, &node.shards(), &node.bad_reads());
    if let Some(disk) = node.disk_space() {
        visit_disk(families, disk);
    }
    if let Some(process) = ProcessSample::read() {
        process.visit(families);
    }
}

async fn cluster_map(State(node): State<Arc<Node>>) -> String {
    node.cluster_map().to_toml()
}
