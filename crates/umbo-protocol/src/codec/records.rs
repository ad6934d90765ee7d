//! Copies of Umbo's own records, and their revisions.

use std::sync::Arc;

use umbo_store::{DatasetGroup, IdRange, RecordsCopy, RecordsRevision};
use umbo_types::NamespaceId;

use super::field::{Field, fields};
use crate::error::DecodeError;
use crate::wire::{REQUIRED_TAG, Reader, bad, put_bytes, put_nested, put_varint};

fields!(RecordsRevision { epoch, number });
fields!(DatasetGroup {
    epoch,
    live,
    identity,
    building,
    kept
});

/// The system's namespace is never a dataset, so its id stands for none.
impl Field for Option<NamespaceId> {
    fn put(&self, out: &mut Vec<u8>) {
        self.map_or(0, |id| id.0).put(out);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let id = NamespaceId::read(reader, name)?;
        Ok((id != NamespaceId::SYSTEM).then_some(id))
    }
}

/// Optional field of kept records: the copy.
const COPY: u8 = 1;

/// Tags of the optional fields of a copy in a request: its dataset groups and its fenced ranges. A peer that does not
/// know the groups would keep or pass on a part of the copy. A peer that does not know the ranges has heard of all their
/// ids already.
pub(super) const OF_REQUEST: [u8; 2] = [REQUIRED_TAG | 6, 10];
/// The same tags in an answer.
const OF_ANSWER: [u8; 2] = [REQUIRED_TAG | 1, 2];

/// Appends the optional fields of a copy.
pub(super) fn put_parts(out: &mut Vec<u8>, [datasets, ranges]: [u8; 2], copy: &RecordsCopy) {
    if !copy.datasets.is_empty() {
        copy.datasets.put_tagged(out, datasets);
    }
    if copy.fenced.iter().any(|range| range.first < range.last) {
        out.push(ranges);
        put_nested(out, |out| put_ranges(out, copy));
    }
}

/// Takes over an optional field of a copy.
pub(super) fn set_part(
    copy: &mut RecordsCopy,
    tags: [u8; 2],
    tag: u8,
    field: Reader<'_>,
) -> Result<(), DecodeError> {
    match tags.map(|known| known == tag) {
        [true, _] => copy.datasets = datasets(field)?,
        [_, true] => ranges(field, copy)?,
        _ => field.ignored(tag)?,
    }
    Ok(())
}

/// Approximate length of a dataset group, in bytes.
pub(super) const DATASETS_LEN: usize = 24;

/// A copy of Umbo's own records, which may be kept for long. The first ids of fenced ranges ascend, so their
/// differences are written.
impl Field for RecordsCopy {
    fn put(&self, out: &mut Vec<u8>) {
        self.revision.put(out);
        put_varint(out, self.fenced.len() as u64);
        let mut last = 0;
        for IdRange { first, .. } in &self.fenced {
            put_varint(out, u64::from(first.0.wrapping_sub(last)));
            last = first.0;
        }
        put_bytes(out, &self.content);
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let revision = Field::read(reader, "revision")?;
        let count = reader.count("fenced", 1)?;
        let mut fenced = Vec::with_capacity(count);
        let mut last = 0_u32;
        for _ in 0..count {
            let step = u32::read(reader, "fenced")?;
            let next = last.checked_add(step).filter(|_| step > 0);
            last = next.ok_or_else(|| bad("fenced", &"ids that do not ascend from 1"))?;
            fenced.push(NamespaceId(last).into());
        }
        Ok(Self {
            revision,
            fenced,
            datasets: Vec::new(),
            content: reader.owned()?,
        })
    }
}

/// The records that a node keeps, in a message that is empty without them.
impl Field for Option<Arc<RecordsCopy>> {
    fn put(&self, out: &mut Vec<u8>) {
        put_nested(out, |out| {
            if let Some(copy) = self {
                copy.put_tagged(out, COPY);
                put_parts(out, OF_ANSWER, copy);
            }
        });
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let (mut fields, mut kept) = (reader.nested()?, None);
        while let Some((tag, field)) = fields.optional()? {
            match (tag, &mut kept) {
                (COPY, _) => kept = Some(RecordsCopy::read_tagged(field, name)?),
                (tag, Some(copy)) => set_part(copy, OF_ANSWER, tag, field)?,
                (tag, None) => field.ignored(tag)?,
            }
        }
        Ok(kept.map(Arc::new))
    }
}

/// Encodes how many ids each fenced range of a copy has after its first, in the order of the ranges.
fn put_ranges(out: &mut Vec<u8>, copy: &RecordsCopy) {
    for range in &copy.fenced {
        put_varint(out, range.count() - 1);
    }
}

/// Decodes the fenced ranges of a copy that has their first ids.
fn ranges(mut reader: Reader<'_>, copy: &mut RecordsCopy) -> Result<(), DecodeError> {
    let mut before = 0;
    for range in &mut copy.fenced {
        let last = range.first.0.checked_add(u32::read(&mut reader, "fenced")?);
        let last = last.filter(|_| range.first.0 > before);
        before = last.ok_or_else(|| bad("fenced", &"ranges that overlap"))?;
        range.last = NamespaceId(before);
    }
    Ok(())
}

/// Decodes dataset groups.
fn datasets(field: Reader<'_>) -> Result<Vec<DatasetGroup>, DecodeError> {
    let groups = Vec::<DatasetGroup>::read_tagged(field, "datasets")?;
    let has_none = |group: &DatasetGroup| {
        let mut ids = group.kept.iter().chain([&group.live, &group.identity]);
        ids.any(|id| *id == NamespaceId::SYSTEM)
    };
    if groups.iter().any(has_none) {
        return Err(bad("dataset", &0));
    }
    Ok(groups)
}
