//! How CSV differs from RFC 4180. It travels in the parameters of the media type:
//! `text/csv; delimiter=";"; null=NULL; columns="pk,v"`.

/// A dialect of CSV that cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialectError {
    /// A delimiter that cannot be distinguished from cells.
    #[error(
        "the delimiter of CSV is '{0}', expected tab, space or a character other than a letter, digit or quote"
    )]
    Delimiter(String),
    /// CSV in another character set.
    #[error("CSV is read in UTF-8, not in '{0}'")]
    Charset(String),
    /// A mark or name that no media type can have.
    #[error("'{0}' has characters outside of ASCII")]
    NotAscii(String),
    /// CSV without a header and without names.
    #[error("CSV without a header line needs the names of its columns: text/csv; columns=\"pk,v\"")]
    NoColumns,
}

/// The dialect of CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// The character between cells: an ASCII character other than a quote, letter, digit or line
    /// end.
    pub(crate) delimiter: u8,
    /// The cell without quotes that stands for no value.
    pub(crate) null: Option<String>,
    /// Names of the columns of a file without a header line.
    pub(crate) columns: Option<Vec<String>>,
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            delimiter: b',',
            null: None,
            columns: None,
        }
    }
}

impl Dialect {
    /// Checks and makes a dialect. `delimiter` is a character, or `tab` or `space`.
    pub fn new(
        delimiter: Option<&str>,
        null: Option<String>,
        columns: Option<Vec<String>>,
    ) -> Result<Self, DialectError> {
        let delimiter = match delimiter.unwrap_or(",") {
            "tab" | "\\t" => b'\t',
            "space" => b' ',
            other => match other.as_bytes() {
                [byte @ (b'\t' | b' '..=b'~')]
                    if !byte.is_ascii_alphanumeric() && *byte != b'"' =>
                {
                    *byte
                }
                _ => return Err(DialectError::Delimiter(other.to_owned())),
            },
        };
        let is_plain = |text: &&String| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let texts = columns.iter().flatten().chain(&null);
        if let Some(other) = texts.into_iter().find(|text| !is_plain(text)) {
            return Err(DialectError::NotAscii(other.clone()));
        }
        Ok(Self {
            delimiter,
            null,
            columns,
        })
    }

    /// Reads the parameters of a media type. Others than these do not count.
    pub(crate) fn from_parameters(parameters: &str) -> Result<Self, DialectError> {
        let (mut delimiter, mut null, mut columns, mut is_headless) = (None, None, None, false);
        let mut rest = parameters;
        while let Some((name, value, after)) = parameter(rest) {
            rest = after;
            match name.to_ascii_lowercase().as_str() {
                "delimiter" => delimiter = Some(value),
                "null" => null = Some(value),
                "columns" => columns = Some(value.split(',').map(str::to_owned).collect()),
                "header" => is_headless = value.eq_ignore_ascii_case("absent"),
                "charset"
                    if !["utf-8", "utf8", "us-ascii"]
                        .contains(&value.to_ascii_lowercase().as_str()) =>
                {
                    return Err(DialectError::Charset(value));
                }
                _ => {}
            }
        }
        if is_headless && columns.is_none() {
            return Err(DialectError::NoColumns);
        }
        Self::new(delimiter.as_deref(), null, columns)
    }

    /// Returns the parameters that say so, each behind a semicolon; empty for CSV of RFC 4180.
    pub(crate) fn parameters(&self) -> String {
        let mut parameters = Vec::new();
        let mut push = |name: &str, value: &str| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            parameters.push(format!("; {name}=\"{value}\""));
        };
        match self.delimiter {
            b',' => {}
            b'\t' => push("delimiter", "tab"),
            byte => push("delimiter", char::from(byte).encode_utf8(&mut [0; 4])),
        }
        if let Some(null) = &self.null {
            push("null", null);
        }
        if let Some(columns) = &self.columns {
            push("columns", &columns.join(","));
        }
        parameters.concat()
    }
}

/// Returns the name and value of the first parameter, and the others.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.split_once('=')?;
    let name = name.trim_matches([' ', '\t', ';']);
    let rest = rest.trim_start();
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, rest) = rest.split_once(';').unwrap_or((rest, ""));
        return Some((name, value.trim().to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name, value, &quoted[at + 1..])),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    Some((name, value, ""))
}
