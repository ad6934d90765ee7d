//! Where requests enter: the data plane goes to the pipeline, everything else to the axum router.
//!
//! Hot path. The routes of the data plane are recognised here, below the router, because keys are
//! bytes and the router's paths are text, and because it saves a tenth of a get.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, VARY,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;
use umbo_api::fleet::ProcessInfo;
use umbo_bulk::{Bulk, BulkRoute};
use umbo_dispatcher::{Dispatcher, LongPoll, RoutedRequest, request};
use umbo_edge::body::ReplyBody;
use umbo_edge::bounds::COMPRESSIONS_MAX;
use umbo_edge::content_coding::ContentCoding;
use umbo_edge::memory::ConnectionAnswers;
use umbo_edge::unread_body::{Lent, drain_request_body};
use umbo_edge::{Connection, Handler};
use umbo_http::{Fields, RequestError, decode};
use umbo_types::Operation;

use crate::cors::{self, CorsPolicy};
use crate::fleet::{FleetPlace, FleetView};
use crate::foreign_page::{self, HostNames};

/// Answers from this length on are compressed, in bytes: a shorter one fits into a packet as it is.
const COMPRESSED_LEN_MIN: u64 = 1 << 10;
/// Answers the requests of one port.
#[derive(Debug, Clone)]
pub struct Service {
    dispatcher: Arc<Dispatcher>,
    bulk: Arc<Bulk>,
    router: Router,
    /// The dispatchers that operators see through this one.
    fleet: Arc<FleetView>,
    has_data_plane: bool,
    /// `None` if no page of another origin may use the data plane.
    cors: Option<Arc<CorsPolicy>>,
    /// Names that reach it while no token is asked for.
    hosts: Arc<HostNames>,
    /// Permits are answers that are being compressed.
    compressions: Arc<Semaphore>,
}

impl Service {
    /// Makes the service of the data port: data plane, admin API, health and the document.
    pub fn data(bulk: &Arc<Bulk>) -> Self {
        Self::of(bulk, crate::router::data(bulk), true)
    }

    /// Makes the service of the admin port: admin API, health and metrics.
    pub fn admin(bulk: &Arc<Bulk>) -> Self {
        Self::of(bulk, crate::router::admin(bulk), false)
    }

    fn of(bulk: &Arc<Bulk>, router: Router, has_data_plane: bool) -> Self {
        Self {
            dispatcher: Arc::clone(bulk.dispatcher()),
            bulk: Arc::clone(bulk),
            router,
            fleet: Self::join_fleet(bulk, None, ProcessInfo::default()),
            has_data_plane,
            cors: None,
            hosts: Arc::default(),
            compressions: Arc::new(Semaphore::new(COMPRESSIONS_MAX)),
        }
    }

    /// Joins a fleet: operators see all of its dispatchers through each of them.
    #[must_use]
    pub fn with_fleet(mut self, fleet: &Arc<FleetView>) -> Self {
        self.fleet = Arc::clone(fleet);
        self
    }

    /// Returns the view of the fleet of a dispatcher; a server with its store in this process has no place in one.
    /// `about` is what others are told of it.
    pub fn join_fleet(
        bulk: &Arc<Bulk>,
        place: Option<FleetPlace>,
        about: ProcessInfo,
    ) -> Arc<FleetView> {
        let routes = crate::router::admin(bulk);
        FleetView::new(bulk.dispatcher(), place, about, routes)
    }

    /// Allows pages of other origins to use the data plane.
    #[must_use]
    pub fn with_cors(mut self, policy: Option<CorsPolicy>) -> Self {
        self.cors = policy.map(Arc::new);
        self
    }

    /// Lists the names that reach the server while no token is asked for.
    #[must_use]
    pub fn with_hosts(mut self, hosts: &Arc<HostNames>) -> Self {
        self.hosts = Arc::clone(hosts);
        self
    }

