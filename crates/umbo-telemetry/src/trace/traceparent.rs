//! The `traceparent` header of W3C Trace Context, parsed strictly and written.
//!
//! `version-traceid-parentid-flags`, lower-case hexadecimal, ids not all zero. A version above 00 may have
//! more after the flags; version ff is invalid. Anything else is refused.

use std::fmt;

/// The calling span of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traceparent {
    /// Id of the trace, never all zero.
    pub trace_id: [u8; 16],
    /// Id of the caller's span, never all zero.
    pub parent_id: [u8; 8],
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

const LEN: usize = 55;

impl Traceparent {
    /// Parses a header value, or returns `None` if it is not valid.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_at_checked(LEN)?;
        let [version] = hex(&head[..2])?;
        let has_known_end = match version {
            0xff => false,
            0x00 => rest.is_empty(),
            _ => rest.is_empty() || rest[0] == b'-',
        };
        let has_dashes = head[2] == b'-' && head[35] == b'-' && head[52] == b'-';
        if !has_known_end || !has_dashes {
            return None;
        }
        let trace_id = hex(&head[3..35])?;
        let parent_id = hex(&head[36..52])?;
        let [flags] = hex(&head[53..])?;
        (trace_id != [0; 16] && parent_id != [0; 8]).then_some(Self {
            trace_id,
            parent_id,
            is_sampled: flags & 1 == 1,
        })
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        for byte in self.trace_id {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("-")?;
        for byte in self.parent_id {
            write!(f, "{byte:02x}")?;
        }
        write!(f, "-{:02x}", u8::from(self.is_sampled))
    }
}

/// Parses exactly `N` bytes of lower-case hexadecimal.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (pairs, odd) = digits.as_chunks::<2>();
    if pairs.len() != N || !odd.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_standard_reads_and_writes_back() {
        let parsed = Traceparent::parse(GOOD.as_bytes()).unwrap();
        assert!(parsed.is_sampled);
        assert_eq!(parsed.trace_id[0], 0x4b);
        assert_eq!(parsed.to_string(), GOOD);
    }

    #[test]
    fn what_the_standard_forbids_is_not_read() {
        let bad = [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-"),
            format!("{GOOD}0"),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            GOOD.replacen("00", "0g", 1),
            GOOD.replacen('-', "_", 1),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_owned(),
        ];
        for text in bad {
            assert_eq!(Traceparent::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = GOOD.replacen("00", "42", 1);
        let said = Traceparent::parse(GOOD.as_bytes());
        assert_eq!(Traceparent::parse(later.as_bytes()), said);
        assert_eq!(Traceparent::parse(format!("{later}-x").as_bytes()), said);
        assert_eq!(Traceparent::parse(format!("{later}x").as_bytes()), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Traceparent::parse(&value);
        }

        #[test]
        fn one_changed_byte_never_panics(at in 0_usize..LEN, byte in any::<u8>()) {
            let mut value = GOOD.as_bytes().to_vec();
            value[at] = byte;
            if let Some(read) = Traceparent::parse(&value) {
                prop_assert_eq!(Traceparent::parse(read.to_string().as_bytes()), Some(read));
            }
        }

        #[test]
        fn what_is_written_reads_back(
            trace_id in any::<[u8; 16]>(),
            parent_id in any::<[u8; 8]>(),
            is_sampled in any::<bool>(),
        ) {
            prop_assume!(trace_id != [0; 16] && parent_id != [0; 8]);
            let written = Traceparent { trace_id, parent_id, is_sampled };
            prop_assert_eq!(Traceparent::parse(written.to_string().as_bytes()), Some(written));
        }
    }
}
