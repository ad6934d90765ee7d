//! The effect of the writes of one commit: conditions evaluated, versions assigned, one final change for each
//! key.
//!
//! Pure: reads no file and no clock. The writes are decided in order of arrival, so a condition sees every
//! earlier mutation of the same commit; the remaining changes are then sorted by key, which makes inserting
//! into a B-tree cheap. The invariant: each key is changed at most once a commit, and a refused atomic group
//! has no effect.

use std::collections::BTreeMap;

use umbo_store::{Atomicity, Change, Condition, StoreError, WriteError, Written};
use umbo_types::{ShardId, Timestamp, Value, Version, VersionClock};

use crate::row_codec::RowHead;
use crate::work::{Op, Write, WriteAnswer};

/// What is stored under a key before the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// Not read, because no condition needed it so far.
    Unread,
    /// This row, or none.
    Row(Option<RowHead>),
    /// Bytes that cannot be decoded, and why.
    Damaged(String),
}

/// The state of a key after the mutations that have been decided so far.
#[derive(Debug, Clone, Copy)]
enum KeyState<'a> {
    AsBefore,
    Put(RowHead, &'a Value),
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

#[derive(Debug)]
struct KeyPlan<'a> {
    key: &'a [u8],
    is_conditional: bool,
    base: Base,
    state: KeyState<'a>,
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
    Written { version: Version, existed: Existed },
    PushError(WriteError),
}

/// The writes of one commit.
#[derive(Debug)]
pub(crate) struct CommitPlan<'a> {
    writes: &'a [&'a Write],
    /// Keys in order, each once.
    keys: Vec<KeyPlan<'a>>,
    /// For each mutation in order of arrival, the index of its key.
    key_of: Vec<usize>,
    decisions: Vec<Option<Decision>>,
}

