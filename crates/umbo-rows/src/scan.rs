//! Reads a usual line of NDJSON in one pass, several times faster than a general parser of JSON: a flat object of
//! known fields with strings and whole numbers.
//!
//! The invariant: if this returns a line, `serde_json` reads the same line the same way. For all other lines
//! (unknown or repeated fields, other escapes, other numbers, mistakes) it returns `None`, and `serde_json` reads
//! them.

use std::borrow::Cow;

use umbo_api::batch::{LineText, WriteLine, WriteOp};

const EMPTY: WriteLine<'static> = WriteLine {
    op: WriteOp::Put,
    pk: None,
    pk64: None,
    sk: None,
    sk64: None,
    v: None,
    v64: None,
    ttl: None,
    expires_at: None,
    content_type: None,
    content_encoding: None,
    if_match: None,
    if_none_match: None,
    version: None,
    by: None,
};

/// Reads a line. Returns `None` if it is unusual.
pub(crate) fn write_line(line: &[u8]) -> Option<WriteLine<'_>> {
    // Once for all strings of the line: it is UTF-8, and without the control characters that strings must escape.
    let line = std::str::from_utf8(line).ok()?;
    if !has_no_control(line.as_bytes()) {
        return None;
    }
    let mut cursor = Cursor { line, at: 0 };
    let mut row = EMPTY;
    cursor.take(b'{')?;
    loop {
        let name = cursor.name()?;
        cursor.take(b':')?;
        cursor.skip_space();
        match name {
            b"pk" => cursor.text_into(&mut row.pk)?,
            b"sk" => cursor.text_into(&mut row.sk)?,
            b"v" => cursor.text_into(&mut row.v)?,
            b"pk64" => cursor.text_into(&mut row.pk64)?,
            b"sk64" => cursor.text_into(&mut row.sk64)?,
            b"v64" => cursor.text_into(&mut row.v64)?,
            b"content_type" => cursor.text_into(&mut row.content_type)?,
            b"content_encoding" => cursor.text_into(&mut row.content_encoding)?,
            b"version" => cursor.number_into(&mut row.version)?,
            b"expires_at" => cursor.number_into(&mut row.expires_at)?,
            _ => return None,
        }
        cursor.skip_space();
        match cursor.next()? {
            b',' => cursor.skip_space(),
            b'}' => break,
            _ => return None,
        }
    }
    cursor.skip_space();
    (cursor.at == line.len()).then_some(row)
}

/// Returns whether no byte is an ASCII control character below a space. There is no branch within a piece, so that
/// compilers use vector instructions.
fn has_no_control(bytes: &[u8]) -> bool {
    const PIECE_LEN: usize = 64;
    let is_clean = |piece: &[u8]| {
        let least = piece.iter().fold(u8::MAX, |least, &byte| least.min(byte));
        least >= b' '
    };
    let mut pieces = bytes.chunks_exact(PIECE_LEN);
    pieces.all(is_clean) && is_clean(pieces.remainder())
}

