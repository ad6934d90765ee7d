//! The store on three nodes that each have a copy of all rows, while one of them is dead or stands still.

#[path = "../contract/calls.rs"]
mod calls;
mod cluster;
mod history;
#[path = "../contract/node.rs"]
mod node;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use umbo_store::{
    Condition, ManualClock, Mutation, Outcome, ShardState, StoreError, StoreReport as _,
    WriteError, Written,
};
use umbo_store_cassandra::{CassandraSettings, CassandraStore};
use umbo_types::{Key, Timestamp};

use crate::calls::{NS, increment, key, put, read, request, write};
use crate::cluster::Cluster;
use crate::history::{History, What, Write, check, judge_by_porcupine, shown};

/// Nodes; each has a copy of all rows.
const NODES: usize = 3;
/// Stores, each as in a process of its own, with a clock that is 10 s ahead of the one before it.
const STORES: u64 = 3;
const WRITERS: usize = 64;
/// Rows of all writers together; every fourth is a counter.
const ROWS: usize = 64;
/// Calls that may fail for each node that is lost.
const ERRORS_MAX: usize = 5;

/// Returns the host of a node.
fn host(number: usize) -> String {
    format!("127.0.0.{}", number + 1)
}

/// Writers on all stores, until they are told to end.
struct World {
    stores: Vec<Arc<CassandraStore>>,
    rows: Vec<Key>,
    history: History,
    succeeded: watch::Sender<usize>,
    failed: AtomicUsize,
    ends: watch::Sender<bool>,
}

impl World {
    async fn open(cluster: &Cluster) -> Arc<Self> {
        let settings = CassandraSettings {
            contact_points: cluster.addresses(),
            data_center: "datacenter1".to_owned(),
            keyspace: "umbo".to_owned(),
            replication: NODES as u8,
            credentials: None,
            tls: None,
            instance: 1,
            shards: 4,
            buckets: 8,
            request_timeout: Duration::from_secs(30),
        };
        // All make the tables at the same time.
        let stores = (0..STORES).map(|number| {
            let time = Timestamp::from_millis(1_700_000_000_000 + 10_000 * number);
            let settings = CassandraSettings {
                contact_points: vec![settings.contact_points[number as usize % NODES].clone()],
                ..settings.clone()
            };
            tokio::spawn(async move {
                let store = CassandraStore::open(&settings, Arc::new(ManualClock::new(time))).await;
                Arc::new(store.expect("the nodes serve"))
            })
        });
        let mut opened = Vec::new();
        for store in stores.collect::<Vec<_>>() {
            opened.push(store.await.expect("it ends well"));
        }
        Arc::new(Self {
            stores: opened,
            rows: (0..ROWS).map(|row| key(&format!("row-{row}"))).collect(),
            history: History::default(),
            succeeded: watch::Sender::new(0),
            failed: AtomicUsize::new(0),
            ends: watch::Sender::new(false),
        })
    }

    /// One writer: reads and writes rows in turn, each call through another store.
    async fn run(self: Arc<Self>, writer: usize) {
        for step in 0.. {
            if *self.ends.borrow() {
                return;
            }
            let row = (writer * 7 + step * 5) % ROWS;
            let store = &self.stores[(writer + step) % self.stores.len()];
            match step % 4 {
                0 => self.read(store, row).await,
                _ if is_counter(row) => {
                    let begun = self.history.event();
                    let counted = write(store, request(increment(&self.rows[row], 1))).await;
                    self.note_write(row, begun, Write::Increment, counted);
                }
                1 | 2 => self.overwrite(store, row, format!("{writer}-{step}")).await,
                _ => self.replace(store, row, format!("{writer}-{step}")).await,
            }
        }
    }

    async fn read(&self, store: &CassandraStore, row: usize) {
        let begun = self.history.event();
        match read(store, NS, &self.rows[row]).await {
            Ok(found) => {
                self.history.note(row, begun, shown(found));
                self.succeeded.send_modify(|count| *count += 1);
            }
            Err(error) => self.note_failure(&error),
        }
    }

    async fn overwrite(&self, store: &CassandraStore, row: usize, value: String) {
        let begun = self.history.event();
        let answer = write(store, request(put(&self.rows[row], &value))).await;
        self.note_write(row, begun, Write::Put(value), answer);
    }

    /// Replaces the version that a read has shown.
    async fn replace(&self, store: &CassandraStore, row: usize, value: String) {
        let found = match read(store, NS, &self.rows[row]).await {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => return self.note_failure(&error),
        };
        let before = String::from_utf8_lossy(&found.value.bytes).into_owned();
        let over = (found.version, before);
        let begun = self.history.event();
        let conditional = Mutation {
            condition: Condition::VersionIn(vec![found.version]),
            ..put(&self.rows[row], &value)
        };
        let answer = write(store, request(conditional)).await;
        self.note_write(row, begun, Write::Replace(value, over), answer);
    }

