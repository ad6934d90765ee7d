//! A small server that answers by script: it rejects, sheds and breaks off, which a healthy one
//! will not.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// Method and target.
    pub(crate) line: String,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Answer = Box<dyn FnMut(&Seen) -> Response<Body> + Send>;

/// A server with what it has seen. It ends with the test program.
pub(crate) struct Stub {
    pub(crate) url: String,
    script: Arc<Mutex<Script>>,
}

struct Script {
    answer: Answer,
    seen: Vec<Seen>,
}

impl Stub {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.lock().unwrap().seen.clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }
}

async fn handle(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if parts.uri.path() == "/healthz" {
        // Bulk work asks first whether the server is there.
        return answer(200, "{}");
    }
    let seen = Seen {
        at: Instant::now(),
        line: format!("{} {}", parts.method, parts.uri),
        headers: parts.headers,
        body: axum::body::to_bytes(body, usize::MAX).await.unwrap(),
    };
    let mut script = script.lock().unwrap();
    script.seen.push(seen.clone());
    (script.answer)(&seen)
}

/// An address that nothing else has: on `127.0.0.1` clients of other tests still ask the ports of servers that have ended,
/// and such a port may be the next one that is given.
const ADDRESS: &str = "127.0.0.2:0";

/// Starts a server on a thread of its own.
pub(crate) fn stub(answer: impl FnMut(&Seen) -> Response<Body> + Send + 'static) -> Stub {
    let script = Arc::new(Mutex::new(Script {
        answer: Box::new(answer),
        seen: Vec::new(),
    }));
    let listener = std::net::TcpListener::bind(ADDRESS).unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let state = Arc::clone(&script);
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let router = axum::Router::new().fallback(handle).with_state(state);
            axum::serve(listener, router).await
        })
    });
    Stub { url, script }
}

/// The same for answers to which only line and body matter. Returns the address.
pub(crate) fn serve(
    mut answer: impl FnMut(&str, &[u8]) -> Response<Body> + Send + 'static,
) -> String {
    stub(move |seen| answer(&seen.line, &seen.body)).url
}

pub(crate) fn answer(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder()
        .status(status)
        .body(body.into())
        .unwrap()
}
