//! Physical keys: how a namespace, a partition key and a sort key become one byte string.
//!
//! `namespace (u32, big endian) | partition key, 0x00 written as 0x00 0xFF | 0x00 0x01 | sort key`
//!
//! Owns the encoding and the bounds of ranges in it; knows nothing of redb. The invariant: physical keys have the
//! bytewise order of (namespace, partition key, sort key), because the terminator orders below every continuation of a
//! partition key.

use std::borrow::Cow;
use std::ops::Bound;

use umbo_store::SortRange;
use umbo_types::{Key, NamespaceId, PartitionKey};

const NAMESPACE_LEN: usize = 4;
const ESCAPED_ZERO: u8 = 0xFF;
const TERMINATOR: u8 = 0x01;
const BEYOND_TERMINATOR: u8 = 0x02;
/// Follows the namespace and a zero byte in the key of an idempotency record. No partition key is empty, so no
/// key of a row has this there.
const IDEMPOTENCY_MARK: u8 = 0x03;

/// The parts of a physical key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyParts<'a> {
    /// Namespace.
    pub(crate) namespace: NamespaceId,
    /// Partition key, unescaped.
    pub(crate) partition: Cow<'a, [u8]>,
    /// Length of namespace, partition key and terminator in the physical key.
    pub(crate) prefix_len: usize,
    /// Sort key.
    pub(crate) sort: &'a [u8],
}

/// Encodes the part of the key that all rows of a partition share, with room for a sort key.
pub(crate) fn partition_prefix(
    namespace: NamespaceId,
    partition: &PartitionKey,
    sort_len: usize,
) -> Vec<u8> {
    let bytes = partition.as_bytes();
    let mut key = Vec::with_capacity(NAMESPACE_LEN + bytes.len() + 2 + sort_len);
    key.extend_from_slice(&namespace.0.to_be_bytes());
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(0, rest) {
        key.extend_from_slice(&rest[..=at]);
        key.push(ESCAPED_ZERO);
        rest = &rest[at + 1..];
    }
    key.extend_from_slice(rest);
    key.extend_from_slice(&[0, TERMINATOR]);
    key
}

/// Encodes the key of a row. Returns it with the length of its partition prefix.
pub(crate) fn encode(namespace: NamespaceId, key: &Key) -> (Vec<u8>, usize) {
    let sort = key.sort.as_bytes();
    let mut bytes = partition_prefix(namespace, &key.partition, sort.len());
    let prefix_len = bytes.len();
    bytes.extend_from_slice(sort);
    (bytes, prefix_len)
}

/// Divides a physical key into its parts, or returns `None` if the key is not valid.
pub(crate) fn decode(bytes: &[u8]) -> Option<KeyParts<'_>> {
    let (namespace, rest) = bytes.split_first_chunk::<NAMESPACE_LEN>()?;
    let mut unescaped: Option<Vec<u8>> = None;
    let mut begin = 0;
    loop {
        let zero = begin + memchr::memchr(0, &rest[begin..])?;
        match *rest.get(zero + 1)? {
            TERMINATOR => {
                let partition = match unescaped {
                    None => Cow::Borrowed(&rest[..zero]),
                    Some(mut bytes) => {
                        bytes.extend_from_slice(&rest[begin..zero]);
                        Cow::Owned(bytes)
                    }
                };
                return Some(KeyParts {
                    namespace: NamespaceId(u32::from_be_bytes(*namespace)),
                    partition,
                    prefix_len: NAMESPACE_LEN + zero + 2,
                    sort: &rest[zero + 2..],
                });
            }
            ESCAPED_ZERO => {
                unescaped
                    .get_or_insert_default()
                    .extend_from_slice(&rest[begin..=zero]);
                begin = zero + 2;
            }
            _ => return None,
        }
    }
}

/// Encodes the key of an idempotency record: `namespace | 0x00 0x03 | partition key and terminator as in the keys of
/// its rows | id`. No key of a row equals it. The records of a partition are adjacent, like its rows.
pub(crate) fn idempotency_key(partition_prefix: &[u8], id: &[u8]) -> Vec<u8> {
    let (namespace, partition) = partition_prefix.split_at(NAMESPACE_LEN);
    [namespace, &[0, IDEMPOTENCY_MARK], partition, id].concat()
}

/// Returns whether a physical key is the key of an idempotency record.
pub(crate) fn is_record(key: &[u8]) -> bool {
    key.get(NAMESPACE_LEN..)
        .is_some_and(|rest| rest.starts_with(&[0, IDEMPOTENCY_MARK]))
}

/// Changes the namespace of a physical key, or of a bound.
pub(crate) fn move_to(key: &mut [u8], namespace: NamespaceId) {
    key[..NAMESPACE_LEN].copy_from_slice(&namespace.0.to_be_bytes());
}

