//! The traits that the edge needs: a handler that answers requests, and an observer that counts
//! events.

use std::future::Future;
use std::io;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use hyper::body::Incoming;
use umbo_api::ErrorCode;

use crate::body::ReplyBody;
use crate::connection::Connection;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Dropped without being finished when the client leaves.
    fn call(
        &self,
        head: &Parts,
        body: Incoming,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;
}

/// Counts events of the edge. Called on rare events only, never once per request.
pub trait Observer: Send + Sync + 'static {
    /// A connection was accepted.
    fn connection_opened(&self) {}
    /// A connection ended.
    fn connection_closed(&self) {}
    /// Connections without a request were closed to make room for others.
    fn evicted(&self, _count: usize) {}
    /// A connection was closed unserved: its address has the maximum number of them, each with a
    /// request.
    fn turned_away(&self) {}
    /// A request was refused before it reached the handler.
    fn refused(&self, _code: ErrorCode) {}
    /// A connection was cut because its client did not take the bytes sent to it.
    fn stalled(&self) {}
    /// A TLS handshake failed or took too long.
    fn handshake_failed(&self, _reason: &str) {}
    /// The system had no socket to give.
    fn accept_failed(&self, _error: &io::Error) {}
}

/// An observer that counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
