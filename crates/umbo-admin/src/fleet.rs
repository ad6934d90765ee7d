//! The fleet: a question to the admin API, put to every dispatcher of the cluster.
//!
//! Owns which of them are known, and their last answers. The members are the presence rows at the home of Umbo's own
//! records; a question goes to the port that a member names in its row. It is a path of the admin API and who asks: the
//! permissions of the caller, never its token. Each dispatcher answers as it would answer that caller itself. Messages
//! about quotas of the scopes `fleet` and `shard` go over the same connections.

mod answer;
mod known;
mod membership;
mod peers;
mod presence;
mod question;
mod quotas;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
#[cfg(feature = "testing")]
use hyper::{server::conn::http2, service::service_fn};
#[cfg(feature = "testing")]
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceExt as _;
use umbo_api::fleet::{
    FleetAnswer, FleetAnswers, FleetList, FleetProcess, ProcessInfo, ProcessState,
};
use umbo_dispatcher::Dispatcher;
use umbo_edge::body::ReplyBody;
use umbo_edge::{Connection, Handler};
use umbo_http::{RequestError, problem};
use umbo_types::Caller;

use self::answer::{FleetRoom, ROOM_BYTES, ServerAnswer, held};
use self::known::KnownProcesses;
use self::membership::Membership;
use self::peers::{ANSWER_LEN_MAX, Peers, Unanswered};
pub use self::peers::{Connecting, PeerConnector, PeerIo};
pub use self::presence::PRESENCE_INTERVAL;
use self::presence::Presence;
pub(crate) use self::presence::{PresenceRows, known_backups};
pub(crate) use self::question::is_of_fleet;
use self::question::{BUSY, NOT_A_QUESTION, QuestionRefusal, WRONG_ROLE};
use self::quotas::QuotaRoom;
use crate::asker::as_asker;

/// Name that the certificate of a dispatcher carries towards other dispatchers, whatever its address.
pub const DISPATCHER_ROLE: &str = "umbo-dispatcher";
/// Time that the other dispatchers have to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Id of a server that has no fleet.
const ALONE: u64 = 0;

/// A dispatcher in its fleet.
#[derive(Debug)]
pub struct FleetView {
    dispatcher: Arc<Dispatcher>,
    about: ProcessInfo,
    /// The routes that answer questions.
    routes: Router,
    /// `None` for a server with its store in this process.
    membership: Option<Arc<Membership>>,
    known: Mutex<KnownProcesses>,
    room: FleetRoom,
    /// Room of messages about quotas.
    quota_room: Arc<QuotaRoom>,
}

/// How other dispatchers reach this one, and this one reaches them.
#[derive(Debug)]
pub struct FleetPlace {
    /// Identifies this process; random, and not 0.
    pub id: u64,
    /// `host:port` at which others reach its port for dispatchers.
    pub address: String,
    /// Makes connections to the others.
    pub connector: Arc<dyn PeerConnector>,
}

/// The answer of a dispatcher to a question and its room, or the reason why it did not answer.
type PeerReply = Result<(ServerAnswer, OwnedSemaphorePermit), Unanswered>;

/// What the servers of the fleet answered, and the room of their answers.
pub(crate) struct FleetReply(FleetAnswers, Vec<OwnedSemaphorePermit>);

