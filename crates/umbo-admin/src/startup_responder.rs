//! Answers at a port while the dispatcher behind it cannot be opened yet, because no shard node is
//! reachable: health says yes, readiness no, and everything else is refused.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use umbo_api::{ErrorCode, Outcome, Problem};
use umbo_edge::body::ReplyBody;
use umbo_edge::unread_body::drain_request_body;
use umbo_edge::{Connection, Handler};

use crate::service::Service;

/// A port before and after its dispatcher is open.
#[derive(Debug, Default)]
pub struct StartupResponder {
    service: OnceLock<Service>,
}

impl StartupResponder {
    /// Hands requests to `service` from now on. Only the first call counts.
    pub fn open(&self, service: Service) {
        // A second call changes nothing.
        let _ = self.service.set(service);
    }
}

impl Handler for StartupResponder {
    async fn call(
        &self,
        head: &Parts,
        body: Incoming,
        connection: &Arc<Connection>,
    ) -> Response<ReplyBody> {
        if let Some(service) = self.service.get() {
            return service.call(head, body, connection).await;
        }
        let mut response = too_early(head.uri.path());
        drain_request_body(head, Some(body), &mut response).await;
        response
    }
}

fn too_early(path: &str) -> Response<ReplyBody> {
    let (status, kind, body) = match path {
        "/healthz" => (StatusCode::OK, "application/json", HEALTHY.into()),
        "/readyz" => (
            StatusCode::SERVICE_UNAVAILABLE,
            "application/json",
            UNREADY.into(),
        ),
        _ => {
            let detail = "the dispatcher has reached no shard node yet; nothing was begun";
            let mut problem = Problem::new(ErrorCode::ShardUnavailable, detail);
            problem.outcome = Some(Outcome::NotApplied);
            problem.retry.after_ms = Some(1_000);
            let body = serde_json::to_vec(&problem).unwrap_or_default();
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "application/problem+json",
                body,
            )
        }
    };
    let mut response = Response::new(Bytes::from(body).into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

const HEALTHY: &str = "{\"status\":\"ok\",\"problems\":[]}";
const UNREADY: &str =
    "{\"status\":\"unavailable\",\"problems\":[\"no shard node was reached yet\"]}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_there_is_a_dispatcher_only_health_says_yes() {
        for (path, status) in [("/healthz", 200), ("/readyz", 503), ("/v1/ns/a/kv/b", 503)] {
            assert_eq!(too_early(path).status(), status, "{path}");
        }
    }
}
