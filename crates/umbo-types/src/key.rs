//! Names in the data model: namespace → partition key → sort key, and the shard.
//!
//! Keys are byte strings ordered bytewise; every length is checked when the type is made, so that no code
//! behind the decoder checks it again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{NAMESPACE_LEN_MAX, PARTITION_KEY_LEN_MAX, SORT_KEY_LEN_MAX};

/// Name of a namespace: `[a-z0-9][a-z0-9._-]{0,63}`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

/// Why a text is not a namespace name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The name is empty.
    #[error("a namespace name is not empty")]
    Empty,
    /// The name has this many bytes.
    #[error("a namespace name has at most {NAMESPACE_LEN_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// The character at this byte offset is not allowed there.
    #[error(
        "a namespace name is made of a-z, 0-9 and, after the first character, '.', '_' and '-'; byte {0} is not one of them"
    )]
    BadCharacter(usize),
}

impl FromStr for Namespace {
    type Err = NamespaceError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

impl Namespace {
    /// Checks and keeps a name.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        Self::check(name.as_bytes())?;
        Ok(Self(name.into()))
    }

    /// Checks a name without keeping it.
    pub fn check(name: &[u8]) -> Result<(), NamespaceError> {
        if name.is_empty() {
            return Err(NamespaceError::Empty);
        }
        if name.len() > NAMESPACE_LEN_MAX {
            return Err(NamespaceError::TooLong(name.len()));
        }
        let is_allowed = |(at, byte): (usize, &u8)| match byte {
            b'a'..=b'z' | b'0'..=b'9' => true,
            b'.' | b'_' | b'-' => at > 0,
            _ => false,
        };
        match name.iter().enumerate().find(|&pair| !is_allowed(pair)) {
            Some((at, _)) => Err(NamespaceError::BadCharacter(at)),
            None => Ok(()),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Number under which the rows of a namespace are stored. Never reused after a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub u32);

impl NamespaceId {
    /// The namespace of Umbo's own records: namespaces, tokens, secrets.
    pub const SYSTEM: Self = Self(0);

    /// The bit that namespaces with fast writes have in their ids, and no others: so each write tells its kind, and no
    /// namespace has rows of both kinds. Ids stay below 2³¹, as clients take them for signed
    /// numbers.
    const FAST: u32 = 1 << 30;

    /// Returns the id of a namespace with fast writes: its last write is the one with the highest version.
    #[must_use]
    pub const fn with_fast_writes(self) -> Self {
        Self(self.0 | Self::FAST)
    }

    /// Returns whether the namespace has fast writes.
    pub const fn has_fast_writes(self) -> bool {
        self.0 & Self::FAST != 0
    }

    /// Returns the number that the id was given in the order of all ids.
    pub const fn number(self) -> u32 {
        self.0 & !Self::FAST
    }
}

impl fmt::Display for NamespaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of a shard of the storage tier, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why bytes are not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The partition key is empty.
    #[error("a partition key has at least one byte")]
    PartitionEmpty,
    /// The partition key has this many bytes.
    #[error("a partition key has at most {PARTITION_KEY_LEN_MAX} bytes, this one has {0}")]
    PartitionTooLong(usize),
    /// The sort key has this many bytes.
    #[error("a sort key has at most {SORT_KEY_LEN_MAX} bytes, this one has {0}")]
    SortTooLong(usize),
}

/// Key of a partition: 1 to 1,024 bytes of any value. It alone decides the shard.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey(Bytes);

impl PartitionKey {
    /// Checks the length and keeps the bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(KeyError::PartitionEmpty),
            len if len > PARTITION_KEY_LEN_MAX => Err(KeyError::PartitionTooLong(len)),
            _ => Ok(Self(bytes)),
        }
    }

    /// Returns the bytes, shared.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Returns the bytes, not shared.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Key of a row within its partition: 0 to 2,048 bytes of any value.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SortKey(Bytes);

impl SortKey {
    /// The sort key of plain key-value rows.
    pub const EMPTY: Self = Self(Bytes::new());

    /// Checks the length and keeps the bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        if bytes.len() > SORT_KEY_LEN_MAX {
            return Err(KeyError::SortTooLong(bytes.len()));
        }
        Ok(Self(bytes))
    }

    /// Returns the bytes, shared.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Returns the bytes, not shared.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

// Keys are the customer's data: debug output shows their length, never their bytes.
impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionKey({} bytes)", self.0.len())
    }
}

impl fmt::Debug for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SortKey({} bytes)", self.0.len())
    }
}

/// Full key of a row within its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Decides the shard.
    pub partition: PartitionKey,
    /// Orders rows within the partition.
    pub sort: SortKey,
}

impl Key {
    /// Checks both lengths and keeps the bytes.
    pub fn new(partition: impl Into<Bytes>, sort: impl Into<Bytes>) -> Result<Self, KeyError> {
        Ok(Self {
            partition: PartitionKey::new(partition)?,
            sort: SortKey::new(sort)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_names_follow_the_grammar() {
        for good in ["a", "0", "user-profiles.v2_x", &"z".repeat(64)] {
            assert_eq!(Namespace::new(good).unwrap().as_str(), good);
        }
        assert_eq!(Namespace::new(""), Err(NamespaceError::Empty));
        assert_eq!(
            Namespace::new(&"z".repeat(65)),
            Err(NamespaceError::TooLong(65))
        );
        for (bad, at) in [("-a", 0), (".", 0), ("aB", 1), ("a/b", 1), ("ab\u{e9}", 2)] {
            assert_eq!(
                Namespace::new(bad),
                Err(NamespaceError::BadCharacter(at)),
                "{bad}"
            );
        }
    }

    #[test]
    fn keys_are_bounded_at_both_ends() {
        assert_eq!(PartitionKey::new(""), Err(KeyError::PartitionEmpty));
        assert!(PartitionKey::new(vec![0; 1_024]).is_ok());
        assert_eq!(
            PartitionKey::new(vec![0; 1_025]),
            Err(KeyError::PartitionTooLong(1_025))
        );
        assert!(SortKey::new("").is_ok());
        assert!(SortKey::new(vec![255; 2_048]).is_ok());
        assert_eq!(
            SortKey::new(vec![255; 2_049]),
            Err(KeyError::SortTooLong(2_049))
        );
    }

    #[test]
    fn debug_output_hides_the_bytes_of_keys() {
        let key = Key::new("secret", "also secret").unwrap();
        assert!(!format!("{key:?}").contains("secret"));
    }
}
