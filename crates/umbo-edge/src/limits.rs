//! The limits of one listener. Every wait and every buffer of the edge has its bound here.

use std::time::Duration;

use crate::bounds::RATE_MIN;

/// Limits of one listener. All of them bind per connection, except `connections_max`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Connections open at once. For a further one the connection that has been without a request
    /// for longest is closed; if all have one, the new connection waits in the kernel's backlog.
    pub connections_max: usize,
    /// Connections open at once from one address (IPv6: from one network of 64 bits); 0 sets no
    /// bound other than `connections_max`.
    pub connections_per_address_max: usize,
    /// Longest request target, in bytes; a longer one is answered 414.
    pub target_len_max: usize,
    /// Longest header section, in bytes (names, values and four bytes of framing a field); a
    /// longer one is answered 431.
    pub headers_len_max: usize,
    /// Most header fields; more are answered 431.
    pub header_fields_max: usize,
    /// HTTP/2 streams open at once on one connection.
    pub streams_max: u32,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time for a request head from its first byte, or for the first head of a connection from its
    /// acceptance. Then 408 is sent, or nothing if no byte came.
    pub header_timeout: Duration,
    /// Time without any request after which a connection is closed silently. It may take up to a
    /// quarter longer.
    pub idle_timeout: Duration,
    /// Time for a client to take `drained_bytes_min` while an answer waits for it; then the
    /// connection is cut.
    pub write_timeout: Duration,
    /// Time for the other side to close after the last answer; then the socket is closed.
    pub linger_timeout: Duration,
    /// Interval of HTTP/2 keep-alive pings.
    pub ping_interval: Duration,
    /// Time for the answer to an HTTP/2 keep-alive ping.
    pub ping_timeout: Duration,
    /// Time for requests in flight to finish once shutdown has begun; then they are aborted.
    pub drain_timeout: Duration,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address_max: 0,
            target_len_max: 16 << 10,
            headers_len_max: 32 << 10,
            header_fields_max: 100,
            streams_max: 256,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(1),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Smallest read buffer that hyper accepts.
const HEAD_BUFFER_LEN_MIN: usize = 8 << 10;

impl EdgeLimits {
    /// Returns how many bytes a client has to take within each `write_timeout` while an answer waits
    /// for it without a break: 1 KiB for each second.
    pub(crate) fn drained_bytes_min(&self) -> u64 {
        bytes_min(self.write_timeout)
    }

    /// Returns how many bytes of a request head are buffered before it is refused unread: both
    /// limits together, and room for method, version and framing.
    pub(crate) fn head_buffer_len(&self) -> usize {
        (self.target_len_max + self.headers_len_max + (16 << 10)).max(HEAD_BUFFER_LEN_MIN)
    }
}

/// Returns the bytes that come in a time at [`RATE_MIN`].
pub(crate) fn bytes_min(time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    (millis.saturating_mul(RATE_MIN) / 1_000).max(1)
}
