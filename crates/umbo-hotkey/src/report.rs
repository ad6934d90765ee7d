//! What operators are shown: the hot keys, and what the layer has saved.

use std::time::Duration;

use umbo_types::CallerId;

use crate::coalesce::board::BoardTotals;
use crate::detector::Heat;
use crate::hot_set::Standing;
use crate::key::ReadKey;

/// One key of the hot set.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKeyReport {
    /// The key.
    pub key: ReadKey,
    /// What holds of it.
    pub standing: Standing,
    /// Whether the detector finds it hot at this moment, whatever its standing is.
    pub is_hot: bool,
    /// How much it is read; zero where the detector does not find it hot.
    pub heat: Heat,
    /// How long it has been hot; zero where it is not.
    pub hot_for: Duration,
    /// Reads through the layer since it came into the hot set; of a blocked one, all that was refused.
    pub reads: u64,
    /// Those of them that the local cache has answered.
    pub hits: u64,
    /// Callers that read it most, with their share of its reads, largest first; from samples.
    pub callers: Vec<(CallerId, f64)>,
}

/// State of the layer, with totals since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Keys of the hot set of which a reader has told the bytes; those read most come first.
    pub keys: Vec<HotKeyReport>,
    /// Reads a second of the whole pod, decayed.
    pub reads_rate: f64,
    /// Reads a second that make a key hot at this moment.
    pub threshold_rate: f64,
    /// Reads answered from the local cache.
    pub hits: u64,
    /// Those of them that said that the key is absent.
    pub negative_hits: u64,
    /// Reads that the sketches have not counted, for want of room at that moment.
    pub uncounted: u64,
    /// What has happened to the other reads.
    pub board: BoardTotals,
    /// Answers in the local cache.
    pub cache_entries: u64,
    /// Bytes that they take.
    pub cache_bytes: u64,
    /// Bytes of answers kept for a moment because their keys may become hot.
    pub afterglow_bytes: u64,
    /// Bytes of answers on their way to those who waited for them.
    pub landed_bytes: u64,
    /// Reads of the store that others may join at this moment.
    pub flights: usize,
    /// Memory of the detection, in bytes: sketches and hot set, without answers.
    pub detection_bytes: usize,
}

impl Report {
    /// Returns the share of shared reads that did not go to the store, of 1; zero before the first.
    #[expect(clippy::cast_precision_loss)] // a share for people to look at
    pub fn saved_share(&self) -> f64 {
        let saved = self.hits + self.board.afterglows + self.board.followers;
        let all = saved + self.board.leaders;
        saved as f64 / all.max(1) as f64
    }
}
