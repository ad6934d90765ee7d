//! The stored form of a value: how its bytes are kept.

use super::large::LargeRef;
use crate::limits::VALUE_LEN_MAX;

/// Bytes before the frame of a compressed value: the length of the value, big endian.
pub const PLAIN_LEN_LEN: usize = 4;

/// How the bytes of a value are kept. Engines carry forms and count by them, and never change one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StoredForm {
    /// The bytes are the value.
    #[default]
    Plain,
    /// The bytes are the length of the value ([`PLAIN_LEN_LEN`] bytes), then the value as one zstd frame (RFC 8878).
    Zstd,
    /// The bytes are a reference ([`LargeRef`]) to the bytes of the value, which are stored next to the row in the same
    /// shard.
    Large,
}

/// Bytes are not valid in this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// This version knows no form with the number.
    #[error("a value has form {0}, which this version does not know")]
    Unknown(u8),
    /// The bytes end before the length of the value, or it is longer than a value may be.
    #[error("a compressed value does not begin with its length")]
    BadLength,
    /// The bytes are not a reference to a large value.
    #[error("a large value is not a reference to stored bytes")]
    BadReference,
}

impl StoredForm {
    /// Returns the number that stands for the form in files and frames: 0 for a plain value.
    pub const fn code(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Zstd => 1,
            Self::Large => 2,
        }
    }

    /// Returns the form of a number.
    pub const fn from_code(code: u8) -> Result<Self, FormError> {
        match code {
            0 => Ok(Self::Plain),
            1 => Ok(Self::Zstd),
            2 => Ok(Self::Large),
            other => Err(FormError::Unknown(other)),
        }
    }

    /// Returns the length of the value of these bytes: at most [`VALUE_LEN_MAX`], or for a large value at most
    /// [`LARGE_VALUE_LEN_MAX`](crate::limits::LARGE_VALUE_LEN_MAX).
    pub fn plain_len(self, bytes: &[u8]) -> Result<usize, FormError> {
        match self {
            Self::Plain => Ok(bytes.len()),
            Self::Zstd => {
                let len = bytes
                    .first_chunk()
                    .map(|len| u32::from_be_bytes(*len) as usize);
                len.filter(|&len| len <= VALUE_LEN_MAX)
                    .ok_or(FormError::BadLength)
            }
            Self::Large => LargeRef::decode(bytes)
                .map(|large| large.len as usize)
                .ok_or(FormError::BadReference),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_a_number_and_a_length() {
        for form in [StoredForm::Plain, StoredForm::Zstd, StoredForm::Large] {
            assert_eq!(StoredForm::from_code(form.code()), Ok(form));
        }
        assert_eq!(StoredForm::from_code(9), Err(FormError::Unknown(9)));
        assert_eq!(StoredForm::Plain.plain_len(b"abc"), Ok(3));
        assert_eq!(StoredForm::Zstd.plain_len(&[0, 0, 1, 0, 9]), Ok(256));
        for hostile in [&[][..], &[0, 0, 1], &[0, 16, 0, 1], &[0xff; 8]] {
            assert_eq!(
                StoredForm::Zstd.plain_len(hostile),
                Err(FormError::BadLength)
            );
        }
    }
}
