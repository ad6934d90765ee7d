//! Why something about policies cannot be done. Every message names the policy, and where two
//! values contradict each other, both.

use umbo_api::ErrorCode;
use umbo_quota::{PolicyError, PolicySetError};

/// Why an operation on policies was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The policy contradicts itself or cannot be read (`QuotaInvalid`).
    #[error("policy {0}")]
    Policy(#[from] PolicyError),
    /// The policy cannot be in effect together with the others (`QuotaInvalid`).
    #[error("policy '{name}': {why}")]
    Set {
        /// The policy that does not fit in.
        name: String,
        /// Why.
        why: PolicySetError,
    },
    /// The policy cannot be tried on kept usage (`QuotaInvalid`).
    #[error("kept usage has no {dimension}, so the policy can be tried on the last hour only")]
    NotKept {
        /// What kept usage lacks.
        dimension: &'static str,
    },
    /// Path and body name different policies (`QuotaInvalid`).
    #[error("the path names policy '{path}', but the body names '{body}': name")]
    OtherName {
        /// The name in the path.
        path: String,
        /// The name in the body.
        body: String,
    },
    /// No policy has this name (`QuotaNotFound`).
    #[error("no policy is named '{name}'")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The policy is built in, so there is nothing to remove (`QuotaNotFound`).
    #[error(
        "policy '{name}' is built in and cannot be removed; store a policy with its name to replace it"
    )]
    BuiltIn {
        /// The name.
        name: String,
    },
    /// A policy of this name is stored and is another one (`QuotaExists`).
    #[error("a different policy '{name}' is stored; to replace it, send its ETag in If-Match")]
    Exists {
        /// The name.
        name: String,
    },
    /// The policy is of the policy file, which only its owner changes (`QuotaOfFile`).
    #[error("policy '{name}' is defined in the policy file of this server; change it there")]
    OfFile {
        /// The name.
        name: String,
    },
}

impl QuotaError {
    /// Returns the code under which a client hears of it.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Policy(_) | Self::Set { .. } | Self::NotKept { .. } | Self::OtherName { .. } => {
                ErrorCode::QuotaInvalid
            }
            Self::NotFound { .. } | Self::BuiltIn { .. } => ErrorCode::QuotaNotFound,
            Self::Exists { .. } => ErrorCode::QuotaExists,
            Self::OfFile { .. } => ErrorCode::QuotaOfFile,
        }
    }
}
