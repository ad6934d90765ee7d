//! The decision of a commit: what the mutations of a request make of the rows, one after the other.
//!
//! Owns the order of the rules (idempotency record, condition, change, version, other datasets of the group) for
//! engines that can show the rows of a commit as a [`CommitView`]. The invariant: a refused group leaves the view as it
//! was, apart from the versions that it took.

use std::collections::BTreeMap;

use umbo_types::{Key, NamespaceId, PartitionKey, Row, Timestamp, Version};

use crate::commit_view::{CommitView, StoredRow};
use crate::error::WriteError;
use crate::idempotency::Idempotency;
use crate::increment::{CounterRow, increment};
use crate::request::{Atomicity, Change, Condition, Mutation, RowStamp, WriteRequest, Written};

/// Applies a request to a view. The answers are in the order of the mutations.
pub fn decide(
    view: &mut impl CommitView,
    request: &WriteRequest,
    now: Timestamp,
) -> Vec<Result<Written, WriteError>> {
    let mut answers: IndexedAnswers =
        if request.idempotency.is_none() && request.atomicity == Atomicity::None {
            decide_each(view, request, 0..request.mutations.len(), now)
        } else {
            let mut groups: BTreeMap<&PartitionKey, Vec<usize>> = BTreeMap::new();
            for (index, mutation) in request.mutations.iter().enumerate() {
                let group = groups.entry(&mutation.key.partition).or_default();
                group.push(index);
            }
            let groups = groups.into_values();
            groups
                .flat_map(|group| match &request.idempotency {
                    Some(idempotency) => decide_once(view, request, idempotency, &group, now),
                    None => decide_group(view, request, &group, now),
                })
                .collect()
        };
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Answers to mutations, each with its index in the request.
type IndexedAnswers = Vec<(usize, Result<Written, WriteError>)>;

fn decide_each(
    view: &mut impl CommitView,
    request: &WriteRequest,
    indexes: impl IntoIterator<Item = usize>,
    now: Timestamp,
) -> IndexedAnswers {
    let indexes = indexes.into_iter();
    indexes
        .flat_map(|index| decide_group(view, request, &[index], now))
        .collect()
}

/// Applies those mutations of one partition that have no recorded outcome, and records theirs.
fn decide_once(
    view: &mut impl CommitView,
    request: &WriteRequest,
    idempotency: &Idempotency,
    group: &[usize],
    now: Timestamp,
) -> IndexedAnswers {
    let (dataset, partition) = (
        request.namespace,
        &request.mutations[group[0]].key.partition,
    );
    let mut record = match view.begin_record(dataset, partition, idempotency, group.len(), now) {
        Ok(record) => record,
        Err(refusal) => {
            let refuse = |&index: &usize| (index, Err(refusal.clone()));
            return group.iter().map(refuse).collect();
        }
    };
    let (mut answers, mut left) = (Vec::new(), Vec::new());
    for &index in group {
        match record.replay(idempotency, index) {
            Some(answer) => answers.push((index, answer)),
            None => left.push(index),
        }
    }
    let decided = match request.atomicity {
        _ if left.is_empty() => return answers,
        Atomicity::None => decide_each(view, request, left, now),
        Atomicity::Partition => decide_group(view, request, &left, now),
    };
    for (index, answer) in &decided {
        record.note(idempotency, *index, answer);
    }
    if !record.is_empty() {
        view.keep_record(dataset, partition, idempotency, record);
    }
    answers.extend(decided);
    answers
}

/// Applies mutations of one partition, all or none.
fn decide_group(
    view: &mut impl CommitView,
    request: &WriteRequest,
    group: &[usize],
    now: Timestamp,
) -> IndexedAnswers {
    let mut replaced: Vec<(NamespaceId, &Key, Option<StoredRow>)> = Vec::new();
    let mut answers = Vec::with_capacity(group.len());
    for &index in group {
        let mutation = &request.mutations[index];
        if let Change::Upload(step) = &mutation.change {
            let done = view.step_upload(step, now);
            let versions = view.versions(request.namespace, &mutation.key.partition);
            let last = versions.last();
            answers.push((index, done.map(|()| Written::new(last, false))));
            continue;
        }
        let dataset = decider(view, request.namespace, mutation);
        match decide_one(view, dataset, request, mutation, now) {
            Ok((written, before)) => {
                replaced.push((dataset, &mutation.key, before));
                answers.push((index, Ok(written)));
            }
            Err(refusal) => {
                for (dataset, key, row) in replaced.into_iter().rev() {
                    view.place(dataset, key, row);
                }
                // Only a row that is still there after the group was undone is reported.
                let refusal = match refusal {
                    WriteError::ConditionFailed { .. } => WriteError::ConditionFailed {
                        current: visible(view, dataset, &mutation.key, now)
                            .map(|stored| stored.row.version),
                    },
                    other => other,
                };
                return refuse(group, index, &refusal);
            }
        }
    }
    for &index in group {
        mirror(view, request.namespace, &request.mutations[index]);
    }
    answers
}

/// Applies a mutation to the dataset that decides it. Returns the answer and the row before.
fn decide_one(
    view: &mut impl CommitView,
    dataset: NamespaceId,
    request: &WriteRequest,
    mutation: &Mutation,
    now: Timestamp,
) -> Result<(Written, Option<StoredRow>), WriteError> {
    let key = &mutation.key;
    let current = visible(view, dataset, key, now);
    let existed = current.is_some();
    let holds = match mutation.condition {
        Condition::Unwritten(_) => {
            let group = view.group_of(dataset);
            group.is_some_and(|group| group.building == Some(dataset))
                && view.is_unwritten(dataset, key)
        }
        _ => mutation.condition.holds_for(current.map(|stored| RowStamp {
            version: stored.row.version,
            as_of: stored.as_of,
        })),
    };
    if !holds {
        return Err(WriteError::ConditionFailed { current: None });
    }
    let (number, changed) = match &mutation.change {
        Change::Put { value, expires_at } => {
            if let Some(large) = value.large() {
                view.check_upload(&large)?;
            }
            (None, Some((value.clone(), *expires_at)))
        }
        // Handled before: an upload is of no row.
        Change::Delete | Change::Upload(_) => (None, None),
        Change::Increment {
            by,
            expires_at,
            default_expiry,
        } => {
            let counter =
                current.map(|stored| CounterRow::of(&stored.row.value, stored.row.expires_at));
            let (number, value, expires_at) =
                increment(counter.as_ref(), *by, *expires_at, *default_expiry)?;
            (Some(number), Some((value, expires_at)))
        }
    };
    let kept = mutation.condition.kept_version();
    let (kept, highest) = (kept.filter(|_| changed.is_some()), Version::latest_at(now));
    let versions = view.versions(dataset, &key.partition);
    let version = versions.assign(kept, request.proposed, highest);
    let stored = view.row(dataset, key);
    if kept.is_some() && stored.is_some_and(|stored| stored.row.version == version) {
        // An earlier run of the load has put it.
        return Ok((Written::new(version, existed), stored.cloned()));
    }
    let row = changed.map(|(value, expires_at)| StoredRow {
        row: Row {
            value,
            version,
            expires_at,
        },
        as_of: mutation.condition.as_of(),
    });
    let before = view.place(dataset, key, row);
    let written = Written {
        number,
        ..Written::new(version, existed)
    };
    Ok((written, before))
}

/// Returns the dataset that decides a mutation which names this one.
fn decider(view: &impl CommitView, named: NamespaceId, mutation: &Mutation) -> NamespaceId {
    match mutation.condition {
        Condition::Unwritten(_) => named,
        _ => view.group_of(named).map_or(named, |group| group.live),
    }
}

/// Copies the row of an applied mutation from the deciding dataset to the others.
fn mirror(view: &mut impl CommitView, named: NamespaceId, mutation: &Mutation) {
    let Some(group) = view.group_of(named).cloned() else {
        return;
    };
    let is_upload = matches!(mutation.change, Change::Upload(_));
    if is_upload || mutation.condition.is_unwritten() {
        return;
    }
    let row = view.row(group.live, &mutation.key).cloned();
    for id in group.mirrors() {
        view.place(id, &mutation.key, row.clone());
    }
    if let Some(building) = group.building {
        view.note_written(building, &mutation.key);
    }
}

fn visible<'a>(
    view: &'a impl CommitView,
    dataset: NamespaceId,
    key: &Key,
    now: Timestamp,
) -> Option<&'a StoredRow> {
    let stored = view.row(dataset, key);
    stored.filter(|stored| !stored.row.is_expired(now))
}

/// Answers a group with a refused mutation.
fn refuse(group: &[usize], refused: usize, error: &WriteError) -> IndexedAnswers {
    let answer = |&index: &usize| {
        let error = if index == refused {
            error.clone()
        } else {
            WriteError::GroupAborted { index: refused }
        };
        (index, Err(error))
    };
    group.iter().map(answer).collect()
}
