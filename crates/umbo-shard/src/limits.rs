//! The bounds of a node: of the whole of it, of a connection and of a stream.

use std::time::Duration;

/// Bytes that a peer may send on a connection before the node has read them.
pub(crate) const WINDOW_LEN: u32 = 2 << 20;
/// Longest message that is received without a place for it: it fits into the window.
pub(crate) const SMALL_MESSAGE_LEN_MAX: usize = WINDOW_LEN as usize;
/// Streams of one connection; a dispatcher needs one, and one more while it changes over.
pub(crate) const STREAMS_PER_CONNECTION_MAX: u32 = 4;
/// Requests of one frame. The frames that peers aim at hold a quarter of it at most.
pub(crate) const REQUESTS_PER_FRAME_MAX: usize = 16_384;
/// Requests that a stream handles before others have their turn.
pub(crate) const REQUESTS_PER_TURN_MAX: usize = 128;
/// Bytes of answers that a stream writes before others have their turn.
pub(crate) const ANSWER_BYTES_PER_TURN_MAX: usize = 512 << 10;
/// Bytes of answers of one stream that were waited for and have not been taken yet.
pub(crate) const WAITING_ANSWERS_LEN_MAX: usize = 4 << 20;
/// Longest part of an answer to a multi-get, in bytes; a single row may be longer.
pub(crate) const PART_LEN_MAX: usize = 256 << 10;

/// What a node takes on at the same time, and how long it waits for its peers.
#[derive(Debug, Clone)]
pub struct NodeLimits {
    /// Requests that wait for the store. Lower tiers have only a share of them, and so has each
    /// stream. At least 4.
    pub in_flight_max: usize,
    /// Bytes that requests may hold together: one half of it while they arrive, one while they
    /// wait for the store. At least twice the longest frame.
    pub request_memory_max: usize,
    /// Open connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// For a connection to shake hands, and for a stream to say hello.
    pub handshake_timeout: Duration,
    /// For a frame to arrive once it has begun.
    pub frame_timeout: Duration,
    /// For streams to end when the node stops.
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
