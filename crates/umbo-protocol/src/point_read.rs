//! Gets and their rows, written and read straight: they are nearly all that a connection carries.
//!
//! What is written is byte for byte what the messages of `message` would write, and what is read is
//! what they would read. Everything else, and everything that is wrong, is left to them: then none is
//! returned here. All numbers of fields are below 16, so that the key of a field is one byte.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::encoding::encoded_len_varint;
use umbo_types::{Key, NamespaceId, RequestUnits, Row, Timestamp, Value, Version};

use crate::answer::{Answer, Outcome};
use crate::convert::answers::COPIED_LEN_MAX;
use crate::convert::{criticality, criticality_of};
use crate::request::{Ask, Request, RequestRef};

/// Key of an entry of a frame.
const ENTRY: u8 = key(2, Wire::Bytes);

/// How a field is written.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

const fn key(number: u8, wire: Wire) -> u8 {
    number << 3 | wire as u8
}

/// Returns where the entry that begins at `at` lies, if what begins there is one.
pub(crate) fn entry(frame: &[u8], at: usize) -> Option<Range<usize>> {
    let mut fields = Fields::new(frame, at..frame.len());
    (fields.byte()? == ENTRY).then(|| fields.bytes()).flatten()
}

/// Adds a get as an entry of a frame.
pub(crate) fn push_get(
    frame: &mut BytesMut,
    request: &RequestRef<'_>,
    namespace: NamespaceId,
    key: &Key,
) {
    let timeout = request.timeout.map(micros);
    let tier = criticality(request.criticality).into();
    let price = request.price.as_micros();
    let (partition, sort) = (key.partition.as_bytes(), key.sort.as_bytes());
    let get_len = number_len(namespace.0.into()) + bytes_len(partition) + bytes_len(sort);
    let len = number_len(request.id)
        + timeout.map_or(0, |timeout| 1 + encoded_len_varint(timeout))
        + number_len(tier)
        + bytes_len(request.caller)
        + number_len(price)
        + bytes_len(request.traceparent)
        + nested_len(get_len);
    let mut room = Room::of_entry(frame, len);
    room.number(1, request.id);
    if let Some(timeout) = timeout {
        room.key(2, Wire::Varint);
        room.varint(timeout);
    }
    room.number(3, tier);
    room.bytes(4, request.caller);
    room.number(5, price);
    room.bytes(6, request.traceparent);
    room.begin(10, get_len);
    room.number(1, namespace.0.into());
    room.bytes(2, partition);
    room.bytes(3, sort);
}

/// Reads the get that an entry is.
pub(crate) fn get(frame: &Bytes, entry: Range<usize>) -> Option<Request> {
    const TIMEOUT: u8 = key(2, Wire::Varint);
    const CRITICALITY: u8 = key(3, Wire::Varint);
    const CALLER: u8 = key(4, Wire::Bytes);
    const PRICE: u8 = key(5, Wire::Varint);
    const TRACEPARENT: u8 = key(6, Wire::Bytes);
    const GET: u8 = key(10, Wire::Bytes);

    let mut fields = Fields::new(frame, entry);
    let (mut id, mut tier, mut price, mut timeout) = (0, 0, 0, None);
    let (mut caller, mut traceparent, mut asked) = (0..0, 0..0, None);
    while let Some(key) = fields.next_key()? {
        match key {
            ID => id = fields.varint()?,
            TIMEOUT => timeout = Some(fields.varint()?),
            CRITICALITY => tier = u32::try_from(fields.varint()?).ok()?,
            CALLER => caller = fields.bytes()?,
            PRICE => price = fields.varint()?,
            TRACEPARENT => traceparent = fields.bytes()?,
            GET if asked.is_none() => asked = Some(fields.bytes()?),
            _ => return None,
        }
    }
    let (namespace, key) = key_asked(frame, asked?)?;
    Some(Request {
        id,
        timeout: timeout.map(Duration::from_micros),
        criticality: criticality_of(tier).ok()?,
        caller: shared(frame, caller),
        price: RequestUnits::from_micros(price),
        traceparent: shared(frame, traceparent),
        is_continued: false,
        names: None,
        ask: Ask::Get(namespace, key),
    })
}

