//! A client of the store: all operations of the contract, on few rows.

mod repeat;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_store::{
    Atomicity, ByKey as _, CallContext, DeleteRangeRequest, Durability, SortRange, Store,
    WriteError, WriteRequest, Written,
};
use umbo_types::{Clock, Deadline, NamespaceId, Version};

use super::words::{key_of, kind_of, mutation, request_of, seen_in};
use super::world::World;
use crate::chance::Chance;
use crate::history::{Asked, Effect, OnlyIf, RowName};
use crate::simulation::{met, note, violated};
use crate::value::{WriteId, value, writer_of};

/// Time after which a client gives an operation up.
const PATIENCE: Duration = Duration::from_mins(1);

/// The next operation of a client.
#[derive(Debug, Clone, Copy)]
enum Action {
    Put,
    Delete,
    DeleteRange,
    Compare,
    PutAbsent,
    Group,
    Batch,
    Get,
    Range,
}

/// A client: its identity, and its random numbers.
struct SimulatedClient {
    world: Rc<World>,
    session: u32,
    chance: Chance,
}

/// Runs until the world is over.
pub(super) async fn run(world: Rc<World>, session: u32, mut chance: Chance) {
    // Each client has only some of the operations.
    let mut actions = vec![(3, Action::Put), (3, Action::Get)];
    for action in [
        Action::Delete,
        Action::DeleteRange,
        Action::Compare,
        Action::PutAbsent,
        Action::Group,
        Action::Batch,
        Action::Range,
    ] {
        if chance.per_mille(600) {
            actions.push((chance.between(1, 4), action));
        }
    }
    let mut client = SimulatedClient {
        world,
        session,
        chance,
    };
    while !client.world.is_over() {
        let think = client.chance.below(client.world.plan.think_micros);
        tokio::time::sleep(Duration::from_micros(think)).await;
        if !client
            .world
            .endpoints
            .iter()
            .any(|endpoint| endpoint.is_open())
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        client.world.note_wall();
        let action = client.chance.weighted(&actions);
        client.act(action).await;
    }
}

impl SimulatedClient {
    async fn act(&mut self, action: Action) {
        let row = self.some_row();
        match action {
            Action::Put => {
                let effect = self.some_put();
                self.write(vec![(row, effect, OnlyIf::Always)], false).await;
            }
            Action::Delete => {
                self.write(vec![(row, Effect::Delete, OnlyIf::Always)], false)
                    .await;
            }
            Action::DeleteRange => self.delete_range(&row).await,
            Action::Compare => {
                if let Some(Some(version)) = self.get(&row).await {
                    let effect = self.some_put();
                    self.write(vec![(row, effect, OnlyIf::Version(version))], false)
                        .await;
                }
            }
            Action::PutAbsent => {
                let effect = self.some_put();
                self.write(vec![(row, effect, OnlyIf::Absent)], false).await;
            }
            Action::Group | Action::Batch => {
                let is_group = matches!(action, Action::Group);
                let writes = self.some_batch(&row, is_group);
                self.write(writes, is_group).await;
            }
            Action::Get => drop(self.get(&row).await),
            Action::Range => self.range(&row).await,
        }
    }

    fn some_row(&mut self) -> RowName {
        let namespaces = self.world.namespaces.borrow();
        let namespace = namespaces[self.chance.index(namespaces.len())];
        RowName {
            namespace: namespace.0.into(),
            partition: format!("p{}", self.chance.below(self.world.plan.partitions)),
            sort: format!("s{}", self.chance.below(self.world.plan.sorts)),
        }
    }

    /// Returns the number of the host for the next operation.
    fn some_host(&mut self) -> usize {
        self.chance.index(self.world.endpoints.len())
    }

    fn some_put(&mut self) -> Effect {
        let is_short = self.chance.per_mille(self.world.plan.ttl_per_mille);
        let ttl = Duration::from_millis(self.chance.between(20, 2_000));
        let now = self.world.clock.wall();
        Effect::Put {
            expires_at: is_short.then(|| now.saturating_add(ttl)),
        }
    }

    fn some_batch(&mut self, row: &RowName, is_group: bool) -> Vec<(RowName, Effect, OnlyIf)> {
        let mut batch = BTreeMap::new();
        for _ in 0..self.chance.between(2, 5) {
            let other = self.some_row();
            let partition = if is_group {
                row.partition.clone()
            } else {
                other.partition
            };
            let name = RowName {
                namespace: row.namespace,
                partition,
                sort: other.sort,
            };
            let effect = if self.chance.per_mille(200) {
                Effect::Delete
            } else {
                self.some_put()
            };
            let only_if = if self.chance.per_mille(100) {
                OnlyIf::Present
            } else {
                OnlyIf::Always
            };
            batch.insert(name, (effect, only_if));
        }
        let parts = batch.into_iter();
        parts
            .map(|(row, (effect, only_if))| (row, effect, only_if))
            .collect()
    }

