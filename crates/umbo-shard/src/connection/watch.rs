//! Timeouts of a connection: a silent peer, an incomplete frame or request, and unread answers.
//!
//! Time is counted in ticks of the runtime's timer, one at a time: a pause of the node itself counts as one
//! tick, so that peers are not blamed for it.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::connection_end::ConnectionEnd;
use crate::limits::{NodeLimits, SILENCE_MAX, TICK};

/// Counters of a connection that show its progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ConnectionProgress {
    /// Reads that returned bytes.
    pub(super) reads: u64,
    /// Frames received.
    pub(super) frames: u64,
    /// Chunks of large requests among them.
    pub(super) chunks: u64,
    /// Writes to the socket, and received credit.
    pub(super) sent: u64,
    /// Whether a frame, or a large request, is incomplete.
    pub(super) is_within_frame: bool,
    pub(super) is_within_message: bool,
    /// Whether there is something to send.
    pub(super) is_sending: bool,
}

/// How long a connection has made no progress, in each respect.
pub(super) struct ProgressWatch {
    timer: Pin<Box<Sleep>>,
    tick: Duration,
    /// Timeout for frames, large requests and answers.
    within: Duration,
    last: ConnectionProgress,
    silent: Duration,
    frame_stalled: Duration,
    message_stalled: Duration,
    untaken: Duration,
}

impl ProgressWatch {
    pub(super) fn new(limits: &NodeLimits) -> Self {
        let tick = TICK.min(limits.frame_timeout);
        Self {
            timer: Box::pin(sleep(tick)),
            tick,
            within: limits.frame_timeout,
            last: ConnectionProgress::default(),
            silent: Duration::ZERO,
            frame_stalled: Duration::ZERO,
            message_stalled: Duration::ZERO,
            untaken: Duration::ZERO,
        }
    }

    /// Returns whether a tick is due.
    pub(super) fn is_due(&mut self, context: &mut Context<'_>) -> bool {
        if self.timer.as_mut().poll(context).is_pending() {
            return false;
        }
        self.timer.as_mut().reset(Instant::now() + self.tick);
        // Polled again, so that the next tick wakes the task.
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        true
    }

    /// Compares the counters with the counters of the last tick.
    pub(super) fn look(&mut self, now: ConnectionProgress) -> Result<(), ConnectionEnd> {
        let last = std::mem::replace(&mut self.last, now);
        let tick = self.tick;
        let count = |since: &mut Duration, is_stuck: bool| {
            *since = if is_stuck {
                *since + tick
            } else {
                Duration::ZERO
            };
            *since
        };
        let is_stuck = now.is_within_frame && now.frames == last.frames;
        if count(&mut self.frame_stalled, is_stuck) >= self.within {
            return Err(ConnectionEnd::Stalled(self.frame_stalled));
        }
        let is_stuck = now.is_within_message && now.chunks == last.chunks;
        if count(&mut self.message_stalled, is_stuck) >= self.within {
            return Err(ConnectionEnd::Stalled(self.message_stalled));
        }
        let is_stuck = now.is_sending && now.sent == last.sent;
        if count(&mut self.untaken, is_stuck) >= self.within {
            return Err(ConnectionEnd::Untaken(self.untaken));
        }
        if count(&mut self.silent, now.reads == last.reads) >= SILENCE_MAX {
            return Err(ConnectionEnd::Silent(self.silent));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> ProgressWatch {
        ProgressWatch::new(&NodeLimits {
            frame_timeout: 3 * TICK,
            ..NodeLimits::default()
        })
    }

    #[tokio::test]
    async fn a_peer_that_says_nothing_is_given_up() {
        let mut watch = watch();
        let ticks = (1..100).find(|_| watch.look(ConnectionProgress::default()).is_err());
        assert_eq!(ticks, Some(SILENCE_MAX.as_secs()));
    }

    #[tokio::test]
    async fn what_goes_on_is_waited_for() {
        let mut watch = watch();
        for step in 1..100 {
            let now = ConnectionProgress {
                reads: step,
                frames: step / 2,
                chunks: step / 2,
                sent: step / 2,
                is_within_frame: true,
                is_within_message: true,
                is_sending: true,
            };
            assert!(watch.look(now).is_ok(), "{step}");
        }
    }

    #[tokio::test]
    async fn what_does_not_go_on_ends_the_connection() {
        let cases = [
            |now: &mut ConnectionProgress| now.is_within_frame = true,
            |now: &mut ConnectionProgress| now.is_within_message = true,
            |now: &mut ConnectionProgress| now.is_sending = true,
        ];
        for make in cases {
            let mut watch = watch();
            let mut now = ConnectionProgress::default();
            make(&mut now);
            let ticks = (1..100).find(|&step| {
                now.reads = step;
                watch.look(now).is_err()
            });
            assert_eq!(ticks, Some(3));
        }
    }
}
