//! What operators see of hot keys: the shield's report in the words of the wire and of metrics.
//!
//! Owns how a key is told: by all its bytes to who holds `admin` on its namespace, by a hash in
//! metrics. Of entries for one key the standing that counts is shown, with the figures of both.

use std::collections::HashMap;

use umbo_api::hot::{HotCaller, HotKeyInfo, HotList, HotPod, HotReport, HotStanding};
use umbo_hotkey::{HotKeyReport, ReadKey, Report, Standing};
use umbo_telemetry::metrics::{HotKeyGauges, HotKeySeries};
use umbo_types::NamespaceId;

use super::error::HotKeyError;
use super::key_id::KeyId;
use crate::pod::Dispatcher;

/// Keys with series of their own.
const SERIES_MAX: usize = 10;

/// Reports the keys of those namespaces that `is_seen` lets through, and the pod.
pub(crate) fn report(
    pod: &Dispatcher,
    is_seen: impl Fn(&str) -> bool,
) -> Result<HotReport, HotKeyError> {
    let shield = pod.hot_keys.shield().ok_or(HotKeyError::Disabled)?;
    let mut report = shield.report(pod.clock.monotonic());
    let names = names(pod);
    let keys = merged(std::mem::take(&mut report.keys));
    let keys = keys.into_iter().filter_map(|key| {
        let name = names.get(&key.key.borrow().namespace())?;
        is_seen(name).then(|| info(pod, name, &key))
    });
    Ok(HotReport {
        keys: keys.collect(),
        pod: totals(&report),
    })
}

fn names(pod: &Dispatcher) -> HashMap<NamespaceId, String> {
    let all = pod.namespaces.all().into_iter();
    all.map(|info| (NamespaceId(info.id), info.name)).collect()
}

/// Makes one of all entries for the same key: one that was hot before it was listed has two.
fn merged(keys: Vec<HotKeyReport>) -> Vec<HotKeyReport> {
    let mut places: HashMap<ReadKey, usize> = HashMap::new();
    let mut merged: Vec<HotKeyReport> = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(&at) = places.get(&key.key) {
            let held = &mut merged[at];
            held.reads += key.reads;
            held.hits += key.hits;
            if rank(key.standing) > rank(held.standing) {
                held.standing = key.standing;
            }
            if held.callers.is_empty() {
                held.callers = key.callers;
            }
        } else {
            places.insert(key.key.clone(), merged.len());
            merged.push(key);
        }
    }
    merged
}

const fn rank(standing: Standing) -> u8 {
    match standing {
        Standing::Hot => 0,
        Standing::Pinned => 1,
        Standing::Blocked => 2,
    }
}

const fn wire(standing: Standing) -> HotStanding {
    match standing {
        Standing::Hot => HotStanding::Hot,
        Standing::Pinned => HotStanding::Pinned,
        Standing::Blocked => HotStanding::Blocked,
    }
}

fn info(pod: &Dispatcher, namespace: &str, report: &HotKeyReport) -> HotKeyInfo {
    let id = KeyId::of(&report.key.borrow());
    let callers = report.callers.iter();
    HotKeyInfo {
        key: id.name(namespace, &pod.key_hasher),
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
        pinned: pod.hot_lists.listing(HotList::Pinned, &id),
        blocked: pod.hot_lists.listing(HotList::Blocked, &id),
    }
}

#[expect(clippy::cast_precision_loss)] // a share for people to look at
fn hit_ratio(report: &HotKeyReport) -> f64 {
    report.hits as f64 / report.reads.max(1) as f64
}

fn totals(report: &Report) -> HotPod {
    let board = report.board;
    HotPod {
        reads_rate: report.reads_rate,
        threshold_rate: report.threshold_rate,
        saved_share: report.saved_share(),
        hits: report.hits,
        negative_hits: report.negative_hits,
        leaders: board.leaders,
        followers: board.followers,
        afterglows: board.afterglows,
        elections: board.elections,
        crowded: board.crowded,
        overtaken: board.overtaken,
        stale: board.stale,
        uncounted: report.uncounted,
        flights: report.flights as u64,
        cache_entries: report.cache_entries,
        cache_bytes: report.cache_bytes,
        detection_bytes: report.detection_bytes as u64,
    }
}

/// What a scrape shows of hot keys.
#[derive(Debug)]
pub(crate) struct HotKeySample {
    pod: HotPod,
    standings: [(&'static str, u64); 3],
    /// Namespace, hash, reads a second and hits over reads.
    keys: Vec<(String, String, f64, f64)>,
}

impl HotKeySample {
    /// Asks the shield; none where there is none.
    pub(crate) fn take(pod: &Dispatcher) -> Option<Self> {
        let mut report = pod.hot_keys.shield()?.report(pod.clock.monotonic());
        let names = names(pod);
        let keys = merged(std::mem::take(&mut report.keys));
        let count = |standing| {
            let of_it = keys.iter().filter(|key| key.standing == standing);
            (wire(standing).as_str(), of_it.count() as u64)
        };
        let standings = [Standing::Hot, Standing::Pinned, Standing::Blocked].map(count);
        let hottest = keys.iter().filter(|key| key.is_hot);
        let series = hottest.filter_map(|key| {
            let name = names.get(&key.key.borrow().namespace())?;
            let hash = pod.key_hasher.hash(&KeyId::of(&key.key.borrow()));
            Some((name.clone(), hash, key.heat.rate_now, hit_ratio(key)))
        });
        Some(Self {
            pod: totals(&report),
            standings,
            keys: series.take(SERIES_MAX).collect(),
        })
    }

    /// Shows the sample to a scrape.
    pub(crate) fn show<T>(&self, see: impl FnOnce(HotKeyGauges<'_>) -> T) -> T {
        let keys = self.keys.iter();
        let keys: Vec<_> = keys
            .map(|(namespace, key, read_rate, hit_ratio)| HotKeySeries {
                namespace,
                key,
                read_rate: *read_rate,
                hit_ratio: *hit_ratio,
            })
            .collect();
        let pod = &self.pod;
        see(HotKeyGauges {
            hits: pod.hits,
            negative_hits: pod.negative_hits,
            leaders: pod.leaders,
            followers: pod.followers,
            afterglows: pod.afterglows,
            elections: pod.elections,
            crowded: pod.crowded,
            overtaken: pod.overtaken,
            stale: pod.stale,
            uncounted: pod.uncounted,
            standings: &self.standings,
            read_rate: pod.reads_rate,
            threshold_rate: pod.threshold_rate,
            flights: pod.flights,
            cache_entries: pod.cache_entries,
            cache_bytes: pod.cache_bytes,
            detection_bytes: pod.detection_bytes,
            keys: &keys,
        })
    }
}
