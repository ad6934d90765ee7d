//! What answers at the address of a node and is none, or not the one that was meant.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use umbo_protocol::{
    Answer, AnswerFrame, Hello, NodeError, Outcome, ProtocolVersion, Request, RequestFrame, Welcome,
};
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_store::{Store, StoreError, WriteError};
use umbo_store_remote::{RemoteSettings, RemoteStore};

use crate::cluster::{RealClock, impatient, until};
use crate::rows::{key, read, write};

type Reply = Box<dyn Fn(RequestFrame) -> Vec<Bytes> + Send + Sync>;

/// Makes the map of a cluster of one node at an address.
fn map_of(address: &str) -> ClusterMap {
    let node = ClusterNode::new("node-0", address).expect("a node");
    ClusterMap::create("test", vec![node], 1).expect("a map")
}

/// Connects to whatever `reply` makes of a node: it is given each frame and returns what to send.
async fn stranger(settings: RemoteSettings, reply: Reply) -> Arc<RemoteStore> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let reply = Arc::new(reply);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(serve(stream, Arc::clone(&reply)));
        }
    });
    RemoteStore::connect(settings, map_of(&address.to_string()), Arc::new(RealClock))
}

async fn serve(stream: TcpStream, reply: Arc<Reply>) {
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let reply = Arc::clone(&reply);
        let frames = http_body_util::BodyDataStream::new(request.into_body());
        let mut received = BytesMut::new();
        let answers = frames.flat_map(move |data| {
            received.extend_from_slice(&data.unwrap_or_default());
            let mut answers = Vec::new();
            while let Some(frame) = split(&mut received) {
                let frame = RequestFrame::decode(frame).expect("a frame");
                answers.extend(reply(frame).into_iter().map(message));
            }
            futures_util::stream::iter(answers)
        });
        let answers = answers.map(|data| Ok::<_, std::convert::Infallible>(Frame::data(data)));
        let response = hyper::Response::builder()
            .header("content-type", "application/grpc")
            .body(StreamBody::new(answers));
        async move { response }
    });
    let io = TokioIo::new(stream);
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(io, service).await;
}

/// Takes a whole message off the front.
fn split(received: &mut BytesMut) -> Option<Bytes> {
    let len = received.get(1..5)?;
    let len = u32::from_be_bytes(len.try_into().expect("four bytes")) as usize;
    if received.len() < 5 + len {
        return None;
    }
    let _ = received.split_to(5);
    Some(received.split_to(len).freeze())
}

fn message(frame: Bytes) -> Bytes {
    let mut message = BytesMut::with_capacity(5 + frame.len());
    message.put_u8(0);
    message.put_u32(frame.len() as u32);
    message.put(frame);
    message.freeze()
}

/// Welcomes a hello as a node should, changed as a test likes.
fn welcomed(hello: &Hello, change: impl Fn(&mut Welcome)) -> Bytes {
    let mut welcome = hello.welcome("test", "node-0", 1);
    change(&mut welcome);
    AnswerFrame::welcome(&welcome)
}

fn answered(requests: &[Request], outcome: impl Fn(&Request) -> Outcome) -> Bytes {
    let mut frame = BytesMut::new();
    for request in requests {
        let answer = Answer {
            id: request.id,
            service_time: Duration::ZERO,
            has_more: false,
            rows: 0,
            bytes: 0,
            outcome: outcome(request),
        };
        AnswerFrame::push(&mut frame, answer);
    }
    frame.freeze()
}

async fn failure_of(store: &RemoteStore, words: &str) {
    let failure = || store.nodes()[0].failure.clone().unwrap_or_default();
    until(|| failure().contains(words)).await;
    let refused = read(store, &key("a")).await.expect_err("no node");
    assert!(
        matches!(refused, StoreError::Unavailable { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains(words), "{refused}");
}

/// A welcome that is not one of the node that was meant is refused, and named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_node_is_refused_and_named() {
    type Change = fn(&mut Welcome);
    let changes: [(Change, &str); 3] = [
        (
            |welcome| welcome.cluster_id = "b".to_owned(),
            "answers for \"b\"",
        ),
        (
            |welcome| welcome.node = "node-9".to_owned(),
            "answers for \"node-9\"",
        ),
        (|welcome| welcome.version = ProtocolVersion(7), "version 7"),
    ];
    for (change, words) in changes {
        let reply = move |frame: RequestFrame| {
            let hello = frame.hello.iter();
            hello.map(|hello| welcomed(hello, change)).collect()
        };
        let store = stranger(impatient(), Box::new(reply)).await;
        failure_of(&store, words).await;
    }
    let refusals: [(&str, &str, &str); 2] = [
        ("other", "node-0", "another cluster"),
        ("test", "node-9", "another node"),
    ];
    for (cluster, node, words) in refusals {
        let reply = move |frame: RequestFrame| {
            let hello = frame.hello.iter();
            let welcomes = hello.map(|hello| hello.welcome(cluster, node, 1));
            welcomes
                .map(|welcome| AnswerFrame::welcome(&welcome))
                .collect()
        };
        let store = stranger(impatient(), Box::new(reply)).await;
        failure_of(&store, words).await;
    }
}

/// A node of a version that this side does not speak says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_version_is_refused_and_named() {
    let reply = |frame: RequestFrame| {
        let hello = frame.hello.into_iter();
        let newer = hello.map(|hello| Hello {
            version_min: ProtocolVersion(8),
            version_max: ProtocolVersion(9),
            ..hello
        });
        newer.map(|hello| welcomed(&hello, |_| {})).collect()
    };
    let store = stranger(impatient(), Box::new(reply)).await;
    failure_of(&store, "no common version").await;
}