    /// Returns a context that may have a short deadline, and the time after which the client gives the
    /// operation up.
    fn some_call(&mut self) -> (CallContext, Duration) {
        let plan = self.world.plan.clone();
        let mut call = CallContext::internal();
        let mut patience = PATIENCE;
        if self.chance.per_mille(plan.deadline_per_mille) {
            let now = self.world.clock.monotonic();
            let timeout = Duration::from_micros(self.chance.between(1, plan.deadline_micros_max));
            call = CallContext::internal_until(Deadline::after(now, timeout));
            if plan.gives_up_at_deadline {
                patience = timeout;
            }
        }
        if self.chance.per_mille(50) {
            met("operation given up by its client");
            let given = Duration::from_micros(self.chance.below(plan.deadline_micros_max));
            patience = patience.min(given);
        }
        (call, patience)
    }

    async fn write(&mut self, writes: Vec<(RowName, Effect, OnlyIf)>, is_group: bool) {
        let world = Rc::clone(&self.world);
        let is_async = self.chance.per_mille(world.plan.async_per_mille);
        let (call, patience) = self.some_call();
        let session = self.session;
        let large = |chance: &mut Chance| {
            let is_large = chance.per_mille(world.plan.large_per_mille);
            if is_large {
                chance.between(1_000, 20_000)
            } else {
                chance.between(0, 200)
            }
        };
        let lens: Vec<_> = writes.iter().map(|_| large(&mut self.chance)).collect();
        let begun = std::cell::Cell::new(None);
        let is_keyed = self.chance.per_mille(300);
        let sent = std::cell::RefCell::new(None);
        let host = self.some_host();
        let session = session * 8 + host as u32;
        let answers = world.endpoints[host].ask(async |store| {
            let asked: Vec<Asked> = writes
                .iter()
                .map(|(row, effect, only_if)| Asked {
                    shard: shard_of(&store, row),
                    row: row.clone(),
                    effect: *effect,
                    only_if: *only_if,
                })
                .collect();
            let ids = world
                .history
                .borrow_mut()
                .begin(session, is_group, is_async, &asked);
            begun.set(Some((ids.start, ids.end)));
            let mutations = ids
                .clone()
                .zip(&asked)
                .zip(&lens)
                .map(|((id, asked), &len)| mutation(asked, value(id, len as usize)))
                .collect();
            let request = WriteRequest {
                namespace: NamespaceId(asked[0].row.namespace as u32),
                epoch: 0,
                mutations,
                atomicity: if is_group {
                    Atomicity::Partition
                } else {
                    Atomicity::None
                },
                durability: if is_async {
                    Durability::Async
                } else {
                    Durability::Sync
                },
                proposed: Version::proposed_at(world.clock.wall()),
                idempotency: is_keyed.then(|| Self::idempotency_of(&world, ids)),
                not_before: None,
                run: None,
            };
            sent.replace(Some(request.clone()));
            tokio::time::timeout(patience, store.write_rows(&call, request)).await
        });
        let mut answers = answers.await.and_then(Result::ok);
        world.note_wall();
        let Some((first, end)) = begun.get() else {
            return;
        };
        if let Some(request) = sent.take().filter(|_| is_keyed) {
            self.repeat(&request, &mut answers).await;
        }
        note_answers(&world, session, first..end, answers);
    }

    /// Reads a row. Returns its version; none if the read failed.
    async fn get(&mut self, row: &RowName) -> Option<Option<u64>> {
        let world = Rc::clone(&self.world);
        let begun = world.history.borrow_mut().event();
        let before = world.clock.wall();
        let (namespace, key) = (NamespaceId(row.namespace as u32), key_of(row));
        let get = async |store: Arc<dyn Store>| {
            store
                .get_row(&CallContext::internal(), namespace, &key)
                .await
        };
        let answer = world.endpoints[self.some_host()].ask(get).await?;
        world.note_wall();
        match answer {
            Ok(None) => {
                world.history.borrow_mut().check(row, begun, None);
                Some(None)
            }
            Ok(Some(found)) => {
                if found.is_expired(before.min(world.clock.wall())) {
                    violated("an expired row is seen");
                }
                let Some(id) = writer_of(&found.value.bytes) else {
                    violated("a value is not what was written");
                    return None;
                };
                let version = found.version.0;
                note!("client {}: sees write {id}", self.session);
                world
                    .history
                    .borrow_mut()
                    .check(row, begun, Some((Some(id), version)));
                Some(Some(version))
            }
            Err(error) => {
                note!("client {}: get: {}", self.session, kind_of(&error));
                None
            }
        }
    }

