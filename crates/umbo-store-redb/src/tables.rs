//! The tables of a shard file, and the two records that a shard keeps of itself.
//!
//! Owns names, types and record formats. The invariant: a row with an expiry has exactly one entry
//! in the expiry index, `expires_at (u64, big endian) | physical key`; entries without such a row
//! are tolerated, and removed by the sweeper.

use redb::{ReadableTable, TableDefinition};
use umbo_types::{Timestamp, Version};

use crate::failure::Failure;

/// Physical key → encoded row.
pub(crate) const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
/// Expiry and physical key, in order of expiry.
pub(crate) const EXPIRY: TableDefinition<'static, &[u8], ()> = TableDefinition::new("expiry");
/// Records of the shard itself.
pub(crate) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// Name of the [`Identity`] record.
pub(crate) const META_IDENTITY: &str = "identity";
/// Name of the [`Progress`] record.
pub(crate) const META_PROGRESS: &str = "progress";

const FORMAT: u8 = 1;
const TIMESTAMP_LEN: usize = 8;

/// Which shard of which store a file is. Written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Random number of the store.
    pub(crate) store_id: u64,
    /// Number of the shard.
    pub(crate) shard: u16,
}

impl Identity {
    /// Encodes the record.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.store_id.to_be_bytes());
        bytes.extend_from_slice(&self.shard.to_be_bytes());
        bytes
    }

    /// Decodes the record; none where it is not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (store_id, rest) = rest.split_first_chunk()?;
        Some(Self {
            store_id: u64::from_be_bytes(*store_id),
            shard: u16::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

/// How far a shard has come. Written with every commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Number of the commit that wrote the record.
    pub(crate) sequence: u64,
    /// No version above this one was given before the commit after this one.
    pub(crate) version_ceiling: Version,
    /// Whether the shard was closed after this commit.
    pub(crate) is_closed: bool,
}

impl Progress {
    /// Encodes the record.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![FORMAT, u8::from(self.is_closed)];
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.version_ceiling.0.to_be_bytes());
        bytes
    }

    /// Decodes the record; none where it is not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[FORMAT, is_closed], rest) = bytes.split_first_chunk()? else {
            return None;
        };
        let (sequence, rest) = rest.split_first_chunk()?;
        Some(Self {
            sequence: u64::from_be_bytes(*sequence),
            version_ceiling: Version(u64::from_be_bytes(rest.try_into().ok()?)),
            is_closed: is_closed != 0,
        })
    }
}

/// Encodes an entry of the expiry index.
pub(crate) fn expiry_entry(expires_at: Timestamp, key: &[u8]) -> Vec<u8> {
    [&expires_at.0.to_be_bytes(), key].concat()
}

/// Takes an entry of the expiry index apart; none where it is not one.
pub(crate) fn split_expiry_entry(entry: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (at, key) = entry.split_first_chunk::<TIMESTAMP_LEN>()?;
    Some((Timestamp(u64::from_be_bytes(*at)), key))
}

/// Returns the earliest expiry in the index.
pub(crate) fn next_expiry(
    expiry: &impl ReadableTable<&'static [u8], ()>,
) -> Result<Option<Timestamp>, Failure> {
    let first = expiry.first()?;
    Ok(first.map(|(entry, _)| {
        // What makes no sense is due at once, so that the sweeper removes it.
        split_expiry_entry(entry.value()).map_or(Timestamp(0), |(at, _)| at)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(store_id: u64, shard: u16, sequence: u64, ceiling: u64, closed: bool) {
            let identity = Identity { store_id, shard };
            prop_assert_eq!(Identity::decode(&identity.encode()), Some(identity));
            let progress = Progress {
                sequence,
                version_ceiling: Version(ceiling),
                is_closed: closed,
            };
            prop_assert_eq!(Progress::decode(&progress.encode()), Some(progress));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(0_u8..3, 0..24)) {
            let _ = Identity::decode(&bytes);
            let _ = Progress::decode(&bytes);
            let _ = split_expiry_entry(&bytes);
        }
    }

    #[test]
    fn expiry_entries_order_by_expiry_first() {
        let early = expiry_entry(Timestamp(255), b"z");
        let late = expiry_entry(Timestamp(256), b"a");
        assert!(early < late);
        assert_eq!(split_expiry_entry(&late), Some((Timestamp(256), &b"a"[..])));
    }
}
