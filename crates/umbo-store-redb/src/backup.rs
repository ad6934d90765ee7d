//! Backups of a shard: one committed state as a stream of bytes, in pieces.
//!
//! The stream is one entry after the other, `kind u8 | key len u32 | key | value len u32 | value`, integers big endian:
//! the rows in order of their keys, as they are stored, and behind each row of a large value its chunks. Umbo's own
//! records and rows of fenced namespaces are not in it. The invariants: all pieces are of one committed state, or the
//! backup is gone; and each row and chunk in it has had its checksum verified.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use umbo_store::{BACKUP_IDLE, BackupRequest};
use umbo_types::LargeRef;
use umbo_types::limits::CHUNK_BYTES_MAX;

use crate::file_error::FileError;
use crate::snapshot::ShardSnapshot;

/// Bytes of a piece: as large as a chunk of a scan, so that requests wait for a backup no longer than for a scan.
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

    /// Returns whether the stream ends after a whole entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the next entry, or `None` if it needs more bytes.
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
            kind => Err(format!("a backup has no entries of kind {kind}")),
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

/// Answer to the request for a piece of a backup.
#[derive(Debug, Clone)]
pub(crate) enum BackupPiece {
    /// The piece.
    Piece(Bytes),
    /// The backup has been read.
    End,
    /// The backup is gone, or another was begun.
    Gone,
}

/// The backup of a shard that was begun last.
#[derive(Default)]
pub(crate) struct ShardBackup(Mutex<LastBackup>);

#[derive(Default)]
struct LastBackup {
    /// Kept when the backup is gone, so that a late request to begin it does not begin a backup of another state.
    number: Option<u64>,
    /// `None` once the backup is gone, and while a piece of it is made.
    open: Option<Box<OpenBackup>>,
    is_piece_made: bool,
}

struct OpenBackup {
    /// `None` once the whole state has been read.
    snapshot: Option<Arc<ShardSnapshot>>,
    /// Number of the last piece that was made, and the piece.
    last: (u32, BackupPiece),
    /// Bytes of the stream after this piece.
    made: BytesMut,
    /// The last row in these bytes.
    after: Option<Vec<u8>>,
    /// The value of this row whose chunks are not all in these bytes, and the number of the next chunk.
    chunks: Option<(LargeRef, u32)>,
    used_at: Instant,
}

impl ShardBackup {
    fn lock(&self) -> MutexGuard<'_, LastBackup> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a backup of a state, unless the last backup has this number.
    pub(crate) fn begin(&self, number: u64, state: Arc<ShardSnapshot>, now: Instant) {
        let mut backup = self.lock();
        if backup.number != Some(number) {
            *backup = LastBackup {
                number: Some(number),
                open: Some(Box::new(OpenBackup::new(state, now))),
                is_piece_made: false,
            };
        }
    }

    /// Forgets the backup, because its state can no longer be read.
    pub(crate) fn end(&self) {
        let mut backup = self.lock();
        backup.open = None;
        backup.is_piece_made = false;
    }

    /// Returns whether a backup is being read.
    pub(crate) fn is_read(&self) -> bool {
        let backup = self.lock();
        backup.open.is_some() || backup.is_piece_made
    }

    /// Forgets a backup whose pieces were not requested for [`BACKUP_IDLE`].
    pub(crate) fn end_if_idle(&self, now: Instant) {
        let is_idle =
            |open: &mut Box<OpenBackup>| now.saturating_duration_since(open.used_at) > BACKUP_IDLE;
        self.lock().open.take_if(is_idle);
    }

    /// Makes the next piece of a backup, or returns the last one again. Other calls do not wait for it, because it may
    /// wait for the disk; a piece that fails ends the backup.
    pub(crate) fn piece(
        &self,
        asked: &BackupRequest,
        now: Instant,
    ) -> Result<BackupPiece, FileError> {
        let mut backup = self.lock();
        let is_it = backup.number == Some(asked.backup);
        let Some(mut open) = backup.open.take_if(|_| is_it) else {
            return Ok(BackupPiece::Gone);
        };
        open.used_at = now;
        if open.last.0.checked_add(1) == Some(asked.piece) {
            backup.is_piece_made = true;
            drop(backup);
            open.last = (asked.piece, open.next_piece()?);
            backup = self.lock();
            let is_ended = backup.number != Some(asked.backup) || !backup.is_piece_made;
            if is_ended {
                return Ok(BackupPiece::Gone);
            }
            backup.is_piece_made = false;
        }
        let (number, piece) = open.last.clone();
        backup.open = Some(open);
        Ok(if number == asked.piece {
            piece
        } else {
            BackupPiece::Gone
        })
    }
}

impl OpenBackup {
    fn new(snapshot: Arc<ShardSnapshot>, now: Instant) -> Self {
        Self {
            snapshot: Some(snapshot),
            last: (0, BackupPiece::Gone),
            made: BytesMut::new(),
            after: None,
            chunks: None,
            used_at: now,
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

    /// Adds rows until the piece is full, or up to a row of a large value.
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
