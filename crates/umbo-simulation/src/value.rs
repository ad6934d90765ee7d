//! Values that contain the write that put them, and that reveal every changed byte.

use std::fmt::Write as _;

/// Number of a write within a history. Its value contains it.
pub type WriteId = usize;

/// Length of the part that identifies the write, in bytes.
const HEAD_LEN: usize = 18;

/// Returns the first bytes of every value of a write.
pub fn head(id: WriteId) -> Vec<u8> {
    format!("{id:08x}:").into_bytes()
}

/// Returns the value of a write; no shorter than its head.
pub fn value(id: WriteId, len: usize) -> Vec<u8> {
    let len = len.max(HEAD_LEN);
    let mut text = format!("{id:08x}:{len:08x}:");
    while text.len() < len {
        write!(text, "{:08x}", id.wrapping_mul(0x9E37_79B9) ^ text.len())
            .expect("a string takes everything");
    }
    text.truncate(len);
    text.into_bytes()
}

/// Returns the write that put a value; none if the value was not written, byte for byte.
pub fn writer_of(found: &[u8]) -> Option<WriteId> {
    let head = std::str::from_utf8(found.get(..HEAD_LEN)?).ok()?;
    let (id, len) = head.trim_end_matches(':').split_once(':')?;
    let id = WriteId::from_str_radix(id, 16).ok()?;
    let len = usize::from_str_radix(len, 16).ok()?;
    (len == found.len() && value(id, len) == found).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_its_write_and_a_damaged_one_nothing() {
        let mut whole = value(77, 300);
        assert_eq!(writer_of(&whole), Some(77));
        whole[150] ^= 1;
        assert_eq!(writer_of(&whole), None);
        assert_eq!(writer_of(&value(1, 0)), Some(1));
        assert_eq!(writer_of(b"no"), None);
    }
}
