//! Backups of a shard: one committed state as a stream of bytes, in pieces.
//!
//! The stream is one entry after the other, `kind u8 | key len u32 | key | value len u32 | value`, integers big endian:
//! the rows in order of their keys, as they are stored, and behind each row of a large value its chunks. Umbo's own
//! records and rows of fenced namespaces are not in it. The invariants: all pieces are of one committed state, or the
//! backup is gone; and each row and chunk in it has had its checksum verified.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use umbo_store::{BACKUP_IDLE, BackupRequest};
use umbo_types::LargeRef;
use umbo_types::limits::CHUNK_BYTES_MAX;

use crate::file_error::FileError;
use crate::snapshot::ShardSnapshot;

/// Bytes of a piece: those of a chunk of a scan, so that a backup holds nobody up for longer than a scan does.
const PIECE_LEN: usize = CHUNK_BYTES_MAX as usize;
/// Kinds of entries.
const ROW: u8 = 1;
const CHUNK: u8 = 2;
/// Length of the numbers of an entry.
const ENTRY_HEAD_LEN: usize = 1 + 4 + 4;

/// An entry of a backup, with the bytes that are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackupEntry {
    /// A row, by its physical key.
    Row(Bytes, Bytes),
    /// A chunk of the large value of the row before it, by its key.
    Chunk(Bytes, Bytes),
}

/// Divides the stream of a backup into its entries.
#[derive(Debug, Default)]
pub(crate) struct EntryReader {
    buffer: BytesMut,
}

impl EntryReader {
    /// Adds bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether no part of an entry is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the next entry; none if more bytes are needed for it.
    pub(crate) fn next(&mut self) -> Result<Option<BackupEntry>, String> {
        let len_at = |at: usize| {
            let len = self.buffer.get(at..at + 4)?;
            Some(u32::from_be_bytes(len.try_into().ok()?) as usize)
        };
        let lens = len_at(1).and_then(|key| Some((key, len_at(1 + 4 + key)?)));
        let Some((key_len, value_len)) = lens else {
            return Ok(None);
        };
        let len = ENTRY_HEAD_LEN + key_len + value_len;
        if self.buffer.len() < len {
            return Ok(None);
        }
        let mut entry = self.buffer.split_to(len).freeze();
        let kind = entry.get_u8();
        entry.advance(4);
        let key = entry.split_to(key_len);
        entry.advance(4);
        match kind {
            ROW => Ok(Some(BackupEntry::Row(key, entry))),
            CHUNK => Ok(Some(BackupEntry::Chunk(key, entry))),
            kind => Err(format!("no entry of a backup is of kind {kind}")),
        }
    }
}

fn put_entry(out: &mut BytesMut, kind: u8, key: &[u8], value: &[u8]) {
    out.put_u8(kind);
    out.put_u32(key.len() as u32);
    out.put_slice(key);
    out.put_u32(value.len() as u32);
    out.put_slice(value);
}

/// What a backup has at the number of a piece.
#[derive(Debug, Clone)]
pub(crate) enum BackupPiece {
    /// The piece.
    Piece(Bytes),
    /// The backup has been read.
    End,
    /// The backup is gone, or another was begun.
    Gone,
}

/// The backup of a shard that is being read, if there is one.
#[derive(Default)]
pub(crate) struct ShardBackup(Mutex<Option<OpenBackup>>);

struct OpenBackup {
    number: u64,
    /// None once all of it has been read.
    snapshot: Option<Arc<ShardSnapshot>>,
    /// Number of the last piece that was made, and the piece.
    last: Option<(u32, BackupPiece)>,
    /// Bytes of the stream beyond it.
    made: BytesMut,
    /// The last row in them.
    after: Option<Vec<u8>>,
    /// Chunks of this row that are not in them: the value, and which is next.
    chunks: Option<(LargeRef, u32)>,
    used_at: Option<Instant>,
}

impl ShardBackup {
    /// Forgets the backup, because its state can be read no longer. Waits for a piece that is being read.
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Forgets a backup that nobody reads any more.
    pub(crate) fn end_if_idle(&self, now: Instant) {
        // Where a piece is being read, it is not idle.
        if let Ok(mut open) = self.0.try_lock() {
            let idle = |at: Instant| now.saturating_duration_since(at) > BACKUP_IDLE;
            open.take_if(|open| open.used_at.is_some_and(idle));
        }
    }
}

