//! Who was told to come back when, so that whoever waits as told goes before newcomers.
//!
//! A fixed table of words, made at the first rejection and never grown: a set of four by hash, each
//! word the rest of the hash and the instant. What does not fit replaces what is due first; whoever
//! is forgotten counts as a newcomer, which costs a second wait and nothing else.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::schedule::Moment;

/// Words of the table: half a megabyte.
const WORDS: usize = 1 << 16;
const WAYS: usize = 4;
/// Instants are kept in steps of this many milliseconds, rounded down.
const STEP_MS: u64 = 8;
/// How long a promise is kept for one who is late, in milliseconds.
const KEPT_MS: u64 = 60_000;

/// The promises of a limiter.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    words: OnceLock<Box<[AtomicU64]>>,
}

/// What is known of somebody who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Was promised nothing that still counts.
    None,
    /// Was told to come later than this.
    Early(Moment),
    /// Comes as told.
    Due,
}

impl Promises {
    /// Notes that `who` was told to come back at `due`.
    pub(crate) fn make(&self, who: u64, due: Moment) {
        let words = self
            .words
            .get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        let set = set_of(words, who);
        let own = |word: &&AtomicU64| word.load(Relaxed) >> 32 == tag(who);
        let first = set
            .iter()
            .min_by_key(|word| word.load(Relaxed) & u64::from(u32::MAX));
        let word = set.iter().find(own).or(first);
        if let Some(word) = word {
            word.store(
                tag(who) << 32 | (due.0 / STEP_MS) & u64::from(u32::MAX),
                Relaxed,
            );
        }
    }

    /// Says what `who` was told.
    pub(crate) fn claim(&self, who: u64, now: Moment) -> Claim {
        let Some(words) = self.words.get() else {
            return Claim::None;
        };
        let found = set_of(words, who)
            .iter()
            .map(|word| word.load(Relaxed))
            .find(|word| word >> 32 == tag(who));
        let Some(word) = found else {
            return Claim::None;
        };
        // Half the range of the steps is seven months.
        let late = ((now.0 / STEP_MS) as u32)
            .wrapping_sub(word as u32)
            .cast_signed();
        if late < 0 {
            Claim::Early(Moment(now.0 + u64::from(late.unsigned_abs()) * STEP_MS))
        } else if u64::from(late.unsigned_abs()) * STEP_MS <= KEPT_MS {
            Claim::Due
        } else {
            Claim::None
        }
    }

    /// Forgets a promise that was kept.
    pub(crate) fn keep(&self, who: u64) {
        if let Some(words) = self.words.get() {
            for word in set_of(words, who) {
                let found = word.load(Relaxed);
                if found >> 32 == tag(who) {
                    // Where another thread was faster there is another promise now.
                    let _ = word.compare_exchange(found, 0, Relaxed, Relaxed);
                }
            }
        }
    }
}

fn set_of(words: &[AtomicU64], who: u64) -> &[AtomicU64] {
    let sets = (words.len() / WAYS) as u64;
    let first = (who % sets) as usize * WAYS;
    &words[first..first + WAYS]
}

/// The upper half of the hash, never 0, which stands for an empty word.
const fn tag(who: u64) -> u64 {
    let tag = who >> 32;
    if tag == 0 { 1 } else { tag }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: u64 = 0x1234_5678_9abc_def0;

    #[test]
    fn a_promise_is_early_then_due_then_forgotten() {
        let promises = Promises::default();
        assert_eq!(promises.claim(WHO, Moment(0)), Claim::None);
        promises.make(WHO, Moment(800));
        assert_eq!(promises.claim(WHO, Moment(80)), Claim::Early(Moment(800)));
        assert_eq!(promises.claim(WHO, Moment(800)), Claim::Due);
        assert_eq!(promises.claim(!WHO, Moment(800)), Claim::None);
        assert_eq!(promises.claim(WHO, Moment(60_900)), Claim::None);
    }

    #[test]
    fn a_promise_is_kept_once() {
        let promises = Promises::default();
        promises.make(WHO, Moment(80));
        promises.make(WHO, Moment(160));
        assert_eq!(
            promises.claim(WHO, Moment(100)),
            Claim::Early(Moment(164)),
            "the later one counts"
        );
        promises.keep(WHO);
        assert_eq!(promises.claim(WHO, Moment(200)), Claim::None);
    }
}
