//! How the client behaves towards a server that rejects and sheds: against a small server that
//! answers as it is told.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use futures_util::future::poll_immediate;
use tokio::sync::Notify;
use umbo_api::{ErrorCode, Outcome, Problem};
use umbo_client::{BatchOptions, Client, Error, Options, Payer, PutOptions, QuotaUnit};

/// A request as it came in.
#[derive(Debug, Clone)]
struct Seen {
    at: Instant,
    path: String,
    headers: HeaderMap,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().unwrap())
    }
}

type Answer = Box<dyn FnMut(usize, &Seen) -> Response<Body> + Send>;

struct Server {
    seen: Vec<Seen>,
    answer: Answer,
}

type Shared = Arc<Mutex<Server>>;

async fn handle(State(server): State<Shared>, request: Request) -> Response<Body> {
    let seen = Seen {
        at: Instant::now(),
        path: request.uri().path().to_owned(),
        headers: request.headers().clone(),
    };
    let mut server = server.lock().unwrap();
    let number = server.seen.len();
    server.seen.push(seen.clone());
    (server.answer)(number, &seen)
}

/// Starts a server that answers its requests, numbered from 0.
async fn serve(
    answer: impl FnMut(usize, &Seen) -> Response<Body> + Send + 'static,
) -> (Options, Shared) {
    let server = Arc::new(Mutex::new(Server {
        seen: Vec::new(),
        answer: Box::new(answer),
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new()
        .fallback(handle)
        .with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut options = Options::new(format!("http://{address}"));
    options.seed = Some(1);
    options.retry.wait_first = Duration::from_micros(10);
    (options, server)
}

fn seen(server: &Shared) -> Vec<Seen> {
    server.lock().unwrap().seen.clone()
}

fn ok() -> Response<Body> {
    Response::builder()
        .header("etag", "\"1\"")
        .body(Body::empty())
        .unwrap()
}

fn refusal(status: u16, after_ms: Option<u64>) -> Response<Body> {
    let code = if status == 503 {
        ErrorCode::TooManyRequestsInFlight
    } else {
        ErrorCode::QuotaExceeded
    };
    let mut problem = Problem::new(code, "for a test");
    problem.status = status;
    problem.outcome = Some(Outcome::NotApplied);
    problem.retry.after_ms = after_ms;
    Response::builder()
        .status(status)
        .body(serde_json::to_vec(&problem).unwrap().into())
        .unwrap()
}

fn client(options: &Options) -> Client {
    Client::new(options).unwrap()
}

#[tokio::test]
async fn attempts_share_an_id_are_numbered_and_come_when_told() {
    let (options, server) = serve(|number, _| match number {
        0 => refusal(429, Some(83)),
        1 => refusal(419, Some(31)),
        _ => ok(),
    })
    .await;
    let client = client(&options);
    client.get("n", b"a", b"").await.unwrap();
    client.get("n", b"b", b"").await.unwrap();
    let seen = seen(&server);
    let ids: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("umbo-request-id"))
        .collect();
    assert!(ids[0].is_some() && ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3]);
    let attempts: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("umbo-attempt"))
        .collect();
    assert_eq!(attempts, [None, Some("2"), Some("3"), None]);
    assert!(seen[1].at - seen[0].at >= Duration::from_millis(83));
    assert!(seen[2].at - seen[1].at >= Duration::from_millis(31));
}

#[tokio::test]
async fn a_retry_brings_the_ticket_of_the_rejection_before_it_and_no_other() {
    let (options, server) = serve(|number, _| {
        let mut answer = match number {
            0 | 1 => refusal(429, Some(1)),
            _ => ok(),
        };
        if number < 2 {
            let ticket = format!("ticket-{number}").parse().unwrap();
            answer.headers_mut().insert("umbo-retry-ticket", ticket);
        }
        answer
    })
    .await;
    let client = client(&options);
    client.get("n", b"a", b"").await.unwrap();
    client.get("n", b"a", b"").await.unwrap();
    let seen = seen(&server);
    let tickets: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("umbo-retry-ticket"))
        .collect();
    assert_eq!(tickets, [None, Some("ticket-0"), Some("ticket-1"), None]);
}

