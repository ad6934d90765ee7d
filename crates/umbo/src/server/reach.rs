//! Waiting for the shard nodes: a dispatcher is open once it has read Umbo's own records.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use umbo_dispatcher::Dispatcher;

use super::open::Opened;
use crate::settings::Loaded;

/// Time for one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts.
const WAIT: Duration = Duration::from_millis(100);
/// How long the same reason is not logged again.
const SILENCE: Duration = Duration::from_secs(10);

/// Opens the dispatcher as soon as that is possible.
pub(super) async fn dispatcher(opened: &Opened, loaded: &Loaded) -> Arc<Dispatcher> {
    let mut said: Option<(String, Instant)> = None;
    loop {
        let attempt = timeout(ATTEMPT_TIMEOUT, opened.dispatcher(loaded)).await;
        let reason = match attempt {
            Ok(Ok(pod)) => return pod,
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
