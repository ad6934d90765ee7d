//! The admin API of the heat map: request units a second by shard and time, and who is behind them.
//!
//! Needs a grant of `observe` on `*`, and shows keys only of namespaces that the caller may observe.

use std::collections::HashMap;
use std::sync::PoisonError;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::hot::{
    BusyReport, BusyShardInfo, BusySourceInfo, HotCaller, HotKeyInfo, text_or_base64,
};
use umbo_api::observe::{HeatReport, HeatRow, HeatRowReport};
use umbo_dispatcher::Dispatcher;
use umbo_hotkey::{BusyShard, BusySlot, BusySource};
use umbo_http::RequestError;
use umbo_http::query::Query;
use umbo_telemetry::history::Range;
use umbo_telemetry::metric_names::SHARD_REQUEST_UNITS;
use umbo_types::{NamespaceId, PartitionKey, Permission, ShardId};

use super::history::{range, time};
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
    let view = history.view(range, |series| SHARD_REQUEST_UNITS.history.contains(series));
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
    let query = Query::read(query.as_deref(), "range, at")?;
    let (range, at) = (range(&query)?, time(&query, "at")?);
    let shard = row.parse().ok();
    let shard = shard.filter(|&shard: &u16| usize::from(shard) < dispatcher.shard_map.shards());
    let shard = shard.ok_or(RequestError::RouteNotFound)?;
    if let Some(at) = at {
        return Ok(Json(past_row(&dispatcher, shard, range, at)));
    }
    let keys = keys(&dispatcher, ShardId(shard), |namespace| {
        caller.is_allowed(Permission::Observe, namespace)
    });
    let now = report(&dispatcher, Range::FiveMinutes);
    let now = now.rows.into_iter().find(|one| one.shard == shard);
    let last = now.and_then(|row| row.values.last().copied().flatten());
    Ok(Json(HeatRowReport {
        ru_rate: last.unwrap_or(0.0),
        callers: callers(&keys),
        keys,
        ..row_of(&dispatcher, shard, &dispatcher.busy.now())
    }))
}

/// Returns the sources of a shard in the step of the map that holds a time.
fn past_row(dispatcher: &Dispatcher, shard: u16, range: Range, at: u64) -> HeatRowReport {
    let map = report(dispatcher, range);
    let step = at / map.step_ms;
    let index = step.checked_sub(map.start_ms / map.step_ms);
    let row = map.rows.iter().find(|one| one.shard == shard).zip(index);
    let value = row.and_then(|(row, index)| *row.values.get(usize::try_from(index).ok()?)?);
    let seconds = map.step_ms / 1_000;
    HeatRowReport {
        ru_rate: value.unwrap_or(0.0),
        ..row_of(
            dispatcher,
            shard,
            &dispatcher.busy.over(step * seconds, seconds),
        )
    }
}

/// Returns a row with the sources of a step.
fn row_of(dispatcher: &Dispatcher, shard: u16, slot: &BusySlot) -> HeatRowReport {
    let found = busy_report(dispatcher, slot, Some(shard));
    let BusyShardInfo { busy, sources, .. } = found.shards.into_iter().next().unwrap_or_default();
    HeatRowReport {
        row: shard.to_string(),
        shard,
        start_ms: found.start_ms,
        step_ms: found.step_ms,
        busy,
        sources,
        ..HeatRowReport::default()
    }
}

pub(crate) async fn show_busy(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<BusyReport>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    let query = Query::read(query.as_deref(), "shard, at")?;
    let shard = query.number("shard", 0..=u64::from(u16::MAX), "the number of a shard")?;
    let slot = match time(&query, "at")? {
        Some(at) => dispatcher.busy.at(at / 1_000),
        None => dispatcher.busy.now(),
    };
    let shard = shard.map(|shard| shard as u16);
    Ok(Json(busy_report(&dispatcher, &slot, shard)))
}

/// Returns the sources of a step, of one shard or of all.
#[expect(clippy::cast_precision_loss, reason = "a step has few seconds")]
pub(crate) fn busy_report(
    dispatcher: &Dispatcher,
    slot: &BusySlot,
    asked: Option<u16>,
) -> BusyReport {
    let names = hot_report::names(dispatcher);
    let source = |one: &BusySource, shard: &BusyShard| {
        let namespace = names.get(&one.source.namespace).cloned();
        // The key of a namespace that was removed is shown as little as its rows.
        let partition = one
            .source
            .partition
            .as_ref()
            .filter(|_| namespace.is_some());
        let (pk, pk64) = partition.map_or((None, None), |key| text_or_base64(key.as_bytes()));
        let caller = one.source.caller.as_ref();
        BusySourceInfo {
            share: one.busy / shard.busy,
            caller: caller.map(|caller| caller.as_str().to_owned()),
            operation: one.source.operation.as_str().to_owned(),
            namespace,
            pk,
            pk64,
        }
    };
    let shards = slot.shards.iter();
    let shards = shards.filter(|shard| asked.is_none_or(|asked| asked == shard.shard.0));
    BusyReport {
        start_ms: slot.start * 1_000,
        step_ms: slot.seconds * 1_000,
        shards: shards
            .map(|shard| BusyShardInfo {
                shard: shard.shard.0,
                busy: shard.busy / slot.seconds as f64,
                sources: shard.sources.iter().map(|one| source(one, shard)).collect(),
            })
            .collect(),
    }
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
