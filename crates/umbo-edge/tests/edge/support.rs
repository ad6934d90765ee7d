//! A server on loopback with a handler of a few routes, and raw sockets to speak to it.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_api::{ErrorCode, Problem};
use umbo_edge::body::{
    BodyError, BodyLimits, BodyRoom, InFlightCounter, ReplyAborted, ReplyBody, read_bounded,
};
use umbo_edge::bounds::BODY_PARTS;
use umbo_edge::memory::CallerMemory;
use umbo_edge::{Connection, DrainStats, EdgeLimits, Handler, Observer};
use umbo_tls::TlsSource;
use umbo_types::Operation;

/// Bound of every wait for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Longest body that the echo route reads.
pub(crate) const ECHO_LEN_MAX: u64 = 100;

/// Answers `/hello`, `/who`, `/echo`, `/hasty`, `/wait`, `/large`, `/empty`, `/nothing`, `/stream`, `/cut`.
#[derive(Default)]
pub(crate) struct Routes {
    /// Requests that have entered `/wait`.
    pub(crate) waiting: Arc<Notify>,
    /// Lets `/wait` go on.
    pub(crate) release: Arc<Notify>,
    /// Requests dropped before they were answered.
    pub(crate) dropped: Arc<AtomicUsize>,
}

struct DropCounter(Arc<AtomicUsize>, bool);

impl Drop for DropCounter {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

impl Handler for Routes {
    async fn call(
        &self,
        head: &Parts,
        body: Incoming,
        connection: &Arc<Connection>,
    ) -> Response<ReplyBody> {
        let mut counter = DropCounter(self.dropped.clone(), false);
        let response = match head.uri.path() {
            "/who" => {
                let named = |name| {
                    connection
                        .client
                        .as_ref()
                        .is_some_and(|one| one.has_name(name))
                };
                let who =
                    ["shard-7", "shard-8"].map(|name| format!("named {name}: {}", named(name)));
                let who = format!("{connection:?} {}", who.join(", "));
                Response::new(ReplyBody::from(Bytes::from(who)))
            }
            "/echo" => echo(body, PATIENCE).await,
            "/hasty" => echo(body, Duration::from_millis(50)).await,
            "/wait" => {
                self.waiting.notify_one();
                self.release.notified().await;
                text("released")
            }
            "/large" => Response::new(ReplyBody::from(Bytes::from(vec![b'x'; 64 << 20]))),
            "/refuse" => status(StatusCode::BAD_REQUEST, ReplyBody::Empty),
            "/empty" => Response::new(ReplyBody::Full(Bytes::new())),
            "/nothing" => status(StatusCode::NO_CONTENT, ReplyBody::Empty),
            "/stream" => lines(false),
            "/cut" => lines(true),
            "/forever" => pending().await,
            _ => text("hello"),
        };
        counter.1 = true;
        response
    }
}

fn text(text: &'static str) -> Response<ReplyBody> {
    Response::new(ReplyBody::from(Bytes::from_static(text.as_bytes())))
}

fn status(status: StatusCode, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// Requests that nobody counts.
#[derive(Debug)]
struct Uncounted;

impl InFlightCounter for Uncounted {
    fn request_ended(&self, _: Operation) {}

    fn gives_way(&self) -> bool {
        false
    }
}

async fn echo(mut body: Incoming, timeout: Duration) -> Response<ReplyBody> {
    let limits = BodyLimits {
        len_max: ECHO_LEN_MAX,
        timeout,
    };
    let room = BodyRoom {
        memory: &CallerMemory::new(1 << 20, BODY_PARTS),
        caller: 0,
        patience: Duration::ZERO,
        requests: &Uncounted,
    };
    match read_bounded(&mut body, limits, &room).await {
        Ok((bytes, _)) => Response::new(ReplyBody::from(bytes)),
        Err(BodyError::TooLarge { .. }) => status(StatusCode::PAYLOAD_TOO_LARGE, ReplyBody::Empty),
        Err(BodyError::TimedOut { .. }) => status(StatusCode::REQUEST_TIMEOUT, ReplyBody::Empty),
        Err(_) => status(StatusCode::BAD_REQUEST, ReplyBody::Empty),
    }
}

fn lines(is_cut: bool) -> Response<ReplyBody> {
    let lines = (0..100).map(|number| Ok(Bytes::from(format!("line {number}\n"))));
    let end = is_cut.then_some(Err(ReplyAborted));
    Response::new(ReplyBody::stream(stream::iter(lines.chain(end))))
}

/// Counts what the edge tells.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) refused: Mutex<Vec<ErrorCode>>,
    pub(crate) stalled: AtomicUsize,
    pub(crate) failed_handshakes: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) evicted: AtomicUsize,
    pub(crate) turned_away: AtomicUsize,
}

