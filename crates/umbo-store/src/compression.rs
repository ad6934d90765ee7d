//! Compression of values at rest: converts values to the zstd form and back.
//!
//! Owns the rule when compression pays, and the bounds of decompression. A frame is decompressed into room for the
//! length that is stored in front of it. That length is at most the longest value; the length inside the frame is
//! ignored. A frame with more or fewer bytes is damaged. Dispatchers compress and engines do not, so that no committer
//! spends its thread on it and every cache holds the small form.

use std::cell::RefCell;
use std::io::{self, Write as _};

use bytes::Bytes;
use umbo_types::row::PLAIN_LEN_LEN;
use umbo_types::{StoredForm, Value};
use zstd::bulk::{Compressor, Decompressor};
use zstd::stream::write::Encoder;

/// Shorter values stay plain, in bytes: a frame and its length add up to 17 bytes to the compressed bytes.
pub const COMPRESSED_LEN_MIN: usize = 64;
/// A value is kept compressed if this saves at least one byte in this number: 10 %.
const SAVED_PART: usize = 10;
/// The level. Its frames have no entropy coding, the most expensive part of a read of a small value. Measured on JSON
/// records of 220, 840 and 4,100 bytes: to decompress them takes 2,300, 7,400 and 37,700 instructions, at ratios of
/// 1.5, 2.5 and 4.9. At level 3 it takes 12,000, 18,700 and 52,400 instructions, at ratios of 1.7, 3.1 and 6.0.
const LEVEL: i32 = -1;
/// The level of [`densely_compressed`]: numbers written as text take half as many bytes as at [`LEVEL`]. A row of
/// 130 KB takes about 5 ms.
const DENSE_LEVEL: i32 = 9;

/// A compressed value cannot be decompressed: its stored bytes are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a compressed value cannot be decompressed")]
pub struct DamagedValue;

thread_local! {
    /// Contexts cost more to make than a small value costs to compress.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Returns the value in the zstd form if that pays. Short values, values with a content encoding, and values that would
/// shrink by less than a tenth are returned as they are. Takes about 3 ms for a value of 1 MiB; [`Compression`] does
/// the same in steps.
pub fn compressed(value: Value) -> Value {
    if !is_candidate(&value) {
        return value;
    }
    match frame(&value.bytes) {
        Ok(stored) => where_it_pays(value, stored),
        Err(_) => value,
    }
}

/// As [`compressed`], for values that are seldom read and long kept: slower in both directions, and shorter.
pub fn densely_compressed(value: Value) -> Value {
    if !is_candidate(&value) {
        return value;
    }
    let stored = Compressor::new(DENSE_LEVEL)
        .and_then(|mut compressor| write_frame(&mut compressor, &value.bytes));
    match stored {
        Ok(stored) => where_it_pays(value, stored),
        Err(_) => value,
    }
}

/// The compression of one value in steps, so that a thread can do other work between them.
pub struct Compression {
    value: Value,
    /// Bytes of the value that have been compressed.
    done: usize,
    /// `None` if the value stays plain: it is not worth the attempt, or compression has failed.
    encoder: Option<Encoder<'static, Vec<u8>>>,
}

impl Compression {
    /// Begins with a value. A value that is not worth the attempt is done at once.
    pub fn new(value: Value) -> Self {
        let encoder = || {
            let len = value.bytes.len();
            let mut out = Vec::with_capacity(len / 2);
            out.extend_from_slice(&(len as u32).to_be_bytes());
            let mut encoder = Encoder::new(out, LEVEL).ok()?;
            encoder.set_pledged_src_size(Some(len as u64)).ok()?;
            Some(encoder)
        };
        let encoder = if is_candidate(&value) {
            encoder()
        } else {
            None
        };
        Self {
            value,
            done: 0,
            encoder,
        }
    }

    /// Compresses up to `len` bytes more. Returns whether there is more to do.
    pub fn step(&mut self, len: usize) -> bool {
        let Some(encoder) = &mut self.encoder else {
            return false;
        };
        let end = self.value.bytes.len().min(self.done + len);
        if encoder
            .write_all(&self.value.bytes[self.done..end])
            .is_err()
        {
            self.encoder = None;
            return false;
        }
        self.done = end;
        self.done < self.value.bytes.len()
    }

    /// Returns the value in the form that pays. If steps are left, the value stays plain.
    pub fn finish(self) -> Value {
        let is_whole = self.done == self.value.bytes.len();
        let encoder = self.encoder.filter(|_| is_whole);
        match encoder.and_then(|encoder| encoder.finish().ok()) {
            Some(stored) => where_it_pays(self.value, stored),
            None => self.value,
        }
    }
}

impl std::fmt::Debug for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compression")
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

fn is_candidate(value: &Value) -> bool {
    value.form == StoredForm::Plain
        && value.content_encoding.is_empty()
        && value.bytes.len() >= COMPRESSED_LEN_MIN
}

fn where_it_pays(value: Value, mut stored: Vec<u8>) -> Value {
    let len = value.bytes.len();
    if stored.len() > len - len / SAVED_PART {
        return value;
    }
    // Most of the room is unused.
    stored.shrink_to_fit();
    Value {
        bytes: stored.into(),
        form: StoredForm::Zstd,
        ..value
    }
}

/// Returns the length of a value, followed by its frame.
pub(crate) fn frame(plain: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        let compressor = match compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL)?),
        };
        write_frame(compressor, plain)
    })
}

fn write_frame(compressor: &mut Compressor<'_>, plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = vec![0; PLAIN_LEN_LEN + zstd::zstd_safe::compress_bound(plain.len())];
    out[..PLAIN_LEN_LEN].copy_from_slice(&(plain.len() as u32).to_be_bytes());
    let written = compressor.compress_to_buffer(plain, &mut out[PLAIN_LEN_LEN..])?;
    out.truncate(PLAIN_LEN_LEN + written);
    Ok(out)
}

