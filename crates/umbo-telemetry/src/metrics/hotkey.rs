//! Metrics of the hot-key layer.
//!
//! Owns the series and their order. The owner of the layer passes the values in, and bounds the number of
//! keys: only those read most, each by a hash that does not reveal the key.

use super::visit::Families;
use crate::metric_names as names;

/// State of the hot-key layer at the time of a scrape; totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HotKeyGauges<'a> {
    /// Reads that the detection has counted.
    pub reads: u64,
    /// Reads answered from the local cache.
    pub hits: u64,
    /// Reads answered from the local cache that found nothing.
    pub negative_hits: u64,
    /// Reads of the store that others could join.
    pub leaders: u64,
    /// Reads that joined one in flight.
    pub followers: u64,
    /// Leaders that were replaced.
    pub elections: u64,
    /// Reads refused because too many waited.
    pub crowded: u64,
    /// Reads in flight that others stopped joining.
    pub overtaken: u64,
    /// Results not cached because a write came in between.
    pub stale: u64,
    /// Reads not counted.
    pub uncounted: u64,
    /// Keys by what holds of them.
    pub standings: &'a [(&'static str, u64)],
    /// Reads a second of the dispatcher.
    pub read_rate: f64,
    /// Reads a second that make a key hot.
    pub threshold_rate: f64,
    /// Reads of the store that others can join now.
    pub flights: u64,
    /// Results in the local cache.
    pub cache_entries: u64,
    /// Bytes that they take.
    pub cache_bytes: u64,
    /// Memory of the detection.
    pub detection_bytes: u64,
    /// Hot keys that are read most.
    pub keys: &'a [HotKeySeries<'a>],
}

/// A key with series of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HotKeySeries<'a> {
    /// Name of its namespace.
    pub namespace: &'a str,
    /// Hash of the key.
    pub key: &'a str,
    /// Reads a second over the last seconds.
    pub read_rate: f64,
    /// Hits over reads, of 1.
    pub hit_ratio: f64,
}

impl HotKeyGauges<'_> {
    pub(super) fn visit(&self, families: &mut Families<'_>) {
        let totals = [
            (&names::HOTKEY_READS, self.reads),
            (&names::HOTKEY_HITS, self.hits),
            (&names::HOTKEY_NEGATIVE_HITS, self.negative_hits),
            (&names::HOTKEY_LEADERS, self.leaders),
            (&names::HOTKEY_FOLLOWERS, self.followers),
            (&names::HOTKEY_ELECTIONS, self.elections),
            (&names::HOTKEY_CROWDED, self.crowded),
            (&names::HOTKEY_OVERTAKEN, self.overtaken),
            (&names::HOTKEY_STALE, self.stale),
            (&names::HOTKEY_UNCOUNTED, self.uncounted),
        ];
        for (metric, total) in totals {
            families.single(metric, total);
        }
        let standings = self.standings.iter();
        families.family(&names::HOTKEY_KEYS, standings.map(|(name, n)| ([*name], n)));
        families.single(&names::HOTKEY_READ_RATE, self.read_rate);
        families.single(&names::HOTKEY_THRESHOLD_RATE, self.threshold_rate);
        let sizes = [
            (&names::HOTKEY_FLIGHTS, self.flights),
            (&names::HOTKEY_CACHE_ENTRIES, self.cache_entries),
            (&names::HOTKEY_CACHE_BYTES, self.cache_bytes),
            (&names::HOTKEY_DETECTION_BYTES, self.detection_bytes),
        ];
        for (metric, size) in sizes {
            families.single(metric, size);
        }
        let labels = |key: &HotKeySeries<'_>| [String::from(key.namespace), String::from(key.key)];
        let rates = self.keys.iter().map(|key| (labels(key), key.read_rate));
        families.family(&names::HOTKEY_KEY_READ_RATE, rates);
        let ratios = self.keys.iter().map(|key| (labels(key), key.hit_ratio));
        families.family(&names::HOTKEY_KEY_HIT_RATIO, ratios);
    }
}
