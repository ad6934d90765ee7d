//! Conditions that must hold after a power failure, and after all faults are over.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_store::{ByKey as _, CallContext, Durability, ShardState, SortRange, Store, WriteRequest};
use umbo_types::{Clock, Key, NamespaceId, Value, Version};

use super::fences::NamespaceRemovals;
use super::words::{key_of, request_of, seen_in};
use super::world::World;
use crate::chance::Chance;
use crate::history::{Effect, RowName, SeenRows, name};
use crate::simulation::{is_violated, note, violated};
use crate::value::{value, writer_of};

/// How long an asynchronous write may be missing after a power failure: the flush bound of the engine, the
/// longest commit in progress, and the scheduling in between.
const FLUSH_BOUND: Duration = Duration::from_millis(50 + 2 * 25 + 5);
/// Time after the last fault until everything must serve again: the engine retries a failed file every ten
/// seconds, and reads a part of it that was unreadable ten seconds after it was.
const HEALING: Duration = Duration::from_secs(25);
/// Time for the last rows to expire and be reclaimed: the engine leaves out for a minute one that it could not
/// read.
const DRAINING: Duration = Duration::from_mins(1);

/// Compares all rows with all acknowledged writes, after a power failure.
pub(super) async fn audit(world: &Rc<World>) {
    // The shards write again: what counts is how they were.
    let now = world.clock.wall();
    world.history.borrow_mut().note_wall(now);
    let (seen, unreadable) = everything(world).await;
    note!("audit: {} rows", seen.len());
    let failed_at = world.hosts[0].failed_at.get();
    let mut history = world.history.borrow_mut();
    history.audit(failed_at, FLUSH_BOUND, &seen, &unreadable);
}

/// Reads every row, and returns those that cannot be read.
async fn everything(world: &Rc<World>) -> (SeenRows, BTreeSet<RowName>) {
    let names = world.history.borrow().rows();
    let (mut seen, mut unreadable) = (SeenRows::new(), BTreeSet::new());
    let partitions: BTreeSet<(u64, String)> = names
        .iter()
        .map(|name| (name.namespace, name.partition.clone()))
        .collect();
    for (namespace, partition) in partitions {
        let row = RowName {
            namespace,
            partition,
            sort: String::new(),
        };
        let request = request_of(&row, SortRange::default(), 1_000);
        let read =
            async |store: Arc<dyn Store>| store.range_of(&CallContext::internal(), &request).await;
        let mut page = None;
        for endpoint in &world.endpoints {
            if let Some(Ok(found)) = endpoint.ask(&read).await {
                page = Some(found).filter(|page| page.resume_after.is_none());
            }
        }
        if let Some(page) = page {
            seen.extend(seen_in(&page, &row).unwrap_or_default());
            continue;
        }
        // A damaged row fails the range; the others are read one by one.
        let of_partition =
            |name: &&RowName| name.namespace == row.namespace && name.partition == row.partition;
        for name in names.iter().filter(of_partition) {
            let (namespace, key) = (NamespaceId(name.namespace as u32), key_of(name));
            let get = async |store: Arc<dyn Store>| {
                store
                    .get_row(&CallContext::internal(), namespace, &key)
                    .await
            };
            match world.endpoints[0].ask(get).await {
                Some(Ok(None)) => {}
                Some(Ok(Some(found))) => match writer_of(&found.value.bytes) {
                    Some(id) => drop(seen.insert(name.clone(), (id, found.version.0))),
                    None => violated("a value is not what was written"),
                },
                Some(Err(_)) | None => drop(unreadable.insert(name.clone())),
            }
        }
    }
    (seen, unreadable)
}

/// Checks that the store serves again, reclaims what it must, and stores exactly the acknowledged rows.
pub(super) async fn check(world: &Rc<World>, fences: &NamespaceRemovals) {
    note!("all faults are over");
    world.note_wall();
    world.clock.set_ahead(0);
    tokio::time::sleep(HEALING).await;
    fences.complete(world).await;
    world.note_wall();
    replace_unreadable(world).await;
    if is_violated() {
        return;
    }
    if !is_live(world).await {
        return violated("a shard does not serve although all faults are over");
    }
    settle_by_read(world).await;
    tokio::time::sleep(DRAINING).await;
    world.note_wall();
    check_at_rest(world).await;
    world.hosts[0].close().await;
    world.hosts[0].failed_at.set(Duration::ZERO);
    world.hosts[0].open().await;
    settle_by_read(world).await;
}

/// Checks that remote stores serve again, and have the acknowledged rows.
pub(super) async fn check_reached(world: &Rc<World>) {
    note!("all faults are over");
    tokio::time::sleep(HEALING).await;
    if !is_live(world).await {
        return violated("a shard does not serve although all faults are over");
    }
    settle_by_read(world).await;
}

