//! The floor of a get: axum routes it, takes the keys from its path and answers a constant.

use axum::Router;
use axum::extract::Path;
use axum::routing::get;

use crate::dataset::VALUE_LEN;

const BODY: [u8; VALUE_LEN] = [b'v'; VALUE_LEN];

/// Returns the router.
pub(super) fn router() -> Router {
    Router::new().route("/v1/ns/{namespace}/kv/{partition}/{sort}", get(answer))
}

async fn answer(Path(_key): Path<(String, String, String)>) -> &'static [u8] {
    &BODY
}
