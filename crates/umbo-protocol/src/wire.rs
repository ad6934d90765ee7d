//! The encoding of numbers, bytes and messages on the wire.
//!
//! Numbers are LEB128 varints, versions and stamps eight bytes little endian. Bytes are preceded by their
//! length, and so is a message within a message. A message has its fixed fields in order, then optional ones,
//! each with a tag and a length, until its end: see [`Reader::optional`].

use bytes::Bytes;

use crate::error::DecodeError;

/// Length of the length field of a nested message: it is reserved before the message is written, so it is
/// padded to the longest.
const NESTED_LEN: usize = 4;
/// Longest varint, in bytes.
const VARINT_LEN_MAX: usize = 10;
/// Optional fields with a tag from here up must not be ignored.
pub(crate) const REQUIRED_TAG: u8 = 0x80;
/// Longest value that a receiver copies out of its frame, in bytes, so that a small value that is kept does
/// not keep a frame of many others.
pub(crate) const COPIED_LEN_MAX: usize = 16 << 10;

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_fixed(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a nested message.
pub(crate) fn put_nested(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begun = out.len();
    out.extend_from_slice(&[0; NESTED_LEN]);
    write(out);
    let mut len = out.len() - begun - NESTED_LEN;
    for at in 0..NESTED_LEN {
        let more = if at + 1 < NESTED_LEN { 0x80 } else { 0 };
        out[begun + at] = (len & 0x7f) as u8 | more;
        len >>= 7;
    }
}

/// Writes an optional field.
pub(crate) fn put_optional(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_bytes(out, bytes);
}

/// Writes an optional field that is a number.
pub(crate) fn put_optional_varint(out: &mut Vec<u8>, tag: u8, number: u64) {
    out.push(tag);
    // A varint is shorter than 128 bytes, so its length takes one.
    let begun = out.len();
    out.push(0);
    put_varint(out, number);
    out[begun] = (out.len() - begun - 1) as u8;
}

/// Reads the fields of a part of a frame, in order.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    frame: &'a Bytes,
    at: usize,
    end: usize,
    /// Id of the message that is read, for errors; 0 in a frame that is no message.
    pub(crate) id: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(frame: &'a Bytes) -> Self {
        Self {
            frame,
            at: 0,
            end: frame.len(),
            id: 0,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// Returns the number of bytes left.
    pub(crate) const fn left(&self) -> usize {
        self.end - self.at
    }

    /// Returns the position within the frame.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// Returns a reader of the same frame at another position.
    pub(crate) fn from(frame: &'a Bytes, at: usize) -> Self {
        Self {
            at,
            ..Self::new(frame)
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        if self.at == self.end {
            return Err(SHORT);
        }
        let byte = self.frame[self.at];
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let bytes = &self.frame[self.at..self.end];
        let mut number = 0;
        for (at, &byte) in bytes.iter().take(VARINT_LEN_MAX).enumerate() {
            // The tenth byte has room for one bit.
            if at + 1 == VARINT_LEN_MAX && byte > 1 {
                return Err(DecodeError::Malformed("a number of more than 64 bits"));
            }
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.at += at + 1;
                return Ok(number);
            }
        }
        Err(SHORT)
    }

    /// Reads a number of items. Each takes at least `each` bytes, and these bytes must be present for all items.
    pub(crate) fn count(&mut self, field: &'static str, each: usize) -> Result<usize, DecodeError> {
        let number = self.varint()?;
        let count = usize::try_from(number).map_err(|_| bad(field, &number))?;
        if count > self.left() / each {
            return Err(bad(
                field,
                &format_args!("{count}, and too few bytes for them"),
            ));
        }
        Ok(count)
    }

    pub(crate) fn fixed(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.frame[self.at..self.end].first_chunk().ok_or(SHORT)?;
        self.at += 8;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads this many bytes.
    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        if len > self.left() {
            return Err(SHORT);
        }
        let begun = self.at;
        self.at += len;
        Ok(&self.frame[begun..self.at])
    }

    /// Reads bytes preceded by their length.
    pub(crate) fn slice(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.len()?;
        self.raw(len)
    }

    /// Reads bytes that share the frame's memory.
    pub(crate) fn shared(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.slice()?.len();
        Ok(self.frame.slice(self.at - len..self.at))
    }

    /// Reads bytes that may be kept for long: small ones are copied and do not share the frame's memory.
    pub(crate) fn owned(&mut self) -> Result<Bytes, DecodeError> {
        let bytes = self.slice()?;
        Ok(match bytes.len() {
            0 => Bytes::new(),
            1..=COPIED_LEN_MAX => Bytes::copy_from_slice(bytes),
            len => self.frame.slice(self.at - len..self.at),
        })
    }

    /// Reads all remaining bytes; they share the frame's memory.
    pub(crate) fn rest(self) -> Bytes {
        if self.is_empty() {
            return Bytes::new();
        }
        self.frame.slice(self.at..self.end)
    }

    /// Reads a nested message.
    pub(crate) fn nested(&mut self) -> Result<Self, DecodeError> {
        let len = self.len()?;
        self.part(len)
    }

    /// Reads the next `len` bytes as a message.
    pub(crate) fn part(&mut self, len: usize) -> Result<Self, DecodeError> {
        let at = self.at;
        self.raw(len)?;
        Ok(Self {
            at,
            end: self.at,
            ..*self
        })
    }

    /// Returns the next optional field, or `None` at the end of the message. A caller that does not know its tag
    /// ignores it, unless it is [`REQUIRED_TAG`] or more.
    pub(crate) fn optional(&mut self) -> Result<Option<(u8, Self)>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.byte()?;
        Ok(Some((tag, self.nested()?)))
    }

    /// Skips the optional fields of a message that has none in this version.
    pub(crate) fn finish(mut self) -> Result<(), DecodeError> {
        while let Some((tag, field)) = self.optional()? {
            field.ignored(tag)?;
        }
        Ok(())
    }

    /// Fails if this field, which this version does not know, must not be ignored.
    pub(crate) const fn ignored(&self, tag: u8) -> Result<(), DecodeError> {
        if tag >= REQUIRED_TAG {
            return Err(self.unknown_kind());
        }
        Ok(())
    }

    /// Returns that the message is of a kind that this version does not know.
    pub(crate) const fn unknown_kind(&self) -> DecodeError {
        DecodeError::UnknownKind { id: self.id }
    }

    fn len(&mut self) -> Result<usize, DecodeError> {
        usize::try_from(self.varint()?).map_err(|_| SHORT)
    }
}

const SHORT: DecodeError = DecodeError::Malformed("it ends within a field");

pub(crate) fn bad(field: &'static str, found: &dyn std::fmt::Display) -> DecodeError {
    DecodeError::BadField {
        field,
        found: found.to_string(),
    }
}
