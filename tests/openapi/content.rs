//! Bodies of requests and answers in the document.
//!
//! A content of the source is the name of a schema, a media type of text, `object` (any JSON object), `bytes` (any
//! bytes of any media type; generators of clients take one media type for a body), `value` (bytes, of the type they
//! were stored with), `rows` (lines of a range or scan, or an array of them), `lines of A B` (of JSON, each of one of
//! the schemas) or `lines or bytes of A` (a body of such lines; bytes are for generators that know no lines).

use serde_json::{Map, Value, json};

/// Kinds of lines of a range or scan.
const STREAM_LINES: &str = "JsonRow EndLine ErrorLine";
/// Schema of any of them.
const STREAM_LINE: &str = "StreamLine";

/// Describes any line of a range or scan as one object with the fields of all. Generated clients cannot tell them
/// apart as a union: a row may have no field at all, so whatever is a line is a row.
pub(crate) fn merge_stream_lines(schemas: &mut Value) {
    let mut fields = Map::new();
    for name in STREAM_LINES.split(' ') {
        if let Some(own) = schemas[name]["properties"].as_object() {
            fields.extend(own.clone());
        }
    }
    schemas[STREAM_LINE] = json!({
        "type": "object",
        "description": "Any line of a range or scan: a row; or with `end` the last line; or with `error` the last \
            line of a page that failed half-way.",
        "properties": fields,
    });
}

/// Returns a body by media type.
pub(crate) fn of(content: &str) -> Value {
    let bytes = json!({"schema": {"type": "string", "format": "binary"}});
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    if let Some(schema) = content.strip_prefix("lines or bytes of ") {
        let about =
            format!("Lines of JSON, each a {schema}. Of any media type but CSV and Parquet.");
        let lines = json!({"type": "string", "description": about});
        let csv = json!({"type": "string", "description": "Columns as in a load."});
        return json!({
            "application/x-ndjson": {"schema": lines},
            "application/octet-stream": bytes,
            "text/csv": {"schema": csv}
        });
    }
    if let Some(schemas) = content.strip_prefix("lines of ") {
        return lines(schemas);
    }
    match content {
        "value" => json!({"application/octet-stream": bytes, "*/*": bytes}),
        "bytes" => json!({"application/octet-stream": bytes}),
        "object" => json!({"application/json": {"schema": {"type": "object"}}}),
        "rows" => {
            let mut types = lines(STREAM_LINES);
            let array = json!({"type": "array", "items": reference(STREAM_LINE)});
            types["application/json"] = json!({"schema": array});
            types
        }
        media_type if media_type.contains('/') => {
            json!({media_type: {"schema": {"type": "string"}}})
        }
        schema => json!({"application/json": {"schema": reference(schema)}}),
    }
}

fn lines(schemas: &str) -> Value {
    let schemas = schemas.replace(' ', ", ");
    let about = format!("Lines of JSON, each one of: {schemas}.");
    json!({"application/x-ndjson": {"schema": {"type": "string", "description": about}}})
}
