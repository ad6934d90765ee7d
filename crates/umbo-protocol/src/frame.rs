//! Frames: what goes out in one message, filled with whatever is waiting.
//!
//! A frame is a protobuf message whose repeated field is written entry by entry, so that a request is
//! encoded once, by whoever makes it, into the frame that is to go out next.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use umbo_types::limits;

use crate::answer::{Answer, Outcome};
use crate::bounds;
use crate::convert::{self, answers, requests};
use crate::error::DecodeError;
use crate::message;
use crate::point_read;
use crate::request::{Ask, Request, RequestRef};
use crate::version::{Hello, Welcome};

/// Longest frame, in bytes: the largest batch write with its keys, and room for the rest.
pub const FRAME_LEN_MAX: usize = limits::BATCH_BODY_LEN_MAX + (8 << 20);
/// Length from which nothing more is added to a frame, in bytes.
pub const FRAME_LEN_TARGET: usize = 64 << 10;

const ENTRY_TAG: u32 = 2;

/// An entry, or the id of one that cannot be used, as far as it is known, and why.
type Decoded<T> = Result<T, (u64, DecodeError)>;

/// A decoded frame of a dispatcher.
#[derive(Debug)]
pub struct RequestFrame {
    /// Only in the first frame of a stream.
    pub hello: Option<Hello>,
    /// The requests; one that cannot be used is its id, as far as it is known, and why.
    pub requests: Vec<Result<Request, (u64, DecodeError)>>,
}

impl RequestFrame {
    /// Encodes the first frame.
    pub fn hello(hello: &Hello) -> Bytes {
        let batch = message::RequestBatch {
            hello: Some(convert::hello(hello)),
            requests: Vec::new(),
        };
        batch.encode_to_vec().into()
    }

    /// Adds a request to a frame.
    pub fn push(frame: &mut BytesMut, request: &RequestRef<'_>) {
        match request.ask {
            Ask::Get(namespace, key) if !request.is_rare() => {
                point_read::push_get(frame, request, *namespace, key);
            }
            _ => push_entry(frame, &requests::encode(request)),
        }
    }

    /// Decodes a frame. Values and keys share its memory.
    pub fn decode(mut frame: Bytes) -> Result<Self, DecodeError> {
        bounds::check(&frame, bounds::REQUESTS)?;
        let checked = |request: message::Request| {
            let id = request.id;
            requests::decode(request).map_err(|error| (id, error))
        };
        let mut requests = entries(&mut frame, point_read::get, checked)?;
        let rest = message::RequestBatch::decode(frame)?;
        requests.extend(rest.requests.into_iter().map(checked));
        Ok(Self {
            requests,
            hello: rest.hello.map(convert::hello_of),
        })
    }
}

/// A decoded frame of a node.
#[derive(Debug)]
pub struct AnswerFrame {
    /// Only in the first frame of a stream.
    pub welcome: Option<Welcome>,
    /// The answers; one that cannot be used is its id and why.
    pub answers: Vec<Result<Answer, (u64, DecodeError)>>,
    /// Whether the node stops: what was sent is answered, nothing more is to be sent.
    pub is_draining: bool,
}

impl AnswerFrame {
    /// Encodes the first frame.
    pub fn welcome(welcome: &Welcome) -> Bytes {
        let batch = message::AnswerBatch {
            welcome: Some(convert::welcome(welcome)),
            ..message::AnswerBatch::default()
        };
        batch.encode_to_vec().into()
    }

    /// Encodes the word that the node stops.
    pub fn draining() -> Bytes {
        let batch = message::AnswerBatch {
            is_draining: true,
            ..message::AnswerBatch::default()
        };
        batch.encode_to_vec().into()
    }

    /// Adds an answer to a frame.
    pub fn push(frame: &mut BytesMut, answer: Answer) {
        match &answer.outcome {
            Outcome::Row(row) => point_read::push_row(frame, &answer, row.as_ref()),
            _ => push_entry(frame, &answers::encode(answer)),
        }
    }

    /// Decodes a frame. Large values share its memory; small ones are copied, so that one that is
    /// kept does not keep the frame.
    pub fn decode(mut frame: Bytes) -> Result<Self, DecodeError> {
        bounds::check(&frame, bounds::ANSWERS)?;
        let checked = |answer: message::Answer| {
            let id = answer.id;
            answers::decode(answer).map_err(|error| (id, error))
        };
        let mut answers = entries(&mut frame, point_read::row, checked)?;
        let rest = message::AnswerBatch::decode(frame)?;
        answers.extend(rest.answers.into_iter().map(checked));
        Ok(Self {
            answers,
            welcome: rest.welcome.map(convert::welcome_of),
            is_draining: rest.is_draining,
        })
    }
}

/// Takes the entries off the front of a frame, up to the first field that is none: only the first frame has
/// such, and one that says that a node stops. An entry is read straight, or where that is not to be by way
/// of its message.
fn entries<T, M: Message + Default>(
    frame: &mut Bytes,
    straight: impl Fn(&Bytes, Range<usize>) -> Option<T>,
    checked: impl Fn(M) -> Decoded<T>,
) -> Result<Vec<Decoded<T>>, DecodeError> {
    let (mut entries, mut at) = (Vec::new(), 0);
    while let Some(entry) = point_read::entry(frame, at) {
        at = entry.end;
        entries.push(match straight(frame, entry.clone()) {
            Some(read) => Ok(read),
            None => checked(M::decode(frame.slice(entry))?),
        });
    }
    frame.advance(at);
    Ok(entries)
}

/// Makes room for the whole entry first and writes into that: a buffer that may have to grow is asked
/// for room at every byte.
pub(crate) fn push_entry(frame: &mut BytesMut, entry: &impl Message) {
    let len = entry.encoded_len();
    let prefix_len = key_len(ENTRY_TAG) + encoded_len_varint(len as u64);
    let begun = frame.len();
    frame.resize(begun + prefix_len + len, 0);
    let mut room = &mut frame[begun..];
    encode_key(ENTRY_TAG, WireType::LengthDelimited, &mut room);
    encode_varint(len as u64, &mut room);
    entry.encode_raw(&mut room);
}
