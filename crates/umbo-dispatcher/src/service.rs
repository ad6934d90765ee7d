//! Where requests enter: the data plane goes to the pipeline, everything else to the axum router.
//!
//! Hot path. The routes of the data plane are recognised here, below the router, because keys are
//! bytes and the router's paths are text, and because it saves a tenth of a get.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use bytes::Bytes;
use http::header::ALLOW;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response, Version};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tower::ServiceExt as _;
use umbo_types::Operation;
use xxhash_rust::xxh3::xxh3_64;

use crate::decode;
use crate::edge::body::ReplyBody;
use crate::edge::{Connection, Handler};
use crate::encode;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::fields::Fields;
use crate::pipeline;
use crate::pod::Dispatcher;
use crate::random;
use crate::unread::{self, Lent};

/// Answers the requests of one port.
#[derive(Debug, Clone)]
pub struct Service {
    pod: Arc<Dispatcher>,
    router: Router,
    has_data_plane: bool,
}

impl Service {
    /// Makes the service of the data port: data plane, admin API, health and the document.
    pub fn data(pod: &Arc<Dispatcher>) -> Self {
        let router = crate::router::data(pod);
        Self {
            pod: Arc::clone(pod),
            router,
            has_data_plane: true,
        }
    }

    /// Makes the service of the admin port: admin API, health and metrics.
    pub fn admin(pod: &Arc<Dispatcher>) -> Self {
        let router = crate::router::admin(pod);
        Self {
            pod: Arc::clone(pod),
            router,
            has_data_plane: false,
        }
    }

    /// Answers a request. `origin` stands for the connection it came by: who is told to wait for a
    /// quota and comes back by the same one is known again.
    pub async fn answer<B>(&self, request: Request<B>, origin: u64) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let started = self.pod.clock.monotonic();
        let (head, mut body) = request.into_parts();
        let route = if self.has_data_plane {
            decode::route(&head.method, head.uri.path())
        } else {
            None
        };
        match route {
            Some(Ok(route)) => {
                let origin = claimant(&head, origin);
                let work = pipeline::run(&self.pod, route, &head, &mut body, origin, started);
                // On the heap: it is large, and everything around it would be copied with it.
                let mut response = Box::pin(work).await;
                if !body.is_end_stream() {
                    Box::pin(unread::settle(&head, Some(body), &mut response)).await;
                }
                response
            }
            Some(Err(failure)) => {
                let fields = Fields::read(&head.headers);
                let exchange = Exchange::begin(&self.pod, Operation::Service, &fields, 0, started);
                let mut response = encode::reply(exchange, Err(failure));
                Box::pin(unread::settle(&head, Some(body), &mut response)).await;
                response
            }
            None => {
                let (lent, mut back) = Lent::new(body);
                let request = Request::from_parts(head.clone(), axum::body::Body::new(lent));
                let mut response = Box::pin(self.route(request, started)).await;
                let body = back.try_recv().ok();
                Box::pin(unread::settle(&head, body, &mut response)).await;
                response
            }
        }
    }

    /// Answers what is not of the data plane. These answers are small and held whole.
    async fn route(
        &self,
        request: Request<axum::body::Body>,
        started: Instant,
    ) -> Response<ReplyBody> {
        let operation = if request.uri().path().starts_with("/admin/") {
            Operation::Admin
        } else {
            Operation::Service
        };
        let fields = Fields::read(request.headers());
        let exchange = Exchange::begin(&self.pod, operation, &fields, 0, started);
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        if let Some(failure) = head.extensions.get::<Arc<Failure>>() {
            let mut response = encode::reply(exchange, Err((**failure).clone()));
            if let Some(allow) = head.headers.get(ALLOW) {
                response.headers_mut().insert(ALLOW, allow.clone());
            }
            return response;
        }
        match body.collect().await {
            Ok(body) => encode::routed(exchange, head, body.to_bytes()),
            Err(error) => encode::reply(exchange, Err(Failure::Internal(error.to_string()))),
        }
    }
}

impl Handler for Service {
    async fn call(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Response<ReplyBody> {
        // The address is the connection's alone as long as it lives, and costs nothing to read. That
        // another has it afterwards is right: clients that make a connection for each attempt are
        // known again as one of many, where nobody would be.
        let origin = random::mixed(Arc::as_ptr(connection).addr() as u64);
        self.answer(request, origin).await
    }
}

/// Returns who is told to wait: by the connection in the upper half, by what is asked in the lower.
/// Those who share a connection of HTTP/2 are told apart by what they ask alone.
fn claimant(head: &Parts, origin: u64) -> u64 {
    let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let asked = xxh3_64(target.as_bytes());
    let connection = if head.version < Version::HTTP_2 {
        origin
    } else {
        origin ^ asked
    };
    connection << 32 | asked >> 32
}
