//! The `OpenAPI` 3.1 document, generated: paths from the tables here, refusals from the error codes,
//! schemas from the wire types. `openapi.json` in the crate of the wire types is a copy of it,
//! which a test holds against this.

mod admin;
mod cluster;
mod content;
mod cost;
mod data;
mod fleet;
mod headers;
mod hot;
mod loads;
mod observe;
mod operation;
mod parameter;
mod quotas;
mod responses;
mod running;
mod shed;
mod versions;
mod why;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use umbo_api::{
    admin as admin_types, backup as backup_types, batch, cluster as cluster_types,
    fleet as fleet_types, hot as hot_types, loads as load_types, observe as observe_types, problem,
    quota, row, running as running_types, shed as shed_types, stream, versions as version_types,
    why as why_types,
};
use utoipa::OpenApi;

use self::operation::{ApiOperation, In, Parameter};
use self::responses::Problems;

#[derive(OpenApi)]
#[openapi(components(schemas(
    problem::Problem,
    row::JsonRow,
    stream::EndLine,
    stream::ErrorLine,
    batch::MultiGetBody,
    batch::MultiGetRow,
    batch::WriteLineSchema,
    batch::WriteRow,
    batch::BatchEndLine,
    batch::ScanBody,
    batch::DeleteRangeAnswer,
    quota::ExplainBody,
    quota::ExplainAnswer,
    quota::UsageAnswer,
    quota::CallerList,
    quota::CallerUsage,
    load_types::LoadSpec,
    load_types::LoadInfo,
    load_types::LoadList,
    load_types::PartInfo,
    load_types::SealBody,
    load_types::RejectLine,
    version_types::VersionList,
    version_types::VersionChange,
    admin_types::NamespaceInfo,
    admin_types::CompressionSetting,
    admin_types::NamespaceSize,
    admin_types::NamespaceSettings,
    admin_types::NamespaceSpec,
    admin_types::NamespaceList,
    admin_types::NamespaceRemoval,
    admin_types::NamespaceRemoving,
    admin_types::NewToken,
    admin_types::CreatedToken,
    admin_types::TokenList,
    admin_types::ShardList,
    admin_types::Health,
    admin_types::ServiceInfo,
    backup_types::BackupBegun,
    cluster_types::ClusterStatus,
    hot_types::HotList,
    hot_types::HotReport,
    hot_types::BusyReport,
    hot_types::HotListed,
    hot_types::HotListingSpec,
    shed_types::ShedStatus,
    running_types::RunningList,
    why_types::RequestExplanation,
    why_types::CallerRefusals,
    fleet_types::FleetList,
    fleet_types::FleetAnswers,
    observe_types::HistoryReport,
    observe_types::HeatReport,
    observe_types::HeatRowReport,
    observe_types::EventList,
    quota::PolicyList,
    quota::PolicyChange,
    quota::QuotaUsers,
    quota::SimulateBody,
    quota::SimulateAnswer,
)))]
struct Schemas;

fn operations() -> impl Iterator<Item = &'static ApiOperation> {
    let data_plane = data::GROUPS.into_iter().flatten().chain(cost::OPERATIONS);
    data_plane
        .chain(loads::OPERATIONS)
        .chain(versions::OPERATIONS)
        .chain(admin::OPERATIONS)
        .chain(cluster::OPERATIONS)
        .chain(quotas::OPERATIONS)
        .chain(hot::GROUPS.into_iter().flatten())
        .chain(shed::OPERATIONS)
        .chain(why::OPERATIONS)
        .chain(running::OPERATIONS)
        .chain(observe::OPERATIONS)
        .chain(fleet::OPERATIONS)
}

