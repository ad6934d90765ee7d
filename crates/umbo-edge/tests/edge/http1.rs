//! HTTP/1.1 as bytes: what is answered, what is refused and how, what is cut.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use umbo_api::ErrorCode;
use umbo_edge::EdgeLimits;

use crate::support::{
    HEAD_LENGTHS, PATIENCE, Server, in_time, problem_of, read_answer, read_to_end,
};

/// Short enough for a test to see every timeout. A machine that stands still for a moment lets one fire by accident.
fn short() -> EdgeLimits {
    EdgeLimits {
        header_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(400),
        write_timeout: Duration::from_millis(200),
        linger_timeout: Duration::from_millis(500),
        ..EdgeLimits::default()
    }
}

/// The same, but for heads: those of a test that must be served have all the time that they need.
fn short_after_heads() -> EdgeLimits {
    EdgeLimits {
        header_timeout: PATIENCE,
        ..short()
    }
}

#[tokio::test]
async fn requests_are_answered_in_turn_on_one_connection() {
    let server = Server::start(EdgeLimits::default());
    let mut socket = server.connect().await;
    for _ in 0..3 {
        socket
            .write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        assert!(read_answer(&mut socket).await.ends_with("hello"));
    }
    let pipelined =
        b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\nGET /stream HTTP/1.1\r\nhost: a\r\n\r\nGET /";
    socket.write_all(pipelined).await.unwrap();
    let answers = read_answer(&mut socket).await;
    assert!(
        answers.contains("hello"),
        "held back by the half request behind it: {answers}"
    );
}

