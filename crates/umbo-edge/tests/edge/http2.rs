//! HTTP/2 with prior knowledge: served, bounded, cut.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;
use umbo_api::{ErrorCode, Problem};
use umbo_edge::EdgeLimits;

use crate::support::{HEAD_LENGTHS, PATIENCE, Server, get, http2_client, in_time, read_to_end};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

async fn body_of(answer: http::Response<hyper::body::Incoming>) -> Bytes {
    in_time(answer.into_body().collect())
        .await
        .unwrap()
        .to_bytes()
}

#[tokio::test]
async fn streams_of_one_connection_are_served_side_by_side() {
    let server = Server::start(EdgeLimits::default());
    let (mut client, connection) = http2_client(server.connect().await).await;
    let connection = tokio::spawn(connection);
    let waiting = tokio::spawn(client.send_request(get("/wait")));
    in_time(server.routes.waiting.notified()).await;
    let answer = client.send_request(get("/who")).await.unwrap();
    let text = String::from_utf8(body_of(answer).await.to_vec()).unwrap();
    assert!(
        text.contains("Http2") && text.contains("is_tls: false"),
        "{text}"
    );
    let answer = client.send_request(get("/stream")).await.unwrap();
    assert!(body_of(answer).await.ends_with(b"line 99\n"));
    // A reset overtakes what has not left yet, the head of the answer included.
    if let Ok(answer) = client.send_request(get("/cut")).await {
        assert!(in_time(answer.into_body().collect()).await.is_err());
    }
    let answer = client.send_request(get("/large")).await.unwrap();
    assert_eq!(body_of(answer).await.len(), 64 << 20);
    server.routes.release.notify_one();
    assert_eq!(
        body_of(in_time(waiting).await.unwrap().unwrap()).await,
        "released"
    );
    drop(client);
    in_time(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn heads_over_the_limits_are_problems_and_the_connection_stays() {
    let server = Server::start(EdgeLimits::default());
    let (mut client, connection) = http2_client(server.connect().await).await;
    let _connection = tokio::spawn(connection);
    let long = get(&format!("/{}", "a".repeat(17 << 10)));
    let mut many = get("/hello");
    for _ in 0..101 {
        many.headers_mut().append("x", "1".parse().unwrap());
    }
    for (request, code) in [
        (long, ErrorCode::UriTooLong),
        (many, ErrorCode::HeadersTooLarge),
    ] {
        let answer = in_time(client.send_request(request)).await.unwrap();
        assert_eq!(answer.status().as_u16(), code.status());
        assert!(!answer.headers().contains_key("connection"));
        let problem: Problem = serde_json::from_slice(&body_of(answer).await).unwrap();
        assert_eq!(problem.code(), Some(code));
    }
    let answer = in_time(client.send_request(get("/hello"))).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_head_has_the_length_of_its_get() {
    let server = Server::start(EdgeLimits::default());
    let (mut client, connection) = http2_client(server.connect().await).await;
    let _connection = tokio::spawn(connection);
    for (path, len) in HEAD_LENGTHS {
        let mut request = get(path);
        let read = in_time(client.send_request(request.clone())).await.unwrap();
        *request.method_mut() = Method::HEAD;
        let answer = in_time(client.send_request(request)).await.unwrap();
        for answer in [&read, &answer] {
            let said = answer.headers().get(header::CONTENT_LENGTH);
            assert_eq!(said.map(|said| said.to_str().unwrap()), len, "{path}");
        }
        assert!(body_of(answer).await.is_empty());
    }
}

#[tokio::test]
async fn a_preface_in_parts_is_one_preface() {
    let server = Server::start(EdgeLimits::default());
    let mut socket = server.connect().await;
    socket.set_nodelay(true).unwrap();
    for part in PREFACE.chunks(5) {
        socket.write_all(part).await.unwrap();
        tokio::task::yield_now().await;
    }
    // An empty SETTINGS, then a frame of a kind that may not come here: GOAWAY and the end.
    socket
        .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    socket
        .write_all(&[0, 0, 0, 0, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    let answer = read_to_end(&mut socket).await;
    assert!(
        answer.len() > 9 && answer[3] == 4,
        "no SETTINGS first: {answer:?}"
    );
}

#[tokio::test]
async fn an_idle_connection_is_said_goodbye_to() {
    let limits = EdgeLimits {
        // Longer than a machine stands still.
        idle_timeout: Duration::from_secs(1),
        // Not the one that ends it: frames without a request are no head in parts.
        header_timeout: PATIENCE * 2,
        ..EdgeLimits::default()
    };
    let server = Server::start(limits);
    let (mut client, connection) = http2_client(server.connect().await).await;
    let connection = tokio::spawn(connection);
    let answer = in_time(client.send_request(get("/hello"))).await.unwrap();
    body_of(answer).await;
    in_time(connection).await.unwrap().unwrap();
    assert!(client.is_closed());
}

#[tokio::test]
async fn a_client_that_opens_no_window_is_cut() {
    let limits = EdgeLimits {
        // Longer than a machine stands still.
        write_timeout: Duration::from_secs(1),
        ..EdgeLimits::default()
    };
    let server = Server::start(limits);
    let (mut client, connection) = http2_client(server.connect().await).await;
    let connection = tokio::spawn(connection);
    let answer = in_time(client.send_request(get("/large"))).await.unwrap();
    in_time(async {
        while server.counts.stalled.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(in_time(answer.into_body().collect()).await.is_err());
    let _ = in_time(connection).await.unwrap();
}