    /// Reads a partition, possibly in several chunks.
    async fn range(&mut self, row: &RowName) {
        let world = Rc::clone(&self.world);
        let rows_max = self.chance.weighted(&[(1, 1_000), (1, 2)]);
        let mut range = SortRange::default();
        let host = self.some_host();
        loop {
            let begun = world.history.borrow_mut().event();
            let request = request_of(row, range.clone(), rows_max);
            let read = async |store: Arc<dyn Store>| {
                store.range_of(&CallContext::internal(), &request).await
            };
            let page = match world.endpoints[host].ask(read).await {
                None => return,
                Some(Err(error)) => {
                    return note!("client {}: range: {}", self.session, kind_of(&error));
                }
                Some(Ok(page)) => page,
            };
            world.note_wall();
            let Some(seen) = seen_in(&page, row) else {
                return;
            };
            note!(
                "client {}: sees {} rows of a range",
                self.session,
                seen.len()
            );
            let within = |name: &RowName| {
                let sort = name.sort.as_bytes();
                name.namespace == row.namespace
                    && name.partition == row.partition
                    && range.contains(sort)
                    && page
                        .resume_after
                        .as_ref()
                        .is_none_or(|last| sort <= &last[..])
            };
            let mut history = world.history.borrow_mut();
            let mut names = history.rows();
            names.retain(within);
            history.check_snapshot(&names, begun, &seen);
            drop(history);
            let Some(last) = page.resume_after else {
                return;
            };
            range = range.beyond(&last, false);
        }
    }

    async fn delete_range(&mut self, row: &RowName) {
        let world = Rc::clone(&self.world);
        let is_async = self.chance.per_mille(world.plan.async_per_mille);
        // Every row that there may be: one that is written meanwhile is removed, too.
        let names: Vec<RowName> = (0..world.plan.sorts)
            .map(|number| RowName {
                sort: format!("s{number}"),
                ..row.clone()
            })
            .collect();
        let request = DeleteRangeRequest {
            namespace: NamespaceId(row.namespace as u32),
            epoch: 0,
            partition: key_of(row).partition,
            range: SortRange::default(),
            rows_max: 1_000,
            durability: if is_async {
                Durability::Async
            } else {
                Durability::Sync
            },
        };
        let begun = std::cell::Cell::new((0, 0));
        let host = self.some_host();
        let session = self.session * 8 + host as u32;
        let removal = world.endpoints[host].ask(async |store| {
            let asked: Vec<Asked> = names
                .iter()
                .map(|name| Asked {
                    shard: shard_of(&store, name),
                    row: name.clone(),
                    effect: Effect::DeleteInRange,
                    only_if: OnlyIf::Always,
                })
                .collect();
            let ids = world
                .history
                .borrow_mut()
                .begin(session, false, is_async, &asked);
            begun.set((ids.start, ids.end));
            store.remove_rows(&CallContext::internal(), request).await
        });
        let removed = removal.await;
        world.note_wall();
        let (first, end) = begun.get();
        let mut history = world.history.borrow_mut();
        for id in first..end {
            match &removed {
                // Asynchronous ones may be lost, and no version tells which: their outcome stays unknown.
                Some(Ok(_)) if !is_async => history.acknowledge(id, None),
                Some(Err(error)) if error.outcome() == umbo_store::Outcome::NotApplied => {
                    history.refuse(id);
                }
                _ => history.doubt(id),
            }
        }
        note!("client {session}: removes a range of {} rows", end - first);
    }
}

/// Returns the shard of a row.
fn shard_of(store: &Arc<dyn Store>, row: &RowName) -> u16 {
    let key = key_of(row);
    store
        .shard_map()
        .locate(NamespaceId(row.namespace as u32), &key.partition)
        .0
}

/// Records the outcome of writes; none if they were not answered.
fn note_answers(
    world: &World,
    session: u32,
    ids: Range<WriteId>,
    answers: Option<Vec<Result<Written, WriteError>>>,
) {
    let mut history = world.history.borrow_mut();
    let Some(answers) = answers else {
        note!("client {session}: writes {ids:?} have no answer");
        return ids.for_each(|id| history.doubt(id));
    };
    for (id, answer) in ids.zip(answers) {
        match answer {
            Ok(written) => {
                note!(
                    "client {session}: write {id} has version {}",
                    written.version.0
                );
                history.acknowledge(id, Some(written.version.0));
            }
            Err(WriteError::ConditionFailed { current }) => {
                met("condition refused");
                note!("client {session}: write {id} is refused by its condition");
                let current = current.map(|version| version.0);
                // A refused group returns the row after it was undone, but no expiry.
                history.refuse_condition(id, current);
            }
            Err(WriteError::GroupAborted { .. }) => {
                met("group aborted");
                history.refuse(id);
            }
            Err(
                error @ (WriteError::NotANumber
                | WriteError::IncrementOverflow { .. }
                | WriteError::IdempotencyMismatch
                | WriteError::IdempotencyFull { .. }
                | WriteError::UploadGone
                | WriteError::NeedsExactWrites
                | WriteError::Replayed(_)),
            ) => violated(&format!("a write is refused for no reason: {error}")),
            Err(WriteError::Store(error)) => {
                note!("client {session}: write {id}: {}", kind_of(&error));
                match error.outcome() {
                    umbo_store::Outcome::NotApplied => history.refuse(id),
                    _ => history.doubt(id),
                }
            }
        }
    }
}
