//! Startup of a dispatcher: it serves only after it has read Umbo's own records from the shard nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use umbo_dispatcher::Dispatcher;

use super::open::OpenedServer;
use crate::settings::LoadedSettings;

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait between two attempts.
const WAIT: Duration = Duration::from_millis(100);
/// How long the same reason is not logged again.
const SILENCE: Duration = Duration::from_secs(10);

/// Makes the dispatcher as soon as the shard nodes can be reached.
pub(super) async fn dispatcher(opened: &OpenedServer, loaded: &LoadedSettings) -> Arc<Dispatcher> {
    let mut said: Option<(String, Instant)> = None;
    loop {
        let attempt = timeout(ATTEMPT_TIMEOUT, opened.dispatcher(loaded)).await;
        let reason = match attempt {
            Ok(Ok(dispatcher)) => return dispatcher,
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        let is_news = said
            .as_ref()
            .is_none_or(|(last, at)| *last != reason || at.elapsed() > SILENCE);
        if is_news {
            let [data, admin] = opened.urls();
            tracing::warn!(
                reason,
                data,
                admin,
                "not ready: waiting for the shard nodes"
            );
            said = Some((reason, Instant::now()));
        }
        sleep(WAIT).await;
    }
}
