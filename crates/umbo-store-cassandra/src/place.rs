//! Where a row stands in its bucket, as one byte string.
//!
//! `kind (u8) | dataset (u32) | slot (u16) | length of the partition key (u16) | partition key | sort key`, big-endian. So
//! rows are in the order of kinds, then of datasets, of slots, of partitions, and of sort keys. It is one column, not
//! five: the nodes compare and check each further one apart.

use bytes::{Buf as _, Bytes};
use scylla::value::CqlValue;
use umbo_store::SortRange;
use umbo_types::{Key, NamespaceId};

use crate::cell::BoundValue;
use crate::schema::ROW;

/// The place of a row in its bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StoredPlace {
    pub(crate) kind: u8,
    pub(crate) dataset: NamespaceId,
    pub(crate) slot: u16,
    pub(crate) partition: Bytes,
    pub(crate) sort: Bytes,
}

impl StoredPlace {
    pub(crate) fn of_row(dataset: NamespaceId, slot: u16, key: &Key) -> Self {
        Self {
            kind: ROW,
            dataset,
            slot,
            partition: key.partition.to_bytes(),
            sort: key.sort.to_bytes(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let of_slot = prefix(self.kind, self.dataset, Some(self.slot));
        encode(of_slot, &self.partition, &self.sort)
    }

    /// Reads a place. Returns `None` if it is cut.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        let (kind, dataset) = (bytes.try_get_u8().ok()?, bytes.try_get_u32().ok()?);
        let slot = bytes.try_get_u16().ok()?;
        let partition_len = usize::from(bytes.try_get_u16().ok()?);
        (partition_len <= bytes.len()).then(|| Self {
            kind,
            dataset: NamespaceId(dataset),
            slot,
            partition: bytes.split_to(partition_len),
            sort: bytes,
        })
    }

    /// Returns the value that is bound.
    pub(crate) fn cell(&self) -> CqlValue {
        CqlValue::Blob(self.encode())
    }
}

/// Returns what the places of a dataset, or of a slot of it, begin with.
fn prefix(kind: u8, dataset: NamespaceId, slot: Option<u16>) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(dataset.0.to_be_bytes());
    bytes.extend(slot.into_iter().flat_map(u16::to_be_bytes));
    bytes
}

fn encode(mut of_slot: Vec<u8>, partition: &[u8], sort: &[u8]) -> Vec<u8> {
    of_slot.reserve(2 + partition.len() + sort.len());
    of_slot.extend((partition.len() as u16).to_be_bytes());
    of_slot.extend_from_slice(partition);
    of_slot.extend_from_slice(sort);
    of_slot
}

/// Returns the first byte string beyond all that begin with a prefix. A prefix begins with a kind, which is not 255.
fn beyond(mut prefix: Vec<u8>) -> Vec<u8> {
    while prefix.last() == Some(&u8::MAX) {
        prefix.pop();
    }
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}

/// Places from the first, which is included, to the end, which is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlaceRange {
    start: Vec<u8>,
    end: Vec<u8>,
}

impl PlaceRange {
    /// Returns the places of a kind and a dataset.
    pub(crate) fn of_kind(kind: u8, dataset: NamespaceId) -> Self {
        let start = prefix(kind, dataset, None);
        Self {
            end: beyond(start.clone()),
            start,
        }
    }

    /// Returns the places of rows of a dataset in slots, the last one included.
    pub(crate) fn of_slots(dataset: NamespaceId, (first, last): (u16, u16)) -> Self {
        Self {
            start: prefix(ROW, dataset, Some(first)),
            end: beyond(prefix(ROW, dataset, Some(last))),
        }
    }

    /// Returns the places of a range of rows of a partition of a dataset.
    pub(crate) fn of_sorts(
        (dataset, slot, partition): (NamespaceId, u16, &[u8]),
        range: &SortRange,
    ) -> Self {
        let at = |sort: &[u8]| encode(prefix(ROW, dataset, Some(slot)), partition, sort);
        let end = range.end.as_deref();
        Self {
            start: at(&range.start),
            end: end.map_or_else(|| beyond(at(&[])), at),
        }
    }

    /// Returns the places from one to another, both included.
    pub(crate) fn between(first: &StoredPlace, last: &StoredPlace) -> Self {
        Self {
            start: first.encode(),
            end: behind(last),
        }
    }

