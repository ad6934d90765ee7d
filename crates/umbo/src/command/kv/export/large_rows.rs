//! Rows with large values in the pages of an export: their bytes are not in the rows, so they are never written as if
//! they were whole.

use bytes::{Bytes, BytesMut};
use umbo_api::row::JsonRow;
use umbo_client::RowPage;

/// What stands in the line of a row with a large value, and in no other: within a text the quotes would be escaped.
const MARK: &str = ",\"large\":\"";

/// Returns the line of the first row with a large value.
pub(super) fn first(page: &RowPage) -> Option<String> {
    let text = std::str::from_utf8(&page.lines).ok()?;
    let found = text.contains(MARK).then(|| text.lines());
    let line = found?.find(|line| line.contains(MARK))?;
    let row: JsonRow = serde_json::from_str(line).ok()?;
    let key = JsonRow {
        pk: row.pk,
        pk64: row.pk64,
        sk: row.sk,
        sk64: row.sk64,
        ..JsonRow::default()
    };
    serde_json::to_string(&key).ok()
}

/// Takes the rows with large values out of a page; returns how many.
pub(super) fn take_out(page: &mut RowPage) -> u64 {
    let Ok(text) = std::str::from_utf8(&page.lines) else {
        return 0;
    };
    if !text.contains(MARK) {
        return 0;
    }
    let (mut kept, mut taken) = (BytesMut::with_capacity(text.len()), 0);
    for line in text.split_inclusive('\n') {
        if line.contains(MARK) {
            taken += 1;
        } else {
            kept.extend_from_slice(line.as_bytes());
        }
    }
    page.rows -= taken;
    page.lines = Bytes::from(kept);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"pk":"a","sk":"","version":1,"v":",\"large\":\""}"#,
        "\n",
        r#"{"pk":"b","sk":"s","version":2,"bytes":2000000,"large":"00ff"}"#,
        "\n",
        r#"{"pk":"c","sk":"","version":3,"v":"x"}"#,
        "\n",
    );

    #[test]
    fn only_rows_with_large_values_are_found() {
        let mut page = RowPage {
            lines: Bytes::from_static(LINES.as_bytes()),
            rows: 3,
            cursor: None,
        };
        assert_eq!(first(&page).as_deref(), Some(r#"{"pk":"b","sk":"s"}"#));
        assert_eq!(take_out(&mut page), 1);
        assert_eq!(page.rows, 2);
        assert!(page.lines.starts_with(b"{\"pk\":\"a\"") && page.lines.ends_with(b"\"x\"}\n"));
        assert_eq!((first(&page), take_out(&mut page)), (None, 0));
    }
}
