//! The history of a server, its usage and its events, for operators.

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use umbo_admin::{DispatcherObserver, RECORDS_INTERVAL, RecordWriter, UsageWriter};
use umbo_api::observe::{Event, EventKind};
use umbo_dispatcher::Dispatcher;

/// Folder of the history's files, in the data folder.
pub(crate) const HISTORY_FOLDER: &str = "history";

/// Tells the events of a dispatcher what the server does.
pub(super) fn happened(dispatcher: &Dispatcher, kind: EventKind, text: &str) {
    let event = Event::new(dispatcher.clock.wall().as_millis(), kind, "", text);
    dispatcher.control.events.happened(event);
}

/// Records the history until it is stopped.
pub(super) async fn observe(mut observer: DispatcherObserver, stop: CancellationToken) {
    loop {
        let is_over = stop
            .run_until_cancelled(sleep(observer.wait()))
            .await
            .is_none();
        // Taking a sample visits every metric, and must not block requests.
        let sample = move || {
            if is_over {
                observer.end();
            } else {
                observer.sample();
            }
            observer
        };
        match tokio::task::spawn_blocking(sample).await {
            Ok(sampled) => observer = sampled,
            Err(error) => {
                tracing::error!(%error, "the history ends here: taking a sample failed");
                return;
            }
        }
        if is_over {
            return;
        }
    }
}

/// Writes the records of requests every ten seconds until it is stopped, and then the rest of them.
pub(super) async fn keep_records(mut writer: RecordWriter, stop: CancellationToken) {
    let wait = || sleep(RECORDS_INTERVAL);
    while stop.run_until_cancelled(wait()).await.is_some() {
        writer.write().await;
    }
    writer.end().await;
}

/// Writes the usage each minute until it is stopped, and then the rest of it.
pub(super) async fn keep_usage(writer: UsageWriter, stop: CancellationToken) {
    while stop
        .run_until_cancelled(sleep(writer.wait()))
        .await
        .is_some()
    {
        writer.write().await;
    }
    writer.end().await;
}
