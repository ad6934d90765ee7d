//! Why something about tokens cannot be done.

use std::path::PathBuf;

/// Why an operation on tokens was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The request carries no `Authorization` (`Unauthenticated`).
    #[error("the request carries no token; send one as Authorization: Bearer umbo_…")]
    Missing,
    /// The `Authorization` is not `Bearer` and a token (`Unauthenticated`).
    #[error("the Authorization header is not 'Bearer' followed by an Umbo token (umbo_…)")]
    Malformed,
    /// No such token, or the wrong secret; which of both is not told (`Unauthenticated`).
    #[error("the token is unknown or revoked")]
    Unknown,
    /// The token was good once (`Unauthenticated`).
    #[error("the token has expired")]
    Expired,
    /// No token has this id (`TokenNotFound`).
    #[error("no token has the id {id}")]
    NoSuchToken {
        /// The id asked for.
        id: String,
    },
    /// The token is of the token file, which only its owner changes (`TokenOfFile`).
    #[error("token {id} is defined in the token file; remove it there")]
    OfFile {
        /// Id of the token.
        id: String,
    },
    /// No token that could manage tokens would be left (`LastAdmin`).
    #[error("token {id} is the last one with admin:*; create another with admin:* first")]
    LastAdmin {
        /// Id of the token.
        id: String,
    },
    /// The first token would lock the operator out (`LastAdmin`).
    #[error("the first token must have admin:*: without it no second one can be created")]
    FirstIsNoAdmin,
    /// A field of a token to make, or of a token file, cannot be used (`InvalidBody`).
    #[error("{place}: {reason}")]
    Invalid {
        /// A field, or the entry of a file.
        place: String,
        /// The problem.
        reason: String,
    },
    /// A token file cannot be read or written (`Internal`).
    #[error("token file {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A token file is not TOML of the right shape (`Internal`).
    #[error("token file {}: {reason}", path.display())]
    NotTokens {
        /// Which.
        path: PathBuf,
        /// The problem and its position.
        reason: String,
    },
    /// Everybody may write the token file, so it proves nothing (`Internal`).
    #[error("token file {} is writable by everyone; chmod 600 it", path.display())]
    WorldWritable {
        /// Which.
        path: PathBuf,
    },
    /// The system gave no randomness (`Internal`).
    #[error("the system's random number generator failed: {0}")]
    NoRandomness(getrandom::Error),
}

impl AuthError {
    /// Returns the code under which a client hears of it.
    pub fn code(&self) -> umbo_api::ErrorCode {
        use umbo_api::ErrorCode;
        match self {
            Self::Missing | Self::Malformed | Self::Unknown | Self::Expired => {
                ErrorCode::Unauthenticated
            }
            Self::NoSuchToken { .. } => ErrorCode::TokenNotFound,
            Self::OfFile { .. } => ErrorCode::TokenOfFile,
            Self::LastAdmin { .. } | Self::FirstIsNoAdmin => ErrorCode::LastAdmin,
            Self::Invalid { .. } => ErrorCode::InvalidBody,
            Self::File { .. }
            | Self::NotTokens { .. }
            | Self::WorldWritable { .. }
            | Self::NoRandomness(_) => ErrorCode::Internal,
        }
    }
}
