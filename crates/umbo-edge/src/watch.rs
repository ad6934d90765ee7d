//! The timeouts of a connection: when it has waited too long, and for what.
//!
//! Decides only; reads no clock and owns no timer. On the hot path (a request came, was answered,
//! the socket took it) nothing here is armed and no clock is read. A head that arrived in parts and
//! an answer that found no room are rare and armed exactly. Idle time is checked every quarter of
//! its timeout instead of being reset by each request.
//!
//! A waiting answer is judged by bytes: while some of it is not handed over, the socket must take
//! [`EdgeLimits::drained_bytes_min`] in each `write_timeout`, whatever else wakes the connection.

use std::time::{Duration, Instant};

use super::connection::SeenProgress;
use super::limits::EdgeLimits;

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutReason {
    /// A request head began and did not end, or the first one did not come.
    Head,
    /// No request for too long.
    Idle,
    /// The client takes the bytes sent to it too slowly, or not at all.
    Stalled,
}

/// The waits of one connection.
#[derive(Debug)]
pub(super) struct ConnectionWatch {
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    /// Bytes that the client has to take in each `write_timeout` while an answer waits for it.
    drained_min: u64,
    head_since: Option<Instant>,
    idle_since: (u64, Instant),
    drain: Option<Drain>,
}

/// A period with an answer that waits for the client without a break.
#[derive(Debug, Clone, Copy)]
struct Drain {
    since: Instant,
    /// Bytes that the socket had taken at its begin.
    written: u64,
    /// Number of the period: everything was handed over between two of them.
    settled: u64,
}

impl ConnectionWatch {
    /// Begins at `now` with the wait for the first request, which has the timeout of a head.
    pub(super) fn new(limits: &EdgeLimits, now: Instant) -> Self {
        Self {
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            write_timeout: limits.write_timeout,
            drained_min: limits.drained_bytes_min(),
            head_since: Some(now),
            idle_since: (0, now),
            drain: None,
        }
    }

    /// Returns when to look first.
    pub(super) fn first_look(&self) -> Instant {
        self.idle_since.1 + self.longest_sleep().min(self.header_timeout)
    }

    /// Records the state after each turn of the connection. Returns an instant for an earlier look
    /// than planned, if one is needed.
    pub(super) fn observe(
        &mut self,
        seen: &SeenProgress,
        now: impl Fn() -> Instant,
    ) -> Option<Instant> {
        let mut earlier = None;
        if seen.calls > 0 {
            if seen.exchanges > 0 || !seen.has_unread {
                self.head_since = None;
            } else if self.head_since.is_none() {
                let now = now();
                self.head_since = Some(now);
                earlier = Some(now + self.header_timeout);
            }
        }
        if self.observe_drain(seen, &now) {
            let due = self.drain.map(|drain| drain.since + self.write_timeout);
            earlier = earlier.into_iter().chain(due).min();
        }
        earlier
    }

    /// Returns whether an answer has begun to wait for the client.
    fn observe_drain(&mut self, seen: &SeenProgress, now: impl Fn() -> Instant) -> bool {
        if !seen.has_pending_answer() && seen.blocked_since.is_none() {
            self.drain = None;
            return false;
        }
        let settled = seen.settled;
        if self.drain.is_some_and(|drain| drain.settled == settled) {
            return false;
        }
        self.drain = Some(Drain {
            since: seen.blocked_since.unwrap_or_else(now),
            written: seen.written,
            settled,
        });
        true
    }

    /// Returns when to look again, or the timeout that has passed at `now`.
    pub(super) fn look(
        &mut self,
        seen: &SeenProgress,
        now: Instant,
    ) -> Result<Instant, TimeoutReason> {
        let mut next = now + self.longest_sleep();
        if let Some(since) = self.head_since {
            next = next.min(due(since, self.header_timeout, now).ok_or(TimeoutReason::Head)?);
        }
        self.observe_drain(seen, || now);
        if let Some(drain) = &mut self.drain {
            if drain.since + self.write_timeout <= now {
                if seen.written - drain.written < self.drained_min {
                    return Err(TimeoutReason::Stalled);
                }
                (drain.since, drain.written) = (now, seen.written);
            }
            next = next.min(drain.since + self.write_timeout);
        }
        let (calls, since) = self.idle_since;
        if seen.exchanges > 0 || seen.calls != calls || self.drain.is_some() {
            self.idle_since = (seen.calls, now);
        } else if self.head_since.is_none() {
            next = next.min(due(since, self.idle_timeout, now).ok_or(TimeoutReason::Idle)?);
        }
        Ok(next)
    }

    fn longest_sleep(&self) -> Duration {
        (self.idle_timeout / 4).min(self.write_timeout)
    }
}

