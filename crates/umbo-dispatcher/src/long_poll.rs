//! A request that waits for something to happen: the wait is no time of service.
//!
//! Shared by the handler that waits and the guard of the request, so that a client that leaves meanwhile counts for
//! neither the latency nor the failures of the server.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The wait of one request; it has at most one.
#[derive(Debug, Default)]
pub struct LongPoll {
    began: OnceLock<Instant>,
    ended: OnceLock<Instant>,
}

impl LongPoll {
    /// Records that the wait begins; only the first call counts.
    pub fn begin(&self, now: Instant) {
        let _ = self.began.set(now);
    }

    /// Records that the wait is over; only the first call counts.
    pub fn end(&self, now: Instant) {
        let _ = self.ended.set(now);
    }

    /// Returns whether the request waits.
    pub(crate) fn is_under_way(&self) -> bool {
        self.began.get().is_some() && self.ended.get().is_none()
    }

    /// Returns how long the request has waited.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        let ended = self.ended.get().copied().unwrap_or(now);
        let began = self.began.get();
        began.map_or(Duration::ZERO, |began| {
            ended.saturating_duration_since(*began)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_until_it_ends() {
        let (poll, start) = (LongPoll::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!poll.is_under_way() && poll.waited(at(9)).is_zero());
        poll.begin(at(1));
        assert!(poll.is_under_way());
        assert_eq!(poll.waited(at(4)), Duration::from_secs(3));
        poll.end(at(5));
        assert!(!poll.is_under_way());
        assert_eq!(poll.waited(at(9)), Duration::from_secs(4));
    }
}
