//! A node on a port of its own, and a peer that speaks gRPC to it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_util::stream::poll_fn;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use umbo_protocol::{
    Answer, AnswerFrame, Ask, EXCHANGE_PATH, FRAME_LEN_MAX, FrameCodec, Hello, Request,
    RequestFrame, Welcome,
};
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_shard::server::{self, Closed};
use umbo_shard::{Node, NodeLimits, NodeParts};
use umbo_store::{Change, Condition, MemoryStore, Mutation, Store, WriteRequest};
use umbo_types::{
    Clock, Criticality, Key, NamespaceId, RequestUnits, ShardId, Timestamp, Value, Version,
};

pub(crate) const NS: NamespaceId = NamespaceId(7);
/// Nothing in these tests takes that long.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// A node under way.
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
        let mut peer = self.silent_peer().await;
        peer.send_frame(RequestFrame::hello(&hello()));
        assert_eq!(peer.welcome().await.refusal, None);
        peer
    }

    /// A peer that has said nothing yet.
    pub(crate) async fn silent_peer(&self) -> Peer {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Peer::begin(endpoint.connect().await.unwrap()).await
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
    Hello::new("test", "a", 1)
}

/// The other side of a stream.
pub(crate) struct Peer {
    frames: Option<mpsc::UnboundedSender<Bytes>>,
    incoming: Streaming<Bytes>,
    answers: VecDeque<Answer>,
    pub(crate) welcome: Option<Welcome>,
    pub(crate) is_draining: bool,
    /// Messages that have come in.
    pub(crate) messages: usize,
    next_id: u64,
}

impl Peer {
    async fn begin(channel: Channel) -> Self {
        let (frames, mut outgoing) = mpsc::unbounded_channel();
        let outgoing = poll_fn(move |context| outgoing.poll_recv(context));
        let mut client = tonic::client::Grpc::new(channel)
            .max_decoding_message_size(FRAME_LEN_MAX)
            .max_encoding_message_size(usize::MAX);
        client.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(EXCHANGE_PATH);
        let request = tonic::Request::new(outgoing);
        let answer = client.streaming(request, path, FrameCodec).await.unwrap();
        Self {
            frames: Some(frames),
            incoming: answer.into_inner(),
            answers: VecDeque::new(),
            welcome: None,
            is_draining: false,
            messages: 0,
            next_id: 1,
        }
    }

    pub(crate) fn send_frame(&self, frame: Bytes) {
        let frames = self.frames.as_ref().unwrap();
        frames.send(frame).unwrap();
    }

    /// Says that nothing more is asked.
    pub(crate) fn half_close(&mut self) {
        self.frames = None;
    }

    /// Sends requests in one frame; returns their ids.
    pub(crate) fn send(&mut self, asks: Vec<Ask>) -> Vec<u64> {
        let requests = asks.into_iter().map(|ask| self.request(ask)).collect();
        self.send_requests(requests)
    }

    pub(crate) fn send_requests(&mut self, requests: Vec<Request>) -> Vec<u64> {
        let mut frame = BytesMut::new();
        let ids = requests.iter().map(|request| request.id).collect();
        for request in requests {
            RequestFrame::push(&mut frame, &(&request).into());
        }
        self.send_frame(frame.freeze());
        ids
    }

    pub(crate) fn request(&mut self, ask: Ask) -> Request {
        let id = self.next_id;
        self.next_id += 1;
        Request {
            id,
            timeout: Some(Duration::from_secs(10)),
            criticality: Criticality::default(),
            caller: Bytes::from_static(b"tester"),
            price: RequestUnits::ZERO,
            traceparent: Bytes::new(),
            is_continued: false,
            names: None,
            ask,
        }
    }

    /// Reads the next message; the error is how the stream ended.
    pub(crate) async fn read(&mut self) -> Result<(), tonic::Status> {
        let message = tokio::time::timeout(PATIENCE, self.incoming.message()).await;
        let message = message.expect("the node says something in time")?;
        let frame = message.ok_or_else(|| tonic::Status::ok("over"))?;
        let frame = AnswerFrame::decode(frame).unwrap();
        self.messages += 1;
        self.welcome = frame.welcome.or(self.welcome.take());
        self.is_draining |= frame.is_draining;
        self.answers
            .extend(frame.answers.into_iter().map(Result::unwrap));
        Ok(())
    }

    pub(crate) async fn welcome(&mut self) -> Welcome {
        while self.welcome.is_none() {
            self.read().await.unwrap();
        }
        self.welcome.clone().unwrap()
    }

    /// Reads until the stream ends; returns how it did.
    pub(crate) async fn end(&mut self) -> tonic::Status {
        loop {
            if let Err(status) = self.read().await {
                return status;
            }
        }
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        while self.answers.is_empty() {
            self.read().await.unwrap();
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
        let id = self.send(vec![ask])[0];
        let answer = self.answer().await;
        assert_eq!(answer.id, id);
        answer
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
        mutations,
        atomicity: umbo_store::Atomicity::None,
        durability: umbo_store::Durability::Sync,
        proposed: Version(1),
    }
}