fn key_asked(frame: &Bytes, get: Range<usize>) -> Option<(NamespaceId, Key)> {
    const NAMESPACE: u8 = key(1, Wire::Varint);
    const PARTITION: u8 = key(2, Wire::Bytes);
    const SORT: u8 = key(3, Wire::Bytes);

    let mut fields = Fields::new(frame, get);
    let (mut namespace, mut partition, mut sort) = (0, 0..0, 0..0);
    while let Some(key) = fields.next_key()? {
        match key {
            NAMESPACE => namespace = u32::try_from(fields.varint()?).ok()?,
            PARTITION => partition = fields.bytes()?,
            SORT => sort = fields.bytes()?,
            _ => return None,
        }
    }
    let key = Key::new(shared(frame, partition), shared(frame, sort));
    Some((NamespaceId(namespace), key.ok()?))
}

/// Adds the answer to a get as an entry of a frame.
pub(crate) fn push_row(frame: &mut BytesMut, answer: &Answer, row: Option<&Row>) {
    let took = u64::try_from(answer.service_time.as_nanos()).unwrap_or(u64::MAX);
    let row_len = row.map_or(0, |row| {
        bytes_len(&row.value.bytes)
            + bytes_len(&row.value.content_type)
            + bytes_len(&row.value.content_encoding)
            + if row.version.0 == 0 { 0 } else { 9 }
            + row.expires_at.map_or(0, |at| 1 + encoded_len_varint(at.0))
    });
    let len = number_len(answer.id)
        + number_len(took)
        + number_len(answer.has_more.into())
        + number_len(answer.rows)
        + number_len(answer.bytes)
        + nested_len(row_len);
    let mut room = Room::of_entry(frame, len);
    room.number(1, answer.id);
    room.number(2, took);
    room.number(3, answer.has_more.into());
    room.number(4, answer.rows);
    room.number(5, answer.bytes);
    let Some(row) = row else {
        return room.begin(11, 0);
    };
    room.begin(10, row_len);
    room.bytes(1, &row.value.bytes);
    room.bytes(2, &row.value.content_type);
    room.bytes(3, &row.value.content_encoding);
    if row.version.0 > 0 {
        room.key(4, Wire::Fixed64);
        room.put(&row.version.0.to_le_bytes());
    }
    if let Some(at) = row.expires_at {
        room.key(5, Wire::Varint);
        room.varint(at.0);
    }
}

/// Reads the whole answer to a get that an entry is.
pub(crate) fn row(frame: &Bytes, entry: Range<usize>) -> Option<Answer> {
    const TOOK: u8 = key(2, Wire::Varint);
    const ROWS: u8 = key(4, Wire::Varint);
    const BYTES: u8 = key(5, Wire::Varint);
    const ROW: u8 = key(10, Wire::Bytes);
    const ABSENT: u8 = key(11, Wire::Bytes);

    let mut fields = Fields::new(frame, entry);
    let (mut id, mut took, mut rows, mut bytes, mut found) = (0, 0, 0, 0, None);
    while let Some(key) = fields.next_key()? {
        match key {
            ID => id = fields.varint()?,
            TOOK => took = fields.varint()?,
            ROWS => rows = fields.varint()?,
            BYTES => bytes = fields.varint()?,
            ROW if found.is_none() => {
                let row = fields.bytes()?;
                found = Some(Some(row_found(frame, row)?));
            }
            ABSENT if found.is_none() && fields.bytes()?.is_empty() => found = Some(None),
            _ => return None,
        }
    }
    Some(Answer {
        id,
        service_time: Duration::from_nanos(took),
        has_more: false,
        rows,
        bytes,
        outcome: Outcome::Row(found?),
    })
}

