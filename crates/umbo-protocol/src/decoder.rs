//! Decoding of the bytes of a socket to frames.

use std::marker::PhantomData;

use bytes::{Buf, Bytes, BytesMut};

use crate::batch::{AnswerBatch, RequestBatch};
use crate::codec::field::Field;
use crate::codec::greetings;
use crate::error::DecodeError;
use crate::frame::{
    BATCH, CANCEL, CHUNK, CREDIT, Chunk, DRAINING, DispatcherFrame, FRAME_LEN_MAX, Frame, HELLO,
    LENGTH_LEN, NodeFrame, NodeStamp, OPTIONAL, PING, PONG, PREFACE, WELCOME,
};
use crate::wire::Reader;

/// Bit of the flags of a chunk.
pub(crate) const IS_LAST: u8 = 1;

/// Frames of one direction of a connection, from its first byte on.
///
/// Read from the socket into [`Self::buffer`], then take frames with [`Self::next_frame`] until it returns `None`.
/// After an error the connection must be closed.
#[derive(Debug)]
pub struct Decoder<T> {
    buffer: BytesMut,
    /// Whether the preface is expected next.
    has_preface: bool,
    frames: PhantomData<fn() -> T>,
}

impl Decoder<DispatcherFrame> {
    /// Begins with the first byte from a dispatcher, the first one of the preface.
    pub fn of_dispatcher() -> Self {
        Self {
            buffer: BytesMut::new(),
            has_preface: true,
            frames: PhantomData,
        }
    }
}

impl Decoder<(NodeStamp, NodeFrame)> {
    /// Begins with the first byte from a node.
    pub fn of_node() -> Self {
        Self {
            buffer: BytesMut::new(),
            has_preface: false,
            frames: PhantomData,
        }
    }
}

impl<T: Body> Decoder<T> {
    /// Returns the buffer to append read bytes to. Reserve the length of one read. The buffer holds at most one frame
    /// of bytes that are not decoded yet.
    pub const fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the next frame, or `None` until more bytes have arrived.
    pub fn next_frame(&mut self) -> Result<Option<Frame<T>>, DecodeError> {
        if self.has_preface {
            let Some(first) = self.buffer.first_chunk::<{ PREFACE.len() }>() else {
                return Ok(None);
            };
            if *first != PREFACE {
                return Err(DecodeError::WrongPreface(*first));
            }
            self.buffer.advance(PREFACE.len());
            self.has_preface = false;
        }
        let Some(length) = self.buffer.first_chunk::<LENGTH_LEN>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*length) as usize;
        if len > FRAME_LEN_MAX {
            return Err(DecodeError::TooLong {
                what: "frame",
                len,
                max: FRAME_LEN_MAX,
            });
        }
        if len == 0 {
            return Err(DecodeError::Malformed("an empty frame"));
        }
        if self.buffer.len() < LENGTH_LEN + len {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_LEN);
        let frame = self.buffer.split_to(len).freeze();
        let counted = match frame[0] {
            BATCH | CHUNK => LENGTH_LEN + len,
            _ => 0,
        };
        let body = T::decode(frame)?;
        Ok(Some(Frame { body, counted }))
    }
}

/// The frames of one direction.
pub trait Body: Sized {
    /// Decodes a frame from its kind and its payload.
    #[doc(hidden)]
    fn decode(frame: Bytes) -> Result<Self, DecodeError>;
}

impl Body for DispatcherFrame {
    fn decode(frame: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&frame);
        Ok(match reader.byte()? {
            HELLO => Self::Hello(greetings::hello(&mut reader)?),
            BATCH => {
                let at = reader.position();
                Self::Requests(RequestBatch::new(frame, at))
            }
            CHUNK => Self::Chunk(chunk(reader)?),
            CANCEL => {
                let mut ids = Vec::new();
                while !reader.is_empty() {
                    ids.push(reader.varint()?);
                }
                Self::Cancel(ids)
            }
            CREDIT => Self::Credit(Field::read(&mut reader, "credit")?),
            PING => Self::Ping,
            kind if kind >= OPTIONAL => Self::Skipped,
            kind => return Err(DecodeError::UnknownFrame(kind)),
        })
    }
}

impl Body for (NodeStamp, NodeFrame) {
    fn decode(frame: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&frame);
        let kind = reader.byte()?;
        let stamp = Field::read(&mut reader, "stamp")?;
        let body = match kind {
            WELCOME => NodeFrame::Welcome(greetings::welcome(&mut reader)?),
            BATCH => {
                let at = reader.position();
                NodeFrame::Answers(AnswerBatch::new(frame, at))
            }
            CHUNK => NodeFrame::Chunk(chunk(reader)?),
            CREDIT => NodeFrame::Credit(Field::read(&mut reader, "credit")?),
            PONG => NodeFrame::Pong,
            DRAINING => NodeFrame::Draining,
            kind if kind >= OPTIONAL => NodeFrame::Skipped,
            kind => return Err(DecodeError::UnknownFrame(kind)),
        };
        Ok((stamp, body))
    }
}

fn chunk(mut reader: Reader<'_>) -> Result<Chunk, DecodeError> {
    let id = reader.varint()?;
    let is_last = reader.byte()? & IS_LAST > 0;
    Ok(Chunk {
        id,
        is_last,
        bytes: reader.rest(),
    })
}
