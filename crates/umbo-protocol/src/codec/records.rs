//! Copies of Umbo's own records, and their revisions.

use umbo_store::{DatasetGroup, IdRange, RecordsCopy, RecordsRevision};
use umbo_types::NamespaceId;

use crate::error::DecodeError;
use crate::wire::{Reader, bad, put_bytes, put_varint};

pub(super) fn put_revision(out: &mut Vec<u8>, revision: RecordsRevision) {
    put_varint(out, revision.epoch);
    put_varint(out, revision.number);
}

pub(super) fn revision(reader: &mut Reader<'_>) -> Result<RecordsRevision, DecodeError> {
    Ok(RecordsRevision {
        epoch: reader.varint()?,
        number: reader.varint()?,
    })
}

/// Approximate length of a dataset group, in bytes.
pub(super) const DATASETS_LEN: usize = 24;
/// Fewest bytes of one.
const DATASETS_LEN_MIN: usize = 5;

/// Encodes a copy of Umbo's own records. Optional fields have its dataset groups, and the last ids of fenced ranges.
/// The first ids ascend, so their differences are written.
pub(super) fn put_copy(out: &mut Vec<u8>, copy: &RecordsCopy) {
    put_revision(out, copy.revision);
    put_varint(out, copy.fenced.len() as u64);
    let mut last = 0;
    for IdRange { first, .. } in &copy.fenced {
        put_varint(out, u64::from(first.0.wrapping_sub(last)));
        last = first.0;
    }
    put_bytes(out, &copy.content);
}

/// Decodes a copy of Umbo's own records. The copy may be kept for long.
pub(super) fn copy(reader: &mut Reader<'_>) -> Result<RecordsCopy, DecodeError> {
    let revision = revision(reader)?;
    let count = reader.count("fenced", 1)?;
    let mut fenced = Vec::with_capacity(count);
    let mut last = 0_u32;
    for _ in 0..count {
        let step = reader.u32("fenced")?;
        let next = last.checked_add(step).filter(|_| step > 0);
        last = next.ok_or_else(|| bad("fenced", &"ids that do not ascend from 1"))?;
        fenced.push(NamespaceId(last).into());
    }
    Ok(RecordsCopy {
        revision,
        fenced,
        datasets: Vec::new(),
        content: reader.owned()?,
    })
}

/// Returns whether any fenced range of a copy has more than one id.
pub(super) fn has_ranges(copy: &RecordsCopy) -> bool {
    copy.fenced.iter().any(|range| range.first < range.last)
}

/// Encodes how many ids each fenced range of a copy has after its first, in the order of the ranges.
pub(super) fn put_ranges(out: &mut Vec<u8>, copy: &RecordsCopy) {
    for range in &copy.fenced {
        put_varint(out, range.count() - 1);
    }
}

/// Decodes the fenced ranges of a copy that has their first ids.
pub(super) fn ranges(mut reader: Reader<'_>, copy: &mut RecordsCopy) -> Result<(), DecodeError> {
    let mut before = 0;
    for range in &mut copy.fenced {
        let last = range.first.0.checked_add(reader.u32("fenced")?);
        let last = last.filter(|_| range.first.0 > before);
        before = last.ok_or_else(|| bad("fenced", &"ranges that overlap"))?;
        range.last = NamespaceId(before);
    }
    Ok(())
}

/// Encodes the dataset groups of a copy.
pub(super) fn put_datasets(out: &mut Vec<u8>, groups: &[DatasetGroup]) {
    put_varint(out, groups.len() as u64);
    for group in groups {
        put_varint(out, group.epoch.into());
        put_varint(out, group.live.0.into());
        put_varint(out, group.identity.0.into());
        // The system's namespace is never a dataset.
        put_varint(out, group.building.map_or(0, |id| id.0.into()));
        put_varint(out, group.kept.len() as u64);
        for id in &group.kept {
            put_varint(out, id.0.into());
        }
    }
}

/// Decodes dataset groups.
pub(super) fn datasets(mut reader: Reader<'_>) -> Result<Vec<DatasetGroup>, DecodeError> {
    let id = |reader: &mut Reader<'_>| match reader.u32("dataset")? {
        0 => Err(bad("dataset", &0)),
        id => Ok(NamespaceId(id)),
    };
    let group = |reader: &mut Reader<'_>| {
        let (epoch, live, identity) = (reader.u32("epoch")?, id(reader)?, id(reader)?);
        let building = match reader.u32("dataset")? {
            0 => None,
            id => Some(NamespaceId(id)),
        };
        let kept = (0..reader.count("kept", 1)?).map(|_| id(reader));
        Ok(DatasetGroup {
            epoch,
            live,
            kept: kept.collect::<Result<_, _>>()?,
            building,
            identity,
        })
    };
    let count = reader.count("datasets", DATASETS_LEN_MIN)?;
    let groups = (0..count).map(|_| group(&mut reader));
    groups.collect()
}
