//! Rate limit of log lines about refused and broken connections, because a peer may retry endlessly.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the same reason is not logged again.
const SILENCE: Duration = Duration::from_mins(1);
/// Most reasons that are remembered; further reasons are not logged, so that no peer floods the log.
const REASONS_MAX: usize = 256;

/// When each reason was logged last.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    said: Mutex<HashMap<String, Instant>>,
}

impl LogLimiter {
    /// Returns whether a reason is to be logged at `now`, and records that it was.
    pub(crate) fn is_news(&self, reason: &str, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| now.saturating_duration_since(*at) < SILENCE);
        if said.contains_key(reason) || said.len() >= REASONS_MAX {
            return false;
        }
        said.insert(reason.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute() {
        let refusals = LogLimiter::default();
        let begun = Instant::now();
        assert!(refusals.is_news("a", begun));
        assert!(!refusals.is_news("a", begun + SILENCE / 2));
        assert!(refusals.is_news("b", begun + SILENCE / 2));
        assert!(refusals.is_news("a", begun + SILENCE));
        let news = (0..2 * REASONS_MAX)
            .filter(|other| refusals.is_news(&other.to_string(), begun + SILENCE));
        assert_eq!(news.count(), REASONS_MAX - 2);
    }
}
