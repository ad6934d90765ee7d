//! Cursors: opaque, self-contained, and checked with a MAC.
//!
//! A cursor holds the end of the page before and the selection of the request. It is keyed BLAKE3 over the
//! content. All dispatchers of a store share the key, so that any of them can continue the page, and all of
//! them refuse a changed cursor. Nothing is remembered on the server.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf, BufMut, Bytes};
use subtle::ConstantTimeEq as _;
use umbo_store::SortRange;
use umbo_types::{Key, NamespaceId, ShardId};

const MAC_LEN: usize = 16;
const FORMAT_RANGE: u8 = 1;
const FORMAT_SCAN: u8 = 2;
/// Flag of a format with the id of another dataset after the id of the namespace.
const OF_DATASET: u8 = 0x80;

/// Why a cursor cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Not made here, or changed.
    #[error("was not made by this server or has been changed")]
    Forged,
    /// Made for a version that is not there any more.
    #[error("belongs to a version of the namespace that has been dropped")]
    Dropped,
    /// Made for another route, namespace, partition, or with other parameters.
    #[error("belongs to a request with other parameters")]
    Foreign,
}

/// Key that makes and checks cursors.
pub struct CursorKey([u8; 32]);

impl std::fmt::Debug for CursorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CursorKey(hidden)")
    }
}

/// The position of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeCursor {
    /// Namespace of the partition.
    pub namespace: NamespaceId,
    /// Dataset that the range is read from.
    pub dataset: NamespaceId,
    /// Partition key.
    pub partition: Bytes,
    /// The part that is still to be visited.
    pub rest: SortRange,
    /// Direction.
    pub reverse: bool,
    /// Digest of the start, end and prefix first asked for.
    pub selectors: u64,
}

/// The position of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanCursor {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Dataset that the scan is read from.
    pub dataset: NamespaceId,
    /// Number of segments.
    pub segments: u32,
    /// Which of them.
    pub segment: u32,
    /// Shard that is read next.
    pub shard: ShardId,
    /// Its last row that was visited; `None` at its begin.
    pub after: Option<Key>,
}

impl CursorKey {
    /// Makes cursors with a shared secret.
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Writes a range cursor.
    pub fn seal_range(&self, cursor: &RangeCursor) -> String {
        let mut content = begin(FORMAT_RANGE, cursor.namespace, cursor.dataset);
        content.put_u64(cursor.selectors);
        content.put_u8(u8::from(cursor.reverse) | u8::from(cursor.rest.end.is_some()) << 1);
        put_bytes(&mut content, &cursor.partition);
        put_bytes(&mut content, &cursor.rest.start);
        if let Some(end) = &cursor.rest.end {
            put_bytes(&mut content, end);
        }
        self.seal(content)
    }

    /// Reads a range cursor.
    pub fn open_range(&self, text: &[u8]) -> Result<RangeCursor, CursorError> {
        let (content, ids) = self.open(text, FORMAT_RANGE)?;
        parse_range(content, ids).ok_or(CursorError::Forged)
    }

    /// Writes a scan cursor.
    pub fn seal_scan(&self, cursor: &ScanCursor) -> String {
        let mut content = begin(FORMAT_SCAN, cursor.namespace, cursor.dataset);
        content.put_u32(cursor.segments);
        content.put_u32(cursor.segment);
        content.put_u16(cursor.shard.0);
        // No row has an empty partition key.
        let after = cursor.after.as_ref();
        put_bytes(
            &mut content,
            after.map_or(&[], |key| key.partition.as_bytes()),
        );
        put_bytes(&mut content, after.map_or(&[], |key| key.sort.as_bytes()));
        self.seal(content)
    }

    /// Reads a scan cursor.
    pub fn open_scan(&self, text: &[u8]) -> Result<ScanCursor, CursorError> {
        let (content, ids) = self.open(text, FORMAT_SCAN)?;
        parse_scan(content, ids).ok_or(CursorError::Forged)
    }

    fn mac(&self, content: &[u8]) -> [u8; MAC_LEN] {
        let hash = blake3::keyed_hash(&self.0, content);
        std::array::from_fn(|at| hash.as_bytes()[at])
    }

    fn seal(&self, mut content: Vec<u8>) -> String {
        let mac = self.mac(&content);
        content.extend_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(content)
    }

    /// Returns the content after the two ids, and the ids of namespace and dataset.
    fn open(&self, text: &[u8], format: u8) -> Result<(Bytes, Ids), CursorError> {
        let mut content = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| CursorError::Forged)?;
        let split = content
            .len()
            .checked_sub(MAC_LEN)
            .ok_or(CursorError::Forged)?;
        let mac = content.split_off(split);
        if !bool::from(self.mac(&content).ct_eq(&mac)) {
            return Err(CursorError::Forged);
        }
        let mut content = Bytes::from(content);
        let first = content.try_get_u8().map_err(|_| CursorError::Foreign)?;
        if first & !OF_DATASET != format {
            return Err(CursorError::Foreign);
        }
        let mut id = || content.try_get_u32().map_err(|_| CursorError::Forged);
        let namespace = id()?;
        let dataset = if first == format { namespace } else { id()? };
        Ok((content, (NamespaceId(namespace), NamespaceId(dataset))))
    }
}

