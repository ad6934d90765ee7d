//! Request bodies in JSON: one object, and the keys of a list.

use umbo_api::batch::KeyFields;
use umbo_rows::line::json_problem;
use umbo_types::Key;

use crate::request_error::RequestError;

/// Reads a JSON object. An array of the same values in their order is refused, although serde would
/// accept it.
pub fn json_object<'a, T>(text: &'a [u8]) -> Result<T, RequestError>
where
    T: serde::Deserialize<'a>,
{
    if text.trim_ascii_start().first() == Some(&b'[') {
        return Err(RequestError::BadBody(
            "expected an object, not a list".to_owned(),
        ));
    }
    serde_json::from_slice(text).map_err(|error| RequestError::BadBody(json_problem(&error)))
}

/// Reads a key of a list; `index` is its place.
pub fn key(index: usize, fields: &KeyFields) -> Result<Key, RequestError> {
    let at = |problem: String| RequestError::BadBody(format!("key {index}: {problem}"));
    let (partition, sort) = fields.key().map_err(|error| at(error.to_string()))?;
    Key::new(partition, sort).map_err(|error| at(error.to_string()))
}
