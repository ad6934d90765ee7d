//! A node on a port of its own, and a peer that speaks the protocol to it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_protocol::{
    Answer, Ask, Assembly, DecodeError, Decoder, Hello, NodeFrame, NodeStamp, Placed,
    ReceiveWindow, Request, RequestWriter, WINDOW_LEN, Welcome,
};
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_shard::server::{self, Closed};
use umbo_shard::{Node, NodeLimits, NodeParts};
use umbo_store::{Change, Condition, MemoryStore, Mutation, Store, WriteRequest};
use umbo_types::{
    Clock, Criticality, Key, NamespaceId, RequestUnits, ShardId, Timestamp, Value, Version,
};

pub(crate) const NS: NamespaceId = NamespaceId(7);
/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct WallClock;

impl Clock for WallClock {
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp(since.unwrap().as_micros() as u64)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A map of two nodes, `a` and `b`, of two shards each.
pub(crate) fn map() -> ClusterMap {
    let node = |name: &str, port| ClusterNode::new(name, &format!("127.0.0.1:{port}")).unwrap();
    ClusterMap::create("test", vec![node("a", 1), node("b", 2)], 4).unwrap()
}

/// A key of a partition that `shard` owns, one for each `number`.
pub(crate) fn key_of(shard: u16, number: usize) -> Key {
    let map = map();
    let keys = (0..).map(|at| Key::new(format!("p{at}"), "s").unwrap());
    let is_own = |key: &Key| map.shard_map().locate(NS, &key.partition) == ShardId(shard);
    keys.filter(is_own).nth(number).unwrap()
}

/// A running node.
pub(crate) struct Started {
    pub(crate) node: Arc<Node>,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Closed>,
}

impl Started {
    /// Starts node `a` over a memory store of all shards.
    pub(crate) fn new() -> Self {
        let store = MemoryStore::new(4, Arc::new(WallClock)).unwrap();
        Self::with(Arc::new(store), NodeLimits::default())
    }

    pub(crate) fn with(store: Arc<dyn Store>, limits: NodeLimits) -> Self {
        let parts = NodeParts {
            name: "a".to_owned(),
            map: Arc::new(map()),
            store,
            clock: Arc::new(WallClock),
            limits,
        };
        let node = Arc::new(Node::new(parts).unwrap());
        let listener = server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(server::serve(listener, Arc::clone(&node), stop.clone()));
        Self {
            node,
            address,
            stop,
            task,
        }
    }

    /// A peer that has been welcomed.
    pub(crate) async fn peer(&self) -> Peer {
        self.peer_of(&hello()).await
    }

    /// A peer that has been welcomed with this hello.
    pub(crate) async fn peer_of(&self, hello: &Hello) -> Peer {
        let mut peer = self.silent_peer().await;
        peer.greet(hello).await;
        assert_eq!(peer.welcome().await.refusal, None);
        peer
    }

    /// A peer that has not sent anything yet.
    pub(crate) async fn silent_peer(&self) -> Peer {
        Peer::connect(self.address).await
    }

    pub(crate) fn tell_to_stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn closed(self) -> Closed {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
    }
}

pub(crate) fn hello() -> Hello {
    static DISPATCHERS: AtomicU64 = AtomicU64::new(1);
    // Each peer is a process of its own.
    Hello::new("test", "a", 1, DISPATCHERS.fetch_add(1, Ordering::Relaxed))
}

/// The other side of a connection.
pub(crate) struct Peer {
    socket: TcpStream,
    decoder: Decoder<(NodeStamp, NodeFrame)>,
    assembly: Assembly,
    window: ReceiveWindow,
    writer: RequestWriter,
    /// Not sent yet.
    out: Vec<u8>,
    answers: VecDeque<Answer>,
    pub(crate) welcome: Option<Welcome>,
    pub(crate) is_draining: bool,
    /// Whether what was taken over is granted back.
    pub(crate) grants: bool,
    pub(crate) pongs: usize,
    /// Frames with answers that have come in, and the stamp of the last frame of all.
    pub(crate) batches: usize,
    pub(crate) stamp: NodeStamp,
    next_id: u64,
}

impl Peer {
    async fn connect(address: SocketAddr) -> Self {
        Self {
            socket: TcpStream::connect(address).await.unwrap(),
            decoder: Decoder::of_node(),
            assembly: Assembly::default(),
            window: ReceiveWindow::new(WINDOW_LEN as u32),
            writer: RequestWriter::new(WINDOW_LEN as u32),
            out: Vec::new(),
            answers: VecDeque::new(),
            welcome: None,
            is_draining: false,
            grants: true,
            pongs: 0,
            batches: 0,
            stamp: NodeStamp::default(),
            next_id: 1,
        }
    }

    /// Sends bytes as they are.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn greet(&mut self, hello: &Hello) {
        let mut out = Vec::new();
        RequestWriter::hello(&mut out, hello);
        self.send_bytes(&out).await;
    }

    /// Says hello once more.
    pub(crate) async fn greet_again(&mut self, hello: &Hello) {
        let mut out = Vec::new();
        RequestWriter::hello(&mut out, hello);
        self.send_bytes(&out[umbo_protocol::PREFACE.len()..]).await;
    }

    /// Sends nothing more.
    pub(crate) async fn half_close(&mut self) {
        self.socket.shutdown().await.unwrap();
    }

