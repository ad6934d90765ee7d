//! The routes below the data plane: what this is, health, metrics, the document, and the admin API.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::header::{CONTENT_TYPE, LINK, VARY};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::{HeaderMap, StatusCode};
use umbo_api::ErrorCode;
use umbo_api::admin::{Health, ServiceInfo};
use umbo_bulk::Bulk;
use umbo_dispatcher::Dispatcher;
use umbo_http::RequestError;
use umbo_telemetry::metrics as counters;

use crate::admin::{
    self, PathText, backups, callers, cluster, events, fleet, heat, history, hot, loads, quotas,
    running, shed, usage, why,
};
use crate::admin_error::AdminError;
use crate::diagnosis;
use crate::page;
use crate::scrape;

/// What the handlers share: both planes of the process.
#[derive(Debug, Clone)]
struct Planes(Arc<Bulk>);

impl FromRef<Planes> for Arc<Bulk> {
    fn from_ref(planes: &Planes) -> Self {
        Self::clone(&planes.0)
    }
}

impl FromRef<Planes> for Arc<Dispatcher> {
    fn from_ref(planes: &Planes) -> Self {
        Self::clone(planes.0.dispatcher())
    }
}

/// Routes of the data port, without the data plane itself.
pub(crate) fn data(bulk: &Arc<Bulk>) -> Router {
    common().with_state(Planes(Arc::clone(bulk)))
}

/// Routes of the admin port.
pub(crate) fn admin(bulk: &Arc<Bulk>) -> Router {
    common()
        .route("/metrics", get(metrics))
        .with_state(Planes(Arc::clone(bulk)))
}

/// Declares routes of both ports: a path with the handler of each method. Makes their router, and a list of them that is
/// held against the document.
macro_rules! routes {
    ($($path:literal: $($method:ident $handler:expr),+;)+) => {
        fn routes() -> Router<Planes> {
            Router::new()$(.route($path, MethodRouter::new()$(.$method($handler))+))+
        }

        /// The routes: path and methods.
        #[cfg(test)]
        const ROUTES: &[(&str, &[&str])] = &[$(($path, &[$(stringify!($method)),+])),+];
    };
}

routes! {
    "/": get root;
    "/page": get page::show;
    "/page/{*path}": get page::file;
    "/contract": get contract;
    "/healthz": get health;
    "/readyz": get readiness;
    "/openapi.json": get document;
    "/v1/errors/{code}": get explain;
    "/admin/v1/namespaces": get admin::list_namespaces;
    "/admin/v1/namespaces/{ns}":
        put admin::put_namespace,
        patch admin::change_namespace,
        get admin::describe_namespace,
        delete admin::remove_namespace;
    "/admin/v1/tokens": get admin::list_tokens, post admin::create_token;
    "/admin/v1/tokens/self": get admin::describe_own_grants;
    "/admin/v1/tokens/{id}": delete admin::revoke_token;
    "/admin/v1/callers": get callers::list;
    "/admin/v1/callers/{caller}": get callers::describe;
    "/admin/v1/quotas": get quotas::list_policies;
    "/admin/v1/quotas/{name}":
        get quotas::describe_policy,
        put quotas::put_policy,
        delete quotas::remove_policy;
    "/admin/v1/quotas/simulate": post quotas::simulate;
    "/admin/v1/quotas/{name}/users": get quotas::list_users;
    "/admin/v1/usage": get usage::show;
    "/admin/v1/hot": get hot::show;
    "/admin/v1/hot/busy": get heat::show_busy;
    "/admin/v1/hot/{list}/{*key}": put hot::put, delete hot::remove;
    "/admin/v1/shed": get shed::show;
    "/admin/v1/diagnosis": get admin::diagnosis::show;
    "/admin/v1/why": get why::count_refusals;
    "/admin/v1/why/{request_id}": get why::show_request;
    "/admin/v1/requests": get running::list;
    "/admin/v1/requests/{id}": delete running::kill;
    "/admin/v1/loads": get loads::list;
    "/admin/v1/fleet": get fleet::list;
    "/admin/v1/fleet/{*path}": get fleet::ask;
    "/admin/v1/events": get events::show;
    "/admin/v1/history": get history::show;
    "/admin/v1/heat": get heat::show;
    "/admin/v1/heat/{row}": get heat::describe_row;
    "/admin/v1/metrics": get admin::show_metrics;
    "/admin/v1/shards": get cluster::list_shards;
    "/admin/v1/cluster": get cluster::show;
    "/admin/v1/backups": get backups::list, post backups::begin;
    "/admin/v1/backups/{backup}": put backups::end;
    "/admin/v1/backups/{backup}/{shard}/{piece}": get backups::read;
    "/admin/v1/config": get admin::show_config;
}

