//! Copies of Umbo's own records, and their revisions.

use umbo_store::{RecordsCopy, RecordsRevision};
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

/// Encodes a copy of Umbo's own records. The fenced ids are ascending, so their differences are written.
pub(super) fn put_copy(out: &mut Vec<u8>, copy: &RecordsCopy) {
    put_revision(out, copy.revision);
    put_varint(out, copy.fenced.len() as u64);
    let mut last = 0;
    for id in &copy.fenced {
        put_varint(out, u64::from(id.0.wrapping_sub(last)));
        last = id.0;
    }
    put_bytes(out, &copy.content);
}

/// Decodes a copy of Umbo's own records, which is kept for long.
pub(super) fn copy(reader: &mut Reader<'_>) -> Result<RecordsCopy, DecodeError> {
    let revision = revision(reader)?;
    let count = reader.count("fenced", 1)?;
    let mut fenced = Vec::with_capacity(count);
    let mut last = 0_u32;
    for _ in 0..count {
        let step = reader.u32("fenced")?;
        let next = last.checked_add(step).filter(|_| step > 0);
        last = next.ok_or_else(|| bad("fenced", &"ids that do not ascend from 1"))?;
        fenced.push(NamespaceId(last));
    }
    Ok(RecordsCopy {
        revision,
        fenced,
        content: reader.owned()?,
    })
}