/// What is no frame ends the connection, before the welcome and after it; nothing is harmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_refused_and_named() {
    let garbage = Bytes::from_static(b"\xff\xff\xff\xff\xff\xff garbage");
    let at_once = {
        let garbage = garbage.clone();
        move |_: RequestFrame| vec![garbage.clone()]
    };
    let store = stranger(impatient(), Box::new(at_once)).await;
    failure_of(&store, "no welcome").await;
    let later = move |frame: RequestFrame| match &frame.hello {
        Some(hello) => vec![welcomed(hello, |_| {})],
        None => vec![garbage.clone()],
    };
    let store = stranger(impatient(), Box::new(later)).await;
    until(|| store.stats().connections_lost > 0).await;
    assert!(read(&*store, &key("a")).await.is_err());
    let unknown = write(&*store, &key("a"), b"v").await.unwrap_err();
    assert!(matches!(
        unknown,
        WriteError::Store(StoreError::Unavailable { .. })
    ));
}

/// What speaks no HTTP/2, or says nothing, is no node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_speaks_something_else_is_no_node() {
    for (greeting, words) in [
        (&b"220 ready\r\n"[..], "no shard node"),
        (b"", "no welcome"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let _ = stream.write_all(greeting).await;
                kept.push(stream);
            }
        });
        let store = RemoteStore::connect(impatient(), map_of(&address), Arc::new(RealClock));
        failure_of(&store, words).await;
    }
}

/// An answer of the wrong kind, or too much of one, is no answer; a write is unknown then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_something_else_is_no_answer() {
    let reply = |frame: RequestFrame| {
        let hello = frame.hello.iter().map(|hello| welcomed(hello, |_| {}));
        let requests: Vec<_> = frame
            .requests
            .into_iter()
            .map(|it| it.expect("usable"))
            .collect();
        let wrong = answered(&requests, |request| match request.ask {
            umbo_protocol::Ask::Probe => Outcome::Status(1, Vec::new()),
            umbo_protocol::Ask::Get(..) => Outcome::Written(Vec::new()),
            _ => Outcome::MultiGot(Vec::new()),
        });
        hello.chain([wrong]).collect()
    };
    let store = stranger(impatient(), Box::new(reply)).await;
    until(|| store.nodes()[0].failure.is_none()).await;
    for _ in 0..2 {
        assert!(read(&*store, &key("a")).await.is_err());
        let error = write(&*store, &key("a"), b"v").await.unwrap_err();
        assert_eq!(error.outcome(), umbo_store::Outcome::Unknown);
    }
    assert_eq!(store.stats().in_flight, 0);
}

/// An older node that does not know what it is asked says so, and goes on with the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_node_refuses_what_it_does_not_know() {
    let reply = |frame: RequestFrame| {
        let hello = frame.hello.iter().map(|hello| welcomed(hello, |_| {}));
        let requests: Vec<_> = frame
            .requests
            .into_iter()
            .map(|it| it.expect("usable"))
            .collect();
        let answers = answered(&requests, |request| match request.ask {
            umbo_protocol::Ask::Get(..) => Outcome::Row(None),
            _ => Outcome::Failed(NodeError::Unsupported),
        });
        hello.chain([answers]).collect()
    };
    let store = stranger(impatient(), Box::new(reply)).await;
    until(|| store.nodes()[0].failure.is_none()).await;
    let error = write(&*store, &key("a"), b"v").await.unwrap_err();
    assert_eq!(error.outcome(), umbo_store::Outcome::NotApplied);
    assert!(error.to_string().contains("does not know"), "{error}");
    assert_eq!(read(&*store, &key("a")).await, Ok(None));
}
