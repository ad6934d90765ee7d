//! One bad sector as the only fault: it affects only the rows that are stored in it.
//!
//! One client reads and writes the row in the bad sector repeatedly; the others use rows that are far from it
//! in the order of keys. They must not be affected. What was acknowledged of the row itself is read again, if it can be
//! read, and is there once the disk is well.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, Durability, Mutation, Outcome, Store,
    WriteRequest,
};
use umbo_store_redb::Config;
use umbo_types::{Clock, Key, NamespaceId, Value, Version};

use super::host::SimulatedHost;
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{met, note, violated};
use crate::value::{head, value};

/// How long the clients work beside the bad sector.
const LASTS: Duration = Duration::from_secs(4);
/// Number of the damaged row.
const VICTIM: usize = 150;
/// Length of the values in the namespace of the damaged row.
const VICTIM_LEN: usize = 3_000;
/// Most writes of other clients that may fail, in thousandths.
const FAILED_PER_MILLE_MAX: u64 = 10;

struct World {
    host: SimulatedHost,
    is_over: Cell<bool>,
    writes: Cell<u64>,
    failed: Cell<u64>,
    /// Length of the value of the damaged row; 0 if a write of it has an unknown outcome.
    victim_len: Cell<usize>,
}

/// Runs the world.
pub(super) async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "isolation");
    let cache_bytes = chance.weighted(&[(1, 64 << 10), (1, 1 << 20)]);
    note!("one bad sector, cache of {cache_bytes} bytes");
    let world = Rc::new(World {
        host: SimulatedHost::new(
            seed,
            "",
            Config {
                shards: Some(1),
                cache_bytes,
                ..Config::default()
            },
            &Arc::new(SimulatedClock::new()),
        ),
        is_over: Cell::new(false),
        writes: Cell::new(0),
        failed: Cell::new(0),
        victim_len: Cell::new(VICTIM_LEN),
    });
    world.host.open().await;
    for number in 0..200 {
        write(&world, NamespaceId(7), number, 300).await;
        write(&world, NamespaceId(9), number, VICTIM_LEN).await;
    }
    // The caches are empty afterwards.
    world.host.close().await;
    world.host.open().await;
    world.writes.set(0);
    if chance.per_mille(800) {
        // A log that is in use takes a write of the row before its page turns bad.
        for _ in 0..2 {
            write(&world, NamespaceId(7), 0, 300).await;
        }
        world.victim_len.set(VICTIM_LEN - 1);
        write(&world, NamespaceId(9), VICTIM, VICTIM_LEN - 1).await;
    }
    if !world.host.disk.spoil_sector_of(&head(9_000 + VICTIM)) {
        return violated("the row to be damaged is not on the disk");
    }
    met("one bad sector");
    // Its page leaves a small cache.
    for number in 0..100 {
        read(&world, number).await;
    }
    let writes_victim = chance.per_mille(600);
    let every = Duration::from_micros(chance.weighted(&[(1, 1_000), (1, 20_000), (1, 300_000)]));
    let damaged = tokio::task::spawn_local(bother(Rc::clone(&world), writes_victim, every));
    let others: Vec<_> = (0..4)
        .map(|number| {
            let chance = Chance::new(seed, &format!("other {number}"));
            tokio::task::spawn_local(work(Rc::clone(&world), chance))
        })
        .collect();
    tokio::time::sleep(LASTS).await;
    world.is_over.set(true);
    for task in others.into_iter().chain([damaged]) {
        if task.await.is_err() {
            violated("a client panicked");
        }
    }
    let (writes, failed) = (world.writes.get(), world.failed.get());
    note!("{failed} of {writes} writes of others failed");
    if failed * 1_000 > writes * FAILED_PER_MILLE_MAX {
        violated(&format!(
            "{failed} of {writes} writes failed beside one bad sector that is not theirs"
        ));
    }
    world.host.close().await;
    world.host.disk.heal();
    world.host.open().await;
    if !read_victim(&world).await {
        violated("the row cannot be read from a disk that is well");
    }
    world.host.close().await;
}

/// Reads the length of a value. Returns `None` if it cannot be read.
async fn read(world: &World, number: usize) -> Option<usize> {
    let (call, key) = (CallContext::internal(), key_of(number));
    let get = async |store: Arc<dyn Store>| store.get_row(&call, NamespaceId(9), &key).await;
    let row = world.host.endpoint.ask(get).await?.ok()?;
    Some(row.map_or(0, |row| row.value.bytes.len()))
}

/// Reads the damaged row. Returns whether it could be read.
async fn read_victim(world: &World) -> bool {
    let Some(found) = read(world, VICTIM).await else {
        return false;
    };
    let wanted = world.victim_len.get();
    if wanted != 0 && found != wanted {
        violated(&format!(
            "a value of {found} bytes was read, and one of {wanted} bytes was acknowledged"
        ));
    }
    true
}

/// Reads and writes the damaged row.
async fn bother(world: Rc<World>, writes: bool, every: Duration) {
    let mut len = 100;
    while !world.is_over.get() {
        tokio::time::sleep(every).await;
        if !read_victim(&world).await {
            met("read of a bad sector");
        }
        if writes {
            len += 1;
            let call = CallContext::internal();
            let request = request(&world, NamespaceId(9), VICTIM, len);
            let write =
                async |store: Arc<dyn Store>| store.write_rows(&call, request).await.remove(0);
            match world.host.endpoint.ask(write).await {
                Some(Ok(_)) => world.victim_len.set(len),
                Some(Err(error)) if error.outcome() == Outcome::NotApplied => {
                    met("write beside a bad sector refused");
                }
                _ => world.victim_len.set(0),
            }
        }
    }
}

/// Writes rows that are not in it.
async fn work(world: Rc<World>, mut chance: Chance) {
    while !world.is_over.get() {
        tokio::time::sleep(Duration::from_micros(chance.between(100, 3_000))).await;
        write(&world, NamespaceId(7), chance.below(100) as usize, 300).await;
    }
}

async fn write(world: &Rc<World>, namespace: NamespaceId, number: usize, len: usize) {
    let request = request(world, namespace, number, len);
    let call = CallContext::internal();
    let write = async |store: Arc<dyn Store>| store.write_rows(&call, request).await.remove(0);
    if let Some(answer) = world.host.endpoint.ask(write).await {
        world.writes.set(world.writes.get() + 1);
        world
            .failed
            .set(world.failed.get() + u64::from(answer.is_err()));
    }
}

fn request(world: &World, namespace: NamespaceId, number: usize, len: usize) -> WriteRequest {
    let id = namespace.0 as usize * 1_000 + number;
    WriteRequest {
        namespace,
        epoch: 0,
        mutations: vec![Mutation {
            key: key_of(number),
            change: Change::Put {
                value: Value::new(value(id, len), "", "").expect("the value is short enough"),
                expires_at: None,
            },
            condition: Condition::Always,
        }],
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version::proposed_at(world.host.clock.wall()),
        idempotency: None,
        not_before: None,
        run: None,
    }
}

fn key_of(number: usize) -> Key {
    Key::new(format!("row{number:05}"), "").expect("the name is short")
}
