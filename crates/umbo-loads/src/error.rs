//! Why a request about a load was refused.

use umbo_api::ErrorCode;
use umbo_api::loads::{LoadState, PART_LEN_MAX, PART_NUMBER_MAX};

/// Parts that are named in an error; further ones are counted.
const NAMED_MAX: usize = 20;

/// Why a request about a load was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// The namespace has no such load.
    #[error("the namespace has no load '{id}'; it may have been forgotten since it ended")]
    NotFound {
        /// Id in the request.
        id: String,
    },
    /// The load has no such part.
    #[error("the load has no part {number}")]
    PartNotFound {
        /// Number of the part.
        number: u16,
    },
    /// The state does not allow it.
    #[error("the load is {state}, and cannot be {action}")]
    State {
        /// State of the load.
        state: LoadState,
        /// The refused action.
        action: &'static str,
    },
    /// The namespace has too many loads.
    #[error("the namespace has {max} loads that have not ended; finish or abort one first")]
    TooMany {
        /// The maximum number.
        max: usize,
    },
    /// A load that keeps row versions is for a namespace with rows, whose versions could go back.
    #[error(
        "the namespace has rows, or had some that have expired: row versions are kept in an empty one"
    )]
    HasRows,
    /// The namespace has fast writes.
    #[error(
        "the namespace has fast writes: a load needs one with exact writes; POST batch/write takes rows"
    )]
    NeedsExactWrites,
    /// A field of the request is out of bounds.
    #[error("'{field}': expected {expected}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// A number that no part has.
    #[error("'{0}' is not a part number from 0 to {PART_NUMBER_MAX}")]
    PartNumber(String),
    /// The part was uploaded with other bytes.
    #[error("part {number} is stored with other bytes, whose SHA-256 is {kept}")]
    PartDiffers {
        /// Number of the part.
        number: u16,
        /// SHA-256 of the stored part, in hexadecimal.
        kept: String,
    },
    /// The part was begun with another format or coding.
    #[error("part {number} was begun as '{begun}', and cannot be continued as '{sent}'")]
    TypeDiffers {
        /// Number of the part.
        number: u16,
        /// Format and coding with which it was begun.
        begun: String,
        /// Format and coding of this request.
        sent: String,
    },
    /// The part is too long.
    #[error("a part has at most {PART_LEN_MAX} bytes as sent: divide it")]
    PartTooLong,
    /// The upload continues at another offset than the end of the stored bytes.
    #[error("{kept} bytes of part {number} are stored: continue at this offset")]
    Offset {
        /// Number of the part.
        number: u16,
        /// Number of stored bytes.
        kept: u64,
    },
    /// Parts are missing.
    #[error("{}", missing_text(.missing))]
    PartsMissing {
        /// Numbers of the missing parts.
        missing: Vec<u16>,
    },
    /// A part has a number beyond the number of parts in the request.
    #[error("part {number} was uploaded, but the load is to have {parts} parts, numbered from 0")]
    PartBeyond {
        /// Number of the part.
        number: u16,
        /// The number of parts in the request.
        parts: u32,
    },
    /// The body does not match its digest.
    #[error("the body has the SHA-256 {found}, but Content-Digest says {sent}")]
    Digest {
        /// The digest in the request, in hexadecimal.
        sent: String,
        /// The digest of the received bytes, in hexadecimal.
        found: String,
    },
    /// An unsupported format or coding.
    #[error("{0}")]
    Format(String),
    /// Another load was created with the idempotency key.
    #[error("the Idempotency-Key was used to create load {id} with another body")]
    KeyReused {
        /// Id of that load.
        id: String,
    },
}

fn missing_text(missing: &[u16]) -> String {
    let named: Vec<_> = missing.iter().take(NAMED_MAX).map(u16::to_string).collect();
    let named = named.join(", ");
    match missing.len().saturating_sub(NAMED_MAX) {
        0 => format!("parts are missing: {named}"),
        more => format!("parts are missing: {named} and {more} more"),
    }
}

impl LoadError {
    /// Returns the code under which a client hears of it.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::LoadNotFound,
            Self::PartNotFound { .. } => ErrorCode::PartNotFound,
            Self::State { .. } => ErrorCode::LoadState,
            Self::TooMany { .. } => ErrorCode::LoadLimit,
            Self::HasRows => ErrorCode::NamespaceHasRows,
            Self::NeedsExactWrites => ErrorCode::NeedsExactWrites,
            Self::Field { .. } | Self::PartBeyond { .. } => ErrorCode::InvalidBody,
            Self::PartNumber(_) => ErrorCode::InvalidKey,
            Self::PartDiffers { .. } | Self::TypeDiffers { .. } => ErrorCode::PartDiffers,
            Self::PartTooLong => ErrorCode::BodyTooLarge,
            Self::Offset { .. } => ErrorCode::OffsetMismatch,
            Self::PartsMissing { .. } => ErrorCode::PartsMissing,
            Self::Digest { .. } => ErrorCode::DigestMismatch,
            Self::Format(_) => ErrorCode::UnsupportedFormat,
            Self::KeyReused { .. } => ErrorCode::IdempotencyMismatch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_named_up_to_a_bound() {
        let text = |missing: Vec<u16>| LoadError::PartsMissing { missing }.to_string();
        assert_eq!(text(vec![3, 7]), "parts are missing: 3, 7");
        assert!(text((0..25).collect()).ends_with("19 and 5 more"));
    }
}
