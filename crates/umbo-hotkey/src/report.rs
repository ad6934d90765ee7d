//! Reports for operators: the hot keys, and the reads that the shield has saved.

use std::time::Duration;

use umbo_types::CallerId;

use crate::coalesce::in_flight::FlightTotals;
use crate::detector::Heat;
use crate::hot_set::Standing;
use crate::key::ReadKey;

/// One key of the hot set.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKeyReport {
    /// The key.
    pub key: ReadKey,
    /// Why the key is in the hot set.
    pub standing: Standing,
    /// Whether the detector finds the key hot at this moment, with any standing.
    pub is_hot: bool,
    /// How much the key is read; zero if the detector does not find it hot.
    pub heat: Heat,
    /// How long the key has been hot; zero if it is not.
    pub hot_for: Duration,
    /// Reads since the key came into the hot set; for a blocked key, the reads that were refused.
    pub reads: u64,
    /// Reads that the local cache has answered since the key came into the hot set.
    pub hits: u64,
    /// Callers that read the key most, with their share of its reads, largest first; from samples.
    pub callers: Vec<(CallerId, f64)>,
}

/// State of the shield, with totals since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Keys of the hot set whose bytes are known, the most read ones first.
    pub keys: Vec<HotKeyReport>,
    /// Reads a second of the whole dispatcher, decayed.
    pub reads_rate: f64,
    /// Reads a second that make a key hot at this moment.
    pub threshold_rate: f64,
    /// Reads that the sketches have counted.
    pub reads: u64,
    /// Reads answered from the local cache.
    pub hits: u64,
    /// Reads answered from the local cache that found nothing.
    pub negative_hits: u64,
    /// Reads that the sketches have not counted, because the detector held them at that moment.
    pub uncounted: u64,
    /// Counts of single-flight.
    pub flight_totals: FlightTotals,
    /// Reads of the store that others may join at this moment.
    pub flights: usize,
    /// Results in the local cache.
    pub cache_entries: u64,
    /// Bytes of the results in the local cache.
    pub cache_bytes: u64,
    /// Bytes of results that followers have still to pick up.
    pub held_bytes: u64,
    /// Memory of the detection, in bytes: sketches and hot set, without results.
    pub detection_bytes: usize,
}

impl Report {
    /// Returns the share of all reads that did not go to the store, of 1; zero before the first.
    #[expect(clippy::cast_precision_loss)] // a share for people to look at
    pub fn saved_share(&self) -> f64 {
        let FlightTotals {
            followers, orphans, ..
        } = self.flight_totals;
        let saved = self.hits + followers.saturating_sub(orphans);
        (saved as f64 / self.reads.max(1) as f64).min(1.0)
    }
}
