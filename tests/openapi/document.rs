//! The document as a whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use umbo_api::{ErrorCode, header, loads};

use crate::responses::Problems;
use crate::source::{Operation, Parameter, Source};
use crate::{content, responses, schemas, source};

/// Makes the document of its source.
fn document(source: &Source) -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let mut parameters = Map::new();
    let mut problems = Problems::default();
    for operation in &source.operations {
        let item = paths.entry(&operation.path).or_default();
        let described = describe(operation, source, &mut parameters, &mut problems);
        let twice = item.insert(operation.method.clone(), described);
        assert_eq!(twice, None, "{} {}", operation.method, operation.path);
    }
    let tags = source.shared.tags.iter();
    let header = |about| json!({"description": about, "schema": {"type": "string"}});
    let headers = source.shared.headers.iter();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Umbo",
            "version": "1",
            "description": "A shared key-value store for derived data: get, put, range, \
                batch and scan over HTTP. Every refusal is a problem (RFC 9457) that says why.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}
        },
        "servers": [{"url": "http://127.0.0.1:8080"}],
        "security": [{}, {"token": []}],
        "tags": tags.map(|(name, about)| json!({"name": name, "description": about})).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "parameters": parameters,
            "responses": problems.0,
            "headers": headers.map(|(name, about)| (name.clone(), header(about))).collect::<Map<_, _>>(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
    })
}

fn describe(
    operation: &Operation,
    source: &Source,
    shared: &mut Map<String, Value>,
    problems: &mut Problems,
) -> Value {
    let mut item = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": responses::of(operation, &source.shared, problems),
    });
    if !operation.about.is_empty() {
        item["description"] = operation.about.as_str().into();
    }
    let parameters = operation
        .parameters
        .iter()
        .map(|one| parameter(one, shared));
    let parameters: Vec<Value> = parameters.collect();
    if !parameters.is_empty() {
        item["parameters"] = parameters.into();
    }
    if let Some(body) = &operation.body {
        let content = content::of(body.trim_end_matches('?'));
        item["requestBody"] = json!({"required": !body.ends_with('?'), "content": content});
    }
    item
}

/// Returns the reference to a parameter, which stands in the document once; of two that differ under one name the later
/// stands where it is used. Its name says what it is: generators make types of parameters and schemas alike, and some
/// tell names apart without regard to case (`Range` of a header, `range` of a query).
fn parameter(one: &Parameter, shared: &mut Map<String, Value>) -> Value {
    let kind = if one.place == "header" {
        "Header"
    } else {
        "Parameter"
    };
    let name = format!("{}{kind}", one.name);
    let mut written = json!({
        "name": one.name,
        "in": one.place,
        "description": one.about,
        "schema": one.schema,
    });
    if one.is_required {
        written["required"] = true.into();
    }
    let reference = json!({"$ref": format!("#/components/parameters/{name}")});
    let known = shared.entry(name).or_insert_with(|| written.clone());
    if *known == written {
        reference
    } else {
        written
    }
}

/// Depth down to which the text of the document has a line for each field: an operation, a component.
const LINES_DEPTH: usize = 3;

/// Appends a value as text, with a line for each field of its objects to a depth.
fn write(value: &Value, depth: usize, text: &mut String) {
    let Some(fields) = value.as_object().filter(|_| depth > 0) else {
        text.push_str(&value.to_string());
        return;
    };
    text.push('{');
    for (at, (name, field)) in fields.iter().enumerate() {
        text.push_str(if at == 0 { "\n" } else { ",\n" });
        text.push_str(&json!(name).to_string());
        text.push(':');
        write(field, depth - 1, text);
    }
    text.push('}');
}

fn named(text: &str, before: &str) -> BTreeSet<String> {
    let rests = text.split(before).skip(1);
    let names = rests.filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_document_is_what_is_made_of_its_source() {
    let path = source::folder().join("openapi.json");
    let mut text = String::new();
    write(&document(&source::read()), LINES_DEPTH, &mut text);
    text.push('\n');
    if std::env::var_os("UMBO_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == text,
        "openapi.json is not what its source says: UMBO_BLESS=1 writes it"
    );
}

#[test]
fn whatever_is_referred_to_is_there_and_whatever_is_shared_is_referred_to() {
    let document = document(&source::read());
    let text = document.to_string();
    let components = document["components"].as_object().unwrap();
    for kind in ["headers", "parameters", "responses", "schemas"] {
        let there: BTreeSet<_> = components[kind]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        let referred = named(&text, &format!("#/components/{kind}/"));
        let missing: Vec<_> = referred.difference(&there).collect();
        assert!(missing.is_empty(), "no {kind} {missing:?}");
        let idle: Vec<_> = there.difference(&referred).collect();
        // Schemas of lines are named in descriptions.
        assert!(idle.is_empty() || kind == "schemas", "idle {kind} {idle:?}");
    }
}

/// A schema of which `allOf` wants two types is one that nothing satisfies.
#[test]
fn request_units_are_numbers_and_bodies_have_schemas() {
    let document = document(&source::read());
    let schemas = &document["components"]["schemas"];
    for name in ["End", "BatchEnd", "ErrorLine"] {
        let ru = &schemas[name]["properties"]["ru"];
        assert_eq!(ru["type"], "number", "{name}: {ru}");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            let contents = operation["requestBody"]["content"].as_object();
            for (media_type, body) in contents.into_iter().flatten() {
                assert!(body["schema"].is_object(), "{path}: {media_type}");
            }
        }
    }
}

#[test]
fn tags_are_described() {
    let source = source::read();
    for operation in &source.operations {
        let is_known = source.shared.tags.contains_key(&operation.tag);
        assert!(is_known, "{}: {}", operation.path, operation.tag);
    }
}

#[test]
fn every_error_code_can_be_met_somewhere() {
    let source = source::read();
    let met = source.operations.iter().flat_map(|one| &one.errors);
    let met: BTreeSet<&str> = met.map(String::as_str).collect();
    // Of other methods, and of each method that may change something.
    let elsewhere = [ErrorCode::MethodNotAllowed, ErrorCode::ForeignOrigin];
    let codes = ErrorCode::ALL.iter();
    for code in codes.filter(|code| !elsewhere.contains(code)) {
        assert!(met.contains(code.as_str()), "{code} is in no answer");
    }
}

/// Header fields of Umbo's own, and what the servers send of others.
#[test]
fn header_fields_of_umbo_are_described() {
    let source = source::read();
    let described: BTreeSet<String> = source
        .shared
        .headers
        .keys()
        .map(|name| name.to_lowercase())
        .collect();
    for name in [
        header::REQUEST_ID,
        header::CRITICALITY_APPLIED,
        header::EXPIRES_AT,
        header::RETRY_AFTER_MS,
        header::RETRY_TICKET,
        header::PROBLEM,
        header::OUTCOME,
        header::EXISTED,
        header::RU,
        header::REPLAYED,
        header::CHARGED_TO,
        header::QUOTA_STATE,
        header::RATELIMIT,
        header::RATELIMIT_POLICY,
        loads::UPLOAD_COMPLETE,
        loads::UPLOAD_OFFSET,
    ] {
        assert!(described.contains(name), "{name}");
    }
}
