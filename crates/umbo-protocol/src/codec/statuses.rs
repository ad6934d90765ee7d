//! States of shards, with the sizes of their namespaces.

use std::collections::BTreeMap;

use umbo_store::{NamespaceSize, ShardState, ShardStatus};
use umbo_types::{NamespaceId, ShardId};

use crate::error::DecodeError;
use crate::wire::{Reader, ignored, put_bytes, put_nested, put_optional_varint, put_varint};

/// Optional fields.
const PURGING: u8 = 1;
const EXPIRED: u8 = 2;
const NAMESPACE_MAX: u8 = 3;
const LOST_ASYNC: u8 = 4;
const SIZES: u8 = 5;
const SIZES_OMITTED: u8 = 6;
const SYNCS: u8 = 7;
const SYNC_NANOS: u8 = 8;
const CACHE_HITS: u8 = 9;
const CACHE_MISSES: u8 = 10;
/// Namespaces with compressed values, and the bytes that this saves.
const SAVED: u8 = 11;
const COMPACTIONS: u8 = 12;
const COMPACTION_NANOS: u8 = 13;

/// Fewest bytes of a status.
pub(super) const STATUS_LEN_MIN: usize = 10;
/// Fewest bytes of the size of a namespace.
const SIZE_LEN_MIN: usize = 3;

pub(super) fn put_status(out: &mut Vec<u8>, status: &ShardStatus) {
    let (state, reason) = match &status.state {
        ShardState::Available => (0, ""),
        ShardState::ReadOnly(reason) => (1, reason.as_str()),
        ShardState::Unavailable(reason) => (2, reason.as_str()),
    };
    put_varint(out, status.shard.0.into());
    out.push(state);
    put_bytes(out, reason.as_bytes());
    for number in [
        status.rows,
        status.file_bytes,
        status.queued,
        status.commits,
        status.mutations,
        status.reclaimed,
    ] {
        put_varint(out, number);
    }
    put_optional_varint(out, PURGING, status.purging);
    put_optional_varint(out, EXPIRED, status.expired);
    put_optional_varint(out, NAMESPACE_MAX, status.namespace_max.0.into());
    if status.lost_async > 0 {
        put_optional_varint(out, LOST_ASYNC, status.lost_async);
    }
    if let Some(sizes) = &status.sizes {
        out.push(SIZES);
        put_nested(out, |out| {
            put_varint(out, sizes.len() as u64);
            for size in sizes {
                put_varint(out, size.namespace.0.into());
                put_varint(out, size.rows);
                put_varint(out, size.bytes);
            }
        });
    }
    let saving = || {
        status
            .sizes
            .iter()
            .flatten()
            .filter(|size| size.bytes_saved > 0)
    };
    if saving().next().is_some() {
        out.push(SAVED);
        put_nested(out, |out| {
            for size in saving() {
                put_varint(out, size.namespace.0.into());
                put_varint(out, size.bytes_saved);
            }
        });
    }
    if status.sizes_omitted > 0 {
        put_optional_varint(out, SIZES_OMITTED, status.sizes_omitted);
    }
    for (tag, number) in [
        (SYNCS, status.syncs),
        (SYNC_NANOS, status.sync_nanos),
        (CACHE_HITS, status.cache_hits),
        (CACHE_MISSES, status.cache_misses),
        (COMPACTIONS, status.compactions),
        (COMPACTION_NANOS, status.compaction_nanos),
    ] {
        if number > 0 {
            put_optional_varint(out, tag, number);
        }
    }
}

pub(super) fn status(mut reader: Reader<'_>, id: u64) -> Result<ShardStatus, DecodeError> {
    let shard = ShardId(reader.u16("shard")?);
    let (state, reason) = (reader.byte()?, reader.text("reason")?);
    let mut status = ShardStatus {
        state: match state {
            0 => ShardState::Available,
            1 => ShardState::ReadOnly(reason),
            _ => ShardState::Unavailable(reason),
        },
        rows: reader.varint()?,
        file_bytes: reader.varint()?,
        queued: reader.varint()?,
        commits: reader.varint()?,
        mutations: reader.varint()?,
        reclaimed: reader.varint()?,
        ..ShardStatus::new(shard, ShardState::Available)
    };
    while let Some((tag, mut field)) = reader.optional()? {
        match tag {
            PURGING => status.purging = field.varint()?,
            EXPIRED => status.expired = field.varint()?,
            LOST_ASYNC => status.lost_async = field.varint()?,
            SIZES => {
                let count = field.count("sizes", SIZE_LEN_MIN)?;
                let sizes = (0..count).map(|_| size(&mut field));
                status.sizes = Some(sizes.collect::<Result<_, _>>()?);
            }
            SAVED => {
                let mut saved = BTreeMap::new();
                while !field.is_empty() {
                    saved.insert(NamespaceId(field.u32("namespace")?), field.varint()?);
                }
                for size in status.sizes.iter_mut().flatten() {
                    size.bytes_saved = saved.get(&size.namespace).copied().unwrap_or(0);
                }
            }
            SIZES_OMITTED => status.sizes_omitted = field.varint()?,
            SYNCS => status.syncs = field.varint()?,
            SYNC_NANOS => status.sync_nanos = field.varint()?,
            CACHE_HITS => status.cache_hits = field.varint()?,
            CACHE_MISSES => status.cache_misses = field.varint()?,
            COMPACTIONS => status.compactions = field.varint()?,
            COMPACTION_NANOS => status.compaction_nanos = field.varint()?,
            NAMESPACE_MAX => status.namespace_max = NamespaceId(field.u32("namespace_max")?),
            tag => ignored(tag, id)?,
        }
    }
    Ok(status)
}

fn size(reader: &mut Reader<'_>) -> Result<NamespaceSize, DecodeError> {
    Ok(NamespaceSize {
        namespace: NamespaceId(reader.u32("namespace")?),
        rows: reader.varint()?,
        bytes: reader.varint()?,
        bytes_saved: 0,
    })
}
