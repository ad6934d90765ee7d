//! Dispatchers gone wild: whatever one of them does, the node stays small and serves the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tonic::Code;
use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_routing::ShardMap;
use umbo_shard::NodeLimits;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, MemoryStore, Page, PurgeProgress, RangeRequest,
    ScanPage, ScanRequest, ShardStatus, Store, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Criticality, Key, NamespaceId, Row};

use crate::support::{NS, Started, WallClock, get, key_of, mutation, put, write_of};

/// A store that does nothing before it is let.
#[derive(Debug)]
struct Slow {
    inner: MemoryStore,
    gate: Semaphore,
    begun: AtomicUsize,
    dropped: AtomicUsize,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(4, Arc::new(WallClock)).unwrap(),
            gate: Semaphore::new(0),
            begun: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
        })
    }

    fn let_all(&self) {
        self.gate.add_permits(1 << 20);
    }

    async fn wait(&self) {
        struct Counted<'a>(&'a AtomicUsize, bool);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(usize::from(!self.1), Ordering::SeqCst);
            }
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut counted = Counted(&self.dropped, false);
        self.gate.acquire().await.unwrap().forget();
        counted.1 = true;
    }

    async fn until_begun(&self, count: usize) {
        while self.begun.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Store for Slow {
    fn shard_map(&self) -> Arc<ShardMap> {
        self.inner.shard_map()
    }

    async fn get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.wait().await;
        self.inner.get(call, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        self.wait().await;
        self.inner.multi_get(call, namespace, keys).await
    }

    async fn range(&self, call: &CallContext, request: &RangeRequest) -> Result<Page, StoreError> {
        self.wait().await;
        self.inner.range(call, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.wait().await;
        self.inner.scan(call, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        self.wait().await;
        self.inner.write(call, request).await
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.wait().await;
        self.inner.delete_range(call, request).await
    }

    async fn purge(
        &self,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError> {
        self.wait().await;
        self.inner.purge(namespace, rows_max).await
    }

    fn status(&self) -> Vec<ShardStatus> {
        self.inner.status()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

fn is_busy(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Failed(NodeError::Store(StoreError::NodeBusy { .. }))
    )
}

#[tokio::test]
async fn a_hundred_thousand_requests_at_once_are_answered_and_others_too() {
    let node = Started::new();
    let (mut wild, mut good) = (node.peer().await, node.peer().await);
    let key = key_of(0, 0);
    for _ in 0..50 {
        wild.send(vec![get(&key); 2_000]);
    }
    for _ in 0..20 {
        good.ask(get(&key)).await;
    }
    wild.answers(100_000).await;
}

#[tokio::test]
async fn a_flood_is_turned_away_at_once_and_leaves_room_for_what_matters() {
    let store = Slow::new();
    let limits = NodeLimits {
        in_flight_max: 64,
        ..NodeLimits::default()
    };
    let node = Started::with(store.clone(), limits);
    let key = key_of(0, 0);
    let mut floods = Vec::new();
    for _ in 0..3 {
        let mut wild = node.peer().await;
        wild.send(vec![put(&key, "x"); 1_000]);
        // A stream has half of the places at most, the tier three quarters.
        let refused = wild.answers(1_000 - 32).await;
        assert!(refused.iter().all(|answer| is_busy(&answer.outcome)));
        floods.push(wild);
    }
    assert_eq!(node.node.requests_in_flight(), 48);
    let mut good = node.peer().await;
    let mut request = good.request(put(&key, "y"));
    request.criticality = Criticality::Critical;
    let id = good.send_requests(vec![request])[0];
    store.until_begun(49).await;
    store.let_all();
    let answer = good.answer().await;
    assert!(answer.id == id && matches!(answer.outcome, Outcome::Written(_)));
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_up_nobody() {
    let node = Started::new();
    let key = key_of(0, 0);
    let mut good = node.peer().await;
    good.ask(put(&key, vec![7; 64 << 10])).await;
    let mut deaf = node.peer().await;
    // 256 MiB of answers, if they were made.
    deaf.send(vec![get(&key); 4_000]);
    for _ in 0..50 {
        good.ask(get(&key)).await;
    }
    // Who begins to read gets everything.
    assert_eq!(deaf.answers(4_000).await.len(), 4_000);
}

#[tokio::test]
async fn writes_of_a_peer_that_reads_nothing_give_back_their_places() {
    let store = Slow::new();
    let limits = NodeLimits {
        in_flight_max: 64,
        ..NodeLimits::default()
    };
    let node = Started::with(store.clone(), limits);
    let mut deaf = node.peer().await;
    let key = key_of(0, 0);
    deaf.send(vec![put(&key, "x"); 20]);
    store.until_begun(20).await;
    assert_eq!(node.node.requests_in_flight(), 20);
    store.let_all();
    while node.node.requests_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.node.request_memory(), 0);
    assert_eq!(deaf.answers(20).await.len(), 20);
}

#[tokio::test]
async fn a_peer_that_leaves_drops_its_reads_and_not_its_writes() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let key = key_of(0, 0);
    let mut leaving = node.peer().await;
    leaving.send(vec![put(&key, "kept"), get(&key)]);
    store.until_begun(2).await;
    drop(leaving);
    while node.node.requests_in_flight() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.dropped.load(Ordering::SeqCst), 1);
    store.let_all();
    while node.node.requests_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    let answer = node.peer().await.ask(get(&key)).await;
    assert!(matches!(answer.outcome, Outcome::Row(Some(row)) if row.value.bytes == "kept"));
}

#[tokio::test]
async fn a_read_is_cancelled_and_a_late_one_is_not_begun() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let key = key_of(0, 0);
    let mut peer = node.peer().await;
    let id = peer.send(vec![get(&key)])[0];
    store.until_begun(1).await;
    peer.send(vec![Ask::Cancel(id), Ask::Cancel(99)]);
    while node.node.requests_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    let late = |outcome: &Outcome| {
        let error = StoreError::DeadlinePassed {
            shard: umbo_types::ShardId(0),
        };
        matches!(outcome, Outcome::Failed(NodeError::Store(passed)) if *passed == error)
    };
    for (timeout, begun) in [(0, 1), (30, 2)] {
        let mut request = peer.request(get(&key));
        request.timeout = Some(Duration::from_millis(timeout));
        peer.send_requests(vec![request]);
        assert!(late(&peer.answer().await.outcome));
        assert_eq!(store.begun.load(Ordering::SeqCst), begun);
    }
}

#[tokio::test]
async fn a_frame_that_is_too_long_ends_its_stream_only() {
    let node = Started::new();
    let mut good = node.peer().await;
    let mut wild = node.peer().await;
    wild.send_frame(Bytes::from(vec![0; umbo_protocol::FRAME_LEN_MAX + 1]));
    assert_eq!(wild.end().await.code(), Code::ResourceExhausted);
    let mut wild = node.peer().await;
    wild.send(vec![get(&key_of(0, 0)); 20_000]);
    assert_eq!(
        wild.end().await.code(),
        Code::InvalidArgument,
        "too many in one"
    );
    good.ask(get(&key_of(0, 0))).await;
}

#[tokio::test]
async fn long_writes_arrive_whole_and_hold_their_room_until_they_are_done() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let mut peer = node.peer().await;
    let rows = (0..10).map(|at| mutation(&key_of(0, at), vec![3; 1 << 20]));
    peer.send(vec![Ask::Write(write_of(rows.collect()))]);
    store.until_begun(1).await;
    store.let_all();
    let answer = peer.answer().await;
    let Outcome::Written(all) = &answer.outcome else {
        panic!("{:?}", answer.outcome)
    };
    assert!(all.iter().all(|one| matches!(one, Ok(Ok(_)))), "{all:?}");
    peer.send(vec![Ask::MultiGet(
        NS,
        (0..10).map(|at| key_of(0, at)).collect(),
    )]);
    let mut parts = 1;
    while peer.answer().await.has_more {
        parts += 1;
    }
    assert_eq!(parts, 10, "each row is a part of its own");
}

#[tokio::test]
async fn a_frame_that_never_ends_is_not_waited_for() {
    let store = MemoryStore::new(4, Arc::new(WallClock)).unwrap();
    let limits = NodeLimits {
        frame_timeout: Duration::from_millis(80),
        handshake_timeout: Duration::from_millis(80),
        ..NodeLimits::default()
    };
    let node = Started::with(Arc::new(store), limits);
    // HTTP/2 by hand: preface, settings, headers of the method, and data that promises a message.
    let mut head = BytesMut::new();
    head.put_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    head.put_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let mut block = BytesMut::from(&[0x83, 0x86][..]);
    for (index, value) in [
        (0x04, umbo_protocol::EXCHANGE_PATH),
        (0x01, "node"),
        (0x0f, "application/grpc"),
    ] {
        block.put_u8(index);
        if index == 0x0f {
            block.put_u8(0x10);
        }
        block.put_u8(value.len() as u8);
        block.put_slice(value.as_bytes());
    }
    head.put_slice(&[0, 0, block.len() as u8, 1, 4, 0, 0, 0, 1]);
    head.put_slice(&block);
    head.put_slice(&[0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0, 0]);
    let mut socket = TcpStream::connect(node.address).await.unwrap();
    socket.write_all(&head).await.unwrap();
    let mut silent = TcpStream::connect(node.address).await.unwrap();
    let mut said = Vec::new();
    let read = socket.read_to_end(&mut said);
    tokio::time::timeout(Duration::from_secs(10), read)
        .await
        .expect("the node hangs up")
        .unwrap();
    assert!(node.node.streams_open() == 0 && said.len() > 20);
    let mut said = Vec::new();
    let read = silent.read_to_end(&mut said);
    let read = tokio::time::timeout(Duration::from_secs(10), read).await;
    assert!(read.is_ok(), "nor is a connection that says nothing");
}