/// Returns when a wait that began at `since` is over, or `None` if it is over at `now`.
fn due(since: Instant, timeout: Duration, now: Instant) -> Option<Instant> {
    let end = since + timeout;
    (end > now).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> EdgeLimits {
        EdgeLimits {
            header_timeout: SECOND * 5,
            idle_timeout: SECOND * 40,
            write_timeout: SECOND * 20,
            ..EdgeLimits::default()
        }
    }

    /// A connection that had its first request.
    fn quiet() -> SeenProgress {
        SeenProgress {
            calls: 1,
            settled: 1,
            written: 0,
            exchanges: 0,
            waiting: 0,
            unsent: 0,
            has_unread: false,
            blocked_since: None,
        }
    }

    fn watch(start: Instant) -> ConnectionWatch {
        let mut watch = ConnectionWatch::new(&limits(), start);
        assert_eq!(watch.observe(&quiet(), || start), None);
        assert!(watch.look(&quiet(), start).is_ok());
        watch
    }

    #[test]
    fn the_first_request_has_the_time_of_a_head_whatever_is_sent() {
        let start = Instant::now();
        let mut watch = ConnectionWatch::new(&limits(), start);
        assert_eq!(watch.first_look(), start + SECOND * 5);
        let mut silent = SeenProgress {
            calls: 0,
            settled: 0,
            ..quiet()
        };
        assert_eq!(watch.observe(&silent, || start + SECOND), None);
        silent.has_unread = true;
        assert_eq!(watch.observe(&silent, || start + SECOND * 4), None);
        assert_eq!(
            watch.look(&silent, start + SECOND * 4),
            Ok(start + SECOND * 5)
        );
        assert_eq!(
            watch.look(&silent, start + SECOND * 5),
            Err(TimeoutReason::Head)
        );
    }

    #[test]
    fn a_quiet_connection_idles_out_and_a_request_gives_it_new_time() {
        let start = Instant::now();
        let mut watch = watch(start);
        let mut seen = quiet();
        assert_eq!(
            watch.look(&seen, start + SECOND * 39),
            Ok(start + SECOND * 40)
        );
        seen.calls = 2;
        assert!(watch.look(&seen, start + SECOND * 40).is_ok());
        assert!(watch.look(&seen, start + SECOND * 79).is_ok());
        assert_eq!(
            watch.look(&seen, start + SECOND * 80),
            Err(TimeoutReason::Idle)
        );
    }

    #[test]
    fn a_head_in_parts_has_its_time_from_the_first_byte_whatever_follows() {
        let start = Instant::now();
        let mut watch = watch(start);
        let seen = SeenProgress {
            has_unread: true,
            ..quiet()
        };
        assert_eq!(watch.observe(&seen, || start), Some(start + SECOND * 5));
        assert_eq!(watch.observe(&seen, || start + SECOND * 4), None);
        assert!(watch.look(&seen, start + SECOND * 4).is_ok());
        assert_eq!(
            watch.look(&seen, start + SECOND * 5),
            Err(TimeoutReason::Head)
        );
    }

    #[test]
    fn a_write_without_room_an_unread_body_and_an_unsent_frame_all_stall() {
        let start = Instant::now();
        let blocked = SeenProgress {
            blocked_since: Some(start),
            ..quiet()
        };
        let unread = SeenProgress {
            exchanges: 2,
            waiting: 1,
            ..quiet()
        };
        let unsent = SeenProgress {
            unsent: 1,
            ..quiet()
        };
        for mut seen in [blocked, unread, unsent] {
            let mut watch = watch(start);
            assert_eq!(watch.observe(&seen, || start), Some(start + SECOND * 20));
            seen.written = 100;
            assert_eq!(watch.observe(&seen, || start + SECOND), None);
            assert_eq!(
                watch.look(&seen, start + SECOND * 19),
                Ok(start + SECOND * 20)
            );
            assert_eq!(
                watch.look(&seen, start + SECOND * 20),
                Err(TimeoutReason::Stalled)
            );
        }
    }

    #[test]
    fn a_byte_now_and_then_gives_no_new_time_and_a_steady_rate_does() {
        let start = Instant::now();
        let mut watch = watch(start);
        let mut seen = SeenProgress {
            blocked_since: Some(start),
            ..quiet()
        };
        assert!(watch.observe(&seen, || start).is_some());
        for seconds in 1..20 {
            // The socket took a little, and found no room again.
            seen.written += 10;
            seen.blocked_since = Some(start + SECOND * seconds);
            assert_eq!(watch.observe(&seen, || start), None);
        }
        let mut steady = seen;
        steady.written = 20 << 10;
        let mut other = ConnectionWatch { ..watch };
        assert_eq!(
            watch.look(&seen, start + SECOND * 20),
            Err(TimeoutReason::Stalled)
        );
        assert!(other.look(&steady, start + SECOND * 20).is_ok());
        assert!(other.look(&steady, start + SECOND * 39).is_ok());
        steady.written += 10;
        assert_eq!(
            other.look(&steady, start + SECOND * 40),
            Err(TimeoutReason::Stalled)
        );
    }

    #[test]
    fn answers_one_after_the_other_are_not_one_that_waits() {
        let start = Instant::now();
        let mut watch = watch(start);
        let mut seen = SeenProgress {
            exchanges: 1,
            ..quiet()
        };
        for seconds in 0..100 {
            // Each look finds one under way, and each time another one.
            let now = start + SECOND * seconds * 10;
            seen.settled += 1;
            seen.calls += 1;
            assert!(watch.look(&seen, now).is_ok());
        }
    }

    #[test]
    fn a_handler_that_takes_its_time_is_nobodys_fault() {
        let start = Instant::now();
        let mut watch = watch(start);
        let seen = SeenProgress {
            exchanges: 1,
            waiting: 1,
            ..quiet()
        };
        for seconds in 0..100 {
            assert!(watch.look(&seen, start + SECOND * seconds * 10).is_ok());
        }
    }
}
