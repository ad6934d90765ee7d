//! Numbers in digits, written from the end of a text to its beginning: no `format!`, no allocation.

/// Writes a number before `end`; returns its begin.
pub fn put(text: &mut [u8], end: usize, number: u64) -> usize {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    let first = end - digits.len();
    text[first..end].copy_from_slice(digits);
    first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_are_those_of_display(number in prop_oneof![0..2_000_u64, any::<u64>()]) {
            let mut text = [b'x'; 24];
            let first = put(&mut text, 22, number);
            let expected = number.to_string();
            prop_assert_eq!(&text[first..22], expected.as_bytes());
            prop_assert!(text[..first].iter().chain(&text[22..]).all(|&byte| byte == b'x'));
        }
    }
}
