//! What rows of the store cost beside the driver alone, on one real node: `cargo bench -p umbo-store-cassandra`.
//!
//! Both sides have the same values and number of callers, and take turns. The processor time is that of this process; the
//! node has the other core of a machine with two, so the rates are lower bounds.
//!
//! A node of the tests is compiled for a quick start. `_JAVA_OPTIONS=-XX:TieredStopAtLevel=4` compiles it as one in production.

#[path = "../tests/contract/calls.rs"]
#[expect(dead_code, reason = "the tests make more calls")]
mod calls;
#[path = "../tests/contract/node.rs"]
mod node;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use scylla::client::PoolSize;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::prepared::PreparedStatement;
use tempfile::TempDir;
use tokio::task::JoinSet;
use umbo_store::{ByKey as _, CallContext, ManualClock, Store as _, WriteRequest};
use umbo_store_cassandra::{CassandraSettings, CassandraStore};
use umbo_types::{NamespaceId, Timestamp};

use crate::calls::{NS, key, put, request};
use crate::node::{Node, Ports};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FAST: NamespaceId = NS.with_fast_writes();
const ROWS: u64 = 10_000;
const CALLERS: [u64; 2] = [1, 64];
const ROUNDS: usize = 3;
/// Calls of a round for each caller.
const CALLS: u64 = 500;
const VALUE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The driver alone, with a table for rows like those of the store.
struct DriverAlone {
    session: Session,
    get: PreparedStatement,
    put: PreparedStatement,
}

impl DriverAlone {
    async fn open(address: &str) -> Self {
        let session = SessionBuilder::new()
            .known_node(address)
            .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
            .disallow_shard_aware_port(true)
            .build()
            .await
            .expect("the node serves");
        let table = "create table if not exists umbo.plain \
                     (pk blob, sk blob, version bigint, value blob, primary key (pk, sk))";
        session.query_unpaged(table, ()).await.expect("it is made");
        let get = "select version, value from umbo.plain where pk = ? and sk = ?";
        let put = "update umbo.plain set version = ?, value = ? where pk = ? and sk = ?";
        Self {
            get: session.prepare(get).await.expect("there is a table"),
            put: session.prepare(put).await.expect("there is a table"),
            session,
        }
    }

    async fn get(&self, row: u64) {
        let at = (format!("row-{row}").into_bytes(), &b"s"[..]);
        let answer = self.session.execute_unpaged(&self.get, at).await;
        let rows = answer.expect("it is served").into_rows_result();
        let found = rows.expect("it has rows").first_row::<(i64, Bytes)>();
        assert_eq!(found.expect("it was put").1, VALUE);
    }

    async fn put(&self, row: u64) {
        let cells = (
            7_i64,
            VALUE.as_bytes(),
            format!("row-{row}").into_bytes(),
            &b"s"[..],
        );
        let answer = self.session.execute_unpaged(&self.put, cells).await;
        answer.expect("it is served");
    }
}

/// Processor time of a call in this process, and the median of its durations, both in microseconds.
#[derive(Debug, Clone, Copy)]
struct CallCost {
    processor: f64,
    median: f64,
}

async fn measure<F>(callers: u64, call: impl Fn(u64) -> F) -> CallCost
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    let before = cpu_time::ProcessTime::now();
    for caller in 0..callers {
        let calls: Vec<F> = (0..CALLS)
            .map(|number| call((caller * 7_919 + number * 104_729) % ROWS))
            .collect();
        running.spawn(async move {
            let mut took = Vec::with_capacity(calls.len());
            for call in calls {
                let begun = Instant::now();
                call.await;
                took.push(begun.elapsed());
            }
            took
        });
    }
    let mut took: Vec<Duration> = running.join_all().await.concat();
    let processor = before.elapsed();
    took.sort_unstable();
    let calls = f64::from((callers * CALLS) as u32);
    CallCost {
        processor: processor.as_secs_f64() * 1e6 / calls,
        median: took[took.len() / 2].as_secs_f64() * 1e6,
    }
}

fn show(what: &str, callers: u64, rounds: &[(CallCost, CallCost)]) {
    let median = |of: fn(&(CallCost, CallCost)) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!(
        "{what} by {callers:2} callers: processor time {:.0} us, {:.2} of the driver's; p50 {:.0} us, {:.2} of the driver's",
        median(|round| round.1.processor),
        median(|round| round.1.processor / round.0.processor),
        median(|round| round.1.median),
        median(|round| round.1.median / round.0.median),
    );
}

#[tokio::main]
async fn main() {
    let folder = TempDir::new().expect("there is room for a folder");
    let mut node = Node::begin((1, 1), Ports::free(), folder.path());
    node.wait(folder.path(), &[]);
    let settings = CassandraSettings {
        contact_points: vec![node.address()],
        data_center: "datacenter1".to_owned(),
        keyspace: "umbo".to_owned(),
        replication: 1,
        credentials: None,
        tls: None,
        instance: 1,
        shards: 16,
        buckets: 256,
        request_timeout: Duration::from_secs(30),
    };
    let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
    let store = CassandraStore::open(&settings, Arc::new(clock)).await;
    let store = Arc::new(store.expect("the node serves"));
    let plain = Arc::new(DriverAlone::open(&node.address()).await);
    let of_store = Arc::clone(&store);
    let puts_to = move |namespace: NamespaceId, row: u64| {
        let store = Arc::clone(&of_store);
        async move {
            let put = WriteRequest {
                namespace,
                ..request(put(&key(&format!("row-{row}")), VALUE))
            };
            let shard = store.shard_of(namespace, &put.mutations[0].key);
            let written = store.write(&CallContext::internal(), shard, put).await;
            assert!(written.iter().all(Result::is_ok), "{written:?}");
        }
    };
    let gets = move |row: u64| {
        let store = Arc::clone(&store);
        async move {
            let at = key(&format!("row-{row}"));
            let shard = store.shard_of(NS, &at);
            let found = store.get(&CallContext::internal(), shard, NS, &at).await;
            let found = found.expect("it is served").expect("it was put");
            assert_eq!(found.value.bytes, VALUE);
        }
    };
    let driver = |row: u64, is_get: bool| {
        let plain = Arc::clone(&plain);
        async move {
            if is_get {
                plain.get(row).await;
            } else {
                plain.put(row).await;
            }
        }
    };
    for row in 0..ROWS / 64 {
        let mut some = JoinSet::new();
        for row in row * 64..ROWS.min((row + 2) * 64) {
            some.spawn(puts_to(NS, row));
            some.spawn(puts_to(FAST, row));
            some.spawn(driver(row, false));
        }
        some.join_all().await;
    }
    for callers in CALLERS {
        let (mut of_gets, mut of_puts, mut of_fast_puts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let alone = measure(callers, |row| driver(row, true)).await;
            of_gets.push((alone, measure(callers, &gets).await));
            let alone = measure(callers, |row| driver(row, false)).await;
            of_puts.push((alone, measure(callers, |row| puts_to(NS, row)).await));
            of_fast_puts.push((alone, measure(callers, |row| puts_to(FAST, row)).await));
        }
        show("get", callers, &of_gets);
        show("exact put", callers, &of_puts);
        show("fast put", callers, &of_fast_puts);
    }
}
