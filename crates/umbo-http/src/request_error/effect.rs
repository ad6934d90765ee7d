//! The effect of a failed change by its error: whether it took effect, and whether it was begun.

use umbo_api::Outcome;
use umbo_store::StoreError;

use super::RequestError;

impl RequestError {
    /// Returns whether a write that failed this way took effect. Without a wildcard, so that each new error
    /// decides it.
    pub fn effect(&self) -> Outcome {
        match self {
            Self::Replayed(error) => error.effect(),
            Self::Control(error) => error.effect(),
            Self::Store(error) => match error.outcome() {
                umbo_store::Outcome::Applied => Outcome::Applied,
                umbo_store::Outcome::NotApplied => Outcome::NotApplied,
                umbo_store::Outcome::Unknown => Outcome::Unknown,
            },
            Self::DeadlineInStore { .. }
            | Self::RangeCutShort { .. }
            | Self::Killed(_)
            | Self::Internal(_) => Outcome::Unknown,
            Self::RouteNotFound
            | Self::MethodNotAllowed { .. }
            | Self::BadNamespace(_)
            | Self::BadKeyText { .. }
            | Self::BadKey(_)
            | Self::UnknownParameter { .. }
            | Self::RepeatedParameter { .. }
            | Self::BadParameter { .. }
            | Self::NotInEngine(_)
            | Self::Contradiction { .. }
            | Self::BadHeader { .. }
            | Self::UnknownHeader { .. }
            | Self::BadCursor(_)
            | Self::UnboundedDelete
            | Self::BadBody(_)
            | Self::BatchTooLarge { .. }
            | Self::BadValue(_)
            | Self::RowExpired
            | Self::UnsupportedCoding { .. }
            | Self::BatchFormat { .. }
            | Self::BodyNotJson { .. }
            | Self::NotAcceptable { .. }
            | Self::Body(_)
            | Self::DigestMismatch
            | Self::RangeNotSatisfiable { .. }
            | Self::Forbidden { .. }
            | Self::ForeignHost { .. }
            | Self::ForeignOrigin { .. }
            | Self::KeyBlocked
            | Self::TooManyReaders
            | Self::KeyNotFound
            | Self::PreconditionFailed { .. }
            | Self::GroupAborted { .. }
            | Self::WriteRefused(_)
            | Self::DeadlineBeforeStore { .. }
            | Self::Rejected(_)
            | Self::Shed(_)
            | Self::TooManyInFlight { .. }
            | Self::AnswerMemoryFull(_)
            | Self::NotRecorded { .. }
            | Self::NotRunning(_)
            | Self::AnswerFull => Outcome::NotApplied,
        }
    }

    /// Returns whether the store refused the work before it began any of it.
    pub const fn is_unbegun(&self) -> bool {
        matches!(
            self,
            Self::Shed(_)
                | Self::AnswerMemoryFull(_)
                | Self::DeadlineBeforeStore { .. }
                | Self::Store(
                    StoreError::Unavailable {
                        outcome: umbo_store::Outcome::NotApplied,
                        ..
                    } | StoreError::QueueFull { .. }
                        | StoreError::NodeBusy { .. }
                        | StoreError::DeadlinePassed { .. }
                        | StoreError::NamespaceGone { .. }
                        | StoreError::TooEarly { .. }
                        | StoreError::Overtaken { .. }
                        | StoreError::Closing
                )
        )
    }
}
