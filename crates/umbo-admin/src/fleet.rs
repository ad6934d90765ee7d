//! The fleet: a question to the admin API, put to every dispatcher of the cluster.
//!
//! Owns which of them are known, and their last answers. A question is a path of the admin API and who asks: the
//! permissions of the caller, never its token. Each dispatcher answers as it would answer that caller itself.

mod answer;
mod known;
mod question;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use serde_json::value::RawValue;
use tokio::time::timeout;
use tower::ServiceExt as _;
use umbo_api::fleet::{FleetAnswer, FleetAnswers, FleetList, FleetProcess, ProcessInfo};
use umbo_dispatcher::Dispatcher;
use umbo_http::{RequestError, problem};
use umbo_store::{AnswerQuestion, Fleet, FleetMember};
use umbo_types::Caller;

use self::answer::ServerAnswer;
use self::known::KnownProcesses;
use self::question::Question;
use crate::asker::as_asker;

/// Time that the other dispatchers have to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer to another dispatcher, in bytes.
const ANSWER_LEN_MAX: usize = 3 << 20;
/// Id of a server that has no fleet.
const ALONE: u64 = 0;

/// A dispatcher in its fleet.
#[derive(Debug)]
pub struct FleetView {
    dispatcher: Arc<Dispatcher>,
    fleet: Option<Arc<dyn Fleet>>,
    about: ProcessInfo,
    answers: Arc<Answers>,
    known: Mutex<KnownProcesses>,
}

/// Answers questions with the routes of the admin API.
#[derive(Debug)]
struct Answers(Router);

impl FleetView {
    /// Makes the view of a dispatcher, which joins its fleet; a server with its store in this process has none.
    pub(crate) fn new(
        dispatcher: &Arc<Dispatcher>,
        fleet: Option<Arc<dyn Fleet>>,
        about: ProcessInfo,
        routes: Router,
    ) -> Arc<Self> {
        let answers = Arc::new(Answers(routes));
        if let Some(fleet) = &fleet {
            let told = serde_json::to_vec(&about).unwrap_or_default();
            fleet.join(told.into(), Arc::clone(&answers) as Arc<dyn AnswerQuestion>);
        }
        Arc::new(Self {
            dispatcher: Arc::clone(dispatcher),
            fleet,
            about,
            answers,
            known: Mutex::default(),
        })
    }

    /// Lists the fleet.
    pub(crate) async fn list(&self) -> FleetList {
        let members = match &self.fleet {
            Some(fleet) => fleet.members().await,
            None => Vec::new(),
        };
        let now_ms = self.dispatcher.clock.wall().as_millis();
        let live = self.live(members, now_ms);
        let processes = self.known().update(live, now_ms);
        FleetList {
            processes: processes.into_iter().map(|(_, process)| process).collect(),
        }
    }

    /// Asks every dispatcher for a path, on behalf of a caller.
    pub(crate) async fn ask(&self, caller: &Caller, path: &str) -> FleetAnswers {
        let question = Question::new(caller, path);
        // One time for all: the others lose their answers when it is over.
        let own = timeout(ANSWER_TIMEOUT, self.answers.answer_to(&question));
        let asked = async {
            match &self.fleet {
                Some(fleet) => fleet.ask(question.to_bytes(), ANSWER_TIMEOUT).await,
                None => Vec::new(),
            }
        };
        let (own, asked) = tokio::join!(own, asked);
        let now_ms = self.dispatcher.clock.wall().as_millis();
        let (members, replies): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let replies: Vec<(u64, Bytes)> = members
            .iter()
            .zip(replies)
            .filter_map(|(member, reply)| Some((member.incarnation, reply?)))
            .collect();
        let live = self.live(members, now_ms);
        let mut known = self.known();
        for (id, process) in &live {
            if let (true, Ok(own)) = (process.is_self, &own) {
                known.answered(*id, path, now_ms, own.clone());
            }
        }
        for (id, reply) in replies {
            if let Some(answer) = question::read_reply(&reply) {
                known.answered(id, path, now_ms, answer);
            }
        }
        let processes = known.update(live, now_ms);
        let answer = |(id, process): (u64, FleetProcess)| {
            let last = known.last_answer(id, path);
            FleetAnswer {
                process,
                status: last.as_ref().map(|last| last.answer.0),
                answered_ms: last.as_ref().map(|last| last.at_ms),
                answer: last.and_then(|last| as_json(&last.answer.1)),
            }
        };
        FleetAnswers {
            processes: processes.into_iter().map(answer).collect(),
        }
    }

    /// Describes the dispatchers that are connected now, by incarnation; this one is always among them.
    fn live(&self, members: Vec<FleetMember>, now_ms: u64) -> Vec<(u64, FleetProcess)> {
        let mut live: Vec<_> = members
            .into_iter()
            .map(|member| {
                let about = if member.is_self {
                    self.about.clone()
                } else {
                    serde_json::from_slice(&member.about).unwrap_or_default()
                };
                let id = member.incarnation;
                (id, known::live(id, about, member.is_self, now_ms))
            })
            .collect();
        if !live.iter().any(|(_, process)| process.is_self) {
            live.push((ALONE, known::live(ALONE, self.about.clone(), true, now_ms)));
        }
        live
    }

    fn known(&self) -> MutexGuard<'_, KnownProcesses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    /// Answers a question as the routes of this dispatcher do.
    async fn answer_to(&self, question: &Question) -> ServerAnswer {
        let Some((caller, request)) = question.request() else {
            return refused(&RequestError::RouteNotFound);
        };
        let routed = as_asker(caller, self.0.clone().oneshot(request)).await;
        let response = match routed {
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
}

#[async_trait]
impl AnswerQuestion for Answers {
    async fn answer(&self, question: Bytes) -> Bytes {
        let answer = match Question::read(&question) {
            Some(question) => self.answer_to(&question).await,
            None => refused(&RequestError::RouteNotFound),
        };
        question::reply(&answer)
    }
}

fn refused(error: &RequestError) -> ServerAnswer {
    let problem = problem::of_part(error, None);
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
