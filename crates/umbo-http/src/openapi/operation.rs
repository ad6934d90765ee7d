//! What the tables of the `OpenAPI` document are made of.

use serde_json::Value;
use umbo_api::ErrorCode;

/// Where a parameter stands.
#[derive(Clone, Copy)]
pub(super) enum In {
    Path,
    Query,
    /// A query parameter that must be there.
    RequiredQuery,
    Header,
    /// A header field that must be there.
    RequiredHeader,
}

/// One parameter.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: In,
    pub(super) schema: fn() -> Value,
    pub(super) about: &'static str,
}

/// What an answer carries.
pub(super) enum Content {
    None,
    /// Any bytes, of the type they were stored with.
    Bytes,
    /// Any bytes of any media type, which is stored with them. Generators of clients take one media type for a body.
    AnyBytes,
    /// Text of a media type.
    Text(&'static str),
    /// A document of this kind.
    Document,
    /// JSON of a schema.
    Json(&'static str),
    /// Lines of JSON, each of one of the schemas.
    Lines(&'static [&'static str]),
    /// Lines of a range or scan, or an array of them.
    StreamLines,
    /// A body of lines of JSON, each of the schema; or, for generators that know no lines, of bytes.
    JsonLines(&'static str),
}

/// An answer: status, meaning, content and header fields.
pub(super) type Answer = (u16, &'static str, Content, &'static [&'static str]);

/// Returns an answer with JSON of a schema.
pub(super) const fn answer(status: u16, about: &'static str, schema: &'static str) -> Answer {
    (status, about, Content::Json(schema), &[])
}

/// Returns an answer with JSON of a schema and an `ETag`.
pub(super) const fn tagged(status: u16, about: &'static str, schema: &'static str) -> Answer {
    (status, about, Content::Json(schema), &["ETag"])
}

/// Returns an answer without a body.
pub(super) const fn empty(status: u16, about: &'static str) -> Answer {
    (status, about, Content::None, &[])
}

/// One operation of one path.
pub(super) struct ApiOperation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: &'static [&'static Parameter],
    pub(super) body: Option<(Content, bool)>,
    pub(super) answers: &'static [Answer],
    pub(super) errors: &'static [&'static [ErrorCode]],
}

impl ApiOperation {
    /// Returns whether it works on rows, or says what that costs.
    pub(super) fn is_of_data_plane(&self) -> bool {
        self.path.starts_with("/v1/ns/")
    }

    /// Returns whether it may change something: then an error says whether it did.
    pub(super) fn is_change(&self) -> bool {
        let is_read = ["batch/get", "scan", "explain", "simulate"]
            .iter()
            .any(|read| self.path.ends_with(read));
        !matches!(self.method, "get" | "head") && !is_read
    }
}
