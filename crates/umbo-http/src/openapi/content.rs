//! Bodies of requests and answers in the `OpenAPI` document.

use serde_json::{Map, Value, json};

use super::operation::Content;

/// Kinds of lines of a range or scan.
const STREAM_LINES: [&str; 3] = ["JsonRow", "EndLine", "ErrorLine"];
/// Schema of any of them.
const STREAM_LINE: &str = "StreamLine";

/// Describes any line of a range or scan as one object with the fields of all. Generated clients cannot tell them
/// apart as a union: a row may have no field at all, so whatever is a line is a row.
pub(super) fn merge_stream_lines(schemas: &mut Value) {
    let mut fields = Map::new();
    for name in STREAM_LINES {
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
pub(super) fn of(content: &Content) -> Value {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    match content {
        Content::None => json!({}),
        Content::Bytes => {
            let bytes = json!({"schema": {"type": "string", "format": "binary"}});
            json!({"application/octet-stream": bytes, "*/*": bytes})
        }
        Content::AnyBytes => {
            let bytes = json!({"schema": {"type": "string", "format": "binary"}});
            json!({"application/octet-stream": bytes})
        }
        Content::Text(media_type) => json!({*media_type: {"schema": {"type": "string"}}}),
        Content::Document => json!({"application/json": {"schema": {"type": "object"}}}),
        Content::JsonLines(schema) => {
            let about =
                format!("Lines of JSON, each a {schema}. Of any media type but CSV and Parquet.");
            let lines = json!({"type": "string", "description": about});
            let bytes = json!({"type": "string", "format": "binary"});
            json!({
                "application/x-ndjson": {"schema": lines},
                "application/octet-stream": {"schema": bytes},
                "text/csv": {"schema": {"type": "string", "description": "Columns as in a load."}}
            })
        }
        Content::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
        Content::Lines(schemas) => lines(schemas),
        Content::StreamLines => {
            let mut types = lines(&STREAM_LINES);
            types["application/json"] =
                json!({"schema": {"type": "array", "items": reference(STREAM_LINE)}});
            types
        }
    }
}

fn lines(schemas: &[&str]) -> Value {
    let about = format!("Lines of JSON, each one of: {}.", schemas.join(", "));
    json!({"application/x-ndjson": {"schema": {"type": "string", "description": about}}})
}
