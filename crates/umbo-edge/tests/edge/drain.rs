//! Shutdown: what is in flight finishes, what idles is closed, what does not end is aborted.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use umbo_edge::{DrainStats, EdgeLimits};

use crate::support::{Server, http2_client, in_time, read_answer, read_to_end};

const WAIT: &[u8] = b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn a_request_in_flight_finishes_and_an_idle_connection_is_closed() {
    let server = Server::start(EdgeLimits::default());
    let (mut fresh, mut kept, mut busy) = (
        server.connect().await,
        server.connect().await,
        server.connect().await,
    );
    kept.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    read_answer(&mut kept).await;
    busy.write_all(WAIT).await.unwrap();
    in_time(server.routes.waiting.notified()).await;

    server.shutdown.cancel();
    assert_eq!(read_to_end(&mut kept).await, b"");
    assert_eq!(read_to_end(&mut fresh).await, b"");
    let mut late = tokio::net::TcpStream::connect(server.address).await.ok();
    if let Some(late) = &mut late {
        // Taken by the kernel before the listener was closed, and never by the server.
        assert_eq!(read_to_end(late).await, b"");
    }
    server.routes.release.notify_one();
    let answer = read_to_end(&mut busy).await;
    assert!(
        answer.ends_with(b"released"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let stats = in_time(server.task).await.unwrap();
    assert_eq!(
        stats,
        DrainStats {
            open: 3,
            aborted: 0
        }
    );
}

#[tokio::test]
async fn an_http2_request_in_flight_finishes_after_the_goodbye() {
    let server = Server::start(EdgeLimits::default());
    let (mut client, connection) = http2_client(server.connect().await).await;
    let connection = tokio::spawn(connection);
    let answer = tokio::spawn(client.send_request(crate::support::get("/wait")));
    in_time(server.routes.waiting.notified()).await;
    server.shutdown.cancel();
    server.routes.release.notify_one();
    assert_eq!(in_time(answer).await.unwrap().unwrap().status(), 200);
    in_time(connection).await.unwrap().unwrap();
    let stats = in_time(server.task).await.unwrap();
    assert_eq!(
        stats,
        DrainStats {
            open: 1,
            aborted: 0
        }
    );
}

#[tokio::test]
async fn what_does_not_end_in_time_is_aborted_and_counted() {
    let limits = EdgeLimits {
        drain_timeout: Duration::from_millis(50),
        ..EdgeLimits::default()
    };
    let server = Server::start(limits);
    let mut socket = server.connect().await;
    socket.write_all(WAIT).await.unwrap();
    in_time(server.routes.waiting.notified()).await;
    let (mut client, connection) = http2_client(server.connect().await).await;
    let connection = tokio::spawn(connection);
    let answer = tokio::spawn(client.send_request(crate::support::get("/wait")));
    in_time(server.routes.waiting.notified()).await;

    assert_eq!(
        server.stop().await,
        DrainStats {
            open: 2,
            aborted: 2
        }
    );
    assert_eq!(read_to_end(&mut socket).await, b"");
    assert!(in_time(answer).await.unwrap().is_err());
    let _ = in_time(connection).await.unwrap();
}

#[tokio::test]
async fn the_rest_of_a_refused_body_does_not_outlast_the_drain() {
    let limits = EdgeLimits {
        drain_timeout: Duration::from_millis(50),
        ..EdgeLimits::default()
    };
    let server = Server::start(limits);
    let mut socket = server.connect().await;
    let head = b"POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\nbegun";
    socket.write_all(head).await.unwrap();
    let answer = read_to_end(&mut socket).await;
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
    // More than is read for nothing, so that the connection is not over yet.
    socket.write_all(&vec![b'x'; 5 << 20]).await.unwrap();
    let observed = server.counts.clone();
    server.stop().await;
    assert_eq!(observed.open.load(std::sync::atomic::Ordering::SeqCst), 0);
}
