//! Errors of the layers below as errors of a request, if the conversion decides more than the variant.

use umbo_control::auth::AuthError;
use umbo_control::hot_lists::HotKeyError;
use umbo_control::policies::QuotaError;
use umbo_store::WriteError;

use crate::request_error::RequestError;

impl From<AuthError> for RequestError {
    fn from(error: AuthError) -> Self {
        Self::Control(error.into())
    }
}

impl From<QuotaError> for RequestError {
    fn from(error: QuotaError) -> Self {
        Self::Control(error.into())
    }
}

impl From<HotKeyError> for RequestError {
    fn from(error: HotKeyError) -> Self {
        Self::Control(error.into())
    }
}

impl From<WriteError> for RequestError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConditionFailed { current } => Self::PreconditionFailed { current },
            WriteError::GroupAborted { index } => Self::GroupAborted { index },
            WriteError::Replayed(error) => Self::Replayed(Box::new((*error).into())),
            WriteError::Store(error) => Self::Store(error),
            error @ (WriteError::NotANumber
            | WriteError::IncrementOverflow { .. }
            | WriteError::IdempotencyMismatch
            | WriteError::IdempotencyFull { .. }
            | WriteError::UploadGone
            | WriteError::NeedsExactWrites) => Self::WriteRefused(error),
        }
    }
}
