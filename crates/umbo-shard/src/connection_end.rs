//! Why a connection ends.

use std::io;
use std::time::Duration;

use umbo_protocol::{DecodeError, Refusal};

/// Why a connection of a node ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionEnd {
    /// The peer closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed it within a frame.
    #[error("the peer closed the connection within a frame")]
    Cut,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Lost(#[from] io::Error),
    /// The node stops, before the peer was welcomed.
    #[error("the node stops")]
    Stopping,
    /// The dispatcher has made a new connection in its place.
    #[error("the dispatcher has made a newer connection")]
    Superseded,
    /// The peer expected another cluster or node, or uses another version.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The peer sent bytes that are not a frame, or more than its credit.
    #[error("the peer broke the protocol: {0}")]
    Broken(#[from] DecodeError),
    /// The first frame was not a hello, or a later one was.
    #[error("a connection must begin with a hello and have only one")]
    NotOneHello,
    /// No hello came in time.
    #[error("no hello within {} ms", .0.as_millis())]
    NoHello(Duration),
    /// The peer sent nothing, not even pings.
    #[error("the peer has been silent for {} ms", .0.as_millis())]
    Silent(Duration),
    /// A frame or a large request began to arrive and did not continue.
    #[error("a frame or a large request did not continue for {} ms", .0.as_millis())]
    Stalled(Duration),
    /// The peer read no answers.
    #[error("the peer read no answers for {} ms", .0.as_millis())]
    Untaken(Duration),
    /// The peer reads no answers and continues to send requests, and the node has no memory left for them.
    #[error("the node has no memory for more requests of a peer that reads no answers")]
    NoMemory,
}

impl ConnectionEnd {
    /// Returns whether the peer's behaviour is the reason of the end.
    pub(crate) const fn is_fault(&self) -> bool {
        match self {
            Self::Closed | Self::Lost(_) | Self::Stopping | Self::Superseded | Self::Refused(_) => {
                false
            }
            Self::Cut
            | Self::Broken(_)
            | Self::NotOneHello
            | Self::NoHello(_)
            | Self::Silent(_)
            | Self::Stalled(_)
            | Self::Untaken(_)
            | Self::NoMemory => true,
        }
    }
}