    /// Begins behind a place.
    pub(crate) fn after(self, place: &StoredPlace) -> Self {
        Self {
            start: behind(place),
            ..self
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    pub(crate) fn cells(self) -> [BoundValue; 2] {
        [self.start, self.end].map(|place| Some(CqlValue::Blob(place)))
    }
}

/// Returns the first byte string beyond a place.
fn behind(place: &StoredPlace) -> Vec<u8> {
    let mut next = place.encode();
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(kind: u8, dataset: u32, slot: u16, partition: &str, sort: &[u8]) -> StoredPlace {
        StoredPlace {
            kind,
            dataset: NamespaceId(dataset),
            slot,
            partition: partition.to_owned().into(),
            sort: sort.to_vec().into(),
        }
    }

    #[test]
    fn places_come_back_and_are_in_order() {
        let places = [
            place(0, 1, 0xFFFF, "a", b""),
            place(0, 0xFF, 0xFF, "a", b""),
            place(0, 0xFF, 0xFF, "a", b"\0"),
            place(0, 0xFF, 0xFF, "a", b"b"),
            place(0, 0xFF, 0xFF, "ab", b""),
            place(0, 0xFF, 0x100, "a", b"\xFF"),
            place(0, 0x100, 0, "a", b""),
            place(1, 1, 0, "a", b""),
        ];
        for one in &places {
            let encoded = Bytes::from(one.encode());
            assert_eq!(StoredPlace::decode(encoded.clone()).as_ref(), Some(one));
            for len in 0..encoded.len() - one.sort.len() {
                assert_eq!(StoredPlace::decode(encoded.slice(..len)), None);
            }
        }
        assert!(
            places
                .windows(2)
                .all(|pair| pair[0].encode() < pair[1].encode())
        );
    }

    #[test]
    fn a_range_has_its_places_and_no_others() {
        let has = |range: &PlaceRange, place: &StoredPlace| {
            let place = place.encode();
            range.start <= place && place < range.end
        };
        let row = |slot, partition, sort| place(ROW, 0xFF, slot, partition, sort);
        let of_dataset = PlaceRange::of_kind(ROW, NamespaceId(0xFF));
        assert!(
            has(&of_dataset, &row(0, "a", b"")) && has(&of_dataset, &row(0xFFFF, "a", b"\xFF"))
        );
        assert!(!has(&of_dataset, &place(ROW, 0x100, 0, "a", b"")));
        assert!(!has(&of_dataset, &place(1, 0xFF, 0, "a", b"")));
        let of_slots = PlaceRange::of_slots(NamespaceId(0xFF), (3, 0xFFFF));
        assert!(has(&of_slots, &row(3, "a", b"")) && has(&of_slots, &row(0xFFFF, "a", b"")));
        assert!(!has(&of_slots, &row(2, "a", b"\xFF")));
        assert!(!has(&of_slots, &place(ROW, 0x100, 0, "a", b"")));
        let rest = of_slots.after(&row(3, "a", b"b"));
        assert!(!has(&rest, &row(3, "a", b"b")) && has(&rest, &row(3, "a", b"b\0")));
        let range = |start: &'static [u8], end: Option<&'static [u8]>| SortRange {
            start: start.into(),
            end: end.map(Bytes::from_static),
        };
        let open = PlaceRange::of_sorts((NamespaceId(0xFF), 3, b"\xFF"), &range(b"b", None));
        let of_partition = |sort: &'static [u8]| StoredPlace {
            partition: Bytes::from_static(b"\xFF"),
            ..row(3, "", sort)
        };
        assert!(has(&open, &of_partition(b"b")) && has(&open, &of_partition(b"\xFF\xFF")));
        assert!(!has(&open, &of_partition(b"a")) && !has(&open, &row(3, "aa", b"b")));
        let closed =
            PlaceRange::of_sorts((NamespaceId(0xFF), 3, b"\xFF"), &range(b"b", Some(b"d")));
        assert!(has(&closed, &of_partition(b"c")) && !has(&closed, &of_partition(b"d")));
        let both = PlaceRange::between(&of_partition(b"b"), &of_partition(b"d"));
        assert!(has(&both, &of_partition(b"d")) && !has(&both, &of_partition(b"d\0")));
    }
}
