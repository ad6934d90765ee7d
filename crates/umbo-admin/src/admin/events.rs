//! The admin API of events.
//!
//! Needs a grant of `observe` on `*`: events are of the whole server.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use http::HeaderMap;
use umbo_api::observe::EventList;
use umbo_dispatcher::LongPoll;
use umbo_http::query::{Query, bad};
use umbo_observe::EventCursor;

use super::{DispatcherState, full_observer};
use crate::admin_error::AdminError;

/// Longest wait for an event, in seconds: under the timeouts that proxies have.
const WAIT_SECONDS_MAX: u64 = 25;

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    long_poll: Option<Extension<Arc<LongPoll>>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<EventList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    let query = Query::read(query.as_deref(), "since, wait")?;
    let since = match query.text("since") {
        None => EventCursor::default(),
        Some(text) => EventCursor::parse(text)
            .ok_or_else(|| bad("since", text, "the 'next' of an earlier answer"))?,
    };
    let wait = query.number("wait", 0..=WAIT_SECONDS_MAX, "0 to 25 seconds")?;
    let events = &dispatcher.control.events;
    if let Some(wait) = wait.filter(|wait| *wait > 0) {
        let newer = events.wait_for_newer(since);
        let clock = &dispatcher.clock;
        let long_poll = long_poll.map(|Extension(long_poll)| long_poll);
        if let Some(long_poll) = &long_poll {
            long_poll.begin(clock.monotonic());
        }
        // What there is by then is answered either way.
        let _ = tokio::time::timeout(Duration::from_secs(wait), newer).await;
        if let Some(long_poll) = &long_poll {
            long_poll.end(clock.monotonic());
        }
    }
    Ok(Json(events.since(since)))
}
