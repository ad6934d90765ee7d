//! The key of a read: two reads share a result only if their whole keys are equal.
//!
//! A key is namespace, partition, kind, and a detail: the sort key of a row, or all selectors of a range. The hash is
//! computed once, with the seed of the process, and serves the sketch, the hot set, the local cache and the in-flight
//! reads. Two keys are equal only if all their bytes are.

use std::fmt;
use std::hash::{Hash, Hasher};

use moka::Equivalent;
use smallvec::SmallVec;
use umbo_types::{Key, NamespaceId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a key that are owned without an allocation.
const INLINE_LEN: usize = 64;
/// Spreads namespace ids over the seed (the golden ratio of 64 bits).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The kind of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// One row; the detail is its sort key. `HEAD` and conditional requests read the same row.
    Row,
    /// Rows of a partition; the detail is every selector that decides the result, as the caller encodes them: two
    /// ranges share a result if these bytes are equal.
    Range,
}

/// Seed of all hashes of keys of one process. Random, so that keys cannot be aimed at one counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySeed(u64);

impl KeySeed {
    /// Makes a seed of a random number.
    pub const fn new(random: u64) -> Self {
        Self(random)
    }

    /// Returns the key of the read of one row.
    #[inline]
    pub fn row(self, namespace: NamespaceId, key: &Key) -> KeyRef<'_> {
        self.key(
            namespace,
            KeyKind::Row,
            key.partition.as_bytes(),
            key.sort.as_bytes(),
        )
    }

    /// Returns the key of a read by its parts.
    #[inline]
    pub fn key<'a>(
        self,
        namespace: NamespaceId,
        kind: KeyKind,
        partition: &'a [u8],
        detail: &'a [u8],
    ) -> KeyRef<'a> {
        let partition_hash = self.partition(namespace, partition);
        let hash = xxh3_64_with_seed(detail, partition_hash ^ kind as u64);
        KeyRef {
            namespace,
            kind,
            partition,
            detail,
            // Zero marks an empty place in the sketch.
            hash: hash.max(1),
            partition_hash,
        }
    }

    /// Returns the hash of a partition.
    #[inline]
    pub(crate) fn partition(self, namespace: NamespaceId, partition: &[u8]) -> u64 {
        let seed = self.0 ^ u64::from(namespace.0).wrapping_mul(SPREAD);
        xxh3_64_with_seed(partition, seed)
    }
}

// The seed is a secret: with it, keys could be aimed at one counter.
impl fmt::Debug for KeySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySeed(…)")
    }
}

/// Key of a read, borrowed from the request.
#[derive(Clone, Copy)]
pub struct KeyRef<'a> {
    namespace: NamespaceId,
    kind: KeyKind,
    partition: &'a [u8],
    detail: &'a [u8],
    hash: u64,
    partition_hash: u64,
}

impl<'a> KeyRef<'a> {
    /// Returns the namespace.
    pub const fn namespace(&self) -> NamespaceId {
        self.namespace
    }

    /// Returns the kind of the read.
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Returns the partition key.
    pub const fn partition(&self) -> &'a [u8] {
        self.partition
    }

    /// Returns the sort key of a row, or the selectors of a range.
    pub const fn detail(&self) -> &'a [u8] {
        self.detail
    }

    /// Returns the hash of the whole key; never zero.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the hash of namespace and partition.
    pub const fn partition_hash(&self) -> u64 {
        self.partition_hash
    }

    /// Copies the key.
    pub fn to_owned(&self) -> ReadKey {
        let (partition, len) = (
            self.partition.len(),
            self.partition.len() + self.detail.len(),
        );
        let bytes = if len <= INLINE_LEN {
            let mut inline = [0; INLINE_LEN];
            inline[..partition].copy_from_slice(self.partition);
            inline[partition..len].copy_from_slice(self.detail);
            SmallVec::from_buf_and_len(inline, len)
        } else {
            SmallVec::from_vec([self.partition, self.detail].concat())
        };
        ReadKey {
            namespace: self.namespace,
            kind: self.kind,
            partition_len: partition,
            bytes,
            hash: self.hash,
            partition_hash: self.partition_hash,
        }
    }
}

