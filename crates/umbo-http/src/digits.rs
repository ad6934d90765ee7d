//! Numbers in digits, for what is written with every answer: no `format!`, no allocation.

/// Digits of the longest number.
const LEN_MAX: usize = 20;

/// A number in digits.
#[derive(Debug)]
pub struct Digits {
    text: [u8; LEN_MAX],
    first: usize,
}

impl Digits {
    /// Writes a number.
    pub fn of(number: u64) -> Self {
        let mut text = [0; LEN_MAX];
        let first = put(&mut text, LEN_MAX, number);
        Self { text, first }
    }

    /// Returns its digits, at least one.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[self.first..]
    }

    /// Returns its digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// Writes a number before `end`; returns where it begins. From the end, because its digits need not
/// be counted first.
pub fn put(text: &mut [u8], end: usize, mut number: u64) -> usize {
    let mut first = end;
    loop {
        first -= 1;
        text[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return first;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_are_those_of_display(number in prop_oneof![0..2_000_u64, any::<u64>()]) {
            let digits = Digits::of(number);
            prop_assert_eq!(digits.as_str(), number.to_string());
        }
    }

    #[test]
    fn the_longest_number_fits() {
        assert_eq!(Digits::of(u64::MAX).as_str(), u64::MAX.to_string());
    }
}
