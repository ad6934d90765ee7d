//! The admin API of callers: what each has spent, over all namespaces.
//!
//! Needs a grant of `observe` on `*`. Costs time in proportion to the accounts of callers, on a thread that serves
//! no requests.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::quota::{CallerList, CallerTotals, CallerUsage, CallerUsageRow};
use umbo_dispatcher::{Dispatcher, usage_row};
use umbo_http::query::Query;
use umbo_quota::Tally;
use umbo_types::NamespaceId;

use super::{DispatcherState, PathText, full_observer};
use crate::admin_error::AdminError;
use crate::home_rows::aside;

/// Callers that are listed where the request does not say how many.
const CALLERS_DEFAULT: u64 = 1_000;

pub(crate) async fn list(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<CallerList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    let query = Query::read(query.as_deref(), "limit")?;
    let limit = query.number("limit", 1..=10_000, "1 to 10000")?;
    let limit = limit.unwrap_or(CALLERS_DEFAULT) as usize;
    Ok(Json(aside(move || totals(&dispatcher, limit)).await?))
}

pub(crate) async fn describe(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<CallerUsage>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(aside(move || usage(&dispatcher, name)).await?))
}

fn totals(dispatcher: &Dispatcher, limit: usize) -> CallerList {
    let mut by_caller: HashMap<Arc<str>, Tally> = HashMap::new();
    for row in dispatcher.quota.usage().rows {
        let sum = by_caller.entry(row.caller).or_default();
        sum.requests += row.tally.requests;
        sum.rejected += row.tally.rejected;
        sum.charged = sum.charged.saturating_add(row.tally.charged);
        sum.penalty = sum.penalty.saturating_add(row.tally.penalty);
        sum.read_bytes += row.tally.read_bytes;
        sum.write_bytes += row.tally.write_bytes;
    }
    let total = by_caller.len() as u64;
    let mut all: Vec<_> = by_caller.into_iter().collect();
    all.sort_by(|one, other| (other.1.charged, &one.0).cmp(&(one.1.charged, &other.0)));
    let callers = all
        .into_iter()
        .take(limit)
        .map(|(caller, sum)| CallerTotals {
            caller: caller.to_string(),
            requests: sum.requests,
            rejected: sum.rejected,
            ru: sum.charged.as_f64(),
            penalty: sum.penalty.as_f64(),
            read_bytes: sum.read_bytes,
            write_bytes: sum.write_bytes,
        });
    CallerList {
        callers: callers.collect(),
        total,
    }
}

fn usage(dispatcher: &Dispatcher, name: String) -> CallerUsage {
    let all = dispatcher.control.namespaces.live().into_iter();
    let names: HashMap<_, _> = all.map(|info| (NamespaceId(info.id), info.name)).collect();
    let mut rows = dispatcher.quota.usage().rows;
    rows.retain(|row| *row.caller == *name);
    rows.sort_by_key(|row| Reverse(row.tally.charged));
    let row = |row: &umbo_quota::UsageLine| CallerUsageRow {
        namespace: match names.get(&row.namespace_id) {
            Some(name) => name.clone(),
            None => row.namespace_id.0.to_string(),
        },
        usage: usage_row(row),
    };
    CallerUsage {
        caller: name,
        rows: rows.iter().map(row).collect(),
    }
}
