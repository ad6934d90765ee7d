//! Metrics of the hot-key layer.
//!
//! Owns the series and their order. The owner of the layer passes the values in, and bounds the number of
//! keys: only those read most, each by a hash that does not reveal the key.

use umbo_api::hot::HotPod;

use super::visit::Families;
use crate::metric_names as names;

/// State of the hot-key layer at the time of a scrape; totals since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HotKeyGauges {
    /// What the layer does.
    pub layer: HotPod,
    /// Keys by what holds of them.
    pub standings: [(&'static str, u64); 3],
    /// Hot keys that are read most.
    pub keys: Vec<HotKeySeries>,
}

/// A key with series of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HotKeySeries {
    /// Name of its namespace.
    pub namespace: String,
    /// Hash of the key.
    pub key: String,
    /// Reads a second over the last seconds.
    pub read_rate: f64,
    /// Hits over reads, of 1.
    pub hit_ratio: f64,
}

impl HotKeyGauges {
    pub(super) fn visit(&self, families: &mut Families<'_>) {
        let layer = &self.layer;
        let totals = [
            (&names::HOTKEY_READS, layer.reads),
            (&names::HOTKEY_HITS, layer.hits),
            (&names::HOTKEY_NEGATIVE_HITS, layer.negative_hits),
            (&names::HOTKEY_LEADERS, layer.leaders),
            (&names::HOTKEY_FOLLOWERS, layer.followers),
            (&names::HOTKEY_ELECTIONS, layer.elections),
            (&names::HOTKEY_CROWDED, layer.crowded),
            (&names::HOTKEY_OVERTAKEN, layer.overtaken),
            (&names::HOTKEY_STALE, layer.stale),
            (&names::HOTKEY_UNCOUNTED, layer.uncounted),
        ];
        for (metric, total) in totals {
            families.single(metric, total);
        }
        let standings = self.standings.iter();
        families.family(&names::HOTKEY_KEYS, standings.map(|(name, n)| ([*name], n)));
        families.single(&names::HOTKEY_READ_RATE, layer.reads_rate);
        families.single(&names::HOTKEY_THRESHOLD_RATE, layer.threshold_rate);
        let sizes = [
            (&names::HOTKEY_FLIGHTS, layer.flights),
            (&names::HOTKEY_CACHE_ENTRIES, layer.cache_entries),
            (&names::HOTKEY_CACHE_BYTES, layer.cache_bytes),
            (&names::HOTKEY_DETECTION_BYTES, layer.detection_bytes),
        ];
        for (metric, size) in sizes {
            families.single(metric, size);
        }
        let labels = |key: &HotKeySeries| [key.namespace.clone(), key.key.clone()];
        let rates = self.keys.iter().map(|key| (labels(key), key.read_rate));
        families.family(&names::HOTKEY_KEY_READ_RATE, rates);
        let ratios = self.keys.iter().map(|key| (labels(key), key.hit_ratio));
        families.family(&names::HOTKEY_KEY_HIT_RATIO, ratios);
    }
}
