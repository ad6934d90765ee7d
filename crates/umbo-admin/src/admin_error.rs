//! How an error travels through the router: as it is, for the service to encode like all others.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use umbo_http::RequestError;

/// Why a request of the router was refused or failed.
#[derive(Debug)]
pub(crate) struct AdminError(RequestError);

impl<E: Into<RequestError>> From<E> for AdminError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Arc::new(self.0));
        response
    }
}
