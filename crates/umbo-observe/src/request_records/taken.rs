//! What came since the last take, to be written down.

use std::mem;
use std::sync::Arc;

use super::reasons::{ReasonCount, RefusalCount};
use super::record::RequestRecord;
use super::{RequestRecords, Ring};

/// Records and counts since they were last taken.
#[derive(Debug, Default, PartialEq)]
pub struct TakenRecords {
    /// The records; the older ones of a caller come first.
    pub records: Vec<Arc<RequestRecord>>,
    /// Why callers were refused, by caller.
    pub refusals: Vec<(Box<str>, Vec<ReasonCount>)>,
    /// Records without room.
    pub left_out: usize,
}

impl RequestRecords {
    /// Takes the refused, failed and slow requests since the last take, and the refusals that were counted. Of more than
    /// `records_max` records, the oldest of the callers that have the most are left out. All stay in the ring.
    pub fn take(&self, records_max: usize) -> TakenRecords {
        let mut ring = self.ring();
        let Ring {
            callers, records, ..
        } = &mut *ring;
        let part = fair_part(callers.iter().map(|one| one.fresh).collect(), records_max);
        let mut taken = TakenRecords::default();
        for caller in callers {
            let (fresh, before) = (mem::take(&mut caller.fresh), taken.records.len());
            let newest = caller.records.iter().rev();
            let newest = newest.filter_map(|place| records[*place as usize].as_ref());
            let newest = newest.map(|found| &found.record);
            let newest = newest.filter(|record| record.is_to_be_written());
            taken.records.extend(newest.take(fresh.min(part)).cloned());
            taken.records[before..].reverse();
            taken.left_out += fresh - (taken.records.len() - before);
            let counts = caller.reasons.iter_mut();
            let counts: Vec<_> = counts.filter_map(RefusalCount::take).collect();
            if !counts.is_empty() {
                taken.refusals.push((caller.name.clone(), counts));
            }
        }
        taken
    }
}

/// Returns how many records a caller may have, so that callers with so many have at most `max` together.
fn fair_part(mut counts: Vec<usize>, mut max: usize) -> usize {
    counts.sort_unstable();
    for (at, count) in counts.iter().enumerate() {
        let part = max / (counts.len() - at);
        if *count > part {
            return part;
        }
        max -= count;
    }
    usize::MAX
}
