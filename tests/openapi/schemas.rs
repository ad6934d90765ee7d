//! Schemas of the wire types in the document.

use serde_json::Value;
use umbo_api::{
    admin, backup, batch, cluster, diagnosis, fleet, hot, loads, observe, problem, quota, row,
    running, shed, stream, versions, why,
};
use utoipa::OpenApi;

use crate::content;

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
    quota::UsageHistory,
    loads::LoadSpec,
    loads::LoadInfo,
    loads::LoadList,
    loads::PartInfo,
    loads::SealBody,
    loads::RejectLine,
    versions::VersionList,
    versions::VersionChange,
    admin::NamespaceInfo,
    admin::CompressionSetting,
    admin::NamespaceSize,
    admin::NamespaceSettings,
    admin::NamespaceSpec,
    admin::NamespaceList,
    admin::NamespaceRemoval,
    admin::NamespaceRemoving,
    admin::NewToken,
    admin::CreatedToken,
    admin::OwnGrants,
    admin::TokenList,
    admin::ShardList,
    admin::Health,
    admin::ServiceInfo,
    backup::BackupBegun,
    backup::BackupEnd,
    backup::BackupList,
    backup::CompletedBackup,
    cluster::ClusterStatus,
    diagnosis::Diagnosis,
    hot::HotList,
    hot::HotReport,
    hot::BusyReport,
    hot::HotListed,
    hot::HotListingSpec,
    shed::ShedStatus,
    running::RunningList,
    why::RequestExplanation,
    why::CallerRefusals,
    fleet::FleetList,
    fleet::FleetAnswers,
    observe::HistoryReport,
    observe::HeatReport,
    observe::HeatRowReport,
    observe::EventList,
    quota::PolicyList,
    quota::PolicyChange,
    quota::QuotaUsers,
    quota::SimulateBody,
    quota::SimulateAnswer,
)))]
struct Schemas;

/// Returns the schemas, by name.
pub(crate) fn all() -> Value {
    let document = serde_json::to_value(Schemas::openapi()).unwrap();
    let mut schemas = document["components"]["schemas"].clone();
    write_out_settings(&mut schemas);
    content::merge_stream_lines(&mut schemas);
    schemas
}

/// Writes the fields of the settings out where a namespace is described. By reference they would
/// allow no other field beside them.
fn write_out_settings(schemas: &mut Value) {
    let settings = schemas["NamespaceSettings"]["properties"].clone();
    let info = &mut schemas["NamespaceInfo"];
    let mut written = info["allOf"][1].take();
    let fields = written["properties"].as_object_mut().unwrap();
    fields.extend(settings.as_object().unwrap().clone());
    written["description"] = info["description"].take();
    *info = written;
}