impl Observer for Counts {
    fn connection_opened(&self) {
        self.open.fetch_add(1, SeqCst);
    }

    fn connection_closed(&self) {
        self.open.fetch_sub(1, SeqCst);
    }

    fn evicted(&self, count: usize) {
        self.evicted.fetch_add(count, SeqCst);
    }

    fn turned_away(&self) {
        self.turned_away.fetch_add(1, SeqCst);
    }

    fn refused(&self, code: ErrorCode) {
        self.refused.lock().unwrap().push(code);
    }

    fn stalled(&self) {
        self.stalled.fetch_add(1, SeqCst);
    }

    fn handshake_failed(&self, _reason: &str) {
        self.failed_handshakes.fetch_add(1, SeqCst);
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) routes: Arc<Routes>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<DrainStats>,
}

impl Server {
    pub(crate) fn start(limits: EdgeLimits) -> Self {
        Self::start_with(limits, None)
    }

    pub(crate) fn start_with(limits: EdgeLimits, tls: Option<Arc<TlsSource>>) -> Self {
        let listener = umbo_edge::bind(([127, 0, 0, 1], 0).into(), 1_024).unwrap();
        let address = listener.local_addr().unwrap();
        let (routes, counts) = (Arc::new(Routes::default()), Arc::new(Counts::default()));
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(umbo_edge::serve(
            listener,
            tls,
            routes.clone(),
            limits,
            shutdown.clone(),
            counts.clone(),
        ));
        Self {
            address,
            routes,
            counts,
            shutdown,
            task,
        }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a new connection and returns all that comes back until its end.
    pub(crate) async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut socket = self.connect().await;
        socket.write_all(bytes).await.unwrap();
        read_to_end(&mut socket).await
    }

    /// Shuts down and waits for the end.
    pub(crate) async fn stop(self) -> DrainStats {
        self.shutdown.cancel();
        in_time(self.task).await.unwrap()
    }
}

/// Waits for what must come.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("took too long")
}

/// Reads until the other side closes; a reset counts as closing.
pub(crate) async fn read_to_end<S: AsyncRead + Unpin>(socket: &mut S) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = in_time(socket.read_to_end(&mut bytes)).await;
    bytes
}

/// Reads one answer with a `content-length`, or a whole chunked one.
pub(crate) async fn read_answer<S: AsyncRead + Unpin>(socket: &mut S) -> String {
    let mut bytes = Vec::new();
    in_time(async {
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let len = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let is_whole = match len {
                    Some(len) => body.len() >= len.parse().unwrap(),
                    None => body.ends_with("0\r\n\r\n") || head.starts_with("HTTP/1.1 100"),
                };
                if is_whole {
                    return text;
                }
            }
            let mut piece = [0; 1_024];
            let len = socket.read(&mut piece).await.unwrap();
            assert!(len > 0, "closed after {text:?}");
            bytes.extend_from_slice(&piece[..len]);
        }
    })
    .await
}

/// Asserts that these bytes are one problem answer, and returns its problem.
pub(crate) fn problem_of(answer: &[u8]) -> Problem {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {text:?}"));
    let problem: Problem = serde_json::from_str(body).unwrap_or_else(|_| panic!("{text:?}"));
    assert!(
        head.starts_with(&format!("HTTP/1.1 {} ", problem.status)),
        "{head}"
    );
    for field in [
        format!("{}: application/problem+json", header::CONTENT_TYPE),
        format!("content-length: {}", body.len()),
        format!("umbo-request-id: {}", problem.request_id),
        "connection: close".to_owned(),
    ] {
        assert!(head.contains(&field), "{field} is not in {head}");
    }
    problem
}

/// Makes a GET request.
pub(crate) fn get(path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://localhost{path}");
    Request::builder().uri(uri).body(Empty::new()).unwrap()
}

/// What an answer to HEAD says of its length, by path: as GET would, where GET says it.
pub(crate) const HEAD_LENGTHS: [(&str, Option<&str>); 4] = [
    ("/hello", Some("5")),
    ("/empty", Some("0")),
    ("/nothing", None),
    ("/stream", None),
];

/// Speaks HTTP/2 on a socket. The second part is to be driven.
pub(crate) async fn http2_client<S>(
    socket: S,
) -> (
    SendRequest<Empty<Bytes>>,
    http2::Connection<TokioIo<S>, Empty<Bytes>, TokioExecutor>,
)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
        .await
        .unwrap()
}
