//! Batches: small messages in one frame, each preceded by its length (u16, little endian).
//!
//! They are decoded lazily one by one, so that a frame never takes more memory than its own bytes and one
//! message.

use bytes::Bytes;

use crate::answer::Answer;
use crate::codec::{answers, requests};
use crate::error::DecodeError;
use crate::request::Request;
use crate::wire::Reader;

/// Bytes of the length of a message in a batch.
pub(crate) const ENTRY_LENGTH_LEN: usize = 2;

/// A message that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Id of the request, so that it alone can be refused. `None` if the id cannot be decoded either: then the
    /// connection must be closed.
    pub id: Option<u64>,
    /// Why.
    pub error: DecodeError,
}

/// Requests of a frame, in the order of sending. An error without an id is the last item.
#[derive(Debug)]
pub struct RequestBatch(Batch);

/// Answers of a frame. An error without an id is the last item.
#[derive(Debug)]
pub struct AnswerBatch(Batch);

impl RequestBatch {
    pub(crate) const fn new(frame: Bytes, at: usize) -> Self {
        Self(Batch { frame, at })
    }
}

impl AnswerBatch {
    pub(crate) const fn new(frame: Bytes, at: usize) -> Self {
        Self(Batch { frame, at })
    }
}

impl Iterator for RequestBatch {
    type Item = Result<Request, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_with(requests::request)
    }
}

impl Iterator for AnswerBatch {
    type Item = Result<Answer, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_with(answers::answer)
    }
}

impl Request {
    /// Decodes a request that came in chunks.
    pub fn decode(message: &Bytes) -> Result<Self, Refused> {
        decode(Reader::new(message), requests::request)
    }
}

impl Answer {
    /// Decodes an answer that came in chunks.
    pub fn decode(message: &Bytes) -> Result<Self, Refused> {
        decode(Reader::new(message), answers::answer)
    }
}

#[derive(Debug)]
struct Batch {
    frame: Bytes,
    at: usize,
}

impl Batch {
    fn next_with<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Option<Result<T, Refused>> {
        let mut reader = Reader::from(&self.frame, self.at);
        if reader.is_empty() {
            return None;
        }
        match entry(&mut reader) {
            Ok(message) => {
                self.at = reader.position();
                Some(decode(message, read))
            }
            Err(error) => {
                self.at = self.frame.len();
                Some(Err(Refused { id: None, error }))
            }
        }
    }
}

fn entry<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, DecodeError> {
    let len = u16::from_le_bytes([reader.byte()?, reader.byte()?]);
    reader.part(len.into())
}

fn decode<T>(
    mut message: Reader<'_>,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, Refused> {
    let id = message.varint();
    message.id = id.map_err(|error| Refused { id: None, error })?;
    read(&mut message).map_err(|error| Refused {
        id: Some(message.id),
        error,
    })
}