    /// Answers a request on a separate connection.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (head, body) = request.into_parts();
        self.answer_from(&head, body, Arc::default()).await
    }

    /// Answers a request. `answers` is what its connection holds of the memory of answers.
    async fn answer_from<B>(
        &self,
        head: &Parts,
        body: B,
        answers: Arc<ConnectionAnswers>,
    ) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let mut response = match &self.cors {
            None => self.answer_parts(head, body, answers).await,
            Some(cors) => {
                let fields = cors.fields(head);
                let mut response = if cors::is_allowed_preflight(head, &fields) {
                    self.preflight(head, answers)
                } else {
                    self.answer_parts(head, body, answers).await
                };
                // There may be a `Vary` already.
                for (name, value) in &fields {
                    response.headers_mut().append(name, value.clone());
                }
                response
            }
        };
        // A client that is told opens its next connection elsewhere; on HTTP/2 the edge tells it.
        if self.dispatcher.is_draining() && head.version < Version::HTTP_2 {
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Answers a browser that asks whether a page may send a request.
    fn preflight(&self, head: &Parts, answers: Arc<ConnectionAnswers>) -> Response<ReplyBody> {
        let started = self.dispatcher.clock.monotonic();
        let fields = Fields::read(&head.headers);
        let operation = Operation::Service;
        let begun = RoutedRequest::begin(&self.dispatcher, operation, &fields, answers, started);
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::NO_CONTENT;
        begun.answer(response.into_parts().0, Bytes::new(), false)
    }

    async fn answer_parts<B>(
        &self,
        head: &Parts,
        mut body: B,
        answers: Arc<ConnectionAnswers>,
    ) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let started = self.dispatcher.clock.monotonic();
        if let Err(foreign) = self.check_sender(head) {
            let refusing = self.turn_away(head, body, answers, started, &foreign);
            return Box::pin(refusing).await;
        }
        let route = if self.has_data_plane {
            decode::route(&head.method, head.uri.path())
        } else {
            None
        };
        match route {
            Some(Ok(route)) => {
                let operation = route.operation;
                let dispatcher = &self.dispatcher;
                let mut response =
                    request::serve(dispatcher, route, head, &mut body, answers, started).await;
                if !matches!(
                    operation,
                    Operation::Get | Operation::Put | Operation::Delete
                ) {
                    self.compress(head, &mut response);
                }
                if !body.is_end_stream() {
                    Box::pin(drain_request_body(head, Some(body), &mut response)).await;
                }
                response
            }
            Some(Err(failure)) => {
                Box::pin(self.turn_away(head, body, answers, started, &failure)).await
            }
            None => Box::pin(self.answer_other(head, body, answers, started)).await,
        }
    }

    /// Answers a request that is for no row: one of the plane of bulk uploads, or of operators.
    async fn answer_other<B>(
        &self,
        head: &Parts,
        mut body: B,
        answers: Arc<ConnectionAnswers>,
        started: Instant,
    ) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let route: Option<Result<BulkRoute<'_>, _>> = if self.has_data_plane {
            umbo_bulk::route(&head.method, head.uri.path())
        } else {
            None
        };
        match route {
            Some(Ok(route)) => {
                let serving = self.bulk.serve(route, head, &mut body, answers, started);
                let mut response = serving.await;
                self.compress(head, &mut response);
                if !body.is_end_stream() {
                    drain_request_body(head, Some(body), &mut response).await;
                }
                response
            }
            Some(Err(failure)) => self.turn_away(head, body, answers, started, &failure).await,
            None => {
                let (lent, mut back) = Lent::new(body);
                let request = Request::from_parts(head.clone(), axum::body::Body::new(lent));
                let mut response = Box::pin(self.route(request, answers, started)).await;
                self.compress(head, &mut response);
                let body = back.try_recv().ok();
                Box::pin(drain_request_body(head, body, &mut response)).await;
                response
            }
        }
    }

    /// Refuses what a web page of another site sent, where no token keeps it away.
    fn check_sender(&self, head: &Parts) -> Result<(), RequestError> {
        if self.dispatcher.control.tokens.is_required() {
            return Ok(());
        }
        foreign_page::check(head, &self.hosts, self.cors.as_deref())
    }

    /// Refuses a request before its route is known.
    async fn turn_away<B>(
        &self,
        head: &Parts,
        body: B,
        answers: Arc<ConnectionAnswers>,
        started: Instant,
        failure: &RequestError,
    ) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let fields = Fields::read(&head.headers);
        let operation = Operation::Service;
        let mut begun =
            RoutedRequest::begin(&self.dispatcher, operation, &fields, answers, started);
        if !head.method.is_safe() {
            begun.changes_records();
        }
        let mut response = begun.refuse(failure);
        drain_request_body(head, Some(body), &mut response).await;
        response
    }

    /// Compresses an answer for a client that asks for that, if the answer is long enough.
    fn compress(&self, head: &Parts, response: &mut Response<ReplyBody>) {
        let headers = response.headers_mut();
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
        let len = response.body().size_hint().exact();
        if head.method == Method::HEAD || len.is_some_and(|len| len < COMPRESSED_LEN_MIN) {
            return;
        }
        let accepted = head.headers.get(ACCEPT_ENCODING);
        let coding = accepted.and_then(ContentCoding::preferred);
        if let Some(coding) = coding
            && let Ok(permit) = Arc::clone(&self.compressions).try_acquire_owned()
        {
            let name = HeaderValue::from_static(coding.as_str());
            response.headers_mut().insert(CONTENT_ENCODING, name);
            response.headers_mut().remove(CONTENT_LENGTH);
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = coding.compress(body, permit);
        }
    }

    /// Answers requests outside of the data plane. These answers are small and held whole.
    async fn route(
        &self,
        mut request: Request<axum::body::Body>,
        answers: Arc<ConnectionAnswers>,
        started: Instant,
    ) -> Response<ReplyBody> {
        request.extensions_mut().insert(Arc::clone(&self.fleet));
        let long_poll = Arc::<LongPoll>::default();
        request.extensions_mut().insert(Arc::clone(&long_poll));
        let operation = if request.uri().path().starts_with("/admin/") {
            Operation::Admin
        } else {
            Operation::Service
        };
        let fields = Fields::read(request.headers());
        let mut begun =
            RoutedRequest::begin(&self.dispatcher, operation, &fields, answers, started);
        begun.waits_by(long_poll);
        if operation == Operation::Admin && !request.method().is_safe() {
            begun.changes_records();
        }
        if operation == Operation::Admin
            && let Err(refusal) = fields.check()
        {
            return begun.refuse(&refusal);
        }
        if let Err(unknown) = ContentCoding::of_body(fields.content_encoding) {
            return begun.refuse(&unknown.into());
        }
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        if let Some(error) = head.extensions.get::<Arc<RequestError>>() {
            let mut response = begun.refuse(error);
            if let Some(allow) = head.headers.get(ALLOW) {
                response.headers_mut().insert(ALLOW, allow.clone());
            }
            return response;
        }
        match body.collect().await {
            Ok(body) => {
                let is_for_operators = !self.has_data_plane || operation == Operation::Admin;
                begun.answer(head, body.to_bytes(), is_for_operators)
            }
            Err(error) => begun.refuse(&RequestError::Internal(error.to_string())),
        }
    }
}

impl Handler for Service {
    // Not an `async fn`, which would copy the answer once more.
    fn call(
        &self,
        head: &Parts,
        body: Incoming,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        let answers = Arc::clone(&connection.answers);
        self.answer_from(head, body, answers)
    }
}
