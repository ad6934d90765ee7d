//! Dataset groups in files: of the copy that a folder keeps, and of a shard.

use umbo_store::{DatasetGroup, DatasetGroups, RecordsRevision};
use umbo_types::NamespaceId;

use crate::fences::{put_ids, take_ids};

/// Name of the record of a shard's groups; absent in files that never had one.
pub(crate) const META_DATASETS: &str = "datasets";
const FORMAT: u8 = 1;

/// Encodes the record of a shard: `format u8 | epoch u64 | number u64 | groups`, integers big endian.
pub(crate) fn encode(groups: &DatasetGroups) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&groups.revision().epoch.to_be_bytes());
    bytes.extend_from_slice(&groups.revision().number.to_be_bytes());
    put_groups(&mut bytes, groups.groups());
    bytes
}

/// Decodes the record, or returns `None` if the bytes are not a valid one.
pub(crate) fn decode(bytes: &[u8]) -> Option<DatasetGroups> {
    let (&FORMAT, rest) = bytes.split_first()? else {
        return None;
    };
    let (epoch, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let revision = RecordsRevision {
        epoch: u64::from_be_bytes(*epoch),
        number: u64::from_be_bytes(*number),
    };
    let (groups, rest) = take_groups(rest)?;
    rest.is_empty()
        .then(|| DatasetGroups::new(revision, groups))
}

/// Appends the number of groups, then the groups: `epoch u32 | live u32 | identity u32 | building, 0 for none, u32 |
/// count u32, kept ids`, integers big endian.
pub(crate) fn put_groups(bytes: &mut Vec<u8>, groups: &[DatasetGroup]) {
    let count = u32::try_from(groups.len()).expect("there are fewer groups than ids");
    bytes.extend_from_slice(&count.to_be_bytes());
    for group in groups {
        let building = group.building.map_or(0, |id| id.0);
        for number in [group.epoch, group.live.0, group.identity.0, building] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        put_ids(bytes, &group.kept);
    }
}

/// Reads a number of groups, then the groups. Returns `None` if the bytes have fewer groups.
pub(crate) fn take_groups(bytes: &[u8]) -> Option<(Vec<DatasetGroup>, &[u8])> {
    let (count, mut rest) = take_number(bytes)?;
    let mut groups = Vec::new();
    for _ in 0..count {
        let (epoch, after) = take_number(rest)?;
        let (live, after) = take_number(after)?;
        let (identity, after) = take_number(after)?;
        let (building, after) = take_number(after)?;
        let (kept, after) = take_ids(after)?;
        rest = after;
        groups.push(DatasetGroup {
            epoch,
            live: NamespaceId(live),
            kept,
            building: (building > 0).then_some(NamespaceId(building)),
            identity: NamespaceId(identity),
        });
    }
    Some((groups, rest))
}

fn take_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(
            numbers: (u64, u64),
            groups in prop::collection::vec(any::<(u32, u32, u32, Vec<u32>)>(), 0..4),
        ) {
            let group = |(epoch, live, building, kept): (u32, u32, u32, Vec<u32>)| DatasetGroup {
                epoch,
                live: NamespaceId(live),
                kept: kept.into_iter().map(NamespaceId).collect(),
                building: (building > 0).then_some(NamespaceId(building)),
                identity: NamespaceId(live / 2),
            };
            let revision = RecordsRevision { epoch: numbers.0, number: numbers.1 };
            let groups = DatasetGroups::new(revision, groups.into_iter().map(group).collect());
            prop_assert_eq!(decode(&encode(&groups)), Some(groups));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(0_u8..3, 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