fn row_found(frame: &Bytes, row: Range<usize>) -> Option<Row> {
    const VALUE: u8 = key(1, Wire::Bytes);
    const CONTENT_TYPE: u8 = key(2, Wire::Bytes);
    const CONTENT_ENCODING: u8 = key(3, Wire::Bytes);
    const VERSION: u8 = key(4, Wire::Fixed64);
    const EXPIRES_AT: u8 = key(5, Wire::Varint);

    let mut fields = Fields::new(frame, row);
    let (mut value, mut content_type, mut content_encoding) = (0..0, 0..0, 0..0);
    let (mut version, mut expires_at) = (0, None);
    while let Some(key) = fields.next_key()? {
        match key {
            VALUE => value = fields.bytes()?,
            CONTENT_TYPE => content_type = fields.bytes()?,
            CONTENT_ENCODING => content_encoding = fields.bytes()?,
            VERSION => version = fields.fixed64()?,
            EXPIRES_AT => expires_at = Some(fields.varint()?),
            _ => return None,
        }
    }
    let value = Value::new(
        owned(frame, value),
        owned(frame, content_type),
        owned(frame, content_encoding),
    );
    Some(Row {
        value: value.ok()?,
        version: Version(version),
        expires_at: expires_at.map(Timestamp),
    })
}

/// Key of the field that names the request, of requests and answers alike.
const ID: u8 = key(1, Wire::Varint);

/// Returns a part of a frame, which keeps the frame.
fn shared(frame: &Bytes, part: Range<usize>) -> Bytes {
    if part.is_empty() {
        return Bytes::new();
    }
    frame.slice(part)
}

/// Returns a part of a frame that may be kept: it does not keep a frame of many others.
fn owned(frame: &Bytes, part: Range<usize>) -> Bytes {
    if part.len() > COPIED_LEN_MAX {
        return frame.slice(part);
    }
    Bytes::copy_from_slice(&frame[part])
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the length of a number's field: nothing for zero.
fn number_len(number: u64) -> usize {
    if number == 0 {
        return 0;
    }
    1 + encoded_len_varint(number)
}

/// Returns the length of a field of bytes: nothing where there are none.
fn bytes_len(bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    nested_len(bytes.len())
}

/// Returns the length of the field of a message of this length.
fn nested_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

/// Fields that are read, from a part of a frame.
struct Fields<'a> {
    frame: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    fn new(frame: &'a [u8], part: Range<usize>) -> Self {
        Self {
            frame,
            at: part.start,
            end: part.end,
        }
    }

    /// Returns the key of the next field; the inner none at the end.
    #[expect(
        clippy::option_option,
        reason = "the outer one is that of all who read here"
    )]
    fn next_key(&mut self) -> Option<Option<u8>> {
        if self.at == self.end {
            return Some(None);
        }
        self.byte().map(Some)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.frame[..self.end].get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        // The tenth byte has room for one bit.
        let byte = self.byte()?;
        (byte <= 1).then_some(number | u64::from(byte) << 63)
    }

    fn fixed64(&mut self) -> Option<u64> {
        let bytes = self.frame[self.at..self.end].first_chunk()?;
        self.at += 8;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Returns where the bytes of a field lie.
    fn bytes(&mut self) -> Option<Range<usize>> {
        let len = usize::try_from(self.varint()?).ok()?;
        let begin = self.at;
        if len > self.end - begin {
            return None;
        }
        self.at += len;
        Some(begin..self.at)
    }
}

/// Room in a frame that is filled field by field. It is made first and as long as the entry: a buffer
/// that may have to grow is asked for room at every byte.
struct Room<'a> {
    rest: &'a mut [u8],
}

impl<'a> Room<'a> {
    /// Makes room for an entry of this length.
    fn of_entry(frame: &'a mut BytesMut, len: usize) -> Self {
        let begun = frame.len();
        frame.resize(begun + nested_len(len), 0);
        let mut room = Self {
            rest: &mut frame[begun..],
        };
        room.begin(2, len);
        room
    }

    fn put(&mut self, bytes: &[u8]) {
        let (room, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        room.copy_from_slice(bytes);
        self.rest = rest;
    }

    fn byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    fn key(&mut self, number: u8, wire: Wire) {
        self.byte(key(number, wire));
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    /// Writes the field of a number.
    fn number(&mut self, field: u8, number: u64) {
        if number > 0 {
            self.key(field, Wire::Varint);
            self.varint(number);
        }
    }

    /// Writes a field of bytes.
    fn bytes(&mut self, field: u8, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.begin(field, bytes.len());
            self.put(bytes);
        }
    }

    /// Begins the field of a message of this length.
    fn begin(&mut self, field: u8, len: usize) {
        self.key(field, Wire::Bytes);
        self.varint(len as u64);
    }
}

#[cfg(test)]
mod tests;