/// What the operations are sorted by.
const TAGS: [(&str, &str); 9] = [
    ("rows", "One row by its key."),
    ("many rows", "Ranges, batches and scans."),
    ("loads", "Datasets, uploaded in parts, and versions."),
    ("cost", "What requests cost, and what was spent."),
    ("namespaces", "Sets of rows with settings of their own."),
    ("tokens", "Credentials of callers."),
    ("quotas", "Who may use how much."),
    (
        "operation",
        "Hot keys, overload, shards and nodes, settings, history.",
    ),
    ("service", "What the server is, and whether it serves."),
];

fn tag(path: &str) -> &'static str {
    let is_of = |part: &str| path.contains(part);
    let (name, _) = if path.starts_with("/v1/ns/") {
        match path {
            _ if is_of("/kv/") => TAGS[0],
            _ if is_of("/loads") || is_of("/versions") => TAGS[2],
            _ if is_of("/explain") || is_of("/usage") => TAGS[3],
            _ => TAGS[1],
        }
    } else if let Some(resource) = path.strip_prefix("/admin/v1/") {
        match resource.split('/').next() {
            Some("loads") => TAGS[2],
            Some("namespaces") => TAGS[4],
            Some("tokens") => TAGS[5],
            Some("quotas") => TAGS[6],
            _ => TAGS[7],
        }
    } else {
        TAGS[8]
    };
    name
}

/// What the operations share: each part stands in the document once, and they refer to it.
#[derive(Default)]
struct Components {
    parameters: Map<String, Value>,
    problems: Problems,
}

impl Components {
    /// Returns the reference to a parameter; of two that differ under one name the later stands where it is used.
    /// Its name says what it is: generators make types of parameters and schemas alike, and some tell names apart
    /// without regard to case (`Range` of a header, `range` of a query).
    fn parameter(&mut self, one: &Parameter) -> Value {
        let written = parameter(one);
        let kind = match one.place {
            In::Header | In::RequiredHeader => "Header",
            In::Path | In::Query | In::RequiredQuery => "Parameter",
        };
        let name = format!("{}{kind}", one.name);
        let reference = json!({"$ref": format!("#/components/parameters/{name}")});
        let shared = self
            .parameters
            .entry(name)
            .or_insert_with(|| written.clone());
        if *shared == written {
            reference
        } else {
            written
        }
    }
}

/// Returns the document as text.
pub fn text() -> String {
    document().to_string()
}

/// Returns the document.
fn document() -> Value {
    let mut schemas = serde_json::to_value(Schemas::openapi()).unwrap_or_default();
    write_out_settings(&mut schemas["components"]["schemas"]);
    content::merge_stream_lines(&mut schemas["components"]["schemas"]);
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let mut shared = Components::default();
    for operation in operations() {
        let item = paths.entry(operation.path).or_default();
        item.insert(
            operation.method.to_owned(),
            describe(operation, &mut shared),
        );
    }
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
        "tags": TAGS.map(|(name, about)| json!({"name": name, "description": about})),
        "paths": paths,
        "components": {
            "schemas": schemas["components"]["schemas"],
            "parameters": shared.parameters,
            "responses": shared.problems.into_components(),
            "headers": headers::components(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
    })
}

/// Writes the fields of the settings out where a namespace is described. By reference they would
/// allow no other field beside them.
fn write_out_settings(schemas: &mut Value) {
    let settings = schemas["NamespaceSettings"]["properties"].clone();
    let info = &mut schemas["NamespaceInfo"];
    let mut written = info["allOf"][1].take();
    if let (Some(fields), Value::Object(settings)) =
        (written["properties"].as_object_mut(), settings)
    {
        fields.extend(settings);
    }
    written["description"] = info["description"].take();
    *info = written;
}

fn describe(operation: &ApiOperation, shared: &mut Components) -> Value {
    let mut item = json!({
        "operationId": operation.id,
        "tags": [tag(operation.path)],
        "summary": operation.summary,
        "description": operation.about,
        "responses": responses::of(operation, &mut shared.problems),
    });
    let payer: &[Parameter] = if operation.is_of_data_plane() {
        cost::FIELDS
    } else {
        &[]
    };
    let own = operation.parameters.iter().copied();
    let parameters: Vec<Value> = own.chain(payer).map(|one| shared.parameter(one)).collect();
    if !parameters.is_empty() {
        item["parameters"] = parameters.into();
    }
    if let Some((body, is_required)) = &operation.body {
        item["requestBody"] = json!({"required": is_required, "content": content::of(body)});
    }
    item
}

