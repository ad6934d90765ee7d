//! The limit, and who decides about a request.

/// Dispatchers that share the limit.
pub(crate) const DISPATCHERS: u32 = 8;
/// The limit in requests a second, and the burst in requests.
pub(crate) const RATE: u32 = 400;
/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Admitted,
    Refused,
    Failed,
}

impl Decision {
    pub(crate) const fn of(is_admitted: bool) -> Self {
        if is_admitted {
            Self::Admitted
        } else {
            Self::Refused
        }
    }
}

/// Who decides about a request.
pub(super) trait Decider {
    fn decide(&mut self) -> Decision;

    /// Returns the port of the owner of the limit, if it is known here.
    fn owner(&self) -> Option<u16> {
        None
    }
}
