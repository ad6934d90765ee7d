//! The admin API of the heat map: request units a second by shard and time, and who is behind them.
//!
//! Needs a grant of `observe` on `*`, and shows keys only of namespaces that the caller may observe.

use std::collections::HashMap;
use std::sync::PoisonError;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::hot::{HotCaller, HotKeyInfo};
use umbo_api::observe::{HeatReport, HeatRow, HeatRowReport};
use umbo_dispatcher::Dispatcher;
use umbo_http::RequestError;
use umbo_http::query::Query;
use umbo_observe::{Range, names as series};
use umbo_types::{NamespaceId, PartitionKey, Permission, ShardId};

use super::history::range;
use super::{DispatcherState, PathText, caller, full_observer};
use crate::admin_error::AdminError;
use crate::hot_report;

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<HeatReport>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    let range = range(&Query::read(query.as_deref(), "range")?)?;
    Ok(Json(report(&dispatcher, range)))
}

fn report(dispatcher: &Dispatcher, range: Range) -> HeatReport {
    let history = dispatcher.history.lock();
    let history = history.unwrap_or_else(PoisonError::into_inner);
    let view = history.view(range, |kind| kind.name == series::SHARD_RU.name);
    drop(history);
    let rows = view.series.into_iter().filter_map(|one| {
        Some(HeatRow {
            row: one.key.value.to_string(),
            shard: one.key.value.parse().ok()?,
            values: one.values,
        })
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| row.shard);
    HeatReport {
        start_ms: view.start_ms,
        step_ms: view.step_ms,
        rows,
    }
}

pub(crate) async fn describe_row(
    State(dispatcher): DispatcherState,
    PathText(row): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<HeatRowReport>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    let caller = caller(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let shard = row.parse().ok();
    let shard = shard.filter(|&shard: &u16| usize::from(shard) < dispatcher.shard_map.shards());
    let shard = shard.ok_or(RequestError::RouteNotFound)?;
    let keys = keys(&dispatcher, ShardId(shard), |namespace| {
        caller.is_allowed(Permission::Observe, namespace)
    });
    let now = report(&dispatcher, Range::FiveMinutes);
    let now = now.rows.into_iter().find(|one| one.shard == shard);
    let last = now.and_then(|row| row.values.last().copied().flatten());
    Ok(Json(HeatRowReport {
        row,
        shard,
        ru_rate: last.unwrap_or(0.0),
        callers: callers(&keys),
        keys,
    }))
}

/// Returns the keys of a shard that are hot or listed.
fn keys(
    dispatcher: &Dispatcher,
    shard: ShardId,
    is_visible: impl Fn(&str) -> bool,
) -> Vec<HotKeyInfo> {
    // Where the layer is off no key is hot.
    let Ok(report) = hot_report::report(dispatcher, is_visible) else {
        return Vec::new();
    };
    let ids: HashMap<String, NamespaceId> = (dispatcher.control.namespaces.live().into_iter())
        .map(|info| (info.name, NamespaceId(info.id)))
        .collect();
    let is_there = |info: &HotKeyInfo| {
        let namespace = ids.get(&info.key.namespace)?;
        let partition = PartitionKey::new(info.key.partition().ok()?).ok()?;
        Some(dispatcher.shard_map.locate(*namespace, &partition) == shard)
    };
    let keys = report.keys.into_iter();
    keys.filter(|info| is_there(info) == Some(true)).collect()
}

/// Adds up the callers of keys, by their part of the request units.
fn callers(keys: &[HotKeyInfo]) -> Vec<HotCaller> {
    let mut shares: HashMap<&str, f64> = HashMap::new();
    let all: f64 = keys.iter().map(|key| key.rate).sum();
    for key in keys {
        for caller in &key.callers {
            *shares.entry(&caller.caller).or_default() += caller.share * key.rate / all.max(1e-9);
        }
    }
    let mut callers: Vec<_> = (shares.into_iter())
        .map(|(caller, share)| HotCaller {
            caller: caller.to_owned(),
            share,
        })
        .collect();
    callers.sort_by(|one, other| other.share.total_cmp(&one.share));
    callers
}
