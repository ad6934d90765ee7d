//! The effect of the writes of one commit: conditions evaluated, versions assigned, one final change for each
//! key.
//!
//! Pure: reads no file and no clock. The writes are decided in order of arrival, so a condition sees every
//! earlier mutation of the same commit; the remaining changes are then sorted by key, which makes inserting
//! into a B-tree cheap. The invariant: each key is changed at most once a commit, and a refused atomic group
//! has no effect.

mod base;
mod conditions;
mod datasets;
mod refusal;
mod upload_use;
mod visible;

use std::borrow::Cow;
use std::collections::BTreeSet;

use umbo_store::{
    Atomicity, Change, Condition, DatasetGroup, GIVES_WAY_EVERY, Idempotency, StoreError,
    WriteError, Written, give_way, increment,
};
use umbo_types::{ShardId, Timestamp, Value, Version, VersionClock};

pub(crate) use self::base::Base;
use self::refusal::MutationRefusal;
pub(crate) use self::upload_use::UploadUse;
use crate::committer::idempotency::RecordPlan;
use crate::committer::newest_stamps::NewestStamps;
use crate::row_codec::RowHead;
use crate::work::{MutationResult, Op, WriteWork};

/// The state of a key after the mutations that have been decided so far.
#[derive(Debug, Clone)]
enum KeyState<'a> {
    AsBefore,
    Put(RowHead, Cow<'a, Value>),
    Deleted,
}

/// The final change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowEffect<'a> {
    /// Nothing.
    None,
    /// Store a row.
    Put(RowHead, &'a Value),
    /// Remove the row.
    Remove,
}

/// A key, and its final change.
pub(crate) type KeyChange<'a> = (&'a [u8], RowEffect<'a>);

/// Whether a load puts a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FromLoad {
    No,
    Yes,
    /// The load would put the row, but a client has written it meanwhile.
    Written,
}

#[derive(Debug)]
struct KeyPlan<'a> {
    key: &'a [u8],
    /// Whether a condition, an increment or an idempotency record needs the stored row.
    is_read: bool,
    /// Whether the number in the stored row is needed.
    is_counter: bool,
    base: Base,
    state: KeyState<'a>,
    loaded: FromLoad,
    /// The datasets that take the change.
    group: Option<&'a DatasetGroup>,
    /// Why the key must not be changed, if so.
    refusal: Option<&'a StoreError>,
}

/// Whether a row was visible before a mutation.
#[derive(Debug, Clone, Copy)]
enum Existed {
    Known(bool),
    /// As the stored row of this key, which is read when the change is made.
    AsBase(usize),
}

#[derive(Debug)]
enum Decision {
    Written {
        version: Version,
        existed: Existed,
        number: Option<i64>,
    },
    /// Recorded by an earlier request.
    Replayed(Written),
    PushError(WriteError),
}

/// The writes of one commit.
#[derive(Debug)]
pub(crate) struct CommitPlan<'a> {
    writes: &'a [&'a WriteWork],
    stamps: &'a NewestStamps,
    /// Keys in order, each once.
    keys: Vec<KeyPlan<'a>>,
    /// For each mutation in order of arrival, the index of its key.
    key_of: Vec<usize>,
    decisions: Vec<Option<Decision>>,
    upload_gone: BTreeSet<usize>,
    /// Whether other datasets take changes of any key.
    has_groups: bool,
    /// The idempotency records of the writes that have a key.
    pub(super) records: RecordPlan,
}

