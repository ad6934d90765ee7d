//! How a stream ends, as a status of gRPC.

use http::HeaderMap;
use umbo_protocol::{DecodeError, Refusal};

use super::trailers;
use crate::limits::REQUESTS_PER_FRAME_MAX;
use crate::messages::Broken;

/// Why nothing more is read from a stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    #[error("everything was said")]
    Said,
    #[error("{0}")]
    Refused(Refusal),
    #[error("a stream begins with a hello")]
    NoHello,
    #[error("a second hello on a stream")]
    SecondHello,
    #[error("a frame that is {0}")]
    NoMessage(DecodeError),
    #[error("a frame of {0} requests; at most {REQUESTS_PER_FRAME_MAX} are allowed")]
    TooMany(usize),
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl Ending {
    /// Says whether the peer keeps to the rules, so that it is answered all that it asked.
    pub(super) fn is_clean(&self) -> bool {
        matches!(self, Self::Said)
    }

    /// Says whether the peer sent what nobody may send.
    pub(super) fn is_fault(&self) -> bool {
        let is_lost = matches!(self, Self::Broken(Broken::Connection(_)));
        !is_lost && !matches!(self, Self::Said | Self::Refused(_))
    }

    pub(super) fn trailers(&self) -> HeaderMap {
        // Numbers of gRPC: ok, invalid argument, resource exhausted, failed precondition,
        // unimplemented, unavailable.
        let status = match self {
            Self::Said => return trailers(0, ""),
            Self::NoHello
            | Self::SecondHello
            | Self::NoMessage(_)
            | Self::TooMany(_)
            | Self::Broken(Broken::Cut) => 3,
            Self::Refused(_) => 9,
            Self::Broken(Broken::Compressed) => 12,
            Self::Broken(Broken::TooLong(_)) => 8,
            Self::Broken(Broken::Stalled | Broken::Connection(_)) => 14,
        };
        trailers(status, &self.to_string())
    }
}
