//! The report of the shield as types of the wire.
//!
//! Owns how a key is shown: all its bytes to a caller with the grant `observe` on its namespace.

use std::collections::HashMap;

use umbo_api::hot::{HotCaller, HotKeyInfo, HotList, HotPod, HotReport, HotStanding};
use umbo_control::hot_lists::{HotKeyError, KeyId};
use umbo_dispatcher::Dispatcher;
use umbo_hotkey::{HotKeyReport, Report, Standing};
use umbo_types::NamespaceId;

/// Returns the keys of the namespaces that `is_visible` accepts, and the totals.
pub(crate) fn report(
    dispatcher: &Dispatcher,
    is_visible: impl Fn(&str) -> bool,
) -> Result<HotReport, HotKeyError> {
    let report = dispatcher.hot_keys.report(dispatcher.clock.monotonic());
    let mut report = report.ok_or(HotKeyError::Disabled)?;
    let names = names(dispatcher);
    let keys = std::mem::take(&mut report.keys);
    let keys = keys.into_iter().filter_map(|key| {
        let name = names.get(&key.key.borrow().namespace())?;
        is_visible(name).then(|| info(dispatcher, name, &key))
    });
    Ok(HotReport {
        keys: keys.collect(),
        pod: totals(&report),
    })
}

/// Returns the names of the namespaces.
pub(crate) fn names(dispatcher: &Dispatcher) -> HashMap<NamespaceId, String> {
    let all = dispatcher.control.namespaces.live().into_iter();
    all.map(|info| (NamespaceId(info.id), info.name)).collect()
}

/// Returns a standing as it is on the wire.
pub(crate) const fn wire(standing: Standing) -> HotStanding {
    match standing {
        Standing::Hot => HotStanding::Hot,
        Standing::Pinned => HotStanding::Pinned,
        Standing::Blocked => HotStanding::Blocked,
    }
}

fn info(dispatcher: &Dispatcher, namespace: &str, report: &HotKeyReport) -> HotKeyInfo {
    let id = KeyId::of(&report.key.borrow());
    let callers = report.callers.iter();
    HotKeyInfo {
        key: id.name(namespace, &dispatcher.control.key_hasher),
        standing: wire(report.standing),
        is_hot: report.is_hot,
        rate: report.heat.rate,
        rate_error: report.heat.rate_error,
        rate_now: report.heat.rate_now,
        ru_rate: report.heat.units_rate,
        hot_for_ms: u64::try_from(report.hot_for.as_millis()).unwrap_or(u64::MAX),
        reads: report.reads,
        hits: report.hits,
        hit_ratio: hit_ratio(report),
        callers: callers
            .map(|(caller, share)| HotCaller {
                caller: caller.as_str().to_owned(),
                share: *share,
            })
            .collect(),
        pinned: dispatcher.control.hot_lists.listing(HotList::Pinned, &id),
        blocked: dispatcher.control.hot_lists.listing(HotList::Blocked, &id),
    }
}

/// Returns the share of the reads of a key that the local cache answered.
#[expect(clippy::cast_precision_loss)] // a share for people to look at
pub(crate) fn hit_ratio(report: &HotKeyReport) -> f64 {
    report.hits as f64 / report.reads.max(1) as f64
}

fn totals(report: &Report) -> HotPod {
    let flights = report.flight_totals;
    HotPod {
        reads_rate: report.reads_rate,
        threshold_rate: report.threshold_rate,
        saved_share: report.saved_share(),
        reads: report.reads,
        hits: report.hits,
        negative_hits: report.negative_hits,
        leaders: flights.leaders,
        followers: flights.followers,
        elections: flights.orphans,
        crowded: flights.crowded,
        overtaken: flights.overtaken,
        stale: flights.stale,
        uncounted: report.uncounted,
        flights: report.flights as u64,
        cache_entries: report.cache_entries,
        cache_bytes: report.cache_bytes,
        detection_bytes: report.detection_bytes as u64,
    }
}
