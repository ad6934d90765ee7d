//! The traffic of a scenario: requests at random instants at their rate, open loop.
//!
//! One thread; a request takes a connection that is free, or makes one. A latency counts from the
//! instant at which the request was due.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep_until, timeout};
use umbo_routing::ShardMap;
use umbo_types::{NamespaceId, PartitionKey};

use super::plan::{Asked, Plan, Stream};
use crate::failure::Failure;
use crate::load::answer_len;
use crate::random::Random;

/// What a client gives a request.
pub(super) const PATIENCE_MS: u64 = 1_000;
/// How much longer the client waits for the answer than the server was given.
const GRACE: Duration = Duration::from_millis(500);
/// Shards of the server, and the namespace: the first that is made on it.
pub(super) const SHARDS: u16 = 4;
const NAMESPACE: NamespaceId = NamespaceId(1);
/// Partitions that are asked for; enough to be even over the shards.
const PARTITIONS: u64 = 10_000;

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) tier: &'static str,
    pub(crate) caller: &'static str,
    /// None for a scan, which belongs to no partition.
    pub(crate) shard: Option<u16>,
    pub(crate) is_write: bool,
    /// When it was due, in seconds from the beginning.
    pub(super) due_s: f64,
    pub(super) latency_s: f64,
    /// 0 where there was no answer.
    pub(super) status: u16,
}

struct World {
    port: u16,
    begun: Instant,
    shards: ShardMap,
    free: RefCell<Vec<TcpStream>>,
    samples: RefCell<Vec<Sample>>,
    random: RefCell<Random>,
}

/// Runs a plan, and returns what became of each request.
pub(super) fn run(plan: &Plan, port: u16) -> Result<Vec<Sample>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::io("cannot start the runtime"))?;
    LocalSet::new().block_on(&runtime, async {
        let map = || ShardMap::even(SHARDS).map_err(|e| Failure::Contradiction(e.to_string()));
        let world = Rc::new(World::new(port, map()?));
        let made = world
            .ask(b"PUT /admin/v1/namespaces/n HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
        let made = made.await.map_err(Failure::io("a namespace"))?;
        if made != 201 {
            return Err(Failure::WrongAnswer(format!("a namespace: status {made}")));
        }
        let world = Rc::new(World::new(port, map()?));
        let streams = plan.streams.iter().map(|stream| {
            let (world, stream) = (Rc::clone(&world), *stream);
            tokio::task::spawn_local(async move { world.drive(stream).await })
        });
        let streams: Vec<_> = streams.collect();
        for stream in streams {
            stream
                .await
                .map_err(|error| Failure::WrongAnswer(error.to_string()))?;
        }
        // What was sent last is still under way.
        tokio::time::sleep(Duration::from_millis(PATIENCE_MS) + 2 * GRACE).await;
        Ok(world.samples.take())
    })
}

impl World {
    fn new(port: u16, shards: ShardMap) -> Self {
        Self {
            port,
            begun: Instant::now(),
            shards,
            free: RefCell::default(),
            samples: RefCell::default(),
            random: RefCell::new(Random::seeded(1)),
        }
    }

    /// Sends the requests of a stream.
    async fn drive(self: Rc<Self>, stream: Stream) {
        let mut due_s = stream.from_s;
        loop {
            due_s += self.random.borrow_mut().exponential() / stream.rate;
            if due_s >= stream.to_s {
                return;
            }
            let due = self.begun + Duration::from_secs_f64(due_s);
            sleep_until(due.into()).await;
            let world = Rc::clone(&self);
            tokio::task::spawn_local(async move { world.send(stream, due_s, due).await });
        }
    }

    async fn send(self: Rc<Self>, stream: Stream, due_s: f64, due: Instant) {
        let partition = self.random.borrow_mut().below(PARTITIONS);
        let request = request(stream, partition);
        let limit = Duration::from_millis(PATIENCE_MS) + GRACE;
        let answered = timeout(limit, self.ask(&request)).await;
        let status = match answered {
            Ok(Ok(status)) => status,
            Ok(Err(_)) | Err(_) => 0,
        };
        let shard = (stream.asked != Asked::Scan).then(|| self.shard_of(partition));
        self.samples.borrow_mut().push(Sample {
            tier: stream.tier,
            caller: stream.caller,
            shard,
            is_write: matches!(stream.asked, Asked::Put | Asked::Batch),
            due_s,
            latency_s: due.elapsed().as_secs_f64(),
            status,
        });
    }

    fn shard_of(&self, partition: u64) -> u16 {
        let key = PartitionKey::new(format!("p{partition}").into_bytes());
        let key = key.expect("the name of a partition is short");
        self.shards.locate(NAMESPACE, &key).0
    }

    /// Sends one request and reads its answer to the end.
    async fn ask(&self, request: &[u8]) -> std::io::Result<u16> {
        let free = self.free.borrow_mut().pop();
        let mut socket = if let Some(socket) = free {
            socket
        } else {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            socket
        };
        socket.write_all(request).await?;
        let mut bytes = Vec::with_capacity(2_048);
        loop {
            if socket.read_buf(&mut bytes).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((status, _)) = answer_len(&bytes) {
                self.free.borrow_mut().push(socket);
                return Ok(status);
            }
        }
    }
}

fn request(stream: Stream, partition: u64) -> Vec<u8> {
    let (method, target, body) = match stream.asked {
        Asked::Get => ("GET", format!("kv/p{partition}/s"), String::new()),
        Asked::Put => ("PUT", format!("kv/p{partition}/s"), "x".repeat(256)),
        Asked::Scan => ("POST", "scan".to_owned(), r#"{"limit":50}"#.to_owned()),
        Asked::Batch => {
            let row = |at| {
                format!("{{\"op\":\"put\",\"pk\":\"p{partition}\",\"sk\":\"{at}\",\"v\":\"x\"}}\n")
            };
            (
                "POST",
                "batch/write".to_owned(),
                (0..100).map(row).collect(),
            )
        }
    };
    let Stream { tier, caller, .. } = stream;
    let len = body.len();
    format!(
        "{method} /v1/ns/n/{target} HTTP/1.1\r\nhost: a\r\numbo-criticality: {tier}\r\n\
         umbo-quota-user: {caller}\r\numbo-timeout-ms: {PATIENCE_MS}\r\ncontent-length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}
