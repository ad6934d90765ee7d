//! A shard node: wires the parts of `umbo shard` together, and stops them in order.
//!
//! A stop loses nothing: readiness turns false, every dispatcher is notified, pending requests are answered, the last
//! metrics are exported, the store writes all acknowledged rows to the disk, the last spans are exported. The admin
//! port closes last.

mod open;
mod peers;
mod reload;

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_shard::{Node, admin, observe, server};
use umbo_store::Store as _;
use umbo_store_redb::RedbStore;
use umbo_telemetry::logging::LogHandle;
use umbo_telemetry::metrics::MetricVisitor;

use self::open::OpenedNode;
pub(crate) use self::open::ShardExceptions;
use self::reload::NodeReload;
use crate::cli_error::CliError;
use crate::map_file;
use crate::reload_watch::ReloadWatch;
use crate::server::HISTORY_FOLDER;
use crate::settings::{LoadedSettings, SettingsSources};
use crate::signals::Signals;
use crate::tasks::Tasks;

/// Gives away the shards that a newer map in the file assigns to other nodes: an operator who stops a node to follow a
/// plan copies its files next.
async fn give_away(store: &RedbStore, node: &Node, path: Option<&str>) {
    let Some(path) = path else {
        return;
    };
    let map = match map_file::read(Path::new(path)) {
        Ok(map) => Arc::new(map),
        Err(error) => {
            tracing::warn!(%error, "the map cannot be read, so shards that it may have moved are not given away");
            return;
        }
    };
    if map.version() <= node.cluster_map().version() {
        return;
    }
    if let Err(error) = store.give_away(&map).await {
        tracing::warn!(%error, "the shards that the new map moves could not be given away");
    }
}

/// Waits until the port for dispatchers is closed; a second signal aborts the requests in flight.
async fn close(mut serving: JoinHandle<server::Closed>, signals: &mut Signals) {
    tokio::select! {
        biased;
        closed = &mut serving => match closed {
            Ok(closed) => tracing::info!(
                connections = closed.connections,
                cut = closed.cut,
                "the port for dispatchers is closed"
            ),
            Err(error) => tracing::error!(%error, "the port for dispatchers ended with an error"),
        },
        _ = signals.stop_requested() => {
            tracing::warn!("second stop signal: requests in flight are aborted");
            serving.abort();
        }
    }
}

/// Runs a node until SIGTERM or SIGINT; a second signal aborts the requests in flight.
pub(crate) async fn run(
    sources: SettingsSources,
    loaded: LoadedSettings,
    log: LogHandle,
    exceptions: ShardExceptions,
) -> Result<(), CliError> {
    let mut signals = Signals::begin()?;
    let watch = ReloadWatch::begin(sources).await?;
    let (map, name) = open::read_map(&loaded.settings.cluster)?;
    peers::refuse_to_start(&loaded.settings, &map, &name).await?;
    let opened = OpenedNode::open(&loaded.settings, (map, name), exceptions, &log)?;
    opened.announce();
    let OpenedNode {
        node,
        mut otlp,
        store,
        tls,
        port,
        admin_port,
        ..
    } = opened;
    let map_file = loaded.settings.cluster.map.clone();
    let stop = CancellationToken::new();
    let reload = NodeReload {
        node: Arc::clone(&node),
        store: Arc::clone(&store),
    };
    let (background, exporting) = (Tasks::default(), Tasks::default());
    let retried = Arc::clone(&store);
    background.spawn(async move { retried.retry_opening().await });
    let certificates = tls.iter().cloned().collect();
    background.spawn(watch.run(loaded.settings, log, certificates, reload));
    let shared = || Arc::clone(&node);
    background.spawn_stoppable(|stop| admin::serve(admin_port, shared(), stop));
    let (observed, folder) = (shared(), store.folder().join(HISTORY_FOLDER));
    background.spawn_stoppable(|stop| async move { observe(observed, &folder, stop).await });
    if let Some(metrics) = otlp.metrics.take() {
        let node = shared();
        let visit = move |visitor: &mut dyn MetricVisitor| admin::visit(&node, visitor);
        exporting.spawn_stoppable(|stop| metrics.run(visit, stop));
    }
    let serving = server::serve_tls(port, tls, Arc::clone(&node), stop.clone());
    let serving = tokio::spawn(serving);
    signals.stop_requested().await;
    tracing::info!("stopping: /readyz fails from now on, and every dispatcher is notified");
    stop.cancel();
    close(serving, &mut signals).await;
    give_away(&store, &node, map_file.as_deref()).await;
    // Before the store closes: its shards have metrics.
    exporting.end().await;
    store.close().await;
    background.end().await;
    otlp.end().await;
    Ok(())
}
