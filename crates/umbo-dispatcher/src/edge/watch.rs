//! When a connection has waited too long, and for what.
//!
//! Decides only; reads no clock and owns no timer. On the hot path (a request came, was answered,
//! the socket took it) nothing here is armed and no clock is read: a head that arrived in parts and
//! a write that found no room are rare and armed exactly, idling is looked at every quarter of its
//! timeout instead of being reset by each request.

use std::time::{Duration, Instant};

use super::connection::Seen;
use super::limits::EdgeLimits;

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// A request head began and did not end.
    Head,
    /// No request for too long.
    Idle,
    /// The client does not take what is sent.
    Stalled,
}

/// The waits of one connection.
#[derive(Debug)]
pub(super) struct Watch {
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    head_since: Option<Instant>,
    idle_since: (u64, Instant),
    /// Frames handed over when a body was first seen to wait for the client, and that moment.
    stalled_since: Option<(u64, Instant)>,
}

impl Watch {
    pub(super) fn new(limits: &EdgeLimits, now: Instant) -> Self {
        Self {
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            write_timeout: limits.write_timeout,
            head_since: None,
            idle_since: (0, now),
            stalled_since: None,
        }
    }

    /// Returns when to look first.
    pub(super) fn first_look(&self) -> Instant {
        self.idle_since.1 + self.longest_sleep()
    }

    /// Takes note of what is seen after each turn of the connection. Returns an instant where one
    /// is to be looked at earlier than planned.
    pub(super) fn observe(
        &mut self,
        seen: &Seen,
        now: impl FnOnce() -> Instant,
    ) -> Option<Instant> {
        if seen.exchanges == 0 && seen.has_unread {
            if self.head_since.is_none() {
                let now = now();
                self.head_since = Some(now);
                return Some(now + self.header_timeout);
            }
        } else {
            self.head_since = None;
        }
        seen.blocked_since.map(|since| since + self.write_timeout)
    }

    /// Says whether something has lasted too long at `now`, or else when to look again.
    pub(super) fn look(&mut self, seen: &Seen, now: Instant) -> Result<Instant, Expiry> {
        let mut next = now + self.longest_sleep();
        if let Some(since) = seen.blocked_since {
            next = next.min(due(since, self.write_timeout, now).ok_or(Expiry::Stalled)?);
        }
        if let Some(since) = self.head_since {
            next = next.min(due(since, self.header_timeout, now).ok_or(Expiry::Head)?);
        }
        if seen.exchanges > seen.waiting {
            let (frames, since) = self.stalled_since.unwrap_or((seen.frames, now));
            if frames == seen.frames {
                next = next.min(due(since, self.write_timeout, now).ok_or(Expiry::Stalled)?);
                self.stalled_since = Some((frames, since));
            } else {
                self.stalled_since = Some((seen.frames, now));
            }
        } else {
            self.stalled_since = None;
        }
        let (calls, since) = self.idle_since;
        if seen.exchanges > 0 || seen.calls != calls {
            self.idle_since = (seen.calls, now);
        } else if self.head_since.is_none() {
            next = next.min(due(since, self.idle_timeout, now).ok_or(Expiry::Idle)?);
        }
        Ok(next)
    }

    fn longest_sleep(&self) -> Duration {
        (self.idle_timeout / 4).min(self.write_timeout)
    }
}

/// Returns when a wait that began at `since` is over, none where it is.
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

    fn quiet() -> Seen {
        Seen {
            calls: 0,
            frames: 0,
            exchanges: 0,
            waiting: 0,
            has_unread: false,
            blocked_since: None,
        }
    }

    #[test]
    fn a_quiet_connection_idles_out_and_a_request_gives_it_new_time() {
        let start = Instant::now();
        let mut watch = Watch::new(&limits(), start);
        assert_eq!(watch.first_look(), start + SECOND * 10);
        let mut seen = quiet();
        assert_eq!(
            watch.look(&seen, start + SECOND * 39),
            Ok(start + SECOND * 40)
        );
        seen.calls = 1;
        assert!(watch.look(&seen, start + SECOND * 40).is_ok());
        assert!(watch.look(&seen, start + SECOND * 79).is_ok());
        assert_eq!(watch.look(&seen, start + SECOND * 80), Err(Expiry::Idle));
    }

    #[test]
    fn a_head_in_parts_has_its_time_from_the_first_byte_whatever_follows() {
        let start = Instant::now();
        let mut watch = Watch::new(&limits(), start);
        let seen = Seen {
            has_unread: true,
            ..quiet()
        };
        assert_eq!(watch.observe(&seen, || start), Some(start + SECOND * 5));
        assert_eq!(watch.observe(&seen, || start + SECOND * 4), None);
        assert!(watch.look(&seen, start + SECOND * 4).is_ok());
        assert_eq!(watch.look(&seen, start + SECOND * 5), Err(Expiry::Head));
    }

    #[test]
    fn a_write_without_room_and_an_unread_body_both_stall() {
        let start = Instant::now();
        let mut watch = Watch::new(&limits(), start);
        let blocked = Seen {
            exchanges: 1,
            blocked_since: Some(start),
            ..quiet()
        };
        assert_eq!(watch.observe(&blocked, || start), Some(start + SECOND * 20));
        assert_eq!(
            watch.look(&blocked, start + SECOND * 20),
            Err(Expiry::Stalled)
        );

        let mut watch = Watch::new(&limits(), start);
        let mut unread = Seen {
            exchanges: 2,
            waiting: 1,
            ..quiet()
        };
        assert!(watch.look(&unread, start).is_ok());
        unread.frames = 7;
        assert!(watch.look(&unread, start + SECOND * 20).is_ok());
        assert_eq!(
            watch.look(&unread, start + SECOND * 40),
            Err(Expiry::Stalled)
        );
    }

    #[test]
    fn a_handler_that_takes_its_time_is_nobodys_fault() {
        let start = Instant::now();
        let mut watch = Watch::new(&limits(), start);
        let seen = Seen {
            calls: 1,
            exchanges: 1,
            waiting: 1,
            ..quiet()
        };
        for seconds in 0..100 {
            assert!(watch.look(&seen, start + SECOND * seconds * 10).is_ok());
        }
    }
}
