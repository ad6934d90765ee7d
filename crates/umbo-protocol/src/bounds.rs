//! How long a frame may be, and of how many messages: looked at before it is decoded.
//!
//! An empty message is two bytes on the wire and hundreds in memory, so that a bound of the length
//! alone would let a peer take gigabytes. A frame that is too short to hold too many is not walked.

use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::error::DecodeError;
use crate::frame::FRAME_LEN_MAX;

/// Most messages of a frame that are parts of a list, on whatever level.
pub(crate) const MESSAGES_MAX: usize = 64 << 10;
/// A message takes this at least: its key and its length.
const MESSAGE_LEN_MIN: usize = 2;

/// A field that leads to a list of messages or is one.
pub(crate) struct Walked {
    number: u32,
    within: &'static [Self],
}

const fn list(number: u32) -> Walked {
    Walked {
        number,
        within: &[],
    }
}

/// Lists of a frame of requests: the requests, keys of a multi-get, mutations of a write.
pub(crate) const REQUESTS: &[Walked] = &[Walked {
    number: 2,
    within: &[
        Walked {
            number: 11,
            within: &[list(2)],
        },
        Walked {
            number: 14,
            within: &[list(2)],
        },
    ],
}];

/// Lists of a frame of answers: the answers, rows of a multi-get, results of a write, shards.
pub(crate) const ANSWERS: &[Walked] = &[Walked {
    number: 2,
    within: &[
        Walked {
            number: 12,
            within: &[list(1)],
        },
        Walked {
            number: 15,
            within: &[list(1)],
        },
        Walked {
            number: 18,
            within: &[list(2)],
        },
    ],
}];

/// Says what is wrong with a frame that cannot be decoded within bounds.
pub(crate) fn check(frame: &[u8], walked: &[Walked]) -> Result<(), DecodeError> {
    if frame.len() > FRAME_LEN_MAX {
        return Err(DecodeError::TooLong {
            len: frame.len(),
            max: FRAME_LEN_MAX,
        });
    }
    if frame.len() <= MESSAGES_MAX * MESSAGE_LEN_MIN {
        return Ok(());
    }
    let mut messages = 0;
    count(frame, walked, &mut messages)
}

fn count(mut bytes: &[u8], walked: &[Walked], messages: &mut usize) -> Result<(), DecodeError> {
    while bytes.has_remaining() {
        let (number, wire_type) = decode_key(&mut bytes)?;
        let field = walked.iter().find(|field| field.number == number);
        let Some(field) = field.filter(|_| wire_type == WireType::LengthDelimited) else {
            skip_field(wire_type, number, &mut bytes, DecodeContext::default())?;
            continue;
        };
        let len = decode_varint(&mut bytes)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (within, rest) = bytes
            .split_at_checked(len)
            .ok_or_else(|| DecodeError::Malformed("it ends within a message".to_owned()))?;
        bytes = rest;
        *messages += 1;
        if *messages > MESSAGES_MAX {
            return Err(DecodeError::BadField {
                field: "frame",
                found: format!("more than {MESSAGES_MAX} messages"),
            });
        }
        if !field.within.is_empty() {
            count(within, field.within, messages)?;
        }
    }
    Ok(())
}
