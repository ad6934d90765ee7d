//! Answers of operations in the document. Problems stand in its components, each once, named after the first operation
//! that answers so: `GetNotFound`.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Map, Value, json};
use umbo_api::{ErrorCode, problem};

use crate::content;
use crate::source::{Operation, Shared};

/// Header fields of every answer.
const ANY: &str = "Umbo-Request-Id Umbo-RU";
/// Statuses that are answered before it is known who pays for what.
const BEFORE_ADMISSION: [u16; 5] = [401, 403, 408, 414, 431];
/// Statuses that are about a row that was read.
const AFTER_READ: [u16; 4] = [404, 406, 412, 416];
/// Status of a rejection by a policy that says so, instead of 429.
const OTHER_STATUS: u16 = 419;

/// The problems of the operations so far, by name.
#[derive(Default)]
pub(crate) struct Problems(pub(crate) Map<String, Value>);

impl Problems {
    /// Returns the reference to a problem.
    fn reference(&mut self, operation: &Operation, status: u16, response: Value) -> Value {
        let known = self.0.iter().find(|(_, one)| **one == response);
        let name = known.map_or_else(|| name(operation, status), |(name, _)| name.clone());
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        self.0.insert(name, response);
        reference
    }
}

fn name(operation: &Operation, status: u16) -> String {
    let status = StatusCode::from_u16(status).unwrap();
    // The status that a policy may choose for its rejections is in no registry.
    let reason = status.canonical_reason().unwrap_or("Rejected");
    let (first, rest) = operation.id.split_at(1);
    format!(
        "{}{rest}{}",
        first.to_uppercase(),
        reason.replace([' ', '-'], "")
    )
}

/// Returns the answers of an operation, by status.
pub(crate) fn of(operation: &Operation, shared: &Shared, problems: &mut Problems) -> Value {
    let mut responses = Map::new();
    for (status, answer) in &operation.answers {
        let of_body = answer
            .content
            .as_ref()
            .map_or("", |_| operation.bodies.as_str());
        let own = shared.words(&[&answer.headers, of_body]);
        let headers = references(shared, operation.headers.iter().chain(&own));
        let mut response = json!({"description": answer.about, "headers": headers});
        if let Some(body) = &answer.content {
            response["content"] = content::of(body);
        }
        responses.insert(status.clone(), response);
    }
    for (status, codes) in codes_by_status(operation) {
        let response = problem(operation, shared, status, &codes);
        let reference = problems.reference(operation, status, response);
        responses.insert(status.to_string(), reference);
    }
    responses.into()
}

/// Returns references to the descriptions of these header fields, and of those that every answer has.
fn references<'a>(shared: &Shared, names: impl Iterator<Item = &'a String>) -> Value {
    let of_any = ANY.split(' ').map(str::to_owned);
    let reference = |name: String| {
        assert!(shared.headers.contains_key(&name), "no header field {name}");
        let reference = format!("#/components/headers/{name}");
        (name, json!({"$ref": reference}))
    };
    names
        .cloned()
        .chain(of_any)
        .map(reference)
        .collect::<Map<_, _>>()
        .into()
}

fn codes_by_status(operation: &Operation) -> BTreeMap<u16, Vec<ErrorCode>> {
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    let mut add = |status, code| by_status.entry(status).or_default().push(code);
    for name in &operation.errors {
        let code: ErrorCode = name.parse().unwrap_or_else(|_| panic!("no error {name}"));
        add(code.status(), code);
        if code == ErrorCode::QuotaExceeded {
            add(OTHER_STATUS, code);
        }
    }
    if !matches!(operation.method.as_str(), "get" | "head") {
        let foreign = ErrorCode::ForeignOrigin;
        add(foreign.status(), foreign);
    }
    for codes in by_status.values_mut() {
        codes.sort_by_key(|code| code.as_str());
        codes.dedup();
    }
    by_status
}

fn problem(operation: &Operation, shared: &Shared, status: u16, codes: &[ErrorCode]) -> Value {
    let about = codes
        .iter()
        .map(|code| format!("`{code}`: {}", code.meaning()));
    let is_rejection = codes.contains(&ErrorCode::QuotaExceeded);
    let of_status = if is_rejection {
        "rejected".to_owned()
    } else {
        status.to_string()
    };
    let of_status = shared.problems.get(&of_status).map_or("", String::as_str);
    let is_read = operation
        .parameters
        .iter()
        .any(|one| one.name == "Cache-Control");
    let of_read = if is_read && AFTER_READ.contains(&status) {
        shared.problems["read"].as_str()
    } else {
        ""
    };
    let own = shared.words(&[of_status, of_read, &shared.problems["any"]]);
    let is_early = BEFORE_ADMISSION.contains(&status);
    let told = operation.headers.iter().filter(|_| !is_early);
    json!({
        "description": about.collect::<Vec<_>>().join("\n\n"),
        "headers": references(shared, told.chain(&own)),
        "content": {
            problem::CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
        }
    })
}