fn common() -> Router<Planes> {
    routes()
        .fallback(async || AdminError::from(RequestError::RouteNotFound))
        .method_not_allowed_fallback(async || {
            AdminError::from(RequestError::MethodNotAllowed { allowed: "" })
        })
}

/// Names the service, and links what describes it (RFC 8631). Browsers get the operators' page.
async fn root(headers: HeaderMap) -> Response {
    if page::is_wanted(&headers) {
        return page::document(&headers);
    }
    let links = "</openapi.json>; rel=\"service-desc\", </contract>; rel=\"service-doc\", \
                 </readyz>; rel=\"status\"";
    let info = ServiceInfo {
        name: "umbo".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        about: "A key-value store for derived data: rows are under /v1/ns/{ns}, the admin API is under \
                /admin/v1."
            .to_owned(),
        openapi: "/openapi.json".to_owned(),
        contract: "/contract".to_owned(),
        status: "/readyz".to_owned(),
        page: "/page".to_owned(),
    };
    ([(LINK, links), (VARY, "accept")], axum::Json(info)).into_response()
}

/// The contract for services.
async fn contract() -> impl IntoResponse {
    let markdown = "text/markdown; charset=utf-8";
    ([(CONTENT_TYPE, markdown)], umbo_api::CONTRACT)
}

async fn health() -> axum::Json<Health> {
    axum::Json(Health {
        status: "ok".to_owned(),
        problems: Vec::new(),
    })
}

async fn readiness(State(dispatcher): State<Arc<Dispatcher>>) -> (StatusCode, axum::Json<Health>) {
    let (problems, any_serves) = diagnosis::readiness_problems(&dispatcher);
    let (code, status) = if dispatcher.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if !any_serves || dispatcher.control.records_report().is_stale {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    } else if problems.is_empty() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::OK, "degraded")
    };
    (
        code,
        axum::Json(Health {
            status: status.to_owned(),
            problems: without_reasons(&problems),
        }),
    )
}

/// Returns the problems without their reasons, which name files of the server: they are for the log and the admin API.
fn without_reasons(problems: &[String]) -> Vec<String> {
    let lines = problems.iter().filter_map(|line| line.split(':').next());
    lines.map(str::to_owned).collect()
}

async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], umbo_api::DOCUMENT)
}

async fn explain(PathText(code): PathText) -> Result<String, AdminError> {
    let code: ErrorCode = code.parse().map_err(|_| RequestError::RouteNotFound)?;
    let again = if code.is_retryable() {
        "may help"
    } else {
        "does not help"
    };
    Ok(format!(
        "{} ({})\n\n{}\n\nSending the same request again later {again}.\n",
        code.title(),
        code.status(),
        code.meaning()
    ))
}

async fn metrics(State(bulk): State<Arc<Bulk>>) -> Result<impl IntoResponse, AdminError> {
    let text = scrape::render(&bulk).await?;
    Ok(([(CONTENT_TYPE, counters::CONTENT_TYPE)], text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// Returns whether a path of the document is one of a route: `{*rest}` stands for any end.
    fn is_of(route: &str, path: &str) -> bool {
        let mut segments = path.split('/');
        for part in route.split('/') {
            match segments.next() {
                Some(_) if part.starts_with("{*") => return true,
                Some(segment) if segment == part => {}
                Some(segment) if part.starts_with('{') && segment.starts_with('{') => {}
                _ => return false,
            }
        }
        segments.next().is_none()
    }

    #[test]
    fn the_routes_are_those_of_the_document() {
        let document: Value = serde_json::from_str(umbo_api::DOCUMENT).unwrap();
        let mut described = document["paths"].as_object().unwrap().clone();
        described.retain(|path, _| !path.starts_with("/v1/ns/"));
        for (route, methods) in ROUTES {
            // Files of the page belong to it, and are in no document.
            if *route == "/page/{*path}" {
                continue;
            }
            let paths: Vec<_> = described
                .keys()
                .filter(|path| is_of(route, path))
                .cloned()
                .collect();
            assert!(!paths.is_empty(), "{route} is not in the document");
            for path in paths {
                let item = described.remove(&path).unwrap();
                let found: BTreeSet<_> = item
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(String::as_str)
                    .collect();
                assert_eq!(found, methods.iter().copied().collect(), "{route}: {path}");
            }
        }
        assert!(described.is_empty(), "no routes: {:?}", described.keys());
    }

    #[test]
    fn a_reason_is_not_for_everybody() {
        let problems = ["shard 3 is read-only: No space left (/data/3.redb)".to_owned()];
        assert_eq!(without_reasons(&problems), ["shard 3 is read-only"]);
    }
}
