//! Finds the key of a line of bulk input without parsing the whole line: the server checks the rest. Pure.
//! Two lines have equal keys here if and only if they write the same row, however the key is spelled
//! (escapes, base64url).

use std::ops::Range;

use umbo_api::path::KeyEncoding;

/// Longest key kept: the longest partition key, the longest sort key and the byte between.
const KEY_LEN_MAX: usize = 1_024 + 1 + 2_048;

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A write whose key was appended; its partition key has this many bytes.
    Write {
        /// Length of the partition key.
        partition_len: u16,
    },
    /// An entry of a file of failed rows; the range of the line to write, which is a JSON object.
    Failed(Range<usize>),
    /// The same; the line is a JSON string, because it was not a JSON object.
    FailedText(Range<usize>),
}

/// Why a line cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ImportLineError {
    /// Not a JSON object, up to the point that was read.
    #[error("it is not a JSON object")]
    NotAnObject,
    /// A key that is not a string, or not in its encoding.
    #[error("'{0}' is not a string in its encoding")]
    BadKey(&'static str),
    /// A key in both spellings.
    #[error("a row has '{0}' or '{0}64', not both")]
    Both(&'static str),
    /// No partition key.
    #[error("a row needs 'pk' or 'pk64'")]
    NoPartitionKey,
    /// An increment: a line may be sent more than once.
    #[error(
        "an increment is not imported, because a line may be sent twice: send it with 'umbo kv batch'"
    )]
    Increment,
    /// A key whose length no row can have.
    #[error("a partition key has 1 to 1,024 bytes and a sort key at most 2,048")]
    KeyLength,
}

#[derive(Default)]
struct LineFields {
    pk: Option<Range<usize>>,
    pk64: Option<Range<usize>>,
    sk: Option<Range<usize>>,
    sk64: Option<Range<usize>>,
}

/// Parses a line. For a write, appends partition key, a zero byte and sort key to `keys`.
pub(super) fn read(line: &[u8], keys: &mut Vec<u8>) -> Result<LineKind, ImportLineError> {
    let mut cursor = LineCursor { line, at: 0 };
    let mut fields = LineFields::default();
    cursor.expect(b'{')?;
    let (mut is_first, mut is_failed) = (true, false);
    loop {
        cursor.skip_space();
        if cursor.peek() == Some(b'}') {
            break;
        }
        if !is_first {
            cursor.expect(b',')?;
        }
        let name = cursor.string()?;
        cursor.expect(b':')?;
        let value = cursor.value()?;
        let name = &line[name];
        is_failed |= is_first && name == b"failed";
        is_first = false;
        match name {
            b"row" if is_failed => return Ok(LineKind::Failed(value)),
            b"text" if is_failed => return Ok(LineKind::FailedText(value)),
            b"pk" => fields.pk = Some(value),
            b"pk64" => fields.pk64 = Some(value),
            b"sk" => fields.sk = Some(value),
            b"sk64" => fields.sk64 = Some(value),
            _ => continue,
        }
        // The key is complete; nothing after it changes it.
        if fields.has_both() {
            break;
        }
    }
    if is_increment(line) {
        return Err(ImportLineError::Increment);
    }
    let start = keys.len();
    let key = fields.append(line, keys);
    if key.is_err() {
        keys.truncate(start);
    }
    key
}

/// Returns whether a line is an increment. Only a line in which the word stands, or an escape, is read whole.
fn is_increment(line: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Op<'a> {
        #[serde(default, borrow)]
        op: std::borrow::Cow<'a, str>,
    }
    let has = |text: &str| memchr::memmem::find(line, text.as_bytes()).is_some();
    (has("\"inc\"") || has("\\u00"))
        && serde_json::from_slice::<Op<'_>>(line).is_ok_and(|line| line.op == "inc")
}

impl LineFields {
    fn has_both(&self) -> bool {
        (self.pk.is_some() || self.pk64.is_some()) && (self.sk.is_some() || self.sk64.is_some())
    }

