//! The admin API of requests that run: to list them, and to end one.
//!
//! To list needs a grant of `observe` on `*`, to end one a grant of `admin` on `*`. Both concern the requests of this
//! dispatcher.

use axum::Json;
use axum::extract::{RawQuery, State};
use http::{HeaderMap, StatusCode};
use umbo_api::observe::{Event, EventKind};
use umbo_api::running::RunningList;
use umbo_control::events::Origin;
use umbo_http::RequestError;
use umbo_http::query::Query;

use super::{DispatcherState, PathText, full_admin, full_observer, origin};
use crate::admin_error::AdminError;

/// Longest part of an unknown id that is repeated, in characters; ids are at most as long.
const ID_LEN_MAX: usize = 64;

pub(crate) async fn list(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<RunningList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let requests = dispatcher.running.list(dispatcher.clock.monotonic());
    Ok(Json(RunningList { requests }))
}

pub(crate) async fn kill(
    State(dispatcher): DispatcherState,
    PathText(id): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<StatusCode, AdminError> {
    let caller = full_admin(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let Origin { by, reason } = origin(&caller, &headers)?;
    let why = reason.as_ref().map(|reason| format!(": {reason}"));
    let text = format!("'{by}' has ended this request{}", why.unwrap_or_default());
    if !dispatcher.running.kill(&id, &RequestError::Killed(text)) {
        let id = id.chars().take(ID_LEN_MAX).collect();
        return Err(RequestError::NotRunning(id).into());
    }
    let at_ms = dispatcher.clock.wall().as_millis();
    let event = Event::new(
        at_ms,
        EventKind::RequestKilled,
        id,
        "ended a request that ran",
    );
    let by = Some(by);
    let events = &dispatcher.control.events;
    events.happened(Event {
        by,
        reason,
        ..event
    });
    Ok(StatusCode::NO_CONTENT)
}
