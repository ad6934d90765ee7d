//! Who gets in where as many connections are open as may be.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use umbo_edge::EdgeLimits;

use crate::support::{PATIENCE, Server, in_time, read_answer, read_to_end};

const HELLO: &[u8] = b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n";

fn limits() -> EdgeLimits {
    EdgeLimits {
        connections_max: 4,
        // None of these opens the door.
        header_timeout: PATIENCE * 2,
        idle_timeout: PATIENCE * 2,
        ..EdgeLimits::default()
    }
}

async fn opened(server: &Server, count: usize) {
    in_time(async {
        while server.counts.open.load(SeqCst) < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn silent_connections_give_way_to_one_that_asks() {
    let server = Server::start(limits());
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(server.connect().await);
    }
    opened(&server, 4).await;
    let mut late = server.connect().await;
    late.write_all(HELLO).await.unwrap();
    assert!(read_answer(&mut late).await.ends_with("hello"));
    assert!(read_to_end(&mut silent[0]).await.is_empty());
    assert!(server.counts.evicted.load(SeqCst) >= 5);
}

#[tokio::test]
async fn a_request_under_way_gives_way_to_nobody() {
    let server = Server::start(limits());
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut socket = server.connect().await;
        socket
            .write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        in_time(server.routes.waiting.notified()).await;
        busy.push(socket);
    }
    let mut late = server.connect().await;
    late.write_all(HELLO).await.unwrap();
    assert_eq!(server.counts.evicted.load(SeqCst), 0);
    server.routes.release.notify_one();
    // The first that has its answer is idle, and gives way.
    assert!(read_answer(&mut late).await.ends_with("hello"));
}

#[tokio::test]
async fn the_first_request_has_the_time_of_a_head_to_arrive() {
    let limits = EdgeLimits {
        // Longer than a machine stands still.
        header_timeout: Duration::from_secs(1),
        idle_timeout: PATIENCE * 2,
        ..EdgeLimits::default()
    };
    let server = Server::start(limits);
    let (.., answer) = tokio::join!(
        server.exchange(b""),
        server.exchange(b"\r\n"),
        server.exchange(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        server.exchange(b"GET /hello HTTP/1.1\r\nhost:"),
    );
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
    // After it, a connection may be silent for as long as it likes, here.
    let mut used = server.connect().await;
    used.write_all(HELLO).await.unwrap();
    read_answer(&mut used).await;
    let other = server.exchange(b"").await;
    assert!(other.is_empty());
    used.write_all(HELLO).await.unwrap();
    read_answer(&mut used).await;
}

#[tokio::test]
async fn an_address_has_no_more_connections_than_it_may() {
    let limits = EdgeLimits {
        connections_max: 100,
        connections_per_address_max: 2,
        ..limits()
    };
    let server = Server::start(limits);
    let mut first = server.connect().await;
    first.write_all(HELLO).await.unwrap();
    read_answer(&mut first).await;
    let mut second = server.connect().await;
    opened(&server, 2).await;
    let mut third = server.connect().await;
    assert!(read_to_end(&mut first).await.is_empty());
    for socket in [&mut second, &mut third] {
        let wait = b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n";
        socket.write_all(wait).await.unwrap();
        in_time(server.routes.waiting.notified()).await;
    }
    assert!(server.exchange(b"").await.is_empty());
    assert_eq!(server.counts.turned_away.load(SeqCst), 1);
}
