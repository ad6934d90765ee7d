//! The remote store against a node that the test simulates, over a connection in memory and in simulated time: what
//! is sent, when and in which order, and how failures of the node or the connection are handled.
//!
//! This file is the node's end of a connection.

mod greetings;
mod large;
mod losses;
mod order;
mod records;
mod strangers;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::time::TokioClock;
pub(crate) use crate::time::until;
use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use umbo_protocol::{
    Answer, AnswerWriter, Ask, Assembly, Decoder, DispatcherFrame, Hello, NodeStamp, Outcome,
    ReceiveWindow, Request, StatusOfNode, WINDOW_LEN, Welcome,
};
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_store::{RecordsRevision, StoreReport};
use umbo_store_remote::{Connector, Io, RemoteSettings, RemoteStore, Transport};

/// Bytes that a connection in memory can hold.
const PIPE_LEN: usize = 64 << 10;

#[derive(Debug)]
struct Pipes(mpsc::UnboundedSender<DuplexStream>);

#[async_trait]
impl Connector for Pipes {
    async fn connect(&self, _host: &str, _port: u16) -> io::Result<Box<dyn Io>> {
        let (own, other) = tokio::io::duplex(PIPE_LEN);
        let sent = self.0.send(other);
        sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(Box::new(own))
    }
}

/// Settings with short waits, under which no connection is closed for the slowness of a test.
pub(crate) fn settings() -> RemoteSettings {
    RemoteSettings {
        connect_timeout: Duration::from_secs(10),
        grace: Duration::from_secs(10),
        probe_timeout: Duration::from_secs(10),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
        seed: Some(7),
        ..RemoteSettings::default()
    }
}

/// The nodes that a store dials.
pub(crate) struct Peers(mpsc::UnboundedReceiver<DuplexStream>);

impl Peers {
    /// Returns a store of a cluster of one node with one shard, and its peers.
    pub(crate) fn of(mut settings: RemoteSettings) -> (Arc<RemoteStore>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        settings.transport = Transport::Other(Arc::new(Pipes(sender)));
        let node = ClusterNode::new("node-0", "node-0.example:1").expect("a node");
        let map = ClusterMap::create("test", vec![node], 1).expect("a map");
        let store = RemoteStore::connect(settings, map, Arc::new(TokioClock::new()));
        (store, Self(receiver))
    }

    /// Waits for the next connection.
    pub(crate) async fn next(&mut self) -> Peer {
        let io = self.0.recv().await.expect("the store dials");
        Peer {
            io,
            decoder: Decoder::of_dispatcher(),
            writer: AnswerWriter::new(WINDOW_LEN as u32),
            window: ReceiveWindow::new(WINDOW_LEN as u32),
            assembly: Assembly::default(),
            requests: VecDeque::new(),
            cancelled: VecDeque::new(),
            began: Instant::now()
                .checked_sub(Duration::from_secs(1_000))
                .expect("a while ago"),
            map_version: 1,
            records: RecordsRevision::default(),
            is_granting: true,
        }
    }

    /// Waits for the next connection and welcomes it.
    pub(crate) async fn welcomed(&mut self) -> Peer {
        let mut peer = self.next().await;
        let hello = peer.hello().await;
        peer.welcome(&hello.welcome("test", "node-0", 1)).await;
        peer
    }
}

/// Returns a connected store, and its simulated node.
pub(crate) async fn connected() -> (Arc<RemoteStore>, Peers, Peer) {
    let (store, mut peers) = Peers::of(settings());
    let peer = peers.welcomed().await;
    until(|| store.nodes()[0].failure.is_none()).await;
    (store, peers, peer)
}

pub(crate) struct Peer {
    pub(crate) io: DuplexStream,
    decoder: Decoder<DispatcherFrame>,
    pub(crate) writer: AnswerWriter,
    window: ReceiveWindow,
    assembly: Assembly,
    requests: VecDeque<Request>,
    cancelled: VecDeque<u64>,
    /// When the clock of the node was 0.
    pub(crate) began: Instant,
    pub(crate) map_version: u64,
    pub(crate) records: RecordsRevision,
    /// Whether received bytes are granted back.
    pub(crate) is_granting: bool,
}

