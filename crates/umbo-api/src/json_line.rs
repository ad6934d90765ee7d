//! JSON that stays one line for every reader.
//!
//! JSON may hold U+0085, U+2028 and U+2029 unescaped. Readers that split text by Unicode's line ends, like Python's
//! `splitlines` and the clients built on it, take each of them for the end of a line.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Compact JSON with each line end of Unicode escaped.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W>(&mut self, out: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some(at) = rest.find(LINE_ENDS) {
            let (before, after) = rest.split_at(at);
            let mut others = after.chars();
            let end = others.next().map_or(0, u32::from);
            write!(out, "{before}\\u{end:04x}")?;
            rest = others.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

/// Writes a value as JSON without line ends.
pub fn write(out: impl io::Write, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, OneLine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_is_one_line_and_reads_back(text in "(.|[\"\\\\\n\u{85}\u{2028}\u{2029}é]){0,20}") {
            let mut out = Vec::new();
            write(&mut out, &text).unwrap();
            let line = String::from_utf8(out).unwrap();
            prop_assert!(!line.contains(LINE_ENDS) && !line.contains('\n'), "{line}");
            prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        }
    }
}
