//! Rows with large values in the pages of an export. A scan does not contain the bytes of large values, so each value
//! is read separately and put into its line. A row whose line would be longer than import accepts is left out and
//! named.

use bytes::BytesMut;
use umbo_api::batch::KeyFields;
use umbo_api::path::base64url;
use umbo_api::row::JsonRow;
use umbo_client::{Client, Error, RowPage};
use umbo_rows::LINE_LEN_MAX;
use umbo_types::Namespace;

use crate::output::note;

/// Text that only the line of a row with a large value contains: within a JSON string, the quotes would be escaped.
const MARK: &str = ",\"large\":\"";
/// Most bytes of large values in the rows of a page, unless the page has a single row. An export holds several pages.
const TOGETHER_LEN_MAX: u64 = 4 << 20;

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::Malformed(error.to_string())
}

fn text_of(page: &RowPage) -> Result<&str, Error> {
    std::str::from_utf8(&page.lines).map_err(malformed)
}

/// Returns the row of a line that has no bytes of its large value; `None` for other lines.
fn large_row(line: &str) -> Result<Option<JsonRow>, Error> {
    let row = line.contains(MARK).then(|| serde_json::from_str(line));
    row.transpose().map_err(malformed)
}

/// Returns the bytes of the first lines of a page whose large values may be read together, or `None` if the whole page
/// may be.
pub(super) fn fewer(page: &RowPage) -> Result<Option<u64>, Error> {
    let (mut lines_len, mut together) = (0, 0);
    for line in text_of(page)?.split_inclusive('\n') {
        together += large_row(line)?.and_then(|row| row.bytes).unwrap_or(0);
        if lines_len > 0 && together > TOGETHER_LEN_MAX {
            return Ok(Some(lines_len));
        }
        lines_len += line.len() as u64;
    }
    Ok(None)
}

/// Returns a page with the bytes of large values in its lines, or without their rows, and the number of rows that were
/// left out.
pub(super) async fn filled(
    client: &Client,
    namespace: &Namespace,
    page: &RowPage,
    leaves_out: bool,
) -> Result<(RowPage, u64), Error> {
    let mut filled = page.clone();
    if !text_of(page)?.contains(MARK) {
        return Ok((filled, 0));
    }
    let (mut lines, mut left_out) = (BytesMut::new(), 0);
    for line in text_of(page)?.split_inclusive('\n') {
        match large_row(line)? {
            None => lines.extend_from_slice(line.as_bytes()),
            Some(_) if leaves_out => left_out += 1,
            Some(row) => match whole_line(client, namespace, row).await? {
                Some(line) => lines.extend_from_slice(line.as_bytes()),
                None => left_out += 1,
            },
        }
    }
    filled.rows = memchr::memchr_iter(b'\n', &lines).count() as u64;
    filled.lines = lines.freeze();
    Ok((filled, left_out))
}

/// Returns the line of a row with the bytes of its value. The row may have been replaced since the scan; the line is
/// empty if the row was removed. If the line is longer than import accepts, names the row and returns `None`.
async fn whole_line(
    client: &Client,
    namespace: &Namespace,
    mut row: JsonRow,
) -> Result<Option<String>, Error> {
    let partition = row.partition().map_err(malformed)?.unwrap_or_default();
    let sort = row.sort().map_err(malformed)?;
    let read = client.get_stream(namespace.as_str(), &partition, &sort);
    let Some(mut stream) = read.await? else {
        return Ok(Some(String::new()));
    };
    let value = stream.value().clone();
    if value.len <= LINE_LEN_MAX as u64 {
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await? {
            bytes.extend_from_slice(&piece);
        }
        (row.bytes, row.large) = (None, None);
        (row.version, row.expires_at) = (Some(value.version), value.expires_at);
        (row.content_type, row.content_encoding) = (value.content_type, value.content_encoding);
        match String::from_utf8(bytes) {
            Ok(text) => row.v = Some(text),
            Err(error) => row.v64 = Some(base64url(error.as_bytes())),
        }
        let line = serde_json::to_string(&row).map_err(malformed)?;
        if line.len() <= LINE_LEN_MAX {
            return Ok(Some(line + "\n"));
        }
    }
    let key = serde_json::to_string(&KeyFields::of(&partition, &sort)).map_err(malformed)?;
    note!(
        "row {key} is left out: its line is longer than {} MiB. Copy it with 'umbo kv get --file' and 'umbo kv put --file'",
        (LINE_LEN_MAX + 1) >> 20
    );
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: &[u64]) -> RowPage {
        let line = |len: &u64| match len {
            0 => r#"{"pk":"a","sk":"","version":1,"v":",\"large\":\""}"#.to_owned(),
            len => format!(r#"{{"pk":"b","sk":"s","version":2,"bytes":{len},"large":"00ff"}}"#),
        };
        let lines: String = rows.iter().map(|len| line(len) + "\n").collect();
        RowPage {
            lines: lines.into(),
            rows: rows.len() as u64,
            cursor: None,
        }
    }

    #[test]
    fn rows_whose_large_values_are_read_together_are_few() {
        let long = TOGETHER_LEN_MAX;
        let line = |at: u64| page(&[at]).lines.len() as u64;
        for (rows, expected) in [
            (&[][..], None),
            (&[0, 0], None),
            (&[long, 0], None),
            (&[64 << 20], None),
            (&[0, long + 1, 0], Some(line(0))),
            (&[long, long], Some(line(long))),
        ] {
            assert_eq!(fewer(&page(rows)).unwrap(), expected, "{rows:?}");
        }
    }
}