/// Writes the unreadable rows again, as an operator would: that repairs them.
async fn replace_unreadable(world: &Rc<World>) {
    let (_, unreadable) = everything(world).await;
    for row in unreadable {
        let asked = crate::history::Asked {
            shard: 0,
            row: row.clone(),
            effect: Effect::Delete,
            only_if: crate::history::OnlyIf::Always,
        };
        let put = async |store: Arc<dyn Store>| {
            let shard = store
                .shard_map()
                .locate(NamespaceId(row.namespace as u32), &key_of(&row).partition);
            let asked = crate::history::Asked {
                shard: shard.0,
                ..asked.clone()
            };
            let ids = world
                .history
                .borrow_mut()
                .begin(u32::MAX, false, false, &[asked]);
            let request = WriteRequest {
                namespace: NamespaceId(row.namespace as u32),
                epoch: 0,
                mutations: vec![umbo_store::Mutation {
                    key: key_of(&row),
                    change: umbo_store::Change::Delete,
                    condition: umbo_store::Condition::Always,
                }],
                atomicity: umbo_store::Atomicity::None,
                durability: Durability::Sync,
                proposed: Version(1),
                idempotency: None,
                not_before: None,
                run: None,
            };
            let answer = store
                .write_rows(&CallContext::internal(), request)
                .await
                .remove(0);
            (ids.start, answer)
        };
        match world.endpoints[0].ask(put).await {
            Some((id, Ok(written))) => {
                note!("{}: unreadable, removed", name(&row));
                world
                    .history
                    .borrow_mut()
                    .acknowledge(id, Some(written.version.0));
            }
            Some((_, Err(error))) => {
                note!("{}: {}", name(&row), world.hosts[0].without_path(&error));
                violated("a damaged row cannot be removed although all faults are over");
            }
            None => {}
        }
    }
}

/// Puts and reads a row in every shard.
async fn is_live(world: &Rc<World>) -> bool {
    let mut is_live = true;
    let probe = async |store: Arc<dyn Store>| {
        let namespace = NamespaceId(9_999);
        let mut left: BTreeSet<_> = store.status().iter().map(|status| status.shard).collect();
        for number in 0.. {
            let key = Key::new(format!("probe{number}"), "").expect("the name is short");
            let shard = store.shard_map().locate(namespace, &key.partition);
            if !left.remove(&shard) {
                if left.is_empty() {
                    break;
                }
                continue;
            }
            let put = umbo_store::Mutation {
                key: key.clone(),
                change: umbo_store::Change::Put {
                    value: Value::new(value(number, 50), "", "").expect("the value is short"),
                    // The row of the probe goes away by itself.
                    expires_at: Some(world.clock.wall().saturating_add(HEALING)),
                },
                condition: umbo_store::Condition::Always,
            };
            let request = WriteRequest {
                namespace,
                epoch: 0,
                mutations: vec![put],
                atomicity: umbo_store::Atomicity::None,
                durability: Durability::Sync,
                proposed: Version(1),
                idempotency: None,
                not_before: None,
                run: None,
            };
            let call = CallContext::internal();
            let written = store.write_rows(&call, request).await.remove(0);
            let found = store.get_row(&call, namespace, &key).await;
            if let Err(umbo_store::WriteError::Store(error)) = &written {
                note!("{shard}: {}", world.hosts[0].without_path(error));
            }
            is_live &= written.is_ok() && matches!(found, Ok(Some(_)));
        }
        is_live &= store
            .status()
            .iter()
            .all(|status| status.state == ShardState::Available);
    };
    world.endpoints[0].ask(probe).await;
    is_live
}

/// Checks all rows by reading them, without other operations.
pub(super) async fn settle_by_read(world: &Rc<World>) {
    world.note_wall();
    let (seen, unreadable) = everything(world).await;
    if let Some(row) = unreadable.first() {
        return violated(&format!("{}: unreadable at rest", name(row)));
    }
    let mut history = world.history.borrow_mut();
    let names = history.rows();
    let begun = history.event();
    history.check_snapshot(&names, begun, &seen);
}

/// Checks that no unreachable row is stored.
async fn check_at_rest(world: &Rc<World>) {
    let (seen, _) = everything(world).await;
    let status = async |store: Arc<dyn Store>| store.status();
    let Some(status) = world.endpoints[0].ask(status).await else {
        return;
    };
    let rows: u64 = status.iter().map(|shard| shard.rows).sum();
    note!("at rest: {rows} rows stored, {} seen", seen.len());
    if rows != seen.len() as u64 {
        violated(&format!(
            "{rows} rows are stored at rest, and {} can be read",
            seen.len()
        ));
    }
    for shard in status {
        if shard.queued > 0 || shard.purging > 0 || shard.expired > 0 {
            violated(&format!("{}: there is work left at rest", shard.shard));
        }
    }
}

impl World {
    /// Returns the value of some row that was acknowledged.
    pub(super) fn some_value(&self, chance: &mut Chance) -> Option<Vec<u8>> {
        let history = self.history.borrow();
        history.some_value(chance)
    }
}
