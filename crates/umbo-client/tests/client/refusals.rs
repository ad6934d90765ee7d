//! What refusals slow, and what they do not: over sockets, against a small server that refuses as it is told.
//! How fast the client comes back is a matter of time: `umbo-loadtest check client`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use umbo_api::{ErrorCode, Outcome, Problem};
use umbo_client::{BatchOptions, Client, Error, LocalLimit, Options, PutOptions, QuotaUnit};

/// What refuses a request: its method and path are given.
type Refuse = Box<dyn Fn(&str, &str) -> Option<Problem> + Send + Sync>;

struct Server {
    refuse: Mutex<Refuse>,
    /// When requests came.
    seen: Mutex<Vec<Instant>>,
}

async fn handle(State(server): State<Arc<Server>>, request: Request) -> Response<Body> {
    server.seen.lock().unwrap().push(Instant::now());
    let refused = {
        let refuse = server.refuse.lock().unwrap();
        refuse(request.method().as_str(), request.uri().path())
    };
    match refused {
        Some(problem) => Response::builder()
            .status(problem.status)
            .body(serde_json::to_vec(&problem).unwrap().into())
            .unwrap(),
        None => Response::builder()
            .header("etag", "\"1\"")
            .body(Body::from("{\"end\":{\"rows\":1,\"failed\":0}}\n"))
            .unwrap(),
    }
}

async fn serve(
    refuse: impl Fn(&str, &str) -> Option<Problem> + Send + Sync + 'static,
) -> (Options, Arc<Server>) {
    let server = Arc::new(Server {
        refuse: Mutex::new(Box::new(refuse)),
        seen: Mutex::default(),
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new()
        .fallback(handle)
        .with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut options = Options::new(format!("http://{address}"));
    options.seed = Some(1);
    options.retry.attempts_max = 1;
    (options, server)
}

fn shed(shard: Option<u16>) -> Problem {
    let mut problem = Problem::new(ErrorCode::Overloaded, "for a test");
    problem.outcome = Some(Outcome::NotApplied);
    problem.shard = shard;
    problem
}

fn rejected(policy: &str) -> Problem {
    let mut problem = Problem::new(ErrorCode::QuotaExceeded, "for a test");
    problem.outcome = Some(Outcome::NotApplied);
    problem.policy = Some(policy.to_owned());
    problem
}

fn is_given_up<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::GivenUp { .. }))
}

/// Makes the refusals that the client learns from few beside what the namespace accepted.
async fn warm_up(client: &Client) {
    for _ in 0..10 {
        client.get("n", b"good", b"").await.unwrap();
    }
}

#[tokio::test]
async fn a_shard_that_sheds_slows_its_own_partitions_alone() {
    let (options, server) =
        serve(|_, path| path.starts_with("/v1/ns/n/kv/bad").then(|| shed(Some(3)))).await;
    let client = Client::new(&options).unwrap();
    warm_up(&client).await;
    let mut given_up = 0;
    for round in 0..100 {
        for other in 0..4 {
            // Four of five requests are for the shard that sheds.
            let partition = format!("bad-{other}");
            let answer = client.get("n", partition.as_bytes(), b"").await;
            given_up += usize::from(is_given_up(&answer));
        }
        let good = client.get("n", b"good", b"").await;
        assert!(!is_given_up(&good), "round {round}");
        let written = client
            .put("n", b"good", b"", "v", &PutOptions::default())
            .await;
        assert!(!is_given_up(&written), "round {round}");
    }
    assert!(given_up > 300, "{given_up}");
    assert_eq!(server.seen.lock().unwrap().len(), 610 - given_up);
}

#[tokio::test]
async fn a_policy_that_rejects_slows_what_it_counts_alone() {
    let (options, _server) = serve(|method, _| (method == "PUT").then(|| rejected("writes"))).await;
    let client = Client::new(&options).unwrap();
    warm_up(&client).await;
    let mut given_up = 0;
    for round in 0..200 {
        let partition = format!("p-{round}");
        for _ in 0..4 {
            let written = client
                .put("n", partition.as_bytes(), b"", "v", &PutOptions::default())
                .await;
            given_up += usize::from(is_given_up(&written));
        }
        let read = client.get("n", partition.as_bytes(), b"").await;
        assert!(!is_given_up(&read), "round {round}");
    }
    assert!(given_up > 600, "{given_up}");
}

#[tokio::test]
async fn a_shard_that_sheds_partitions_that_are_all_new_is_still_spared() {
    let (options, server) = serve(|_, _| Some(shed(Some(1)))).await;
    let client = Client::new(&options).unwrap();
    for number in 0..300 {
        let partition = format!("p-{number}");
        client
            .get("n", partition.as_bytes(), b"")
            .await
            .unwrap_err();
    }
    let seen = server.seen.lock().unwrap().len();
    assert!(seen < 60, "{seen}");
}

#[tokio::test]
async fn a_batch_job_keeps_to_its_own_limit_and_counts_how_long_it_waited() {
    let (mut server_options, server) = serve(|_, _| None).await;
    server_options.local_limit = Some(LocalLimit {
        unit: QuotaUnit::Requests,
        rate: 10.0,
    });
    let client = Client::new(&server_options).unwrap();
    assert_eq!(client.held_back().waited, Duration::ZERO);
    let started = Instant::now();
    let options = BatchOptions {
        is_minimal: true,
        ..BatchOptions::default()
    };
    for _ in 0..12 {
        client.batch_write("n", "{}\n", options).await.unwrap();
    }
    // 12 at 10 a second, but for the one that the bucket holds. Most of that is waited for: a request takes less than
    // its tenth of a second on any machine.
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_millis(1_050), "{elapsed:?}");
    let waited = client.held_back().waited;
    assert!(
        waited <= elapsed && waited >= Duration::from_millis(300),
        "{waited:?} of {elapsed:?}"
    );
    assert_eq!(server.seen.lock().unwrap().len(), 12);
    server_options.local_limit = Some(LocalLimit {
        unit: QuotaUnit::Requests,
        rate: 0.0,
    });
    assert!(matches!(
        Client::new(&server_options),
        Err(Error::BadOption(_))
    ));
}
