//! Large messages that are being assembled from chunks.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use crate::error::DecodeError;
use crate::frame::{ASSEMBLY_LEN_MAX, Chunk, MESSAGE_LEN_MAX};

/// Most messages that may be incomplete at once; senders use at most a quarter of it.
const UNFINISHED_MAX: usize = 64;

/// Assembles chunks. Holds at most [`ASSEMBLY_LEN_MAX`] bytes, so that a peer cannot make this side hold more
/// by beginning many messages.
#[derive(Debug, Default)]
pub struct Assembly {
    messages: HashMap<u64, BytesMut>,
    len: usize,
}

impl Assembly {
    /// Adds a chunk. Returns the whole message with its last one: see [`crate::Request::decode`] and
    /// [`crate::Answer::decode`]. An error means that the peer broke a bound.
    pub fn push(&mut self, chunk: Chunk) -> Result<Option<Bytes>, DecodeError> {
        let begun = self.messages.get(&chunk.id).map_or(0, BytesMut::len);
        let len = begun + chunk.bytes.len();
        check_len("message", len, MESSAGE_LEN_MAX)?;
        check_len(
            "sum of unfinished messages",
            self.len + chunk.bytes.len(),
            ASSEMBLY_LEN_MAX,
        )?;
        if chunk.is_last && begun == 0 {
            return Ok(Some(chunk.bytes));
        }
        if begun == 0 && self.messages.len() >= UNFINISHED_MAX {
            return Err(DecodeError::Malformed("too many unfinished messages"));
        }
        // An empty chunk that is not the last would add an entry without counting against the bound.
        if chunk.bytes.is_empty() && !chunk.is_last {
            return Err(DecodeError::Malformed(
                "an empty chunk that is not the last",
            ));
        }
        if chunk.is_last {
            let mut message = self.take(chunk.id);
            message.extend_from_slice(&chunk.bytes);
            return Ok(Some(message.freeze()));
        }
        self.len += chunk.bytes.len();
        self.messages
            .entry(chunk.id)
            .or_default()
            .extend_from_slice(&chunk.bytes);
        Ok(None)
    }

    /// Drops a message whose request was cancelled.
    pub fn remove(&mut self, id: u64) {
        self.take(id);
    }

    /// Returns the number of bytes held.
    pub const fn held(&self) -> usize {
        self.len
    }

    fn take(&mut self, id: u64) -> BytesMut {
        let message = self.messages.remove(&id).unwrap_or_default();
        self.len -= message.len();
        message
    }
}

fn check_len(what: &'static str, len: usize, max: usize) -> Result<(), DecodeError> {
    if len > max {
        return Err(DecodeError::TooLong { what, len, max });
    }
    Ok(())
}