/// Returns the value in the plain form. A large value stays as it is: its bytes are stored separately.
pub fn plain(value: Value) -> Result<Value, DamagedValue> {
    match value.form {
        StoredForm::Plain | StoredForm::Large => Ok(value),
        StoredForm::Zstd => {
            let mut bytes = Vec::new();
            write_plain(value.form, &value.bytes, &mut bytes)?;
            Ok(Value {
                bytes: bytes.into(),
                form: StoredForm::Plain,
                ..value
            })
        }
    }
}

/// Returns the plain bytes of a value. `room` holds them if they have to be decompressed. For a large value, returns
/// its reference.
pub fn plain_bytes<'a>(
    form: StoredForm,
    stored: &'a [u8],
    room: &'a mut Vec<u8>,
) -> Result<&'a [u8], DamagedValue> {
    match form {
        StoredForm::Plain | StoredForm::Large => Ok(stored),
        StoredForm::Zstd => {
            write_plain(form, stored, room)?;
            Ok(room)
        }
    }
}

/// Returns the frame of a value in the zstd form, for a client that reads zstd itself. Other values have no frame.
pub fn zstd_frame(value: &Value) -> Option<Bytes> {
    match value.form {
        StoredForm::Plain | StoredForm::Large => None,
        StoredForm::Zstd => {
            (value.bytes.len() > PLAIN_LEN_LEN).then(|| value.bytes.slice(PLAIN_LEN_LEN..))
        }
    }
}

/// Replaces the content of `out` with the plain bytes.
fn write_plain(form: StoredForm, stored: &[u8], out: &mut Vec<u8>) -> Result<(), DamagedValue> {
    let len = form.plain_len(stored).map_err(|_| DamagedValue)?;
    out.clear();
    out.reserve_exact(len);
    let written = DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(&stored[PLAIN_LEN_LEN..], out)
    });
    match written {
        Ok(written) if written == len => Ok(()),
        Ok(_) | Err(_) => Err(DamagedValue),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(bytes: &[u8]) -> Value {
        Value::new(Bytes::copy_from_slice(bytes), "text/plain", "").unwrap()
    }

    #[test]
    fn what_pays_is_compressed_and_nothing_else() {
        let text = "every row of this value looks like the one before it; ".repeat(40);
        let small = compressed(value(text.as_bytes()));
        assert_eq!(small.form, StoredForm::Zstd);
        assert!(small.bytes.len() * 10 < text.len());
        assert_eq!(small.content_type, "text/plain");
        let frame = zstd_frame(&small).unwrap();
        assert_eq!(zstd::decode_all(&frame[..]).unwrap(), text.as_bytes());
        assert_eq!(plain(small.clone()).unwrap(), value(text.as_bytes()));
        // Once is enough.
        assert_eq!(compressed(small.clone()), small);
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(4_000)
        .collect();
        let coded = Value::new(text.clone(), "", "gzip").unwrap();
        for kept in [
            value(b""),
            value(&text.as_bytes()[..63]),
            value(&noise),
            coded,
        ] {
            assert_eq!(compressed(kept.clone()), kept);
        }
    }

    #[test]
    fn steps_that_are_left_leave_the_value_plain() {
        let mut begun = Compression::new(value(&[b'x'; 1_000]));
        assert!(begun.step(999));
        assert_eq!(begun.finish(), value(&[b'x'; 1_000]));
    }

    #[test]
    fn a_frame_that_says_more_than_its_length_is_damaged_and_takes_no_memory() {
        let bomb = frame(&vec![0; 1 << 20]).unwrap();
        for len in [0_u32, 1, 1 << 19, (1 << 20) - 1, (1 << 20) + 1, u32::MAX] {
            let mut hostile = bomb.clone();
            hostile[..PLAIN_LEN_LEN].copy_from_slice(&len.to_be_bytes());
            let mut room = Vec::new();
            let refused = plain_bytes(StoredForm::Zstd, &hostile, &mut room);
            assert_eq!(refused, Err(DamagedValue), "{len}");
            assert!(room.capacity() <= 1 << 20);
        }
    }

    proptest! {
        #[test]
        fn any_value_comes_back(bytes in prop::collection::vec(0_u8..4, 0..3_000)) {
            let dense = densely_compressed(value(&bytes));
            prop_assert_eq!(plain(dense).unwrap(), value(&bytes));
            let stored = compressed(value(&bytes));
            prop_assert!(stored.bytes.len() <= bytes.len());
            prop_assert_eq!(stored.plain_len(), bytes.len());
            let mut steps = Compression::new(value(&bytes));
            while steps.step(100) {}
            let stepped = steps.finish();
            prop_assert_eq!(stepped.form, stored.form);
            prop_assert_eq!(plain(stepped).unwrap(), value(&bytes));
            prop_assert_eq!(plain(stored).unwrap(), value(&bytes));
        }

        #[test]
        fn damage_is_an_error_or_another_value_of_the_same_length(
            at in any::<prop::sample::Index>(), flip in 1_u8..,
        ) {
            let text = "abcdefghij".repeat(30);
            let mut stored = frame(text.as_bytes()).unwrap();
            let at = at.index(stored.len());
            stored[at] ^= flip;
            let mut room = Vec::new();
            let _ = plain_bytes(StoredForm::Zstd, &stored, &mut room);
            stored.truncate(at);
            let cut = plain_bytes(StoredForm::Zstd, &stored, &mut room);
            prop_assert_eq!(cut, Err(DamagedValue));
        }
    }
}