/// Returns the physical key of the same partition and sort key in another namespace.
pub(crate) fn in_namespace(key: &[u8], namespace: NamespaceId) -> Vec<u8> {
    let mut key = key.to_vec();
    move_to(&mut key, namespace);
    key
}

/// Returns the namespace of a physical key, or `None` if the key is too short.
pub(crate) fn namespace_of(key: &[u8]) -> Option<NamespaceId> {
    let (namespace, _) = key.split_first_chunk::<NAMESPACE_LEN>()?;
    Some(NamespaceId(u32::from_be_bytes(*namespace)))
}

/// Returns the first physical key beyond a partition, for the partition's prefix.
pub(crate) fn beyond_partition(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = BEYOND_TERMINATOR;
    }
    end
}

/// Returns the bounds of a range of sort keys: first key included, last key excluded.
pub(crate) fn sort_bounds(
    namespace: NamespaceId,
    partition: &PartitionKey,
    range: &SortRange,
) -> (Vec<u8>, Vec<u8>) {
    let mut start = partition_prefix(namespace, partition, range.start.len());
    let end = match &range.end {
        None => beyond_partition(&start),
        Some(end) => [&start[..], end].concat(),
    };
    start.extend_from_slice(&range.start);
    (start, end)
}

/// Returns the bounds of a namespace.
pub(crate) fn namespace_bounds(namespace: NamespaceId) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let end = match namespace.0.checked_add(1) {
        Some(next) => Bound::Excluded(next.to_be_bytes().to_vec()),
        None => Bound::Unbounded,
    };
    (Bound::Included(namespace.0.to_be_bytes().to_vec()), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes around the ones that the encoding escapes.
    fn tricky(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![4 => 0_u8..4, 2 => 0xFD_u8..=0xFF, 1 => any::<u8>()],
            len,
        )
    }

    fn arbitrary() -> impl Strategy<Value = (NamespaceId, Key)> {
        let namespace = prop_oneof![0_u32..3, any::<u32>()];
        (namespace, tricky(1..8), tricky(0..8)).prop_map(|(namespace, partition, sort)| {
            (NamespaceId(namespace), Key::new(partition, sort).unwrap())
        })
    }

    proptest! {
        #[test]
        fn keys_come_back(pair in arbitrary()) {
            let (bytes, prefix_len) = encode(pair.0, &pair.1);
            let parts = decode(&bytes).unwrap();
            prop_assert_eq!(parts.namespace, pair.0);
            prop_assert_eq!(&parts.partition[..], pair.1.partition.as_bytes());
            prop_assert_eq!(parts.sort, pair.1.sort.as_bytes());
            prop_assert_eq!(parts.prefix_len, prefix_len);
        }

        #[test]
        fn physical_keys_order_as_the_model_does(one in arbitrary(), two in arbitrary()) {
            prop_assert_eq!(
                encode(one.0, &one.1).0.cmp(&encode(two.0, &two.1).0),
                one.cmp(&two)
            );
        }

        #[test]
        fn bounds_hold_exactly_the_keys_of_the_range(
            asked in arbitrary(),
            other in arbitrary(),
            same_partition in any::<bool>(),
            end in prop::option::of(tricky(0..8)),
        ) {
            let (namespace, key) = asked;
            let mut other = other;
            if same_partition {
                other = (namespace, Key { partition: key.partition.clone(), ..other.1 });
            }
            let range = SortRange {
                start: key.sort.as_bytes().to_vec().into(),
                end: end.map(Into::into),
            };
            let (first, beyond) = sort_bounds(namespace, &key.partition, &range);
            let bytes = encode(other.0, &other.1).0;
            let is_wanted = other.0 == namespace
                && other.1.partition == key.partition
                && range.contains(other.1.sort.as_bytes());
            prop_assert_eq!(first <= bytes && bytes < beyond, is_wanted);
            let in_namespace = {
                use std::ops::RangeBounds;
                namespace_bounds(namespace).contains(&bytes)
            };
            prop_assert_eq!(in_namespace, other.0 == namespace);
        }

        #[test]
        fn keys_of_records_are_none_of_rows(pair in arbitrary(), id: [u8; 16]) {
            let (bytes, prefix_len) = encode(pair.0, &pair.1);
            let record = idempotency_key(&bytes[..prefix_len], &id);
            prop_assert_eq!(decode(&record), None);
            prop_assert!(is_record(&record) && !is_record(&bytes));
            prop_assert_eq!(namespace_of(&record), Some(pair.0));
        }

        #[test]
        fn hostile_bytes_are_no_key_or_are_the_key_they_encode(bytes in tricky(0..16)) {
            if let Some(parts) = decode(&bytes) {
                if parts.partition.is_empty() {
                    return Ok(());
                }
                let key = Key::new(parts.partition.to_vec(), parts.sort.to_vec()).unwrap();
                prop_assert_eq!(encode(parts.namespace, &key).0, bytes);
            }
        }
    }
}
