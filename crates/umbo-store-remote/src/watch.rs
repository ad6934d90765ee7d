//! Detection of a silent node.
//!
//! A node is pinged if no frame from it came for a while, earlier if it owes an answer; its pong does not depend on its
//! store. If no frame at all comes within a bound, the connection is closed. The caller passes only the time while this
//! process ran, so that a pause of this process does not count against the node. Reads no clock.

use std::time::Duration;

use crate::connection::ConnectionLoad;
use crate::settings::RemoteSettings;

/// How often a connection is checked while requests are in flight.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// How often it is checked otherwise.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Silence after which a node is pinged even if it owes no answer, so that its map version and its revision of the
/// records are known within a second.
const PING_INTERVAL: Duration = Duration::from_millis(500);
/// Slowest connection that is not taken for a silent node, in bytes a millisecond.
const LINE_MIN: usize = 4 << 10;

#[derive(Debug, Default)]
pub(crate) struct SilenceWatch {
    /// Time since the last frame of the node.
    silent_for: Duration,
    /// Time since the ping, if no frame has come after it.
    pinged_for: Option<Duration>,
    /// Time since the last request for its status, or `None` before the first one.
    probed_for: Option<Duration>,
    is_probing: bool,
}

/// Actions that are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Send a ping.
    pub(crate) ping: bool,
    /// Ask for the status of the node.
    pub(crate) probe: bool,
    /// Close the connection.
    pub(crate) give_up: bool,
}

impl SilenceWatch {
    /// Records that a frame came.
    pub(crate) const fn heard(&mut self) {
        self.silent_for = Duration::ZERO;
        self.pinged_for = None;
    }

    /// Records that the node has sent its status.
    pub(crate) const fn told(&mut self) {
        self.is_probing = false;
    }

    /// Advances by the time since the last tick.
    pub(crate) fn tick(
        &mut self,
        awake: Duration,
        load: ConnectionLoad,
        settings: &RemoteSettings,
    ) -> Due {
        let mut due = Due::default();
        self.silent_for += awake;
        if let Some(pinged_for) = &mut self.pinged_for {
            *pinged_for += awake;
            let on_the_line = Duration::from_millis((load.sent_unheard / LINE_MIN) as u64);
            due.give_up = *pinged_for >= settings.probe_timeout + on_the_line;
        } else {
            let is_owed = load.in_flight > 0 && self.silent_for >= settings.silence_max;
            due.ping = is_owed || self.silent_for >= PING_INTERVAL;
        }
        if due.ping {
            self.pinged_for = Some(Duration::ZERO);
        }
        let probed_for = self.probed_for.map(|probed_for| probed_for + awake);
        self.probed_for = probed_for;
        if !self.is_probing && probed_for.is_none_or(|for_| for_ >= settings.probe_interval) {
            due.probe = true;
            self.is_probing = true;
            self.probed_for = Some(Duration::ZERO);
        }
        due
    }

    /// Returns when to tick again.
    pub(crate) fn next_tick(load: ConnectionLoad, settings: &RemoteSettings) -> Duration {
        if load.in_flight > 0 {
            TICK
        } else {
            IDLE_TICK.min(settings.probe_interval)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: ConnectionLoad = ConnectionLoad {
        in_flight: 0,
        sent_unheard: 0,
    };
    const OWED: ConnectionLoad = ConnectionLoad {
        in_flight: 1,
        sent_unheard: 0,
    };

    /// Ticks until something is due, and returns that and after which time.
    fn next_due(watch: &mut SilenceWatch, load: ConnectionLoad) -> (Due, Duration) {
        let settings = RemoteSettings::default();
        let mut elapsed = Duration::ZERO;
        loop {
            elapsed += TICK;
            let due = watch.tick(TICK, load, &settings);
            if due != Due::default() {
                return (due, elapsed);
            }
        }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_silent_node_is_pinged_and_then_given_up() {
        let mut watch = SilenceWatch::default();
        assert!(next_due(&mut watch, IDLE).0.probe);
        watch.heard();
        watch.told();
        let (due, after) = next_due(&mut watch, IDLE);
        assert!(due.ping && !due.probe);
        assert_eq!(after, millis(500));
        // The pong of the node is a sign of life.
        watch.heard();
        let (due, after) = next_due(&mut watch, OWED);
        assert!(due.ping);
        assert_eq!(after, millis(250));
        watch.probed_for = Some(Duration::ZERO);
        let (due, after) = next_due(&mut watch, OWED);
        assert!(due.give_up);
        assert_eq!(after, millis(750));
    }

    #[test]
    fn what_is_still_on_the_line_is_waited_for() {
        let load = ConnectionLoad {
            in_flight: 1,
            sent_unheard: 4 << 20,
        };
        let mut watch = SilenceWatch {
            is_probing: true,
            ..SilenceWatch::default()
        };
        assert!(next_due(&mut watch, load).0.ping);
        assert_eq!(next_due(&mut watch, load).1, millis(750 + 1_024 + 6));
    }

    #[test]
    fn the_state_is_asked_for_once_at_a_time() {
        let mut watch = SilenceWatch::default();
        assert!(next_due(&mut watch, IDLE).0.probe);
        let settings = RemoteSettings::default();
        let mut probes = 0;
        for _ in 0..500 {
            watch.heard();
            probes += usize::from(watch.tick(TICK, IDLE, &settings).probe);
        }
        assert_eq!(probes, 0);
        watch.told();
        assert!(watch.tick(TICK, IDLE, &settings).probe);
    }
}
