//! Connections to the other dispatchers: one of HTTP/2 to each, kept until it fails.
//!
//! Requests share the connection of their peer, so a question that waits delays no other request. A connection that is
//! found broken is made once more.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{self, OwnedSemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answer::FleetRoom;

/// Longest answer of a dispatcher, in bytes.
pub(super) const ANSWER_LEN_MAX: usize = 3 << 20;

/// How often a connection is tried, also while no question is open: one frame.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long its peer may take to answer; then it is closed, and the next question makes another.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a failed attempt to connect stands for those who wait for it.
const FAILURE_TIME: Duration = Duration::from_secs(1);

/// A connection as a byte stream.
pub trait PeerIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerIo for T {}

/// A connection in the making; the error is in words.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn PeerIo>, String>> + Send + 'a>>;

/// Makes connections to other dispatchers.
pub trait PeerConnector: Send + Sync + fmt::Debug {
    /// Connects to a dispatcher within a bounded time, and checks that its certificate is of a dispatcher. `address` is
    /// `host:port`.
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a>;
}

/// The connections to other dispatchers.
#[derive(Debug)]
pub(super) struct Peers {
    connector: Arc<dyn PeerConnector>,
    by_id: Mutex<BTreeMap<u64, Arc<Peer>>>,
}

#[derive(Debug, Default)]
struct Peer {
    /// Locked while the connection is made: all requests wait for the same one.
    path: sync::Mutex<PeerPath>,
}

#[derive(Debug, Default)]
struct PeerPath {
    connection: Option<PeerConnection>,
    /// When no connection could be made, and why.
    failed: Option<(Instant, String)>,
}

#[derive(Debug)]
struct PeerConnection {
    sender: SendRequest<Full<Bytes>>,
    /// Moves the bytes, and ends with the connection.
    _task: JoinSet<()>,
}

/// Why a dispatcher gave no answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// In words, with its address.
    pub(super) reason: String,
    /// Whether it was not reached, or not in time; it may have left then.
    pub(super) is_unreached: bool,
}

impl Peers {
    pub(super) fn new(connector: Arc<dyn PeerConnector>) -> Self {
        Self {
            connector,
            by_id: Mutex::default(),
        }
    }

    /// Connects to a dispatcher unless it is connected.
    pub(super) async fn reach(&self, id: u64, address: &str) -> Result<(), Unanswered> {
        let peer = Arc::clone(self.lock().entry(id).or_default());
        let connected = peer.connection(&*self.connector, address).await;
        connected.map(drop).map_err(|error| Unanswered {
            reason: format!("{address}: {error}"),
            is_unreached: true,
        })
    }

    /// Sends a request to a dispatcher, and returns its answer with the room that it takes. The error names the address
    /// and the reason.
    pub(super) async fn send(
        &self,
        id: u64,
        address: &str,
        request: Request<Bytes>,
        room: &FleetRoom,
    ) -> Result<(response::Parts, Bytes, OwnedSemaphorePermit), Unanswered> {
        let peer = Arc::clone(self.lock().entry(id).or_default());
        let request = request.map(Full::new);
        let unanswered = |is_unreached| {
            move |error: String| Unanswered {
                reason: format!("{address}: {error}"),
                is_unreached,
            }
        };
        let named = unanswered(true);
        let connected = peer.connection(&*self.connector, address).await;
        let (mut sender, is_new) = connected.map_err(named)?;
        let mut response = sender.send_request(request.clone()).await;
        if response.is_err() && !is_new {
            // The connection was lost since its last request.
            let connected = peer.connection(&*self.connector, address).await;
            (sender, _) = connected.map_err(named)?;
            response = sender.send_request(request).await;
        }
        let (head, body) = response
            .map_err(|error| named(in_words(&error)))?
            .into_parts();
        let announced = body.size_hint().upper();
        let len = announced.map_or(ANSWER_LEN_MAX, |len| {
            len.min(ANSWER_LEN_MAX as u64) as usize
        });
        let room = room.take(len).map_err(unanswered(false))?;
        let body = Limited::new(body, len).collect().await;
        let body = body.map_err(|error| named(in_words(&*error)))?;
        Ok((head, body.to_bytes(), room))
    }

    /// Closes the connection to a dispatcher, once the requests that share it have ended.
    pub(super) fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// Closes the connections to dispatchers that have left.
    pub(super) fn keep(&self, is_member: impl Fn(u64) -> bool) {
        self.lock().retain(|id, _| is_member(*id));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Peer>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Returns the open connection, or a new one, and whether it is new.
    async fn connection(
        &self,
        connector: &dyn PeerConnector,
        address: &str,
    ) -> Result<(SendRequest<Full<Bytes>>, bool), String> {
        let mut path = self.path.lock().await;
        let open = path.connection.as_ref();
        if let Some(open) = open.filter(|one| !one.sender.is_closed()) {
            return Ok((open.sender.clone(), false));
        }
        // The attempt of another request has just failed. One attempt for each that waited would take longer than they
        // have time.
        if let Some((at, error)) = &path.failed
            && at.elapsed() < FAILURE_TIME
        {
            return Err(error.clone());
        }
        let connected = connector.connect(address).await;
        path.failed = connected
            .as_ref()
            .err()
            .map(|error| (Instant::now(), error.clone()));
        let io = TokioIo::new(connected?);
        // Packets to it may vanish without an error, as after a partition.
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(io)
            .await;
        let (sender, driving) = handshake.map_err(|error| in_words(&error))?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            // Its requests are told the error too.
            let _ = driving.await;
        });
        let made = path.connection.insert(PeerConnection {
            sender,
            _task: task,
        });
        Ok((made.sender.clone(), true))
    }
}

