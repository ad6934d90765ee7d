//! The bounds of a node and of a connection.

use std::time::Duration;

/// Most bytes of one read from a socket.
pub(crate) const READ_LEN: usize = 64 << 10;
/// Requests that a connection serves before it yields to other tasks.
pub(crate) const REQUESTS_PER_TURN_MAX: usize = 128;
/// Bytes that a connection reads from its socket before it yields to other tasks.
pub(crate) const READ_PER_TURN_MAX: usize = 512 << 10;
/// At this length of its send queue, in bytes, a connection serves no more requests: they stay as received, inside the
/// window of the peer.
pub(crate) const SEND_QUEUE_LEN_MAX: usize = 512 << 10;
/// At this length of its send queue, in bytes, a connection drops the rows of pending requests and answers them as
/// busy: a peer that reads nothing must not make the node hold them.
pub(crate) const WAITING_ANSWERS_LEN_MAX: usize = 4 << 20;
/// Most requests that were cancelled before they were begun. If a peer cancels more of them at once, the
/// further ones are served.
pub(crate) const CANCELLED_MAX: usize = 64 << 10;
/// Interval of the timeout checks of a connection.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Time without a byte from the peer after which a connection is closed. A dispatcher pings twice a second.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Most large requests of a connection that were refused for lack of memory and are still arriving.
pub(crate) const REFUSED_MAX: usize = 1_024;
/// Admission limits and timeouts of a node.
#[derive(Debug, Clone)]
pub struct NodeLimits {
    /// Requests that wait for the store. Lower tiers have only a share of them, and so has each connection.
    /// At least 4.
    pub in_flight_max: usize,
    /// Bytes that requests may hold together: one half of it while they arrive, the other while they wait for
    /// the store. At least twice the longest request.
    pub request_memory_max: usize,
    /// Open connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Timeout of the handshake: TLS, then hello and welcome.
    pub handshake_timeout: Duration,
    /// Timeout for the rest of a frame, for the next part of a large request, and for the peer to read
    /// answers.
    pub frame_timeout: Duration,
    /// Timeout for connections to end when the node stops.
    pub drain_timeout: Duration,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            in_flight_max: 4_096,
            request_memory_max: 256 << 20,
            connections_max: 1_024,
            handshake_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
        }
    }
}
