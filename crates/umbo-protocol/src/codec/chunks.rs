//! Requests for chunks of large values, and for pieces of backups.

use umbo_store::{BackupRequest, ChunkRequest};
use umbo_types::{Key, LargeRef};

use super::field::{Field, fields};
use crate::error::DecodeError;
use crate::request::Ask;
use crate::wire::{Reader, bad, put_bytes};

fields!(BackupRequest {
    shard,
    backup as fixed,
    piece
});

pub(super) fn put_chunk(out: &mut Vec<u8>, key: &Key, request: &ChunkRequest) {
    request.namespace.put(out);
    key.put(out);
    put_bytes(out, &request.large.encode());
    request.index.put(out);
}

pub(super) fn chunk(reader: &mut Reader<'_>) -> Result<Ask, DecodeError> {
    let namespace = Field::read(reader, "namespace")?;
    let key = Field::read(reader, "key")?;
    let large = LargeRef::decode(reader.slice()?).ok_or_else(|| bad("value", &"no reference"))?;
    let request = ChunkRequest {
        namespace,
        large,
        index: Field::read(reader, "index")?,
    };
    Ok(Ask::Chunk(key, Box::new(request)))
}