impl ShardBackup {
    /// Makes a piece of a backup, or returns the last one again; `state` is what a new one is of.
    pub(crate) fn piece(
        &self,
        asked: &BackupRequest,
        (state, now): (&ArcSwap<ShardSnapshot>, Instant),
    ) -> Result<BackupPiece, FileError> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |open: &mut OpenBackup| {
            let is_begun = open.last.as_ref().is_some_and(|(last, _)| *last > 0);
            open.number == asked.backup && !(asked.piece == 0 && is_begun)
        };
        let mut current = match open.take_if(is_it) {
            Some(current) => current,
            None if asked.piece == 0 => OpenBackup::new(asked.backup, state.load_full()),
            None => return Ok(BackupPiece::Gone),
        };
        let next = current.last.as_ref().map_or(0, |(number, _)| number + 1);
        if asked.piece == next {
            // A piece that fails ends the backup: what was made of it is not known.
            current.last = Some((asked.piece, current.next_piece()?));
        }
        current.used_at = Some(now);
        let last = current.last.clone();
        *open = Some(current);
        let asked = last.filter(|(number, _)| *number == asked.piece);
        Ok(asked.map_or(BackupPiece::Gone, |(_, piece)| piece))
    }
}

impl OpenBackup {
    fn new(number: u64, snapshot: Arc<ShardSnapshot>) -> Self {
        Self {
            number,
            snapshot: Some(snapshot),
            last: None,
            made: BytesMut::new(),
            after: None,
            chunks: None,
            used_at: None,
        }
    }

    /// Makes the next piece.
    fn next_piece(&mut self) -> Result<BackupPiece, FileError> {
        while self.made.len() < PIECE_LEN
            && let Some(snapshot) = self.snapshot.clone()
        {
            match self.chunks {
                Some((large, index)) => self.add_chunk(&snapshot, large, index)?,
                None => self.add_rows(&snapshot)?,
            }
        }
        let len = self.made.len().min(PIECE_LEN);
        Ok(match len {
            0 => BackupPiece::End,
            _ => BackupPiece::Piece(self.made.split_to(len).freeze()),
        })
    }

    /// Adds rows until the piece is full, or up to one of a large value.
    fn add_rows(&mut self, snapshot: &ShardSnapshot) -> Result<(), FileError> {
        let Self { made, chunks, .. } = self;
        let mut last = None;
        snapshot.walk_stored(self.after.as_deref(), |key, row, large| {
            put_entry(made, ROW, key, row);
            *chunks = large.map(|large| (large, 0));
            let is_full = made.len() >= PIECE_LEN || large.is_some();
            if is_full {
                last = Some(key.to_vec());
            }
            !is_full
        })?;
        if last.is_none() {
            self.snapshot = None;
        }
        self.after = last;
        Ok(())
    }

    fn add_chunk(
        &mut self,
        snapshot: &ShardSnapshot,
        large: LargeRef,
        index: u32,
    ) -> Result<(), FileError> {
        let (key, chunk, is_last) = snapshot.stored_chunk(&large, index)?;
        put_entry(&mut self.made, CHUNK, &key, &chunk);
        self.chunks = (!is_last).then_some((large, index + 1));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_wherever_the_stream_is_cut() {
        let mut stream = BytesMut::new();
        put_entry(&mut stream, ROW, b"key", b"a row");
        put_entry(&mut stream, CHUNK, b"chunk", b"");
        for cut in 0..stream.len() {
            let mut reader = EntryReader::default();
            let mut found = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                reader.push(part);
                while let Some(entry) = reader.next().unwrap() {
                    found.push(entry);
                }
            }
            assert!(reader.is_empty(), "{cut}");
            let (row, chunk) = (
                BackupEntry::Row("key".into(), "a row".into()),
                BackupEntry::Chunk("chunk".into(), "".into()),
            );
            assert_eq!(found, [row, chunk], "{cut}");
        }
    }

    #[test]
    fn an_entry_of_no_kind_is_refused() {
        let mut reader = EntryReader::default();
        reader.push(&[9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(reader.next().is_err());
    }
}