    fn note_write(
        &self,
        row: usize,
        begun: u64,
        asked: Write,
        answer: Result<Written, WriteError>,
    ) {
        let what = match answer {
            Ok(written) => {
                self.succeeded.send_modify(|count| *count += 1);
                let value = match &asked {
                    Write::Put(value) | Write::Replace(value, _) => value.clone(),
                    Write::Increment => written.number.expect("it is a counter").to_string(),
                };
                What::Wrote(asked, written.version, value)
            }
            Err(WriteError::Store(error)) => {
                self.note_failure(&error);
                let is_unknown = matches!(
                    error,
                    StoreError::Unavailable {
                        outcome: Outcome::Unknown,
                        ..
                    }
                );
                if is_unknown {
                    What::Unknown(asked)
                } else {
                    What::Refused(asked)
                }
            }
            // The row has changed since it was read.
            Err(_) => What::Refused(asked),
        };
        self.history.note(row, begun, what);
    }

    fn note_failure(&self, error: &StoreError) {
        let count = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        eprintln!("failure {count}: {error}");
    }

    /// Returns the nodes that a store reports as lost.
    fn lost_nodes(&self) -> Vec<String> {
        let nodes = self.stores[0].nodes().into_iter();
        let lost = nodes.filter(|node| node.failure.is_some());
        lost.map(|node| node.name).collect()
    }

    /// Waits until so many calls more have succeeded.
    async fn progress(&self, calls: usize) {
        let mut succeeded = self.succeeded.subscribe();
        let goal = *succeeded.borrow() + calls;
        let reached = succeeded.wait_for(|&count| count >= goal).await;
        reached.expect("the world is there");
    }
}

const fn is_counter(row: usize) -> bool {
    row.is_multiple_of(4)
}

fn number_of(variable: &str, usual: usize) -> usize {
    let set = std::env::var(variable).ok();
    set.map_or(usual, |text| text.parse().expect("a number"))
}

/// A node is killed once, and one is stopped once, unless `UMBO_TEST_NODES_LOST` says how often.
fn losses() -> usize {
    number_of("UMBO_TEST_NODES_LOST", 1)
}

/// Calls that succeed before a node is lost or comes back: 400, or `UMBO_TEST_CALLS`. A node that has served for less
/// than 10 s waits for seconds for others that are lost, as it does not know their usual time yet.
fn calls() -> usize {
    number_of("UMBO_TEST_CALLS", 400)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_linearizable_while_nodes_are_lost() {
    let cluster = spawn_blocking(|| Cluster::start(NODES))
        .await
        .expect("it starts");
    let world = World::open(&cluster).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(Arc::clone(&world).run(writer));
    }
    world.progress(calls()).await;
    let cluster = lose_nodes(cluster, &world).await;
    world.ends.send_replace(true);
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer ends well");
    }
    // What each store shows in the end is a part of the history.
    for store in &world.stores {
        for row in 0..ROWS {
            world.read(store, row).await;
        }
    }
    let by_row = world.history.by_row();
    assert_eq!(by_row.len(), ROWS);
    for (row, calls) in &by_row {
        check(calls, is_counter(*row));
    }
    judge_by_porcupine(by_row.values().flatten());
    let failed = world.failed.load(Ordering::Relaxed);
    let (succeeded, lost) = (*world.succeeded.borrow(), 2 * losses());
    println!("{succeeded} calls succeeded and {failed} failed, with {lost} nodes lost");
    assert!(failed <= lost * ERRORS_MAX, "{failed} calls failed");
    a_lack_of_quorum_is_told(cluster, &world).await;
}

/// Kills a node and starts it again, then lets another one stand still for a while, in turn.
async fn lose_nodes(mut cluster: Cluster, world: &World) -> Cluster {
    for round in 0..losses() {
        let number = round % NODES;
        cluster.kill(number);
        world.progress(calls()).await;
        while world.lost_nodes() != [host(number)] {
            world.progress(1).await;
        }
        let start = move || {
            cluster.begin(number);
            cluster.wait(number);
            cluster
        };
        cluster = spawn_blocking(start).await.expect("it starts again");
        world.progress(calls()).await;
        while !world.lost_nodes().is_empty() {
            world.progress(1).await;
        }
        let stopped = (round + 1) % NODES;
        cluster.stop(stopped);
        world.progress(calls()).await;
        cluster.go_on(stopped);
        world.progress(calls()).await;
    }
    cluster
}

/// With one of three copies left, calls fail in time, and the report says why.
async fn a_lack_of_quorum_is_told(mut cluster: Cluster, world: &World) {
    let store = &world.stores[0];
    cluster.kill(0);
    cluster.kill(1);
    let reason = loop {
        let failure = read(store, NS, &world.rows[0]).await;
        failure.expect_err("there is one copy");
        if let ShardState::Unavailable(reason) = &store.status()[0].state {
            break reason.clone();
        }
    };
    assert!(
        reason.contains("connected: 1;") && reason.contains("and 2 have to answer"),
        "{reason}"
    );
    let refused = write(store, request(put(&world.rows[0], "late"))).await;
    assert!(
        matches!(
            refused,
            Err(WriteError::Store(StoreError::Unavailable { .. }))
        ),
        "{refused:?}"
    );
}