#[tokio::test]
async fn a_head_has_the_length_of_its_get() {
    let server = Server::start(EdgeLimits::default());
    for (path, len) in HEAD_LENGTHS {
        for method in ["GET", "HEAD"] {
            let request =
                format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            let answer = server.exchange(request.as_bytes()).await;
            let answer = String::from_utf8(answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let said = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            assert_eq!(said, len, "{method} {path}");
            assert!(method == "GET" || body.is_empty());
        }
    }
}

#[tokio::test]
async fn a_head_that_is_no_http_is_told_so() {
    let server = Server::start(EdgeLimits::default());
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/3.7\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nno preface at all\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
    ] {
        let problem = problem_of(&server.exchange(garbage).await);
        assert_eq!(
            problem.code(),
            Some(ErrorCode::InvalidRequest),
            "{garbage:?}"
        );
    }
    assert_eq!(server.counts.refused.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn garbage_after_a_request_does_not_touch_its_answer() {
    let server = Server::start(EdgeLimits::default());
    let answers = server
        .exchange(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n\x01\x02\x03\r\n\r\n")
        .await;
    let text = String::from_utf8(answers).unwrap();
    let second = text.find("hello").expect("the first answer") + "hello".len();
    let problem = problem_of(&text.as_bytes()[second..]);
    assert_eq!(problem.code(), Some(ErrorCode::InvalidRequest));
    // A 400 of the handler's own passes as it is.
    let answer = server
        .exchange(b"GET /refuse HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
    assert!(
        answer.ends_with(b"\r\n\r\n"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn what_is_too_long_is_told_what_is_too_long() {
    let server = Server::start(EdgeLimits::default());
    for (len, is_complete) in [
        (16 << 10, true),
        (17 << 10, true),
        (60 << 10, true),
        (200 << 10, false),
    ] {
        let target = "a".repeat(len);
        let end = if is_complete {
            " HTTP/1.1\r\nhost: a\r\n\r\n"
        } else {
            ""
        };
        let problem = problem_of(
            &server
                .exchange(format!("GET /{target}{end}").as_bytes())
                .await,
        );
        assert_eq!(problem.code(), Some(ErrorCode::UriTooLong), "{len}");
    }
    let target = "a".repeat((16 << 10) - 1);
    let request = format!("GET /{target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(
        server
            .exchange(request.as_bytes())
            .await
            .starts_with(b"HTTP/1.1 200 OK")
    );

    let fields = "x: 1\r\n".repeat(101);
    let long = format!("x: {}\r\n", "a".repeat(33 << 10));
    let endless = format!("x: {}", "a".repeat(300 << 10));
    for headers in [fields, long, endless] {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
        let problem = problem_of(&server.exchange(request.as_bytes()).await);
        assert_eq!(problem.code(), Some(ErrorCode::HeadersTooLarge));
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_is_told_and_silence_is_not() {
    let hasty = Server::start(short());
    for partial in [&b"G"[..], b"PRI * HT", b"GET / HTTP/1.1\r\nhost: a\r\nx"] {
        let problem = problem_of(&hasty.exchange(partial).await);
        assert_eq!(
            problem.code(),
            Some(ErrorCode::RequestTimeout),
            "{partial:?}"
        );
    }
    assert_eq!(hasty.exchange(b"").await, b"");
    assert_eq!(hasty.exchange(b"\r\n").await, b"");
    let server = Server::start(short_after_heads());
    let answer = server
        .exchange(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    assert!(answer.ends_with(b"hello"), "and then silence to the end");
}

#[tokio::test]
async fn a_body_is_bounded_from_its_announcement_on() {
    let server = Server::start(short_after_heads());
    let mut socket = server.connect().await;
    let head = "POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: ";
    socket
        .write_all(format!("{head}101\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let answer = String::from_utf8(read_to_end(&mut socket).await).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 413 "),
        "and never 100: {answer}"
    );

    let mut socket = server.connect().await;
    socket
        .write_all(format!("{head}5\r\n\r\n").as_bytes())
        .await
        .unwrap();
    assert!(
        read_answer(&mut socket)
            .await
            .starts_with("HTTP/1.1 100 Continue")
    );
    socket.write_all(b"abcde").await.unwrap();
    assert!(read_answer(&mut socket).await.ends_with("abcde"));

    let chunked = "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let large = format!("{chunked}c8\r\n{}\r\n0\r\n\r\n", "a".repeat(200));
    assert!(
        server
            .exchange(large.as_bytes())
            .await
            .starts_with(b"HTTP/1.1 413 ")
    );
    let slow = format!("{}5\r\nab", chunked.replace("echo", "hasty"));
    assert!(
        server
            .exchange(slow.as_bytes())
            .await
            .starts_with(b"HTTP/1.1 408 ")
    );
}

#[tokio::test]
async fn an_answer_survives_a_body_that_nobody_reads() {
    let server = Server::start(EdgeLimits::default());
    let mut socket = server.connect().await;
    let head = format!(
        "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        1 << 20
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
    let answer = read_to_end(&mut socket).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 413 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn a_stream_ends_well_or_is_cut_without_its_last_chunk() {
    let server = Server::start(EdgeLimits::default());
    let whole = server
        .exchange(b"GET /stream HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    assert!(whole.ends_with(b"line 99\n\r\n0\r\n\r\n"));
    let cut = server
        .exchange(b"GET /cut HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    assert!(cut.starts_with(b"HTTP/1.1 200") && !cut.ends_with(b"0\r\n\r\n"));
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut() {
    let server = Server::start(short());
    let mut socket = server.connect().await;
    socket
        .write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    in_time(async {
        while server.counts.stalled.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(read_to_end(&mut socket).await.len() < 64 << 20);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() {
    let server = Server::start(EdgeLimits::default());
    let mut socket = server.connect().await;
    socket
        .write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    in_time(server.routes.waiting.notified()).await;
    drop(socket);
    in_time(async {
        while server.routes.dropped.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let server = Server::start(EdgeLimits::default());
    for hosts in ["", "host: a\r\nhost: a\r\n", "Host: a\r\nhost: b\r\n"] {
        let request = format!("GET /hello HTTP/1.1\r\n{hosts}\r\n");
        let problem = problem_of(&server.exchange(request.as_bytes()).await);
        assert_eq!(problem.code(), Some(ErrorCode::InvalidRequest), "{hosts}");
    }
    for request in ["HTTP/1.0\r\n", "HTTP/1.1\r\nhost:\r\nconnection: close\r\n"] {
        let request = format!("GET /hello {request}\r\n");
        let answer = server.exchange(request.as_bytes()).await;
        assert!(answer.ends_with(b"hello"), "{request}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_their_turn() {
    let server = Server::start(EdgeLimits {
        connections_max: 1,
        ..EdgeLimits::default()
    });
    let mut first = server.connect().await;
    first
        .write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    assert!(read_answer(&mut first).await.ends_with("hello"));
    // While it has a request it does not give way.
    first
        .write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    in_time(server.routes.waiting.notified()).await;
    let mut second = server.connect().await;
    second
        .write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    // The server is in this thread: it gets all the turns that it needs.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let early = second.read_u8().now_or_never();
    assert!(early.is_none(), "served beyond the limit");
    drop(first);
    assert!(read_answer(&mut second).await.ends_with("hello"));
}

#[tokio::test]
async fn a_thousand_idle_connections_hinder_nobody() {
    let server = Server::start(EdgeLimits::default());
    let mut idle = Vec::new();
    for _ in 0..1_000 {
        idle.push(server.connect().await);
    }
    let answer = server
        .exchange(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.ends_with(b"hello"));
    let stats = server.stop().await;
    assert!(stats.open >= 1_000 && stats.aborted == 0, "{stats:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_bytes_arrive_the_connection_ends_and_the_server_stays(
        garbage in prop::collection::vec(any::<u8>(), 0..400),
        prefix in prop::sample::select(vec![
            &b""[..],
            b"GET / HTTP/1.1\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        ]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::start(EdgeLimits::default());
            let mut socket = server.connect().await;
            let bytes = [prefix, &garbage].concat();
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
            read_to_end(&mut socket).await;
            let answer = server.exchange(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
            assert!(answer.ends_with(b"hello"));
            assert_eq!(server.stop().await.aborted, 0);
        });
    }
}

#[tokio::test]
async fn a_client_that_sends_a_long_body_before_it_reads_finds_its_refusal() {
    let server = Server::start(EdgeLimits::default());
    let mut socket = server.connect().await;
    let len = 30 << 20;
    let head = format!("POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: {len}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    in_time(socket.write_all(&vec![b'x'; len])).await.unwrap();
    let answer = read_to_end(&mut socket).await;
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
}
