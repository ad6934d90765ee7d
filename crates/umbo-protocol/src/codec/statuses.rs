//! The status of a node, and of its shards with the sizes of their namespaces.

use std::collections::BTreeMap;

use umbo_store::{NamespaceSize, ShardState, ShardStatus};
use umbo_types::{NamespaceId, ShardId};

use super::field::{Field, OptionalFields as _, fields, optional_fields};
use crate::answer::StatusOfNode;
use crate::error::DecodeError;
use crate::wire::{Reader, put_bytes, put_nested, put_varint};

/// Optional field after the sizes: the namespaces with compressed values, and the bytes that this saves.
const SAVED: u8 = 11;
/// Fewest bytes of a status.
const STATUS_LEN_MIN: usize = 10;

fields!(ShardStatus {
    shard,
    state,
    rows,
    file_bytes,
    queued,
    commits,
    mutations,
    reclaimed;
    ..ShardStatus::new(ShardId(0), ShardState::Available)
});
optional_fields!(ShardStatus {
    1 => purging as always,
    2 => expired as always,
    3 => namespace_max as always,
    // 4 is a count of earlier versions.
    5 => sizes as option,
    6 => sizes_omitted,
    7 => syncs,
    8 => sync_nanos,
    9 => cache_hits,
    10 => cache_misses,
    12 => compactions,
    13 => compaction_nanos,
    14 => held_nanos,
});
fields!(NamespaceSize {
    namespace,
    rows,
    bytes;
    bytes_saved: 0
});

impl Field for ShardState {
    fn put(&self, out: &mut Vec<u8>) {
        let (state, reason) = match self {
            Self::Available => (0, ""),
            Self::ReadOnly(reason) => (1, reason.as_str()),
            Self::Unavailable(reason) => (2, reason.as_str()),
        };
        out.push(state);
        put_bytes(out, reason.as_bytes());
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let (state, reason) = (reader.byte()?, Field::read(reader, "reason")?);
        Ok(match state {
            0 => Self::Available,
            1 => Self::ReadOnly(reason),
            _ => Self::Unavailable(reason),
        })
    }
}

/// Its time of day is an optional field of the answer.
impl Field for StatusOfNode {
    fn put(&self, out: &mut Vec<u8>) {
        self.map_version.put(out);
        put_varint(out, self.shards.len() as u64);
        for status in &self.shards {
            put_nested(out, |out| {
                status.put(out);
                status.put_optional_fields(out);
                put_saved(out, status);
            });
        }
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let map_version = reader.varint()?;
        let count = reader.count("shards", STATUS_LEN_MIN)?;
        let shards = (0..count).map(|_| status(reader.nested()?));
        Ok(Self {
            map_version,
            wall: None,
            shards: shards.collect::<Result<_, _>>()?,
        })
    }
}

fn status(mut reader: Reader<'_>) -> Result<ShardStatus, DecodeError> {
    let mut status = ShardStatus::read(&mut reader, "shard")?;
    while let Some((tag, field)) = reader.optional()? {
        match tag {
            SAVED => set_saved(field, &mut status)?,
            tag => status.set_optional(tag, field)?,
        }
    }
    Ok(status)
}

fn put_saved(out: &mut Vec<u8>, status: &ShardStatus) {
    let sizes = status.sizes.iter().flatten();
    let mut saving = sizes.filter(|size| size.bytes_saved > 0).peekable();
    if saving.peek().is_none() {
        return;
    }
    out.push(SAVED);
    put_nested(out, |out| {
        for size in saving {
            size.namespace.put(out);
            size.bytes_saved.put(out);
        }
    });
}

fn set_saved(mut field: Reader<'_>, status: &mut ShardStatus) -> Result<(), DecodeError> {
    let mut saved = BTreeMap::new();
    while !field.is_empty() {
        saved.insert(NamespaceId::read(&mut field, "namespace")?, field.varint()?);
    }
    for size in status.sizes.iter_mut().flatten() {
        size.bytes_saved = saved.get(&size.namespace).copied().unwrap_or(0);
    }
    Ok(())
}
