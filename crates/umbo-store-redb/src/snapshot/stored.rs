//! Rows and chunks as they are stored, for backups.

use std::ops::{Bound, ControlFlow};

use redb::ReadableTable;
use umbo_store::IdRange;
use umbo_types::limits::LARGE_CHUNK_LEN;
use umbo_types::{LargeRef, NamespaceId};

use super::{ShardSnapshot, malformed_key};
use crate::chunk_codec::{chunk_key, decode_chunk};
use crate::file_error::FileError;
use crate::{key_codec, row_codec};

impl ShardSnapshot {
    /// Calls `take` with the key and bytes of each stored row after a key, and with its large value if it has one,
    /// until `take` returns false. Umbo's own records and rows of fenced namespaces are left out. Fails on a row whose
    /// checksum is wrong.
    pub(crate) fn walk_stored(
        &self,
        after: Option<&[u8]>,
        mut take: impl FnMut(&[u8], &[u8], Option<LargeRef>) -> bool,
    ) -> Result<(), FileError> {
        let mut from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_vec()));
        // Rows that are left out may be millions: the walk goes on beyond their namespace.
        while let Some(left_out) = self.walk_until_left_out(&from, &mut take)? {
            match key_codec::namespace_bounds(left_out).1 {
                Bound::Excluded(next) => from = Bound::Included(next),
                Bound::Included(_) | Bound::Unbounded => break,
            }
        }
        Ok(())
    }

    /// Walks until there is nothing more to do, or returns the namespace of a row that is left out.
    fn walk_until_left_out(
        &self,
        from: &Bound<Vec<u8>>,
        take: &mut impl FnMut(&[u8], &[u8], Option<LargeRef>) -> bool,
    ) -> Result<Option<NamespaceId>, FileError> {
        let bounds = (from.as_ref().map(Vec::as_slice), Bound::Unbounded);
        let ended = self.walk(bounds, false, |key, row| {
            let namespace = key_codec::namespace_of(key).ok_or_else(malformed_key)?;
            if namespace == NamespaceId::SYSTEM || IdRange::any_has(&self.fenced, namespace) {
                return Ok(ControlFlow::Break(Some(namespace)));
            }
            row_codec::decode(key, row)?;
            Ok(if take(key, row, row_codec::large(row)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(None)
            })
        })?;
        Ok(ended.flatten())
    }

    /// Returns the key and bytes of a chunk of a large value, and whether it is the last one.
    pub(crate) fn stored_chunk(
        &self,
        large: &LargeRef,
        index: u32,
    ) -> Result<(Vec<u8>, Vec<u8>, bool), FileError> {
        let key = chunk_key(large.upload, index);
        let chunk = match &self.tables()?.chunks {
            Some(chunks) => ReadableTable::get(chunks, &key[..])?,
            None => None,
        };
        let chunk = chunk.ok_or_else(|| {
            FileError::Damaged(format!(
                "chunk {index} of upload {} is missing",
                large.upload
            ))
        })?;
        decode_chunk(&key, chunk.value())?;
        let end = (u64::from(index) + 1) * LARGE_CHUNK_LEN as u64;
        Ok((key.to_vec(), chunk.value().to_vec(), end >= large.len))
    }
}