impl<'a> CommitPlan<'a> {
    /// Sorts the keys of the writes.
    pub(crate) fn of(writes: &'a [&'a WriteWork], stamps: &'a NewestStamps) -> Self {
        let ops: Vec<&Op> = writes.iter().flat_map(|write| &write.ops).collect();
        let mut order: Vec<usize> = (0..ops.len()).collect();
        // Stable, and fast on keys that are already sorted, as in bulk input.
        order.sort_by(|&one, &two| ops[one].key.cmp(&ops[two].key));
        let mut keys: Vec<KeyPlan<'a>> = Vec::with_capacity(ops.len());
        let mut key_of = vec![0; ops.len()];
        for (nth, at) in order.into_iter().enumerate() {
            give_way(nth, GIVES_WAY_EVERY);
            let op = ops[at];
            if keys.last().is_none_or(|last| last.key != op.key) {
                keys.push(KeyPlan {
                    key: &op.key,
                    is_read: false,
                    is_counter: false,
                    base: Base::Unread,
                    state: KeyState::AsBefore,
                    loaded: FromLoad::No,
                    group: None,
                    refusal: None,
                });
            }
            key_of[at] = keys.len() - 1;
            let is_counter = matches!(op.change, Change::Increment { .. });
            let key = &mut keys[key_of[at]];
            key.is_counter |= is_counter;
            if op.condition.is_unwritten() {
                key.loaded = FromLoad::Yes;
            }
            key.is_read |=
                is_counter || !is_blind(&op.condition) && !stamps.cover(&op.key, &op.condition);
        }
        let mut records = RecordPlan::default();
        let mut first = 0;
        for write in writes {
            if let Some(idempotency) = &write.idempotency {
                records.add(idempotency, &write.ops);
                for at in first..first + write.ops.len() {
                    keys[key_of[at]].is_read = true;
                }
            }
            if let Some(group) = &write.group {
                let ops = (first..).zip(&write.ops);
                for (at, op) in ops.filter(|(_, op)| !op.condition.is_unwritten()) {
                    keys[key_of[at]].group = Some(group);
                    keys[key_of[at]].is_read |= !is_blind(&op.condition);
                }
            }
            first += write.ops.len();
        }
        Self {
            writes,
            stamps,
            keys,
            decisions: (0..key_of.len()).map(|_| None).collect(),
            has_groups: writes.iter().any(|write| write.group.is_some()),
            key_of,
            upload_gone: BTreeSet::new(),
            records,
        }
    }

    /// Refuses the mutations whose use of an upload `is_served` denies. It is asked in order of arrival.
    pub(crate) fn use_uploads<E>(
        &mut self,
        mut is_served: impl FnMut(&[u8], UploadUse<'_>) -> Result<bool, E>,
    ) -> Result<(), E> {
        for (at, op) in self.writes.iter().flat_map(|write| &write.ops).enumerate() {
            if self.keys[self.key_of[at]].refusal.is_none()
                && let Some(wanted) = UploadUse::of(&op.change)
                && !is_served(&op.key, wanted)?
            {
                self.upload_gone.insert(at);
            }
        }
        Ok(())
    }

    /// Calls `read` with each key whose stored row is needed before the decision, in order, and with whether its number
    /// is needed too.
    pub(crate) fn read_bases<E>(
        &mut self,
        mut read: impl FnMut(&[u8], bool) -> Result<Base, E>,
    ) -> Result<(), E> {
        let is_read = |key: &&mut KeyPlan<'_>| key.is_read && key.refusal.is_none();
        for key in self.keys.iter_mut().filter(is_read) {
            key.base = read(key.key, key.is_counter)?;
        }
        Ok(())
    }

    /// Makes the stored row of every key needed before the decision.
    pub(crate) fn need_all(&mut self) {
        self.keys.iter_mut().for_each(|key| key.is_read = true);
    }

    /// Returns whether the stored row of any key cannot be decoded.
    pub(crate) fn has_damage(&self) -> bool {
        let is_damaged = |key: &KeyPlan<'_>| matches!(key.base, Base::Damaged(_));
        self.keys.iter().any(is_damaged)
    }

    /// Decides every mutation, in order of arrival.
    pub(crate) fn decide(&mut self, shard: ShardId, versions: &mut VersionClock, now: Timestamp) {
        let writes = self.writes;
        let mut first = 0;
        for write in writes {
            match (&write.idempotency, write.atomicity) {
                (Some(idempotency), _) => {
                    for group in groups(&write.ops) {
                        self.decide_once(shard, first, (write, idempotency), &group, versions, now);
                    }
                }
                (None, Atomicity::None) => {
                    for op in 0..write.ops.len() {
                        self.decide_alone(shard, first, write, op, versions, now);
                    }
                }
                (None, Atomicity::Partition) => {
                    for group in groups(&write.ops) {
                        let _ = self.decide_group(shard, first, write, &group, versions, now);
                    }
                }
            }
            first += write.ops.len();
        }
    }

    /// Decides the mutations of a partition that have no recorded outcome, and records their outcomes.
    fn decide_once(
        &mut self,
        shard: ShardId,
        first: usize,
        (write, idempotency): (&'a WriteWork, &Idempotency),
        group: &[usize],
        versions: &mut VersionClock,
        now: Timestamp,
    ) {
        let ops: Vec<&Op> = group.iter().map(|&op| &write.ops[op]).collect();
        let recorded = match self.records.begin(shard, idempotency, &ops) {
            Ok(recorded) => recorded,
            Err(refusal) => {
                for &op in group {
                    self.decisions[first + op] = Some(Decision::PushError(refusal.clone()));
                }
                return;
            }
        };
        let mut left = Vec::with_capacity(group.len());
        for (&op, recorded) in group.iter().zip(recorded) {
            match recorded {
                None => left.push(op),
                Some(Ok(written)) => {
                    self.decisions[first + op] = Some(Decision::Replayed(written));
                }
                Some(Err(error)) => self.decisions[first + op] = Some(Decision::PushError(error)),
            }
        }
        match write.atomicity {
            Atomicity::None => {
                for &op in &left {
                    self.decide_alone(shard, first, write, op, versions, now);
                }
            }
            Atomicity::Partition => {
                let is_decision = self.decide_group(shard, first, write, &left, versions, now);
                if !is_decision {
                    return;
                }
            }
        }
        for op in left {
            // A damaged row that is replaced counts as existing.
            let decision = self.decisions[first + op].as_ref();
            let outcome = answer(decision, |_| true);
            self.records.note(idempotency, &write.ops[op], &outcome);
        }
    }

    fn decide_alone(
        &mut self,
        shard: ShardId,
        first: usize,
        write: &'a WriteWork,
        op: usize,
        versions: &mut VersionClock,
        now: Timestamp,
    ) {
        let decided = self.decide_one(first + op, &write.ops[op], write.proposed, versions, now);
        self.decisions[first + op] = Some(match decided {
            Ok(decision) => decision,
            Err(refusal) => Decision::PushError(refusal.into_error(shard)),
        });
    }

    /// Calls `make` with the changes of all keys, in their order. `make` applies them and returns the row that each
    /// change replaces.
    pub(crate) fn apply<E>(
        &self,
        now: Timestamp,
        make: impl FnOnce(&[KeyChange<'_>]) -> Result<Vec<Option<RowHead>>, E>,
    ) -> Result<Vec<Vec<MutationResult>>, E> {
        let keys = self.keys.iter();
        let changes: Vec<_> = keys.map(|key| (key.key, key.effect())).collect();
        let is_visible = |head: Option<RowHead>| head.is_some_and(|head| head.is_visible(now));
        let existed: Vec<_> = make(&changes)?.into_iter().map(is_visible).collect();
        let mut decisions = self.decisions.iter();
        let answers = self.writes.iter().map(|write| {
            let own = decisions.by_ref().take(write.ops.len());
            own.enumerate()
                .map(|(at, decision)| {
                    give_way(at, GIVES_WAY_EVERY);
                    answer(decision.as_ref(), |id| existed[id])
                })
                .collect()
        });
        Ok(answers.collect())
    }

    /// Returns the number of mutations that will be applied.
    pub(crate) fn written(&self) -> usize {
        let is_written =
            |decision: &&Option<Decision>| matches!(decision, Some(Decision::Written { .. }));
        self.decisions.iter().filter(is_written).count()
    }

    fn decide_one(
        &mut self,
        at: usize,
        op: &'a Op,
        proposed: Version,
        versions: &mut VersionClock,
        now: Timestamp,
    ) -> Result<Decision, MutationRefusal> {
        give_way(at, GIVES_WAY_EVERY);
        let id = self.key_of[at];
        if let Some(error) = self.keys[id].refusal {
            return Err(MutationRefusal::LeftOut(error.clone()));
        }
        if matches!(op.change, Change::Upload(_)) && !self.upload_gone.contains(&at) {
            return Ok(Decision::Written {
                version: versions.next(proposed),
                existed: Existed::Known(false),
                number: None,
            });
        }
        if op.condition.is_unwritten() && !self.may_load(id, op) {
            return Err(MutationRefusal::Condition(None));
        }
        let existed = self.check_condition(id, op, now)?;
        if self.upload_gone.contains(&at) {
            return Err(MutationRefusal::Refused(WriteError::UploadGone));
        }
        let (number, put) = match &op.change {
            Change::Put { value, expires_at } => (None, Some((Cow::Borrowed(value), *expires_at))),
            Change::Delete | Change::Upload(_) => (None, None),
            Change::Increment {
                by,
                expires_at,
                default_expiry,
            } => {
                let counter = self.keys[id].visible_counter(now)?;
                let (number, value, expires_at) =
                    increment(counter.as_ref(), *by, *expires_at, *default_expiry)
                        .map_err(MutationRefusal::Refused)?;
                (Some(number), Some((Cow::Owned(value), expires_at)))
            }
        };
        let kept = op.condition.kept_version().filter(|_| put.is_some());
        let version = versions.assign(kept, proposed, Version::latest_at(now));
        self.note_stamp(id, op, version);
        self.keys[id].state = match put {
            Some((value, expires_at)) => KeyState::Put(
                RowHead {
                    version,
                    expires_at,
                    as_of: op.condition.as_of(),
                },
                value,
            ),
            None => KeyState::Deleted,
        };
        Ok(Decision::Written {
            version,
            existed,
            number,
        })
    }

    /// Decides mutations that are applied together or not at all. Returns whether the decision depends only on the
    /// rows, and not on a failure of the store: after a failure, a repetition may be decided differently.
    fn decide_group(
        &mut self,
        shard: ShardId,
        first: usize,
        write: &'a WriteWork,
        group: &[usize],
        versions: &mut VersionClock,
        now: Timestamp,
    ) -> bool {
        let mut undo = Vec::with_capacity(group.len());
        let mut refused = None;
        for &op in group {
            let id = self.key_of[first + op];
            undo.push((id, self.keys[id].state.clone()));
            let decided =
                self.decide_one(first + op, &write.ops[op], write.proposed, versions, now);
            match decided {
                Ok(decision) => self.decisions[first + op] = Some(decision),
                Err(refusal) => {
                    refused = Some((op, refusal));
                    break;
                }
            }
        }
        let Some((culprit, refusal)) = refused else {
            return true;
        };
        for (id, state) in undo.into_iter().rev() {
            self.keys[id].state = state;
        }
        // Only a row that is still there after the group was undone is reported.
        let refusal = match refusal {
            MutationRefusal::Condition(_) => self.keys[self.key_of[first + culprit]]
                .visible_stamp(now)
                .map_or_else(
                    |damage| damage,
                    |row| MutationRefusal::Condition(row.map(|row| row.version)),
                ),
            other @ (MutationRefusal::Damaged(_)
            | MutationRefusal::Refused(_)
            | MutationRefusal::LeftOut(_)) => other,
        };
        let index = write.ops[culprit].index;
        for &op in group {
            self.decisions[first + op] =
                Some(Decision::PushError(WriteError::GroupAborted { index }));
        }
        let refusal = refusal.into_error(shard);
        let is_decision = refusal.is_decision();
        self.decisions[first + culprit] = Some(Decision::PushError(refusal));
        is_decision
    }
}

/// Returns whether a condition is not about the row that is stored.
fn is_blind(condition: &Condition) -> bool {
    matches!(condition, Condition::Always | Condition::Unwritten(_))
}

fn answer(decision: Option<&Decision>, existed_before: impl Fn(usize) -> bool) -> MutationResult {
    match decision.expect("every mutation is decided before any is applied") {
        Decision::PushError(error) => Err(error.clone()),
        Decision::Replayed(written) => Ok(*written),
        Decision::Written {
            version,
            existed,
            number,
        } => {
            let existed = match *existed {
                Existed::Known(existed) => existed,
                Existed::AsBase(id) => existed_before(id),
            };
            Ok(Written {
                number: *number,
                ..Written::new(*version, existed)
            })
        }
    }
}

/// Divides mutations by partition, each group in the order of the request.
fn groups(ops: &[Op]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    order.sort_by(|&one, &two| ops[one].partition().cmp(ops[two].partition()));
    order
        .chunk_by(|&one, &two| ops[one].partition() == ops[two].partition())
        .map(<[usize]>::to_vec)
        .collect()
}