/// Returns an error with all its causes.
fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::Response;
    use hyper::body::Incoming;
    use hyper::server::conn::http2 as server;
    use hyper::service::service_fn;
    use tokio::io::DuplexStream;
    use tokio::task::AbortHandle;

    use super::*;

    /// A dispatcher that answers each request with its path.
    #[derive(Debug, Default)]
    struct Echo {
        connected: AtomicUsize,
        refused: AtomicUsize,
        serving: Mutex<Option<AbortHandle>>,
        is_away: AtomicBool,
        /// Ends of connections that are held open and not read.
        mute: Mutex<Option<Vec<DuplexStream>>>,
    }

    impl PeerConnector for Echo {
        fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
            Box::pin(async move {
                if self.is_away.load(Ordering::SeqCst) {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                    return Err(format!("no way to {address}"));
                }
                self.connected.fetch_add(1, Ordering::SeqCst);
                let (near, far) = tokio::io::duplex(1 << 16);
                if let Some(mute) = &mut *self.mute.lock().unwrap() {
                    mute.push(far);
                    return Ok(Box::new(near) as Box<dyn PeerIo>);
                }
                let echo = service_fn(|request: Request<Incoming>| async move {
                    let path = request.uri().path().to_owned();
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(path))))
                });
                let builder = server::Builder::new(TokioExecutor::new());
                let task = tokio::spawn(builder.serve_connection(TokioIo::new(far), echo));
                *self.serving.lock().unwrap() = Some(task.abort_handle());
                Ok(Box::new(near) as Box<dyn PeerIo>)
            })
        }
    }

    fn peers_of(echo: &Arc<Echo>) -> Peers {
        Peers::new(Arc::clone(echo) as Arc<dyn PeerConnector>)
    }

    async fn ask(peers: &Peers, id: u64) -> Result<Bytes, String> {
        let request = Request::get("http://umbo-dispatcher/x").body(Bytes::new());
        let room = FleetRoom::of(1 << 10);
        let answer = peers.send(id, "there:1", request.unwrap(), &room).await;
        answer
            .map(|(_, body, _)| body)
            .map_err(|failure| failure.reason)
    }

    #[tokio::test]
    async fn a_connection_is_kept_and_made_again_when_it_is_lost() {
        let echo = Arc::new(Echo::default());
        let peers = peers_of(&echo);
        let connected = || echo.connected.load(Ordering::SeqCst);
        let (one, other) = tokio::join!(ask(&peers, 1), ask(&peers, 1));
        assert_eq!((one, other), (Ok("/x".into()), Ok("/x".into())));
        ask(&peers, 1).await.unwrap();
        assert_eq!(connected(), 1);
        ask(&peers, 2).await.unwrap();
        assert_eq!(connected(), 2, "each peer has its own");
        echo.serving.lock().unwrap().take().unwrap().abort();
        ask(&peers, 2).await.unwrap();
        assert_eq!(connected(), 3);
        peers.keep(|id| id == 1);
        ask(&peers, 2).await.unwrap();
        assert_eq!(connected(), 4, "it had left");
        peers.forget(2);
        peers.reach(2, "there:1").await.unwrap();
        ask(&peers, 2).await.unwrap();
        assert_eq!(connected(), 5, "it was forgotten");
        peers.keep(|_| false);
        echo.is_away.store(true, Ordering::SeqCst);
        assert_eq!(
            ask(&peers, 1).await,
            Err("there:1: no way to there:1".to_owned())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_stands_for_all_that_wait_for_it() {
        let echo = Arc::new(Echo::default());
        echo.is_away.store(true, Ordering::SeqCst);
        let peers = peers_of(&echo);
        let (one, other) = tokio::join!(ask(&peers, 1), ask(&peers, 1));
        assert_eq!((one.is_err(), one), (true, other));
        assert_eq!(echo.refused.load(Ordering::SeqCst), 1);
        echo.is_away.store(false, Ordering::SeqCst);
        tokio::time::advance(FAILURE_TIME).await;
        assert!(ask(&peers, 1).await.is_ok());
    }

    #[tokio::test]
    async fn an_answer_that_has_no_room_is_not_read() {
        let echo = Arc::new(Echo::default());
        let (peers, room) = (peers_of(&echo), FleetRoom::of(3));
        let request = || Request::get("http://umbo-dispatcher/x").body(Bytes::new());
        let send = |id| peers.send(id, "there:1", request().unwrap(), &room);
        let first = send(1).await.unwrap();
        let refused = send(2).await.unwrap_err();
        assert!(refused.reason.contains("too long"), "{refused:?}");
        assert!(
            !refused.is_unreached,
            "it is not away for the lack of room here"
        );
        drop(first);
        assert!(send(2).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_peer_says_nothing_is_closed() {
        let echo = Arc::new(Echo::default());
        *echo.mute.lock().unwrap() = Some(Vec::new());
        let peers = peers_of(&echo);
        let lost = ask(&peers, 1).await.unwrap_err();
        assert!(lost.starts_with("there:1: "), "{lost}");
        *echo.mute.lock().unwrap() = None;
        assert!(ask(&peers, 1).await.is_ok());
    }
}