impl<'a> CommitPlan<'a> {
    /// Sorts the keys of the writes.
    pub(crate) fn of(writes: &'a [&'a Write]) -> Self {
        let ops: Vec<&Op> = writes.iter().flat_map(|write| &write.ops).collect();
        let mut order: Vec<usize> = (0..ops.len()).collect();
        // Stable, and fast on keys that are already sorted, as in bulk input.
        order.sort_by(|&one, &two| ops[one].key.cmp(&ops[two].key));
        let mut keys: Vec<KeyPlan<'a>> = Vec::with_capacity(ops.len());
        let mut key_of = vec![0; ops.len()];
        for at in order {
            let op = ops[at];
            if keys.last().is_none_or(|last| last.key != op.key) {
                keys.push(KeyPlan {
                    key: &op.key,
                    is_conditional: false,
                    base: Base::Unread,
                    state: KeyState::AsBefore,
                    refusal: None,
                });
            }
            key_of[at] = keys.len() - 1;
            keys[key_of[at]].is_conditional |= op.condition != Condition::Always;
        }
        Self {
            writes,
            keys,
            decisions: (0..key_of.len()).map(|_| None).collect(),
            key_of,
        }
    }

    /// Refuses every change of these keys.
    pub(crate) fn leave_out(&mut self, keys: &'a BTreeMap<Vec<u8>, StoreError>) {
        if keys.is_empty() {
            return;
        }
        for key in &mut self.keys {
            key.refusal = keys.get(key.key);
        }
    }

    /// Calls `read` with each key whose stored row decides a condition, in order.
    pub(crate) fn read_bases<E>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> Result<Base, E>,
    ) -> Result<(), E> {
        let is_read = |key: &&mut KeyPlan<'_>| key.is_conditional && key.refusal.is_none();
        for key in self.keys.iter_mut().filter(is_read) {
            key.base = read(key.key)?;
        }
        Ok(())
    }

    /// Decides every mutation, in order of arrival.
    pub(crate) fn decide(&mut self, shard: ShardId, versions: &mut VersionClock, now: Timestamp) {
        let writes = self.writes;
        let mut first = 0;
        for write in writes {
            let count = write.ops.len();
            match write.atomicity {
                Atomicity::None => {
                    for at in first..first + count {
                        let op = &write.ops[at - first];
                        let decided = self.decide_one(at, op, write.proposed, versions, now);
                        self.decisions[at] = Some(match decided {
                            Ok(decision) => decision,
                            Err(refusal) => Decision::PushError(refusal.into_error(shard)),
                        });
                    }
                }
                Atomicity::Partition => {
                    for group in groups(&write.ops) {
                        self.decide_group(shard, first, write, &group, versions, now);
                    }
                }
            }
            first += count;
        }
    }

    /// Calls `make` with each change, in order of the keys. `make` applies it and returns the row that was
    /// stored before.
    pub(crate) fn apply<E>(
        &self,
        now: Timestamp,
        mut make: impl FnMut(&[u8], RowEffect<'a>) -> Result<Option<RowHead>, E>,
    ) -> Result<Vec<Vec<WriteAnswer>>, E> {
        let mut existed = vec![false; self.keys.len()];
        for (key, existed) in self.keys.iter().zip(&mut existed) {
            let effect = match key.state {
                KeyState::AsBefore => RowEffect::None,
                KeyState::Put(head, value) => RowEffect::Put(head, value),
                KeyState::Deleted => RowEffect::Remove,
            };
            if effect != RowEffect::None {
                *existed = make(key.key, effect)?.is_some_and(|head| head.is_visible(now));
            }
        }
        let mut decisions = self.decisions.iter();
        let answers = self.writes.iter().map(|write| {
            let own = decisions.by_ref().take(write.ops.len());
            own.map(|decision| answer(decision.as_ref(), &existed))
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
        let id = self.key_of[at];
        if let Some(error) = self.keys[id].refusal {
            return Err(MutationRefusal::LeftOut(error.clone()));
        }
        let existed = if op.condition == Condition::Always && self.keys[id].is_before() {
            Existed::AsBase(id)
        } else {
            let current = self.keys[id].visible_version(now)?;
            if !op.condition.holds(current) {
                return Err(MutationRefusal::Condition(current));
            }
            Existed::Known(current.is_some())
        };
        let version = versions.next(proposed);
        self.keys[id].state = match &op.change {
            Change::Put { value, expires_at } => {
                let head = RowHead {
                    version,
                    expires_at: *expires_at,
                };
                KeyState::Put(head, value)
            }
            Change::Delete => KeyState::Deleted,
        };
        Ok(Decision::Written { version, existed })
    }

    fn decide_group(
        &mut self,
        shard: ShardId,
        first: usize,
        write: &'a Write,
        group: &[usize],
        versions: &mut VersionClock,
        now: Timestamp,
    ) {
        let mut undo = Vec::with_capacity(group.len());
        let mut refused = None;
        for &op in group {
            let id = self.key_of[first + op];
            undo.push((id, self.keys[id].state));
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
            return;
        };
        for (id, state) in undo.into_iter().rev() {
            self.keys[id].state = state;
        }
        // Only a row that is still there after the group was undone is reported.
        let refusal = match refusal {
            MutationRefusal::Condition(_) => self.keys[self.key_of[first + culprit]]
                .visible_version(now)
                .map_or_else(|damage| damage, MutationRefusal::Condition),
            damage @ (MutationRefusal::Damaged(_) | MutationRefusal::LeftOut(_)) => damage,
        };
        let index = write.ops[culprit].index;
        for &op in group {
            self.decisions[first + op] =
                Some(Decision::PushError(WriteError::GroupAborted { index }));
        }
        self.decisions[first + culprit] = Some(Decision::PushError(refusal.into_error(shard)));
    }
}

impl KeyPlan<'_> {
    fn is_before(&self) -> bool {
        matches!(self.state, KeyState::AsBefore)
    }

    fn visible_version(&self, now: Timestamp) -> Result<Option<Version>, MutationRefusal> {
        let visible = |head: &RowHead| head.is_visible(now).then_some(head.version);
        match (&self.state, &self.base) {
            (KeyState::Put(head, _), _) => Ok(visible(head)),
            (KeyState::AsBefore, Base::Row(row)) => Ok(row.as_ref().and_then(visible)),
            (KeyState::AsBefore, Base::Damaged(reason)) => {
                Err(MutationRefusal::Damaged(reason.clone()))
            }
            // Only keys without any condition are not read, and these do not ask.
            (KeyState::Deleted, _) | (KeyState::AsBefore, Base::Unread) => Ok(None),
        }
    }
}

#[derive(Debug)]
enum MutationRefusal {
    Condition(Option<Version>),
    Damaged(String),
    LeftOut(StoreError),
}

impl MutationRefusal {
    fn into_error(self, shard: ShardId) -> WriteError {
        match self {
            Self::Condition(current) => WriteError::ConditionFailed { current },
            Self::Damaged(reason) => StoreError::Corrupt { shard, reason }.into(),
            Self::LeftOut(error) => error.into(),
        }
    }
}

fn answer(decision: Option<&Decision>, existed_before: &[bool]) -> WriteAnswer {
    match decision.expect("every mutation is decided before any is applied") {
        Decision::PushError(error) => Err(error.clone()),
        Decision::Written { version, existed } => Ok(Written {
            version: *version,
            existed: match *existed {
                Existed::Known(existed) => existed,
                Existed::AsBase(id) => existed_before[id],
            },
        }),
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
