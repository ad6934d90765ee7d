//! Requests for chunks of large values, and for pieces of backups.

use umbo_store::{BackupRequest, ChunkRequest};
use umbo_types::{Key, LargeRef, NamespaceId, ShardId};

use super::{put_key, shared_key};
use crate::error::DecodeError;
use crate::request::Ask;
use crate::wire::{Reader, bad, put_bytes, put_fixed, put_varint};

pub(super) fn put_chunk(out: &mut Vec<u8>, key: &Key, request: &ChunkRequest) {
    put_varint(out, request.namespace.0.into());
    put_key(out, key);
    put_bytes(out, &request.large.encode());
    put_varint(out, request.index.into());
}

pub(super) fn chunk(reader: &mut Reader<'_>) -> Result<Ask, DecodeError> {
    let namespace = NamespaceId(reader.u32("namespace")?);
    let key = shared_key(reader)?;
    let large = LargeRef::decode(reader.slice()?).ok_or_else(|| bad("value", &"no reference"))?;
    let index = reader.u32("index")?;
    let request = ChunkRequest {
        namespace,
        large,
        index,
    };
    Ok(Ask::Chunk(key, Box::new(request)))
}

pub(super) fn put_backup(out: &mut Vec<u8>, request: &BackupRequest) {
    put_varint(out, request.shard.0.into());
    put_fixed(out, request.backup);
    put_varint(out, request.piece.into());
}

pub(super) fn backup(reader: &mut Reader<'_>) -> Result<BackupRequest, DecodeError> {
    Ok(BackupRequest {
        shard: ShardId(reader.u16("shard")?),
        backup: reader.fixed()?,
        piece: reader.u32("piece")?,
    })
}
