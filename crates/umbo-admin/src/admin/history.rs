//! The admin API of the history.
//!
//! Needs a grant of `observe` on `*`: series are of the whole server.

use std::sync::PoisonError;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::observe::HistoryReport;
use umbo_api::path::KeyEncoding;
use umbo_http::RequestError;
use umbo_http::query::{Query, bad};
use umbo_telemetry::history::Range;
use umbo_telemetry::metric_names::series_by_name;

use super::{DispatcherState, full_observer};
use crate::admin_error::AdminError;

/// Latest time: as many milliseconds as every reader of JSON keeps.
const TIME_MS_MAX: u64 = (1 << 53) - 1;

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<HistoryReport>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    let query = Query::read(query.as_deref(), "range, series, since_ms")?;
    let range = range(&query)?;
    let asked = match query.text("series") {
        None => None,
        Some(text) => Some(names(text)?),
    };
    let since_ms = time(&query, "since_ms")?;
    let now_ms = dispatcher.clock.wall().as_millis();
    let history = dispatcher.history.lock();
    let history = history.unwrap_or_else(PoisonError::into_inner);
    let view = history.view_since(range, since_ms.unwrap_or(0), |series| {
        asked
            .as_ref()
            .is_none_or(|asked| asked.contains(&series.name))
    });
    drop(history);
    Ok(Json(view.report(now_ms)))
}

/// Reads a time, in milliseconds since the Unix epoch.
pub(super) fn time(query: &Query<'_>, name: &'static str) -> Result<Option<u64>, RequestError> {
    query.number(name, 0..=TIME_MS_MAX, "milliseconds since the Unix epoch")
}

/// Reads the range; an hour by default.
pub(super) fn range(query: &Query<'_>) -> Result<Range, RequestError> {
    let Some(text) = query.text("range") else {
        return Ok(Range::Hour);
    };
    Range::by_name(text).ok_or_else(|| bad("range", text, "5m, 1h, 24h or 30d"))
}

fn names(text: &[u8]) -> Result<Vec<&'static str>, RequestError> {
    let refused = |name| bad("series", name, "names of series, separated by commas");
    let decoded = KeyEncoding::Percent.decode(text);
    let decoded = decoded.map_err(|_| refused(text))?;
    let names = decoded.split(|byte| *byte == b',').map(|name| {
        let known = std::str::from_utf8(name).ok().and_then(series_by_name);
        let known = known.map(|series| series.name);
        known.ok_or_else(|| refused(name))
    });
    names.collect()
}
