//! A small server that answers by script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Response;
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{Client, Options};

/// What a request looked like: method and target, headers, body.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) answers: VecDeque<Response<Body>>,
    pub(crate) seen: Vec<Seen>,
}

pub(crate) type Shared = Arc<Mutex<Script>>;

async fn answer(State(script): State<Shared>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let mut script = script.lock().unwrap();
    script.seen.push(Seen {
        line: format!("{} {}", parts.method, parts.uri),
        headers: parts.headers,
        body,
    });
    script
        .answers
        .pop_front()
        .expect("more requests than answers")
}

pub(crate) async fn serve(answers: impl IntoIterator<Item = Response<Body>>) -> (Client, Shared) {
    serve_with(answers, |_| {}).await
}

pub(crate) async fn serve_with(
    answers: impl IntoIterator<Item = Response<Body>>,
    change: impl FnOnce(&mut Options),
) -> (Client, Shared) {
    let script = Shared::default();
    script.lock().unwrap().answers.extend(answers);
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&script));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut options = Options::new(format!("http://{address}/"));
    options.token = Some("umbo_a_b".to_owned());
    options.seed = Some(1);
    options.retry.wait_first = Duration::from_micros(10);
    // A script has more refusals than a server that is asked on should give.
    options.restraint_factor = 1e9;
    change(&mut options);
    (Client::new(&options).unwrap(), script)
}

pub(crate) fn lines(script: &Shared) -> Vec<String> {
    let script = script.lock().unwrap();
    script.seen.iter().map(|seen| seen.line.clone()).collect()
}

pub(crate) fn header(script: &Shared, at: usize, name: &str) -> Option<String> {
    let script = script.lock().unwrap();
    let value = script.seen[at].headers.get(name)?;
    Some(value.to_str().unwrap().to_owned())
}

pub(crate) fn with(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body.into()).unwrap()
}

pub(crate) fn ok(body: &'static str) -> Response<Body> {
    with(200, &[], body)
}

pub(crate) fn refusal(code: ErrorCode, outcome: Option<Outcome>) -> Response<Body> {
    let mut problem = umbo_api::Problem::new(code, "for a test");
    problem.outcome = outcome;
    problem.retry.after_ms = (code.status() == 503).then_some(1);
    let body = serde_json::to_vec(&problem).unwrap();
    with(code.status(), &[("umbo-request-id", "r1")], body)
}