#[tokio::test]
async fn one_call_keeps_its_id_and_goes_on_counting() {
    let (options, server) = serve(|_, _| ok()).await;
    let client = client(&options);
    let call = client.one_call(Some("upload-7")).unwrap();
    for _ in 0..2 {
        call.put("n", b"a", b"", "v", &PutOptions::default())
            .await
            .unwrap();
    }
    let made = client.one_call(None).unwrap();
    made.get("n", b"a", b"").await.unwrap();
    assert!(client.one_call(Some("a b")).is_err());
    let seen = seen(&server);
    let ids: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("umbo-request-id").unwrap())
        .collect();
    assert_eq!(ids[..2], ["upload-7", "upload-7"]);
    assert_eq!(ids[2].len(), 26);
    assert_eq!(seen[1].header("umbo-attempt"), Some("2"));
}

#[tokio::test]
async fn who_pays_is_said_with_each_request() {
    let (options, server) = serve(|_, _| ok()).await;
    let client = client(&options);
    let payer = Payer {
        quota_user: Some("search"),
        org: Some("acme"),
        ..Payer::default()
    };
    let paid = client.paid_by(&payer).unwrap();
    paid.get("n", b"a", b"").await.unwrap();
    client.get("n", b"a", b"").await.unwrap();
    let names = ["umbo-quota-user", "umbo-user", "umbo-session", "umbo-org"];
    let seen = seen(&server);
    let said = seen.iter().map(|seen| names.map(|name| seen.header(name)));
    let expected = [[Some("search"), None, None, Some("acme")], [None; 4]];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    let payer = Payer {
        user: Some("a\nb"),
        ..Payer::default()
    };
    assert!(client.paid_by(&payer).is_err());
}

#[tokio::test]
async fn at_most_a_tenth_is_repeated_and_ten_at_once() {
    let (options, server) = serve(|_, _| {
        Response::builder()
            .status(502)
            .body("a proxy's".into())
            .unwrap()
    })
    .await;
    let client = client(&options);
    for _ in 0..100 {
        assert!(client.get("n", b"a", b"").await.is_err());
    }
    // 100 first attempts, 10 a hundred of them, and 1 a second over the 10 seconds of the budget.
    assert_eq!(seen(&server).len(), 120);
}

#[tokio::test]
async fn what_is_mostly_refused_is_given_up_here_and_says_so() {
    for status in [419, 429, 503] {
        let (mut options, server) = serve(move |_, _| refusal(status, None)).await;
        options.retry.attempts_max = 1;
        let client = client(&options);
        let mut given_up = 0;
        for _ in 0..200 {
            match client.get("n", b"a", b"").await.unwrap_err() {
                error @ Error::GivenUp { .. } => {
                    given_up += 1;
                    assert!(
                        error.to_string().contains(&format!("with {status}")),
                        "{error}"
                    );
                    assert_eq!(error.outcome(), Outcome::NotApplied);
                    assert_eq!(error.status(), None);
                }
                error => assert_eq!(error.status(), Some(status)),
            }
        }
        assert_eq!(seen(&server).len() + given_up, 200);
        assert!(given_up > 150, "{given_up}");
        // Another namespace and the admin API have nothing to do with it.
        assert!(!matches!(
            client.get("m", b"a", b"").await,
            Err(Error::GivenUp { .. })
        ));
        assert!(!matches!(client.tokens().await, Err(Error::GivenUp { .. })));
    }
}

#[tokio::test]
async fn what_is_no_overload_holds_nothing_back() {
    let (mut options, server) = serve(|number, _| match number % 4 {
        0 => refusal_of(ErrorCode::KeyNotFound),
        1 => refusal_of(ErrorCode::InvalidKey),
        2 => refusal_of(ErrorCode::Internal),
        // A proxy's, and none of Umbo's.
        _ => Response::builder().status(503).body("busy".into()).unwrap(),
    })
    .await;
    options.retry.attempts_max = 1;
    let client = client(&options);
    for _ in 0..200 {
        let answer = client.get("n", b"a", b"").await;
        assert!(!matches!(answer, Err(Error::GivenUp { .. })), "{answer:?}");
    }
    assert_eq!(seen(&server).len(), 200);
}

fn refusal_of(code: ErrorCode) -> Response<Body> {
    let problem = serde_json::to_vec(&Problem::new(code, "for a test")).unwrap();
    let builder = Response::builder().status(code.status());
    builder.body(problem.into()).unwrap()
}