    fn append(&self, line: &[u8], keys: &mut Vec<u8>) -> Result<LineKind, ImportLineError> {
        let start = keys.len();
        if !append_pair("pk", [&self.pk, &self.pk64], line, keys)? {
            return Err(ImportLineError::NoPartitionKey);
        }
        let partition_len = keys.len() - start;
        keys.push(0);
        append_pair("sk", [&self.sk, &self.sk64], line, keys)?;
        if partition_len == 0 || keys.len() - start > KEY_LEN_MAX {
            return Err(ImportLineError::KeyLength);
        }
        let partition_len = u16::try_from(partition_len).map_err(|_| ImportLineError::KeyLength)?;
        Ok(LineKind::Write { partition_len })
    }
}

/// Appends the bytes of a key in one of its two spellings; returns whether it was present.
fn append_pair(
    name: &'static str,
    [text, base64]: [&Option<Range<usize>>; 2],
    line: &[u8],
    keys: &mut Vec<u8>,
) -> Result<bool, ImportLineError> {
    let bad = ImportLineError::BadKey(name);
    let inside = |range: &Range<usize>| {
        let value = &line[range.clone()];
        let inside = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some((value, inside))
    };
    match (text, base64) {
        (None, None) => return Ok(false),
        (Some(_), Some(_)) => return Err(ImportLineError::Both(name)),
        (Some(range), None) => {
            let (value, inside) = inside(range).ok_or(bad)?;
            if memchr::memchr(b'\\', inside).is_none() {
                keys.extend_from_slice(inside);
            } else {
                let text: String = serde_json::from_slice(value).map_err(|_| bad)?;
                keys.extend_from_slice(text.as_bytes());
            }
        }
        (None, Some(range)) => {
            let (_, inside) = inside(range).ok_or(bad)?;
            let bytes = KeyEncoding::Base64Url.decode(inside).map_err(|_| bad)?;
            keys.extend_from_slice(&bytes);
        }
    }
    Ok(true)
}