/// A position in a line.
struct Cursor<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.line.as_bytes().get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip_space(&mut self) {
        while self.line.as_bytes().get(self.at) == Some(&b' ') {
            self.at += 1;
        }
    }

    /// Takes a byte, with spaces before it.
    fn take(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.next()? == byte).then_some(())
    }

    /// Takes a name: a string without escapes.
    fn name(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let rest = &self.line.as_bytes()[self.at..];
        let len = rest.iter().position(|&byte| matches!(byte, b'"' | b'\\'))?;
        self.at += len + 1;
        (rest[len] == b'"').then_some(&rest[..len])
    }

    fn text_into(&mut self, field: &mut Option<LineText<'a>>) -> Option<()> {
        if field.is_some() || self.next()? != b'"' {
            return None;
        }
        let start = self.at;
        let line = self.line.as_bytes();
        let found = memchr::memchr2(b'"', b'\\', &line[start..])?;
        self.at += found;
        let text = if line[self.at] == b'"' {
            self.at += 1;
            Cow::Borrowed(&self.line[start..self.at - 1])
        } else {
            Cow::Owned(self.unescaped(start)?)
        };
        *field = Some(LineText(text));
        Some(())
    }

    /// Reads the rest of a string from its first backslash on. Returns `None` for escapes with hexadecimal digits.
    fn unescaped(&mut self, start: usize) -> Option<String> {
        let mut text = String::with_capacity(2 * (self.at - start) + 64);
        let mut start = start;
        loop {
            text.push_str(&self.line[start..self.at]);
            let byte = self.line.as_bytes()[self.at];
            self.at += 1;
            if byte == b'"' {
                return Some(text);
            }
            text.push(match self.next()? {
                b'"' => '"',
                b'\\' => '\\',
                b'/' => '/',
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                _ => return None,
            });
            start = self.at;
            self.at += memchr::memchr2(b'"', b'\\', &self.line.as_bytes()[start..])?;
        }
    }

    fn number_into(&mut self, field: &mut Option<u64>) -> Option<()> {
        let rest = &self.line.as_bytes()[self.at..];
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Nineteen digits fit; a zero before other digits is no number in JSON.
        if field.is_some() || !(1..=19).contains(&len) || (rest[0] == b'0' && len > 1) {
            return None;
        }
        // A fraction or exponent makes it another number.
        if !matches!(rest.get(len), Some(b' ' | b',' | b'}')) {
            return None;
        }
        let digits = rest[..len].iter();
        *field = Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')));
        self.at += len;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Holds a line against the general parser.
    fn check(line: &[u8]) -> bool {
        let Some(row) = write_line(line) else {
            return false;
        };
        let expected: Result<WriteLine<'_>, _> = serde_json::from_slice(line);
        let line = String::from_utf8_lossy(line);
        assert_eq!(expected.as_ref().ok(), Some(&row), "{line}: {expected:?}");
        true
    }

    #[test]
    fn usual_lines_are_read_here() {
        for line in [
            r#"{"pk":"a","sk":"b","v":"x"}"#,
            r#"{ "pk" : "é" , "v64" : "eA" }"#,
            r#"{"pk":"","sk":"","version":18,"expires_at":0,"content_type":"a/b","v":"{\"n\":\"\\\\é\\t/\\/\"}"}"#,
            r#"{"version":1,"pk64":"YQ","sk64":"","content_encoding":"gzip","v":"\b\f\n\r\t\/"}"#,
        ] {
            assert!(check(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn unusual_lines_are_left_to_others() {
        for line in [
            "",
            "{",
            "{}",
            "[]",
            r#"{"pk":"a""#,
            r#"{"pk":"a",}"#,
            r#"{"pk":"a"}}"#,
            r#"{"pk":"a"} x"#,
            r#"{"pk":"a","pk":"a"}"#,
            r#"{"pk":null}"#,
            r#"{"pk":"\u0061"}"#,
            r#"{"pk":"\x"}"#,
            r#"{"p\u006b":"a"}"#,
            r#"{"version":01}"#,
            r#"{"version":1.5}"#,
            r#"{"version":1e3}"#,
            r#"{"version":-1}"#,
            r#"{"version":}"#,
            r#"{"version":99999999999999999999}"#,
            r#"{"ttl":5}"#,
            r#"{"op":"del"}"#,
            "{\"pk\":\"a\tb\"}",
            r#"{"pk":"a"#,
            r#"{"pk":"a\"#,
            r#"{"w":"a"}"#,
            r#"{"pk""#,
            r#"{"pk":"#,
        ] {
            assert!(write_line(line.as_bytes()).is_none(), "{line}");
        }
        assert!(write_line(b"{\"pk\":\"\xff\"}").is_none());
    }

    proptest! {
        #[test]
        fn whatever_is_read_here_is_read_the_same_there(
            line in "(\\{|)(\"(pk|sk|v|v64|version|expires_at|op|x)\"[: ]{0,2}(\"[a\\\\\"nté{}]{0,5}\"|[0-9.e]{0,4})[, }]{0,2}){0,4}(\\}|)",
        ) {
            check(line.as_bytes());
        }

        #[test]
        fn rows_are_read_here(pk in "[\\PC\"\\\\\n]{0,8}", v in "[\\PC\"\\\\\t/]{0,20}", version in 0_u64..u64::MAX / 2) {
            let line = serde_json::json!({"pk": pk, "v": v, "version": version}).to_string();
            prop_assert!(check(line.as_bytes()));
        }
    }
}