fn parameter(parameter: &Parameter) -> Value {
    let (place, is_required) = match parameter.place {
        In::Path => ("path", true),
        In::Query => ("query", false),
        In::RequiredQuery => ("query", true),
        In::Header => ("header", false),
        In::RequiredHeader => ("header", true),
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": is_required,
        "description": parameter.about,
        "schema": (parameter.schema)(),
    })
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use umbo_api::ErrorCode;

    use super::*;

    /// The copy in the repository, written by `UMBO_BLESS=1 cargo test -p umbo-http --lib openapi`.
    #[test]
    fn the_copy_in_the_repository_is_this_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../umbo-api/openapi.json");
        let mut text = Vec::new();
        let indent = serde_json::ser::PrettyFormatter::with_indent(b" ");
        let mut writer = serde_json::Serializer::with_formatter(&mut text, indent);
        document().serialize(&mut writer).unwrap();
        text.push(b'\n');
        let text = String::from_utf8(text).unwrap();
        if std::env::var_os("UMBO_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let copy = std::fs::read_to_string(path).unwrap();
        assert!(
            copy == text,
            "openapi.json is not what the code says; see the test's comment"
        );
    }

    /// A schema of which `allOf` wants two types is one that nothing satisfies.
    #[test]
    fn request_units_are_numbers_and_bodies_have_schemas() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        for name in ["End", "BatchEnd", "ErrorLine"] {
            let ru = &schemas[name]["properties"]["ru"];
            assert_eq!(ru["type"], "number", "{name}: {ru}");
        }
        let paths = document["paths"].as_object().unwrap();
        for (path, item) in paths {
            for operation in item.as_object().unwrap().values() {
                assert_eq!(
                    operation["tags"].as_array().map(Vec::len),
                    Some(1),
                    "{path}"
                );
                let Some(content) = operation["requestBody"]["content"].as_object() else {
                    continue;
                };
                for (media_type, body) in content {
                    assert!(body["schema"].is_object(), "{path}: {media_type}");
                }
            }
        }
    }

    #[test]
    fn every_reference_has_its_schema() {
        let text = document().to_string();
        let document = document();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(!document["components"]["schemas"][name].is_null(), "{name}");
        }
    }

    #[test]
    fn every_header_and_shared_parameter_is_described() {
        let (text, document) = (document().to_string(), document());
        for kind in ["headers", "parameters", "responses"] {
            for part in text.split(&format!("#/components/{kind}/")).skip(1) {
                let name = part.split('"').next().unwrap();
                let found = &document["components"][kind][name];
                assert!(!found.is_null(), "{kind}: {name}");
            }
        }
    }

    #[test]
    fn every_error_code_can_be_met_somewhere() {
        let documented: Vec<ErrorCode> = operations()
            .flat_map(|one| one.errors.iter().copied().flatten())
            .copied()
            .collect();
        // What no route of the document answers: other paths, other methods.
        let elsewhere = [
            ErrorCode::RouteNotFound,
            ErrorCode::MethodNotAllowed,
            // Of each method that may change something, not of an operation.
            ErrorCode::ForeignOrigin,
            // The document has no routes of policies yet.
            ErrorCode::QuotaInvalid,
            ErrorCode::QuotaNotFound,
            ErrorCode::QuotaOfFile,
        ];
        for code in ErrorCode::ALL
            .iter()
            .filter(|code| !elsewhere.contains(code))
        {
            assert!(
                documented.contains(code),
                "{code} is in no answer of the document"
            );
        }
    }
}
