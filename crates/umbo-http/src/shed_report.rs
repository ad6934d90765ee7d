//! Why a shard shed a request, for its answer.
//!
//! Hot path: a refusal must cost little, so the text is written without `format!`.

use std::time::Duration;

use umbo_overload::ShedReason;
use umbo_types::{Criticality, ShardId};

/// Why a request was shed, for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShedReport {
    /// The shard that is overloaded.
    pub shard: ShardId,
    /// The tier that was shed.
    pub tier: Criticality,
    /// Why its queue has shed it.
    pub reason: ShedReason,
    /// How long to stay away, without jitter.
    pub wait: Duration,
}

impl ShedReport {
    /// Writes the reason, piece by piece.
    pub fn describe(&self, mut write: impl FnMut(&str)) {
        write("shard ");
        write(itoa::Buffer::new().format(self.shard.0));
        write(" is overloaded and tier ");
        write(self.tier.as_str());
        write(" is shed: ");
        write(match self.reason {
            ShedReason::Overload => "its queue has been slow for a while",
            ShedReason::Length => "the queue is full",
            ShedReason::Work => "the queue holds too many request units",
            ShedReason::Displaced => "a higher tier took its place",
            ShedReason::Share => "its caller has used up its share of the shard's time",
        });
    }
}

impl std::fmt::Display for ShedReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut written = Ok(());
        self.describe(|text| {
            if written.is_ok() {
                written = f.write_str(text);
            }
        });
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_shard_tier_and_reason() {
        let report = ShedReport {
            shard: ShardId(12),
            tier: Criticality::SheddablePlus,
            reason: ShedReason::Length,
            wait: Duration::ZERO,
        };
        assert_eq!(
            report.to_string(),
            "shard 12 is overloaded and tier sheddable-plus is shed: the queue is full"
        );
    }
}
