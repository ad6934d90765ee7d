//! What the writes of one commit come to: conditions evaluated, versions given, one final change
//! for each key.
//!
//! Pure: reads no file and no clock. The writes are decided in the order in which they came, so a
//! condition sees every earlier mutation of the same commit; what is left to do is then sorted by
//! key, which is what makes inserting into a B-tree cheap. The invariant: each key is changed at
//! most once a commit, and a refused atomic group leaves no trace.

use umbo_store::{Atomicity, Change, Condition, StoreError, WriteError, Written};
use umbo_types::{ShardId, Timestamp, Value, Version, VersionClock};

use crate::row_codec::RowHead;
use crate::work::{Op, Write, WriteAnswer};

/// What is stored under a key before the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// Nobody had to know yet.
    Unread,
    /// This row, or none.
    Row(Option<RowHead>),
    /// Something that makes no sense.
    Damaged(String),
}

/// What a key holds as far as the commit has been decided.
#[derive(Debug, Clone, Copy)]
enum State<'a> {
    AsBefore,
    Put(RowHead, &'a Value),
    Deleted,
}

/// What is to be done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect<'a> {
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
    state: State<'a>,
}

/// Whether a row was visible before a mutation.
#[derive(Debug, Clone, Copy)]
enum Existed {
    Known(bool),
    /// As the stored row of this key says, which is found out when the change is made.
    AsBase(usize),
}

#[derive(Debug)]
enum Decision {
    Written { version: Version, existed: Existed },
    Refused(WriteError),
}

/// The writes of one commit.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    writes: &'a [&'a Write],
    /// Keys in order, each once.
    keys: Vec<KeyPlan<'a>>,
    /// For each mutation in order of arrival, its key.
    key_of: Vec<usize>,
    decisions: Vec<Option<Decision>>,
}

impl<'a> Plan<'a> {
    /// Sorts the keys of the writes.
    pub(crate) fn of(writes: &'a [&'a Write]) -> Self {
        let ops: Vec<&Op> = writes.iter().flat_map(|write| &write.ops).collect();
        let mut order: Vec<usize> = (0..ops.len()).collect();
        // Stable and fast on what is sorted already, as bulk input is.
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
                    state: State::AsBefore,
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

    /// Calls `read` with each key whose stored row decides a condition, in order.
    pub(crate) fn read_bases<E>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> Result<Base, E>,
    ) -> Result<(), E> {
        for key in self.keys.iter_mut().filter(|key| key.is_conditional) {
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
                            Err(refusal) => Decision::Refused(refusal.into_error(shard)),
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

    /// Calls `make` with each change, in order of the keys, to make it. `make` returns the row
    /// that was stored before.
    pub(crate) fn apply<E>(
        &self,
        now: Timestamp,
        mut make: impl FnMut(&[u8], Effect<'a>) -> Result<Option<RowHead>, E>,
    ) -> Result<Vec<Vec<WriteAnswer>>, E> {
        let mut existed = vec![false; self.keys.len()];
        for (key, existed) in self.keys.iter().zip(&mut existed) {
            let effect = match key.state {
                State::AsBefore => Effect::None,
                State::Put(head, value) => Effect::Put(head, value),
                State::Deleted => Effect::Remove,
            };
            if effect != Effect::None {
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
    ) -> Result<Decision, Refusal> {
        let id = self.key_of[at];
        let existed = if op.condition == Condition::Always && self.keys[id].is_before() {
            Existed::AsBase(id)
        } else {
            let current = self.keys[id].visible_version(now)?;
            if !op.condition.holds(current) {
                return Err(Refusal::Condition(current));
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
                State::Put(head, value)
            }
            Change::Delete => State::Deleted,
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
        // Only what is still there after the group was undone is worth telling.
        let refusal = match refusal {
            Refusal::Condition(_) => self.keys[self.key_of[first + culprit]]
                .visible_version(now)
                .map_or_else(|damage| damage, Refusal::Condition),
            damage @ Refusal::Damaged(_) => damage,
        };
        let index = write.ops[culprit].index;
        for &op in group {
            self.decisions[first + op] =
                Some(Decision::Refused(WriteError::GroupAborted { index }));
        }
        self.decisions[first + culprit] = Some(Decision::Refused(refusal.into_error(shard)));
    }
}

impl KeyPlan<'_> {
    fn is_before(&self) -> bool {
        matches!(self.state, State::AsBefore)
    }

    fn visible_version(&self, now: Timestamp) -> Result<Option<Version>, Refusal> {
        let visible = |head: &RowHead| head.is_visible(now).then_some(head.version);
        match (&self.state, &self.base) {
            (State::Put(head, _), _) => Ok(visible(head)),
            (State::AsBefore, Base::Row(row)) => Ok(row.as_ref().and_then(visible)),
            (State::AsBefore, Base::Damaged(reason)) => Err(Refusal::Damaged(reason.clone())),
            // Only keys without any condition are not read, and they do not ask.
            (State::Deleted, _) | (State::AsBefore, Base::Unread) => Ok(None),
        }
    }
}

#[derive(Debug)]
enum Refusal {
    Condition(Option<Version>),
    Damaged(String),
}

impl Refusal {
    fn into_error(self, shard: ShardId) -> WriteError {
        match self {
            Self::Condition(current) => WriteError::ConditionFailed { current },
            Self::Damaged(reason) => StoreError::Corrupt { shard, reason }.into(),
        }
    }
}

fn answer(decision: Option<&Decision>, existed_before: &[bool]) -> WriteAnswer {
    match decision.expect("every mutation is decided before any is applied") {
        Decision::Refused(error) => Err(error.clone()),
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