    /// Sends requests; returns their ids.
    pub(crate) async fn send(&mut self, asks: Vec<Ask>) -> Vec<u64> {
        let requests = asks.into_iter().map(|ask| self.request(ask)).collect();
        self.send_requests(requests).await
    }

    pub(crate) async fn send_requests(&mut self, requests: Vec<Request>) -> Vec<u64> {
        let ids = requests.iter().map(|request| request.id).collect();
        for request in &requests {
            self.writer.push(&request.into());
        }
        self.flush().await;
        ids
    }

    pub(crate) async fn cancel(&mut self, ids: &[u64]) {
        for &id in ids {
            self.writer.cancel(id, Placed::Small(0));
        }
        self.flush().await;
    }

    pub(crate) async fn ping(&mut self) {
        self.writer.ping();
        self.flush().await;
    }

    /// Hands out what the window allows, and reads while the node takes nothing.
    async fn flush(&mut self) {
        loop {
            self.writer.fill(&mut self.out);
            if self.out.is_empty() {
                return;
            }
            let mut sent = 0;
            while sent < self.out.len() {
                let (mut read, mut write) = self.socket.split();
                let len = tokio::select! {
                    biased;
                    len = write.write(&self.out[sent..]) => len.unwrap(),
                    len = read.read_buf(self.decoder.buffer()), if self.grants => {
                        assert_ne!(len.unwrap(), 0, "the node hung up");
                        0
                    }
                };
                sent += len;
                if len == 0 {
                    self.take_frames().unwrap();
                }
            }
            self.out.clear();
        }
    }

    pub(crate) fn request(&mut self, ask: Ask) -> Request {
        let id = self.next_id;
        self.next_id += 1;
        request(id, ask)
    }

    /// Reads what comes next; false where the node has hung up.
    pub(crate) async fn read(&mut self) -> bool {
        let read = self.socket.read_buf(self.decoder.buffer());
        let read = tokio::time::timeout(PATIENCE, read).await;
        let len = read.expect("the node says something in time");
        if len.unwrap_or(0) == 0 {
            return false;
        }
        self.take_frames().unwrap();
        self.flush().await;
        true
    }

    fn take_frames(&mut self) -> Result<(), DecodeError> {
        while let Some(frame) = self.decoder.next_frame()? {
            let (stamp, body) = frame.body;
            assert!(stamp.stamp_ns >= self.stamp.stamp_ns, "stamps grow");
            self.stamp = stamp;
            self.window.received(frame.counted)?;
            match body {
                NodeFrame::Welcome(welcome) => self.welcome = Some(welcome),
                NodeFrame::Answers(batch) => {
                    self.batches += 1;
                    self.answers.extend(batch.map(Result::unwrap));
                }
                NodeFrame::Chunk(chunk) => {
                    if let Some(message) = self.assembly.push(chunk)? {
                        self.answers.push_back(Answer::decode(&message).unwrap());
                    }
                }
                NodeFrame::Credit(len) => self.writer.granted(len)?,
                NodeFrame::Pong => self.pongs += 1,
                NodeFrame::Draining => self.is_draining = true,
                NodeFrame::Skipped => {}
            }
            if self.grants
                && let Some(len) = self.window.taken_over(frame.counted)
            {
                self.writer.grant(len);
            }
        }
        Ok(())
    }

    pub(crate) async fn welcome(&mut self) -> Welcome {
        while self.welcome.is_none() {
            assert!(self.read().await, "the node welcomes");
        }
        self.welcome.clone().unwrap()
    }

    /// Reads until the node hangs up.
    pub(crate) async fn end(&mut self) {
        while self.read().await {}
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        while self.answers.is_empty() {
            assert!(self.read().await, "the node answers");
        }
        self.answers.pop_front().unwrap()
    }

    /// Returns the next answers, in order of their ids.
    pub(crate) async fn answers(&mut self, count: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        while answers.len() < count {
            answers.push(self.answer().await);
        }
        answers.sort_by_key(|answer| answer.id);
        answers
    }

    /// Asks for one thing.
    pub(crate) async fn ask(&mut self, ask: Ask) -> Answer {
        let id = self.send(vec![ask]).await[0];
        let answer = self.answer().await;
        assert_eq!(answer.id, id);
        answer
    }
}

pub(crate) fn request(id: u64, ask: Ask) -> Request {
    Request {
        id,
        deadline_ns: None,
        criticality: Criticality::default(),
        caller: Bytes::from_static(b"tester"),
        price: RequestUnits::ZERO,
        traceparent: Bytes::new(),
        placed_as: None,
        ask,
    }
}

pub(crate) fn get(key: &Key) -> Ask {
    Ask::Get(NS, key.clone())
}

pub(crate) fn put(key: &Key, value: impl Into<Bytes>) -> Ask {
    Ask::Write(write_of(vec![mutation(key, value)]))
}

pub(crate) fn mutation(key: &Key, value: impl Into<Bytes>) -> Mutation {
    Mutation {
        key: key.clone(),
        change: Change::Put {
            value: Value::new(value, Bytes::new(), Bytes::new()).unwrap(),
            expires_at: None,
        },
        condition: Condition::Always,
    }
}

pub(crate) fn write_of(mutations: Vec<Mutation>) -> WriteRequest {
    WriteRequest {
        namespace: NS,
        epoch: 0,
        mutations,
        atomicity: umbo_store::Atomicity::None,
        durability: umbo_store::Durability::Sync,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    }
}
