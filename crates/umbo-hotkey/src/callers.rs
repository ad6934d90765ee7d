//! The callers that read a hot key most, in constant space.
//!
//! Space-Saving (Metwally et al. 2005) with eight counters. Fed with a sample, because people look
//! at it and no decision depends on it.

use umbo_types::CallerId;

/// Callers that are kept apart.
const CALLERS_MAX: usize = 8;

/// Samples of the callers of one key.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    counts: Vec<(CallerId, u64)>,
    total: u64,
}

impl Callers {
    /// Counts one sample.
    pub(crate) fn record(&mut self, caller: &str) {
        self.total += 1;
        if let Some((_, count)) = self
            .counts
            .iter_mut()
            .find(|(held, _)| held.as_str() == caller)
        {
            *count += 1;
        } else if self.counts.len() < CALLERS_MAX {
            self.counts.push((CallerId::new(caller), 1));
        } else if let Some(least) = self.counts.iter_mut().min_by_key(|(_, count)| *count) {
            *least = (CallerId::new(caller), least.1 + 1);
        }
    }

    /// Makes old samples count half, so that the shares are recent.
    pub(crate) fn halve(&mut self) {
        for (_, count) in &mut self.counts {
            *count /= 2;
        }
        self.counts.retain(|(_, count)| *count > 0);
        self.total /= 2;
    }

    /// Returns the callers with their share of the reads, largest first.
    #[expect(clippy::cast_precision_loss)] // shares for people to look at
    pub(crate) fn shares(&self) -> Vec<(CallerId, f64)> {
        let total = self.total.max(1) as f64;
        let share = |(caller, count): &(CallerId, u64)| {
            let share = (*count as f64 / total).min(1.0);
            (caller.clone(), share)
        };
        let mut shares: Vec<_> = self.counts.iter().map(share).collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_caller_comes_first_among_many() {
        let mut callers = Callers::default();
        for read in 0..10_000_u32 {
            let caller = match read % 10 {
                0..=5 => "crawler".to_owned(),
                6..=8 => "shop".to_owned(),
                _ => format!("passer-by-{read}"),
            };
            callers.record(&caller);
        }
        let shares = callers.shares();
        assert_eq!(shares[0].0.as_str(), "crawler");
        assert!((shares[0].1 - 0.6).abs() < 0.01, "{shares:?}");
        assert_eq!(shares[1].0.as_str(), "shop");
        assert_eq!(shares.len(), CALLERS_MAX);
    }

    #[test]
    fn a_caller_that_stopped_is_forgotten() {
        let mut callers = Callers::default();
        callers.record("gone");
        for _ in 0..100 {
            callers.record("here");
        }
        callers.halve();
        let names: Vec<_> = callers.shares().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [CallerId::new("here")]);
    }
}
