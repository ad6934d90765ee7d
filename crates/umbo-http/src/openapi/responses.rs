//! Answers of operations in the `OpenAPI` document. Problems stand in its components, each once, named after the
//! first operation that answers so: `GetNotFound`.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Map, Value, json};
use umbo_api::{ErrorCode, problem};

use super::operation::{ApiOperation, Content};
use super::{content, cost, headers};

/// Statuses that are answered before it is known who pays for what.
const BEFORE_ADMISSION: [u16; 5] = [401, 403, 408, 414, 431];

/// The problems of the operations so far, by name.
#[derive(Default)]
pub(super) struct Problems(Map<String, Value>);

impl Problems {
    /// Returns the reference to a problem.
    fn reference(&mut self, operation: &ApiOperation, status: u16, response: Value) -> Value {
        let known = self.0.iter().find(|(_, one)| **one == response);
        let name = known.map_or_else(|| name(operation, status), |(name, _)| name.clone());
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        self.0.insert(name, response);
        reference
    }

    pub(super) fn into_components(self) -> Map<String, Value> {
        self.0
    }
}

fn name(operation: &ApiOperation, status: u16) -> String {
    let reason = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason());
    // The status that a policy may choose for its rejections is in no registry.
    let reason = reason.unwrap_or("Rejected").replace([' ', '-'], "");
    let (first, rest) = operation.id.split_at(1);
    format!("{}{rest}{reason}", first.to_uppercase())
}

/// Returns the answers of an operation, by status.
pub(super) fn of(operation: &ApiOperation, problems: &mut Problems) -> Value {
    let mut responses = Map::new();
    let told: &[&str] = if operation.is_of_data_plane() {
        cost::answer_fields(operation)
    } else {
        &[]
    };
    for (status, about, body, header_names) in operation.answers {
        let varies: &[&str] = match body {
            Content::None => &[],
            _ => &["Vary"],
        };
        let headers = headers::references(&[header_names, told, varies].concat());
        let mut response = json!({"description": about, "headers": headers});
        if !matches!(body, Content::None) {
            response["content"] = content::of(body);
        }
        responses.insert(status.to_string(), response);
    }
    for (status, codes) in codes_by_status(operation) {
        let is_early = BEFORE_ADMISSION.contains(&status);
        let told = if is_early { &[] } else { told };
        let response = problem(operation, status, &codes, told);
        let reference = problems.reference(operation, status, response);
        responses.insert(status.to_string(), reference);
    }
    responses.into()
}

fn codes_by_status(operation: &ApiOperation) -> BTreeMap<u16, Vec<ErrorCode>> {
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in operation.errors.iter().copied().flatten() {
        by_status.entry(code.status()).or_default().push(*code);
        if *code == ErrorCode::QuotaExceeded {
            let codes = by_status.entry(cost::OTHER_STATUS).or_default();
            codes.push(*code);
        }
    }
    if !matches!(operation.method, "get" | "head") {
        let foreign = ErrorCode::ForeignOrigin;
        by_status.entry(foreign.status()).or_default().push(foreign);
    }
    for codes in by_status.values_mut() {
        codes.sort_by_key(|code| code.as_str());
        codes.dedup();
    }
    by_status
}

fn problem(operation: &ApiOperation, status: u16, codes: &[ErrorCode], told: &[&str]) -> Value {
    let about: Vec<String> = codes
        .iter()
        .map(|code| format!("`{code}`: {}", code.meaning()))
        .collect();
    let is_rejection = codes.contains(&ErrorCode::QuotaExceeded);
    let waits: &[&str] = match status {
        _ if is_rejection => cost::WAIT_FIELDS,
        503 | 507 => &["Retry-After", "Umbo-Retry-After-Ms"],
        401 => &["WWW-Authenticate"],
        412 => &["ETag"],
        415 => &["Accept-Encoding"],
        416 => &["Content-Range"],
        _ => &[],
    };
    let outcome: &[&str] = if operation.is_change() {
        &["Umbo-Outcome"]
    } else {
        &[]
    };
    json!({
        "description": about.join("\n\n"),
        "headers": headers::references(&[told, waits, outcome, &["Umbo-Problem", "Vary"]].concat()),
        "content": {
            problem::CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
        }
    })
}