/// Ids of a namespace and of one of its datasets.
type Ids = (NamespaceId, NamespaceId);

fn begin(format: u8, namespace: NamespaceId, dataset: NamespaceId) -> Vec<u8> {
    let is_other = namespace != dataset;
    let mut content = vec![format | if is_other { OF_DATASET } else { 0 }];
    content.put_u32(namespace.0);
    if is_other {
        content.put_u32(dataset.0);
    }
    content
}

fn put_bytes(content: &mut Vec<u8>, bytes: &[u8]) {
    content.put_u16(bytes.len() as u16);
    content.put_slice(bytes);
}

fn take_bytes(content: &mut Bytes) -> Option<Bytes> {
    let len = usize::from(content.try_get_u16().ok()?);
    (content.len() >= len).then(|| content.split_to(len))
}

fn parse_range(mut content: Bytes, (namespace, dataset): Ids) -> Option<RangeCursor> {
    let selectors = content.try_get_u64().ok()?;
    let flags = content.try_get_u8().ok()?;
    let partition = take_bytes(&mut content)?;
    let start = take_bytes(&mut content)?;
    let end = if flags & 2 == 0 {
        None
    } else {
        Some(take_bytes(&mut content)?)
    };
    let rest = SortRange { start, end };
    Some(RangeCursor {
        namespace,
        dataset,
        partition,
        rest,
        reverse: flags & 1 != 0,
        selectors,
    })
}

fn parse_scan(mut content: Bytes, (namespace, dataset): Ids) -> Option<ScanCursor> {
    let segments = content.try_get_u32().ok()?;
    let segment = content.try_get_u32().ok()?;
    let shard = ShardId(content.try_get_u16().ok()?);
    let partition = take_bytes(&mut content)?;
    let sort = take_bytes(&mut content)?;
    let after = if partition.is_empty() {
        None
    } else {
        Some(Key::new(partition, sort).ok()?)
    };
    Some(ScanCursor {
        namespace,
        dataset,
        segments,
        segment,
        shard,
        after,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range_cursor() -> impl Strategy<Value = RangeCursor> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
        (
            any::<u32>(),
            bytes(),
            bytes(),
            prop::option::of(bytes()),
            any::<bool>(),
            any::<u64>(),
        )
            .prop_map(|(namespace, partition, start, end, reverse, selectors)| {
                RangeCursor {
                    namespace: NamespaceId(namespace),
                    // Of every second namespace it is the first one.
                    dataset: NamespaceId(namespace | 1),
                    partition,
                    rest: SortRange { start, end },
                    reverse,
                    selectors,
                }
            })
    }

    proptest! {
        #[test]
        fn a_cursor_reads_back_and_no_changed_one_does(
            cursor in range_cursor(), at in any::<prop::sample::Index>(), flip in 1_u8..,
        ) {
            let key = CursorKey::new([7; 32]);
            let text = key.seal_range(&cursor);
            prop_assert_eq!(key.open_range(text.as_bytes()).unwrap(), cursor);
            prop_assert_eq!(key.open_scan(text.as_bytes()), Err(CursorError::Foreign));
            prop_assert_eq!(
                CursorKey::new([8; 32]).open_range(text.as_bytes()),
                Err(CursorError::Forged)
            );
            let mut content = URL_SAFE_NO_PAD.decode(&text).unwrap();
            let index = at.index(content.len());
            content[index] ^= flip;
            let changed = URL_SAFE_NO_PAD.encode(content);
            prop_assert_eq!(key.open_range(changed.as_bytes()), Err(CursorError::Forged));
        }

        #[test]
        fn a_scan_cursor_reads_back(shard in any::<u16>(), after in prop::option::of("[a-z]{1,9}")) {
            let key = CursorKey::new([7; 32]);
            let cursor = ScanCursor {
                namespace: NamespaceId(3),
                dataset: NamespaceId(4),
                segments: 9,
                segment: 8,
                shard: ShardId(shard),
                after: after.map(|name| Key::new(name, "s").unwrap()),
            };
            let text = key.seal_scan(&cursor);
            prop_assert_eq!(key.open_scan(text.as_bytes()).unwrap(), cursor);
        }

        #[test]
        fn any_text_is_refused(text in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(CursorKey::new([7; 32]).open_range(&text).is_err());
            prop_assert!(CursorKey::new([7; 32]).open_scan(&text).is_err());
        }
    }
}
