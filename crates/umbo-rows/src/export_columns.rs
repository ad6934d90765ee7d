//! The columns of an export, named as the fields of NDJSON rows.

use umbo_api::batch::{LineText, WriteLine};

/// The columns that are written. UTF-8 text stands in `pk`, `sk` and `v`, other bytes as base64url in the last
/// three.
pub(crate) const COLUMNS: [&str; 10] = [
    "pk",
    "sk",
    "v",
    "version",
    "expires_at",
    "content_type",
    "content_encoding",
    "pk64",
    "sk64",
    "v64",
];

/// Returns the text cells of a row, in the order of the columns, without the cells of numbers.
pub(crate) fn texts<'a>(row: &'a WriteLine<'_>) -> [Option<&'a str>; 8] {
    let text = |field: &'a Option<LineText<'_>>| field.as_ref().map(|text| &*text.0);
    [
        text(&row.pk),
        text(&row.sk),
        text(&row.v),
        text(&row.content_type),
        text(&row.content_encoding),
        text(&row.pk64),
        text(&row.sk64),
        text(&row.v64),
    ]
}
