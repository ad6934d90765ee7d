//! The first token: after its creation every request must have one. A refused creation must not have this
//! effect.

use std::time::Duration;

use super::process::LEARNED_WITHIN;
use crate::simulation::violated;

/// The known state of the first token.
#[derive(Debug, Default)]
pub(super) enum FirstToken {
    /// The first token does not exist.
    #[default]
    None,
    /// The creation of the first token was requested, and it may exist.
    InDoubt,
    /// The first token exists.
    Known(String, Duration),
}

impl FirstToken {
    /// Returns the fields of a request.
    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Known(token, _) => vec![("authorization", format!("Bearer {token}"))],
            Self::None | Self::InDoubt => Vec::new(),
        }
    }

    /// Returns whether it is unknown if requests without a token are admitted.
    pub(super) fn is_in_doubt(&self) -> bool {
        matches!(self, Self::InDoubt)
    }

    /// Checks that a request may be refused for lack of a valid token.
    pub(super) fn check_refusal(&self, was_shown: bool, sent: Duration) {
        match self {
            Self::None => violated("a token is asked for, and none was ever made"),
            Self::Known(_, since) if was_shown && *since + LEARNED_WITHIN * 4 < sent => {
                violated("a token is refused that was acknowledged");
            }
            Self::InDoubt | Self::Known(..) => {}
        }
    }
}
