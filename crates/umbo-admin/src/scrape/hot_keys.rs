//! Metrics of the hot-key layer, from its report.
//!
//! Only the keys that are read most have series, each by a hash that does not reveal the key.

use umbo_control::hot_lists::KeyId;
use umbo_dispatcher::Dispatcher;
use umbo_hotkey::{HotKeyReport, Report, Standing};
use umbo_telemetry::metric_names as names;
use umbo_telemetry::metrics::Families;

use crate::hot_report;

/// Most keys with series.
const KEYS_MAX: usize = 10;

/// Shows the state of the layer.
pub(super) fn visit(families: &mut Families<'_>, dispatcher: &Dispatcher, report: &Report) {
    visit_totals(families, report);
    let namespaces = hot_report::names(dispatcher);
    let labels = |key: &HotKeyReport| {
        let key = key.key.borrow();
        let hash = dispatcher.control.key_hasher.hash(&KeyId::of(&key));
        Some([namespaces.get(&key.namespace())?.clone(), hash])
    };
    let hottest = report.keys.iter().filter(|key| key.is_hot);
    let hottest = hottest.filter_map(|key| Some((labels(key)?, key)));
    let hottest: Vec<_> = hottest.take(KEYS_MAX).collect();
    let rates = hottest.iter();
    let rates = rates.map(|(labels, key)| (labels.clone(), key.heat.rate_now));
    families.family(&names::HOTKEY_KEY_READ_RATE, rates);
    let ratios = hottest.iter();
    let ratios = ratios.map(|(labels, key)| (labels.clone(), hot_report::hit_ratio(key)));
    families.family(&names::HOTKEY_KEY_HIT_RATIO, ratios);
}

/// Shows the totals of all keys.
pub(super) fn visit_totals(families: &mut Families<'_>, report: &Report) {
    let flights = report.flight_totals;
    families.single(&names::HOTKEY_READS, report.reads);
    families.single(&names::HOTKEY_HITS, report.hits);
    families.single(&names::HOTKEY_NEGATIVE_HITS, report.negative_hits);
    families.single(&names::HOTKEY_LEADERS, flights.leaders);
    families.single(&names::HOTKEY_FOLLOWERS, flights.followers);
    families.single(&names::HOTKEY_ELECTIONS, flights.orphans);
    families.single(&names::HOTKEY_CROWDED, flights.crowded);
    families.single(&names::HOTKEY_OVERTAKEN, flights.overtaken);
    families.single(&names::HOTKEY_STALE, flights.stale);
    families.single(&names::HOTKEY_UNCOUNTED, report.uncounted);
    let standings = [Standing::Hot, Standing::Pinned, Standing::Blocked];
    let standings = standings.map(|standing| {
        let of_it = report.keys.iter().filter(|key| key.standing == standing);
        ([hot_report::wire(standing).as_str()], of_it.count())
    });
    families.family(&names::HOTKEY_KEYS, standings);
    families.single(&names::HOTKEY_READ_RATE, report.reads_rate);
    families.single(&names::HOTKEY_THRESHOLD_RATE, report.threshold_rate);
    families.single(&names::HOTKEY_FLIGHTS, report.flights);
    families.single(&names::HOTKEY_CACHE_ENTRIES, report.cache_entries);
    families.single(&names::HOTKEY_CACHE_BYTES, report.cache_bytes);
    families.single(&names::HOTKEY_DETECTION_BYTES, report.detection_bytes);
}