impl Peer {
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("not so long ago")
    }

    fn stamp(&self) -> NodeStamp {
        NodeStamp {
            stamp_ns: self.now_ns(),
            map_version: self.map_version,
            records: self.records,
        }
    }

    /// Returns the next frame; none where the connection has ended.
    pub(crate) async fn frame(&mut self) -> Option<DispatcherFrame> {
        loop {
            if let Some(frame) = self.decoder.next_frame().expect("a frame") {
                self.window
                    .received(frame.counted)
                    .expect("within the window");
                if self.is_granting
                    && let Some(len) = self.window.taken_over(frame.counted)
                {
                    self.writer.grant(len);
                    self.flush().await;
                }
                return Some(frame.body);
            }
            if self.io.read_buf(self.decoder.buffer()).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn hello(&mut self) -> Hello {
        match self.frame().await {
            Some(DispatcherFrame::Hello(hello)) => hello,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn welcome(&mut self, welcome: &Welcome) {
        let mut out = Vec::new();
        AnswerWriter::welcome(&mut out, &self.stamp(), welcome);
        self.window = ReceiveWindow::new(welcome.window);
        self.raw(&out).await;
    }

    /// Sends bytes; ignores a closed connection.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.io.write_all(bytes).await;
    }

    /// Sends what is queued.
    pub(crate) async fn flush(&mut self) {
        loop {
            let mut out = Vec::new();
            let stamp = self.stamp();
            self.writer.fill(&mut out, || stamp);
            if out.is_empty() {
                return;
            }
            self.raw(&out).await;
        }
    }

    pub(crate) async fn answer(&mut self, id: u64, outcome: Outcome) {
        self.writer.push(&answer(id, outcome));
        self.flush().await;
    }

    /// Returns the next request. Pings and requests for the state are answered.
    pub(crate) async fn request(&mut self) -> Request {
        loop {
            if let Some(request) = self.requests.pop_front() {
                return request;
            }
            assert!(self.step().await, "the connection has ended");
        }
    }

    /// Returns the next cancelled request.
    pub(crate) async fn cancelled(&mut self) -> u64 {
        loop {
            if let Some(id) = self.cancelled.pop_front() {
                return id;
            }
            assert!(self.step().await, "the connection has ended");
        }
    }

    /// Reads on until the connection ends.
    pub(crate) async fn end(&mut self) {
        while self.step().await {}
    }

    /// Reads what has arrived, and what arrives while other tasks run.
    pub(crate) async fn settle(&mut self) -> (Vec<Request>, Vec<u64>) {
        for _ in 0..200 {
            while let Some(is_open) = self.step().now_or_never() {
                if !is_open {
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        (
            self.requests.drain(..).collect(),
            self.cancelled.drain(..).collect(),
        )
    }

    async fn step(&mut self) -> bool {
        let Some(frame) = self.frame().await else {
            return false;
        };
        match frame {
            DispatcherFrame::Requests(batch) => {
                for request in batch {
                    self.came(request.expect("a request")).await;
                }
            }
            DispatcherFrame::Chunk(chunk) => {
                if let Some(message) = self.assembly.push(chunk).expect("a chunk") {
                    self.came(Request::decode(&message).expect("a request"))
                        .await;
                }
            }
            DispatcherFrame::Cancel(ids) => {
                for &id in &ids {
                    self.assembly.remove(id);
                    self.writer.withdraw(id);
                }
                self.cancelled.extend(ids);
            }
            DispatcherFrame::Credit(len) => {
                self.writer.granted(len).expect("what was sent");
                self.flush().await;
            }
            DispatcherFrame::Ping => {
                self.writer.pong();
                self.flush().await;
            }
            DispatcherFrame::Hello(_) | DispatcherFrame::Skipped => panic!("{frame:?}"),
        }
        true
    }

    async fn came(&mut self, request: Request) {
        if request.ask == Ask::Probe {
            self.answer(
                request.id,
                Outcome::Status(StatusOfNode {
                    map_version: 1,
                    // An hour into 1970.
                    wall: Some(umbo_types::Timestamp(3_600_000_000)),
                    shards: Vec::new(),
                }),
            )
            .await;
        } else {
            self.requests.push_back(request);
        }
    }
}

pub(crate) fn answer(id: u64, outcome: Outcome) -> Answer {
    Answer {
        id,
        service_time: Duration::from_nanos(1),
        busy_time: Duration::from_nanos(1),
        has_more: false,
        rows: 0,
        bytes: 0,
        outcome,
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
