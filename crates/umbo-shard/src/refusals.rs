//! What was said of refused peers lately: one that keeps on trying is no news.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the same is not said again.
const SILENCE: Duration = Duration::from_mins(1);
/// Reasons that are remembered; of more of them each is said.
const REASONS_MAX: usize = 256;

/// When which reason was said last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    said: Mutex<HashMap<String, Instant>>,
}

impl Refusals {
    /// Says whether a reason is worth a word at `now`, and remembers that it was said.
    pub(crate) fn is_news(&self, reason: &str, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| now.saturating_duration_since(*at) < SILENCE);
        if said.contains_key(reason) {
            return false;
        }
        if said.len() < REASONS_MAX {
            said.insert(reason.to_owned(), now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute() {
        let refusals = Refusals::default();
        let begun = Instant::now();
        assert!(refusals.is_news("a", begun));
        assert!(!refusals.is_news("a", begun + SILENCE / 2));
        assert!(refusals.is_news("b", begun + SILENCE / 2));
        assert!(refusals.is_news("a", begun + SILENCE));
        for other in 0..2 * REASONS_MAX {
            refusals.is_news(&other.to_string(), begun + SILENCE);
        }
        assert!(refusals.said.lock().unwrap().len() <= REASONS_MAX);
    }
}