/// A position in a line.
struct LineCursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl LineCursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), ImportLineError> {
        self.skip_space();
        if self.peek() != Some(byte) {
            return Err(ImportLineError::NotAnObject);
        }
        self.at += 1;
        Ok(())
    }

    /// Skips a string and returns the range of its content.
    fn string(&mut self) -> Result<Range<usize>, ImportLineError> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            let rest = self
                .line
                .get(self.at..)
                .ok_or(ImportLineError::NotAnObject)?;
            let found = memchr::memchr2(b'"', b'\\', rest).ok_or(ImportLineError::NotAnObject)?;
            self.at += found;
            if self.line[self.at] == b'"' {
                self.at += 1;
                return Ok(start..self.at - 1);
            }
            self.at += 2;
        }
    }

    /// Skips a value of any kind and returns its range.
    fn value(&mut self) -> Result<Range<usize>, ImportLineError> {
        self.skip_space();
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.peek().ok_or(ImportLineError::NotAnObject)? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b'}' | b']' if depth == 0 => {
                    return Err(ImportLineError::NotAnObject);
                }
                _ if depth == 0 => self.scalar(),
                _ => self.at += 1,
            }
            if depth == 0 {
                return Ok(start..self.at);
            }
        }
    }

    fn scalar(&mut self) {
        let is_part = |byte: u8| !matches!(byte, b',' | b'}' | b']' | b'"' | b'{' | b'[');
        while self
            .peek()
            .is_some_and(|byte| is_part(byte) && !byte.is_ascii_whitespace())
        {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbo_api::batch::WriteLine;

    fn key(line: &str) -> Result<Vec<u8>, ImportLineError> {
        let mut keys = b"before".to_vec();
        let read = read(line.as_bytes(), &mut keys);
        match read? {
            LineKind::Write { .. } => Ok(keys.split_off(6)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_is_found_wherever_it_stands_and_however_it_is_spelled() {
        for line in [
            r#"{"pk":"a","sk":"b","v":"x"}"#,
            r#" { "v" : {"pk":["}",{"sk":1}]} , "sk":"b", "pk" : "a" } "#,
            r#"{"op":"del","ttl":1.5e3,"x":null,"pk":"\u0061","sk64":"Yg"}"#,
            r#"{"v":"\"pk\":\"z\"\\","pk64":"YQ","sk":"b"}"#,
        ] {
            assert_eq!(key(line).unwrap(), b"a\0b", "{line}");
        }
        assert_eq!(key(r#"{"pk":"a","v":"x"}"#).unwrap(), b"a\0");
        assert_eq!(key(r#"{"pk":"\"","v":"x"}"#).unwrap(), b"\"\0");
    }

    #[test]
    fn lines_without_a_key_are_named_for_what_they_are() {
        use ImportLineError::{BadKey, Both, KeyLength, NoPartitionKey, NotAnObject};
        for (line, expected) in [
            ("", NotAnObject),
            ("[1]", NotAnObject),
            ("{", NotAnObject),
            (r#"{"pk""#, NotAnObject),
            (r#"{"pk":"#, NotAnObject),
            (r#"{"pk":}"#, NotAnObject),
            (r#"{"pk":"a"#, NotAnObject),
            (r#"{"pk":"a\"#, NotAnObject),
            (r#"{"v":[1,{"#, NotAnObject),
            (r#"{"pk" "a"}"#, NotAnObject),
            (r#"{"v":"x" "pk":"a"}"#, NotAnObject),
            (r#"{"pk":7}"#, BadKey("pk")),
            (r#"{"pk":"\ud800"}"#, BadKey("pk")),
            (r#"{"pk":"a","sk64":"="}"#, BadKey("sk")),
            (r#"{"pk":"a","pk64":"YQ"}"#, Both("pk")),
            (r"{}", NoPartitionKey),
            (r#"{"sk":"a"}"#, NoPartitionKey),
            (r#"{"pk":""}"#, KeyLength),
        ] {
            assert_eq!(key(line), Err(expected), "{line}");
        }
        let long = format!(r#"{{"pk":"{}"}}"#, "x".repeat(4_000));
        assert_eq!(key(&long), Err(KeyLength));
    }

    #[test]
    fn increments_are_refused_however_they_are_spelled() {
        for line in [
            r#"{"op":"inc","pk":"a","by":1}"#,
            r#"{"pk":"a","by":1,"op":"\u0069nc"}"#,
        ] {
            assert_eq!(key(line), Err(ImportLineError::Increment), "{line}");
        }
        for line in [
            r#"{"pk":"a","v":"\"inc\""}"#,
            r#"{"pk":"\u0061","v":"inc","op":"put"}"#,
        ] {
            assert!(key(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn an_entry_of_a_file_of_failed_rows_gives_its_row() {
        let line = r#"{"failed":{"line":3,"status":400},"row":{"pk":"a","v":"}"}}"#;
        let Ok(LineKind::Failed(range)) = read(line.as_bytes(), &mut Vec::new()) else {
            panic!("{line}");
        };
        assert_eq!(&line[range], r#"{"pk":"a","v":"}"}"#);
        let line = r#"{"failed":{"line":3},"text":"{\"pk"}"#;
        let Ok(LineKind::FailedText(range)) = read(line.as_bytes(), &mut Vec::new()) else {
            panic!("{line}");
        };
        assert_eq!(&line[range], r#""{\"pk""#);
    }

    proptest! {
        #[test]
        fn whatever_the_server_takes_has_the_same_key_here(
            pk in "[a-z\"\\\\\u{0}é]{1,6}", sk in "[a-z\"\\\\{}:,é]{0,6}", v in "[\\PC\"\\\\]{0,8}",
        ) {
            let line = serde_json::json!({"v": v, "sk": sk, "pk": pk}).to_string();
            let parsed: WriteLine<'_> = serde_json::from_str(&line).unwrap();
            let expected = [
                parsed.pk.unwrap().0.as_bytes(), b"\0", parsed.sk.unwrap().0.as_bytes(),
            ].concat();
            prop_assert_eq!(key(&line).unwrap(), expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in "[{}\\[\\]\",:\\\\pksv640 a]{0,40}") {
            let mut keys = Vec::new();
            let read = read(bytes.as_bytes(), &mut keys);
            prop_assert!(read.is_ok() || keys.is_empty());
        }
    }
}