#[tokio::test]
async fn a_rejected_head_is_repeated_when_told() {
    let (options, server) = serve(|number, _| match number {
        0 => Response::builder()
            .status(429)
            .header("umbo-request-id", "r")
            .header("umbo-retry-after-ms", "40")
            .body(Body::empty())
            .unwrap(),
        _ => ok(),
    })
    .await;
    let found = client(&options).head("n", b"a", b"").await.unwrap();
    assert_eq!(found.unwrap().version, 1);
    let seen = seen(&server);
    assert!(seen[1].at - seen[0].at >= Duration::from_millis(40));
}

#[tokio::test]
async fn waiting_can_be_ended() {
    let asked = Arc::new(Notify::new());
    let (options, server) = serve({
        let asked = Arc::clone(&asked);
        move |_, _| {
            asked.notify_one();
            refusal(429, Some(20_000))
        }
    })
    .await;
    let client = client(&options);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.get("n", b"a", b"").await }
    });
    asked.notified().await;
    client.end_waits();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::QuotaExceeded));
    assert_eq!(seen(&server).len(), 1);
}

/// A server with a bucket of requests, which admits while it is positive; it is told once
/// in requests a second and requests at once.
fn counting(rate: f64, burst: f64) -> impl FnMut(usize, &Seen) -> Response<Body> + Send + 'static {
    let (mut balance, mut at) = (burst, Instant::now());
    move |_, seen| {
        balance = f64::min(burst, balance + (seen.at - at).as_secs_f64() * rate);
        at = seen.at;
        let is_admitted = balance > 0.0;
        balance -= f64::from(u8::from(is_admitted));
        let mut response = if is_admitted {
            Response::builder()
                .body(Body::from("{\"end\":{\"rows\":1,\"failed\":0}}\n"))
                .unwrap()
        } else {
            refusal(429, Some(50))
        };
        let state = format!("p;unit=requests;rate={rate};burst={burst};balance={balance};ms=50");
        let state = state.parse().unwrap();
        response.headers_mut().insert("umbo-quota-state", state);
        response
    }
}

#[tokio::test]
async fn bulk_work_keeps_to_the_budget_that_is_advertised() {
    let (options, server) = serve(counting(100.0, 10.0)).await;
    let options = options.for_bulk();
    let client = client(&options);
    let started = Instant::now();
    let lanes = (0..8).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                let options = BatchOptions {
                    is_minimal: true,
                    ..BatchOptions::default()
                };
                client.batch_write("n", "{}\n", options).await.unwrap();
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
    // 80 requests, of which the bucket gives 10 at once and 70 at 100 a second.
    assert!(started.elapsed() >= Duration::from_millis(690));
    let seen = seen(&server);
    assert!(seen.len() <= 80 + 4, "{} rejections", seen.len() - 80);
    assert!(
        seen.iter()
            .all(|seen| seen.header("umbo-criticality") == Some("sheddable"))
    );
    assert!(seen.iter().all(|seen| seen.path == "/v1/ns/n/batch/write"));
    let pace = client.pace().unwrap();
    assert_eq!(
        (pace.policy.as_str(), pace.unit),
        ("p", QuotaUnit::Requests)
    );
}

#[tokio::test]
async fn work_that_waits_for_its_turn_can_be_told_to_wait_no_longer() {
    let (options, server) = serve(counting(0.01, 1.0)).await;
    let client = client(&options.for_bulk());
    client.get("n", b"a", b"").await.unwrap_err();
    let mut waiting = pin!(client.get("n", b"a", b""));
    assert!(poll_immediate(waiting.as_mut()).await.is_none());
    client.end_waits();
    let error = waiting.await.unwrap_err();
    assert!(matches!(error, Error::WaitEnded), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(seen(&server).len(), 1);
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_does_not_stay_under_way() {
    let (options, _) = serve(counting(1_000.0, 1.0)).await;
    let client = client(&options.for_bulk());
    for _ in 0..20 {
        let call = client.get("n", b"a", b"");
        let _ = tokio::time::timeout(Duration::from_micros(300), call).await;
    }
    let answer = tokio::time::timeout(Duration::from_mins(1), client.get("n", b"a", b"")).await;
    assert!(answer.is_ok(), "it waits for answers that never come");
}