impl PartialEq for KeyRef<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // The hash is compared first because it nearly always decides.
        self.hash == other.hash
            && self.namespace == other.namespace
            && self.kind == other.kind
            && self.partition == other.partition
            && self.detail == other.detail
    }
}

impl Eq for KeyRef<'_> {}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Equivalent<ReadKey> for KeyRef<'_> {
    fn equivalent(&self, key: &ReadKey) -> bool {
        *self == key.borrow()
    }
}

// Keys are the customer's data: debug output shows their length, never their bytes.
impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (partition, detail) = (self.partition.len(), self.detail.len());
        let kind = self.kind;
        write!(f, "{kind:?}({partition} + {detail} bytes)")
    }
}

/// Key of a read, owned.
#[derive(Clone)]
pub struct ReadKey {
    namespace: NamespaceId,
    kind: KeyKind,
    partition_len: usize,
    bytes: SmallVec<[u8; INLINE_LEN]>,
    hash: u64,
    partition_hash: u64,
}

impl ReadKey {
    /// Returns the key as it is borrowed from a request.
    #[inline]
    pub fn borrow(&self) -> KeyRef<'_> {
        let (partition, detail) = self.bytes.split_at(self.partition_len);
        KeyRef {
            namespace: self.namespace,
            kind: self.kind,
            partition,
            detail,
            hash: self.hash,
            partition_hash: self.partition_hash,
        }
    }

    /// Returns the memory the key takes, in bytes.
    pub fn memory(&self) -> usize {
        let beyond = if self.bytes.spilled() {
            self.bytes.capacity()
        } else {
            0
        };
        size_of::<Self>() + beyond
    }
}

impl PartialEq for ReadKey {
    fn eq(&self, other: &Self) -> bool {
        self.borrow() == other.borrow()
    }
}

impl Eq for ReadKey {}

impl Hash for ReadKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for ReadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

/// Passes on the hash that a key has already, for maps by key.
#[derive(Debug, Default, Clone, Copy)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Keys write one number; this is for completeness.
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: KeySeed = KeySeed::new(7);

    fn parts() -> impl Strategy<Value = (u32, bool, Vec<u8>, Vec<u8>)> {
        let bytes = || prop::collection::vec(0_u8..2, 0..4);
        (0_u32..2, any::<bool>(), bytes(), bytes())
    }

    fn key((namespace, is_range, partition, detail): &(u32, bool, Vec<u8>, Vec<u8>)) -> ReadKey {
        let kind = if *is_range {
            KeyKind::Range
        } else {
            KeyKind::Row
        };
        SEED.key(NamespaceId(*namespace), kind, partition, detail)
            .to_owned()
    }

    proptest! {
        #[test]
        fn keys_are_equal_exactly_where_all_parts_are(one in parts(), other in parts()) {
            prop_assert_eq!(key(&one) == key(&other), one == other);
            if one == other {
                prop_assert_eq!(key(&one).borrow().hash(), key(&other).borrow().hash());
            }
        }

        #[test]
        fn a_kept_key_has_the_bytes_it_was_made_of(
            partition in prop::collection::vec(any::<u8>(), 1..1_024),
            detail in prop::collection::vec(any::<u8>(), 0..2_048),
        ) {
            let borrowed = SEED.key(NamespaceId(3), KeyKind::Row, &partition, &detail);
            let kept = borrowed.to_owned();
            prop_assert_eq!(kept.borrow().partition(), &partition[..]);
            prop_assert_eq!(kept.borrow().detail(), &detail[..]);
            prop_assert!(borrowed.equivalent(&kept));
            prop_assert!(kept.memory() >= partition.len() + detail.len());
        }
    }

    #[test]
    fn another_seed_gives_other_hashes() {
        let hash = |seed| {
            let key = KeySeed::new(seed).key(NamespaceId(1), KeyKind::Row, b"listing", b"");
            key.hash()
        };
        assert_ne!(hash(1), hash(2));
    }

    #[test]
    fn debug_output_hides_the_bytes_of_keys_and_the_seed() {
        let key = SEED.key(NamespaceId(1), KeyKind::Row, b"secret", b"secret");
        assert!(!format!("{key:?} {:?} {SEED:?}", key.to_owned()).contains("secret"));
        assert!(!format!("{SEED:?}").contains('7'));
    }
}
