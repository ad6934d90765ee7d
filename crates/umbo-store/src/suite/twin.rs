//! An exact model of a store, in its slowest form: one sorted map of everything.
//!
//! It says what each operation must answer. Versions alone it learns from the answers, since the
//! contract only bounds them.

use std::collections::BTreeMap;

use umbo_types::{Key, NamespaceId, Row, Timestamp, Version};

use crate::suite::seen::Seen;
use crate::suite::subject::WriteResult;
use crate::{
    Atomicity, Change, Deleted, RangeRequest, SortRange, WriteError, WriteRequest, Written,
};

#[derive(Debug, Default)]
pub(super) struct Twin {
    rows: BTreeMap<(NamespaceId, Key), Row>,
}

impl Twin {
    pub(super) fn get(&self, namespace: NamespaceId, key: &Key, now: Timestamp) -> Option<Row> {
        let row = self.rows.get(&(namespace, key.clone()));
        row.filter(|row| !row.is_expired(now)).cloned()
    }

    /// Returns the visible rows that satisfy a predicate, in order.
    fn visible(
        &self,
        now: Timestamp,
        is_wanted: impl Fn(NamespaceId, &Key) -> bool,
    ) -> Vec<(&Key, &Row)> {
        let visible = self.rows.iter().filter(|(_, row)| !row.is_expired(now));
        let wanted = visible.filter(|((namespace, key), _)| is_wanted(*namespace, key));
        wanted.map(|((_, key), row)| (key, row)).collect()
    }

    pub(super) fn range(&self, request: &RangeRequest, now: Timestamp) -> Vec<Seen> {
        let rows = self.visible(now, |namespace, key| {
            namespace == request.namespace
                && key.partition == request.partition
                && request.range.contains(key.sort.as_bytes())
        });
        let seen = |(key, row): (&Key, &Row)| {
            Seen::expected(b"", key.sort.as_bytes(), row, request.keys_only)
        };
        let mut rows: Vec<_> = rows.into_iter().map(seen).collect();
        if request.reverse {
            rows.reverse();
        }
        rows
    }

    pub(super) fn scan(&self, namespace: NamespaceId, now: Timestamp) -> Vec<Seen> {
        let rows = self.visible(now, |other, _| other == namespace);
        let seen = |(key, row): (&Key, &Row)| {
            Seen::expected(key.partition.as_bytes(), key.sort.as_bytes(), row, false)
        };
        rows.into_iter().map(seen).collect()
    }

    pub(super) fn remove(
        &mut self,
        namespace: NamespaceId,
        partition: &[u8],
        range: &SortRange,
        now: Timestamp,
    ) -> Deleted {
        let mut sum = Deleted::default();
        self.rows.retain(|(other, key), row| {
            let sort = key.sort.as_bytes();
            let is_doomed = *other == namespace
                && key.partition.as_bytes() == partition
                && range.contains(sort);
            if is_doomed && !row.is_expired(now) {
                sum.rows += 1;
                sum.bytes += (sort.len() + row.value.bytes.len()) as u64;
            }
            !is_doomed
        });
        sum
    }

    /// Applies a request and returns what must be answered. `given` are the store's answers, of
    /// which only the versions are taken.
    pub(super) fn write(
        &mut self,
        request: &WriteRequest,
        given: &[WriteResult],
        now: Timestamp,
    ) -> Vec<WriteResult> {
        let count = request.mutations.len();
        let mut answers: Vec<Option<WriteResult>> = vec![None; count];
        for index in 0..count {
            if answers[index].is_some() {
                continue;
            }
            let partition = &request.mutations[index].key.partition;
            let group: Vec<usize> = match request.atomicity {
                Atomicity::None => vec![index],
                Atomicity::Partition => (index..count)
                    .filter(|&other| request.mutations[other].key.partition == *partition)
                    .collect(),
            };
            for (index, answer) in self.write_group(request, &group, given, now) {
                answers[index] = Some(answer);
            }
        }
        let answers = answers.into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(answers.len(), count);
        answers
    }

    fn write_group(
        &mut self,
        request: &WriteRequest,
        group: &[usize],
        given: &[WriteResult],
        now: Timestamp,
    ) -> Vec<(usize, WriteResult)> {
        let before = self.rows.clone();
        let mut answers = Vec::new();
        for &index in group {
            let mutation = &request.mutations[index];
            let current = self.get(request.namespace, &mutation.key, now);
            if !mutation.condition.holds(current.map(|row| row.version)) {
                self.rows = before;
                let current = self.get(request.namespace, &mutation.key, now);
                let current = current.map(|row| row.version);
                let refuse = |&other: &usize| {
                    let error = if other == index {
                        WriteError::ConditionFailed { current }
                    } else {
                        WriteError::GroupAborted { index }
                    };
                    (other, Err(error))
                };
                return group.iter().map(refuse).collect();
            }
            let existed = self.get(request.namespace, &mutation.key, now).is_some();
            // A version that the store did not give is one that no condition can name.
            let version = given[index]
                .as_ref()
                .map_or(Version(u64::MAX), |w| w.version);
            let id = (request.namespace, mutation.key.clone());
            match &mutation.change {
                Change::Put { value, expires_at } => {
                    let row = Row {
                        value: value.clone(),
                        version,
                        expires_at: *expires_at,
                    };
                    self.rows.insert(id, row);
                }
                Change::Delete => {
                    self.rows.remove(&id);
                }
                Change::Increment { .. } | Change::Upload(_) => {
                    unreachable!("the twin is asked for none")
                }
            }
            answers.push((index, Ok(Written::new(version, existed))));
        }
        answers
    }
}
