//! A shard node: the parts of `umbo shard` wired together, and the order in which they stop.
//!
//! Stopping loses nothing: readiness says no, every stream is told, what was sent is answered, the
//! store writes down what it acknowledged, spans leave. The admin port is the last to close.

mod open;
mod quota;
mod reload;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_shard::{admin, server};
use umbo_store::Store as _;
use umbo_telemetry::logging::LogHandle;

pub(crate) use self::open::Exceptions;
use self::open::Opened;
use self::reload::Reload;
use crate::failure::Failure;
use crate::reload_watch::ReloadWatch;
use crate::settings::{Loaded, Sources};
use crate::signals::Signals;
use crate::spans;

/// Runs a node until SIGTERM or SIGINT; a second signal cuts off what is in flight.
pub(crate) async fn run(
    sources: Sources,
    loaded: Loaded,
    log: LogHandle,
    exceptions: Exceptions,
) -> Result<(), Failure> {
    let mut signals = Signals::begin()?;
    let watch = ReloadWatch::begin(sources).await?;
    let opened = Opened::open(&loaded.settings, exceptions)?;
    opened.announce();
    let Opened {
        node,
        ceilings,
        tracer,
        store,
        tls,
        port,
        admin_port,
        ..
    } = opened;
    let (stop, stop_last) = (CancellationToken::new(), CancellationToken::new());
    let reload = Reload {
        watch,
        started_with: loaded.settings,
        log,
        tls: tls.clone(),
        node: Arc::clone(&node),
        ceilings: Arc::clone(&ceilings),
    };
    let background = TaskTracker::new();
    background.spawn(stop_last.clone().run_until_cancelled_owned(reload.run()));
    background.spawn(stop_last.clone().run_until_cancelled_owned(ceilings.run()));
    background.spawn(admin::serve(
        admin_port,
        Arc::clone(&node),
        stop_last.clone(),
    ));
    let serving = server::serve_tls(port, tls, Arc::clone(&node), stop.clone());
    let mut serving = tokio::spawn(serving);
    signals.told().await;
    tracing::info!("stopping: /readyz says no from now on, and every stream is told");
    stop.cancel();
    tokio::select! {
        closed = &mut serving => match closed {
            Ok(closed) => tracing::info!(
                streams = closed.streams,
                cut = closed.cut,
                "the port for dispatchers is closed"
            ),
            Err(error) => tracing::error!(%error, "the port for dispatchers ended badly"),
        },
        _ = signals.told() => {
            tracing::warn!("told to stop again: requests in flight are cut off");
            serving.abort();
        }
    }
    store.close().await;
    spans::end(tracer).await;
    stop_last.cancel();
    background.close();
    background.wait().await;
    Ok(())
}