impl IntoResponse for FleetReply {
    fn into_response(self) -> axum::response::Response {
        let body =
            serde_json::to_vec(&self.0).expect("an answer is made of texts, numbers and JSON");
        let body = body.into();
        let body = axum::body::Body::from(held(body, self.1));
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl FleetView {
    /// Makes the view of a dispatcher.
    pub(crate) fn new(
        dispatcher: &Arc<Dispatcher>,
        place: Option<FleetPlace>,
        about: ProcessInfo,
        routes: Router,
    ) -> Arc<Self> {
        let membership = place.map(|place| {
            let presence = Presence {
                about: about.clone(),
                address: place.address,
            };
            let peers = Peers::new(place.connector);
            let own = Membership::new(dispatcher, (place.id, presence), peers);
            Arc::new(own)
        });
        Arc::new(Self {
            dispatcher: Arc::clone(dispatcher),
            about,
            routes,
            membership,
            known: Mutex::default(),
            room: FleetRoom::of(ROOM_BYTES),
            quota_room: Arc::default(),
        })
    }

    /// Returns the name that others are told.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// Writes the presence row of this dispatcher, and takes notice of the others. Due each [`PRESENCE_INTERVAL`]. A
    /// failure does no harm: the next call writes the row again. A server alone has the last backups to read only, once.
    pub async fn announce(&self) {
        if let Some(own) = &self.membership {
            // Neither delays the other.
            tokio::join!(own.announce(), self.list());
        } else if let Ok(rows) = PresenceRows::new(&self.dispatcher).read().await {
            *known_backups(&self.dispatcher) = rows.backups.1;
        }
    }

    /// Removes the presence row. If that fails, the row expires. Counters of this dispatcher go to other owners before.
    pub async fn leave(&self) {
        if let Some(own) = &self.membership {
            own.leave().await;
        }
    }

    /// Counts quotas of the scopes `fleet` and `shard` together with the other dispatchers, in an endless loop.
    pub async fn share_quotas(&self) {
        if let Some(own) = &self.membership {
            quotas::exchange(Arc::clone(own), Arc::clone(&self.quota_room)).await;
        }
    }

    /// Lists the fleet.
    pub(crate) async fn list(&self) -> FleetList {
        let members = self.members().await;
        let now_ms = self.now_ms();
        let processes = self.known().update(self.live(members), now_ms);
        FleetList {
            processes: processes.into_iter().map(|(_, process)| process).collect(),
        }
    }

    /// Asks every dispatcher for a path, on behalf of a caller. Last answers are kept of observers of all, and shown to
    /// them only; another caller sees nothing of the servers without a record for it.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        path: &str,
        is_observer: bool,
    ) -> FleetReply {
        // One time for all: the others lose their answers when it is over.
        let own = timeout(ANSWER_TIMEOUT, self.answer(Arc::clone(caller), path));
        let (own, (members, mut replies)) = tokio::join!(own, self.ask_others(caller, path));
        let now_ms = self.now_ms();
        let mut live = self.live(members);
        let self_id = self.membership.as_ref().map_or(ALONE, |own| own.id);
        let in_room = |own: ServerAnswer| {
            let room = self.room.take(own.1.len());
            let refused = |reason| Unanswered {
                reason,
                is_unreached: false,
            };
            room.map(|room| (own, room)).map_err(refused)
        };
        replies.extend(own.ok().map(|own| (self_id, in_room(own))));
        for (id, process) in &mut live {
            if let Some(Ok(_)) = replies.get(id) {
                process.seen_ms = now_ms;
            }
        }
        let processes = self.known().update(live, now_ms);
        let mut rooms = Vec::new();
        // Locked for moments: bodies are long.
        let answer = |(id, mut process): (u64, FleetProcess)| {
            let (error, last) = match replies.remove(&id) {
                Some(Ok((answer, room))) => {
                    rooms.push(room);
                    if is_observer {
                        self.known().keep(id, path, now_ms, &answer);
                    }
                    (None, Some((now_ms, answer)))
                }
                reply => {
                    let failure = reply.and_then(Result::err);
                    // Its row is still there, or the home is away.
                    if failure.as_ref().is_some_and(|one| one.is_unreached) {
                        process.state = ProcessState::Away;
                    }
                    let last = is_observer.then(|| self.known().last_answer(id, path));
                    (failure.map(|one| one.reason), last.flatten())
                }
            };
            FleetAnswer {
                process,
                error,
                status: last.as_ref().map(|(_, (status, _))| *status),
                answered_ms: last.as_ref().map(|(at_ms, _)| *at_ms),
                answer: last.and_then(|(_, (_, body))| as_json(&body)),
            }
        };
        let mut processes: Vec<_> = processes.into_iter().map(answer).collect();
        processes.retain(|one| is_observer || one.status == Some(200));
        FleetReply(FleetAnswers { processes }, rooms)
    }

    /// Asks the members, and returns them with their replies.
    async fn ask_others(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        path: &str,
    ) -> (Vec<(u64, Presence)>, BTreeMap<u64, PeerReply>) {
        let members = self.members().await;
        let mut asking = JoinSet::new();
        for (id, member) in &members {
            let (id, address) = (*id, member.address.clone());
            let (view, caller, path) = (Arc::clone(self), Arc::clone(caller), path.to_owned());
            asking.spawn(async move { (id, view.ask_one(id, &address, &caller, &path).await) });
        }
        let mut replies = BTreeMap::new();
        while let Some(replied) = asking.join_next().await {
            replies.extend(replied);
        }
        (members, replies)
    }

    async fn ask_one(&self, id: u64, address: &str, caller: &Caller, path: &str) -> PeerReply {
        let unasked = |reason: &str| Unanswered {
            reason: reason.to_owned(),
            is_unreached: false,
        };
        let own = self.membership.as_ref();
        let own = own.ok_or_else(|| unasked("this server has no fleet"))?;
        let question = own.key.ask(caller, path, id, own.home_time());
        let question = question.ok_or_else(|| unasked("the question cannot be written"))?;
        let sending = own.send((id, address), question, &self.room, ANSWER_TIMEOUT);
        let reply = sending.await;
        // The connection may be cut.
        if reply.as_ref().is_err_and(|failure| failure.is_unreached) {
            own.peers.forget(id);
        }
        reply
    }

    /// Returns the other members, as the home tells them now or told them last.
    async fn members(&self) -> Vec<(u64, Presence)> {
        match &self.membership {
            None => Vec::new(),
            Some(own) => own.members().await,
        }
    }

    /// Describes this dispatcher, and the members as they were last told.
    fn live(&self, members: Vec<(u64, Presence)>) -> Vec<(u64, FleetProcess)> {
        let (id, told_ms, owners) = match &self.membership {
            None => (ALONE, 0, Vec::new()),
            Some(own) => (own.id, own.told_ms(), own.quotas.core.report().row.owners),
        };
        let others = members.into_iter();
        let others = others.map(|(id, one)| (id, known::live(id, one.about, false, told_ms)));
        let own = known::live(id, self.about.clone(), true, self.now_ms());
        let mut live: Vec<_> = others.chain([(id, own)]).collect();
        for (id, process) in &mut live {
            process.owns_quotas = owners.contains(id);
        }
        live
    }

    /// Answers a question or a message of another dispatcher.
    async fn hear(
        &self,
        head: &Parts,
        body: Incoming,
    ) -> Result<Response<ReplyBody>, QuestionRefusal> {
        let own = self.membership.as_ref().ok_or(NOT_A_QUESTION)?;
        if question::is_message(head) {
            let (digest, message) = own.key.open_message(head, own.id, own.home_time())?;
            let answer = self.quota_room.hear(own, body, digest).await?;
            let (name, value) = own.key.seal(&message, 200, &answer);
            let response = Response::builder().header(name, value);
            return Ok(response.body(answer.into()).unwrap_or_default());
        }
        if head.method != Method::GET {
            return Err(NOT_A_QUESTION);
        }
        let (caller, target, question) = own.key.open(head, own.id, own.home_time())?;
        let open = Arc::clone(&own.open).try_acquire_owned();
        let open = open.map_err(|_| BUSY)?;
        let (status, body) = self.answer(caller, &target).await;
        let room = self.room.take(body.len()).map_err(|_| BUSY)?;
        let (name, value) = own.key.seal(&question, status, &body);
        let response = Response::builder().status(status).header(name, value);
        let body = held(body, (open, room));
        Ok(response.body(body.into()).unwrap_or_default())
    }

    /// Serves the other end of a connection without TLS that a test has made, until it ends.
    #[cfg(feature = "testing")]
    pub async fn serve(self: Arc<Self>, io: impl PeerIo + 'static) {
        let service = service_fn(|request: http::Request<Incoming>| {
            let own = Arc::clone(&self);
            async move {
                let (head, body) = request.into_parts();
                Ok::<_, std::convert::Infallible>(
                    own.hear(&head, body).await.unwrap_or_else(refusal),
                )
            }
        });
        let server = http2::Builder::new(TokioExecutor::new());
        // Its client sees how it ended.
        let _ = server.serve_connection(TokioIo::new(io), service).await;
    }

    /// Answers a question as the routes of this dispatcher do.
    async fn answer(&self, caller: Arc<Caller>, target: &str) -> ServerAnswer {
        let Ok(request) = http::Request::get(target).body(axum::body::Body::empty()) else {
            return refused(&RequestError::RouteNotFound);
        };
        let response = match as_asker(caller, self.routes.clone().oneshot(request)).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        if let Some(error) = head.extensions.get::<Arc<RequestError>>() {
            return refused(error);
        }
        match Limited::new(body, ANSWER_LEN_MAX).collect().await {
            Ok(body) => (head.status.as_u16(), body.to_bytes()),
            Err(error) => refused(&RequestError::Internal(error.to_string())),
        }
    }

    fn now_ms(&self) -> u64 {
        self.dispatcher.clock.wall().as_millis()
    }

    fn known(&self) -> MutexGuard<'_, KnownProcesses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The port for other dispatchers.
impl Handler for FleetView {
    async fn call(
        &self,
        head: &Parts,
        body: Incoming,
        connection: &Arc<Connection>,
    ) -> Response<ReplyBody> {
        let client = connection.client.as_ref();
        if connection.is_tls && !client.is_some_and(|client| client.has_name(DISPATCHER_ROLE)) {
            return refusal(WRONG_ROLE);
        }
        self.hear(head, body).await.unwrap_or_else(refusal)
    }
}

fn refusal(QuestionRefusal(status, reason): QuestionRefusal) -> Response<ReplyBody> {
    let response = Response::builder().status(status);
    let body = Bytes::from_static(reason.as_bytes());
    response.body(body.into()).unwrap_or_default()
}

fn refused(error: &RequestError) -> ServerAnswer {
    let problem = problem::of_row(error);
    let status = error.code().status();
    (
        status,
        serde_json::to_vec(&problem).unwrap_or_default().into(),
    )
}

/// Returns a body of JSON as it is, and any other as a text of JSON.
fn as_json(body: &Bytes) -> Option<Box<RawValue>> {
    let text = || serde_json::value::to_raw_value(&String::from_utf8_lossy(body)).ok();
    serde_json::from_slice(body).ok().or_else(text)
}
