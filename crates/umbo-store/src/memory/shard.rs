//! One shard of the memory store: rows in order, and the version clock.
//!
//! Uses no locks or clocks: the caller holds the lock and passes the time in.

use std::collections::BTreeMap;

use bytes::Bytes;
use umbo_types::{
    Key, NamespaceId, PartitionKey, Row, ShardId, SortKey, Timestamp, Version, VersionClock,
};

use crate::error::WriteError;
use crate::memory::chunk::RowCollector;
use crate::request::{
    Atomicity, Change, DeleteRangeRequest, Deleted, Page, RangeRequest, ScanPosition, SortRange,
    WriteRequest, Written,
};
use crate::store::NamespaceSize;

/// Rows of a partition by sort key. Plain bytes, since the bounds of a range may be longer than
/// any sort key.
type Partition = BTreeMap<Bytes, Row>;

/// Result of one mutation of a request, with its index.
type Answer = (usize, Result<Written, WriteError>);

#[derive(Debug)]
pub(super) struct MemoryShard {
    partitions: BTreeMap<(NamespaceId, PartitionKey), Partition>,
    versions: VersionClock,
    commits: u64,
    mutations: u64,
}

impl Default for MemoryShard {
    fn default() -> Self {
        Self {
            partitions: BTreeMap::new(),
            versions: VersionClock::after(Version(0)),
            commits: 0,
            mutations: 0,
        }
    }
}

impl MemoryShard {
    pub(super) fn visible(
        &self,
        namespace: NamespaceId,
        key: &Key,
        now: Timestamp,
    ) -> Option<&Row> {
        self.partitions
            .get(&(namespace, key.partition.clone()))?
            .get(key.sort.as_bytes())
            .filter(|row| !row.is_expired(now))
    }

    pub(super) fn range(&self, request: &RangeRequest, now: Timestamp) -> Page {
        let mut chunk = RowCollector::new(request.rows_max, request.bytes_max, request.keys_only);
        let id = (request.namespace, request.partition.clone());
        if let Some(rows) = self.partitions.get(&id) {
            let mut visit = |(sort, row): (&Bytes, &Row)| {
                chunk.visit((&[], sort), row, now, || Bytes::clone(sort))
            };
            let rows = within(rows, &request.range);
            if request.reverse {
                rows.rev().all(&mut visit);
            } else {
                rows.into_iter().all(&mut visit);
            }
        }
        let (rows, resume_after, touched) = chunk.finish();
        Page {
            rows,
            resume_after,
            touched,
        }
    }

    /// Adds the rows after `after` of the wanted partitions of a namespace to a chunk, until it is
    /// full.
    pub(super) fn scan(
        &self,
        id: ShardId,
        namespace: NamespaceId,
        after: Option<&Key>,
        is_wanted: impl Fn(&PartitionKey) -> bool,
        now: Timestamp,
        chunk: &mut RowCollector<ScanPosition>,
    ) {
        for ((_, partition), rows) in self.partitions_of(namespace) {
            let all = SortRange::default();
            let range = match after {
                Some(after) if *partition < after.partition => continue,
                Some(after) if *partition == after.partition => {
                    all.beyond(after.sort.as_bytes(), false)
                }
                _ => all,
            };
            if !is_wanted(partition) {
                continue;
            }
            for (sort, row) in within(rows, &range) {
                let position = || ScanPosition {
                    shard: id,
                    key: Key {
                        partition: partition.clone(),
                        sort: SortKey::new(sort.clone()).expect("it was a sort key when stored"),
                    },
                };
                if !chunk.visit((partition.as_bytes(), sort), row, now, position) {
                    return;
                }
            }
        }
    }

    /// Applies the mutations of `own`, indexes into the request of this shard's mutations.
    pub(super) fn write(
        &mut self,
        request: &WriteRequest,
        own: &[usize],
        now: Timestamp,
    ) -> Vec<Answer> {
        self.commits += 1;
        if request.atomicity == Atomicity::None {
            return own
                .iter()
                .flat_map(|&index| self.write_group(request, &[index], now))
                .collect();
        }
        let mut groups: BTreeMap<&PartitionKey, Vec<usize>> = BTreeMap::new();
        for &index in own {
            let partition = &request.mutations[index].key.partition;
            groups.entry(partition).or_default().push(index);
        }
        groups
            .into_values()
            .flat_map(|group| self.write_group(request, &group, now))
            .collect()
    }

    /// Applies mutations of one partition, all or none.
    fn write_group(
        &mut self,
        request: &WriteRequest,
        group: &[usize],
        now: Timestamp,
    ) -> Vec<Answer> {
        let partition = request.mutations[group[0]].key.partition.clone();
        let id = (request.namespace, partition);
        let rows = self.partitions.entry(id.clone()).or_default();
        let mut replaced: Vec<(Bytes, Option<Row>)> = Vec::with_capacity(group.len());
        let mut answers = Vec::with_capacity(group.len());
        for &index in group {
            let mutation = &request.mutations[index];
            let sort = Bytes::copy_from_slice(mutation.key.sort.as_bytes());
            let current = visible_version(rows, &sort, now);
            if !mutation.condition.holds(current) {
                for (sort, row) in replaced.into_iter().rev() {
                    place(rows, sort, row);
                }
                // Only a row that is still there after the group was undone is reported.
                let current = visible_version(rows, &sort, now);
                self.forget_if_empty(&id);
                return refuse(group, index, &WriteError::ConditionFailed { current });
            }
            let proposed = request.proposed.min(Version::latest_at(now));
            let version = self.versions.next(proposed);
            let row = match &mutation.change {
                Change::Put { value, expires_at } => Some(Row {
                    value: value.clone(),
                    version,
                    expires_at: *expires_at,
                }),
                Change::Delete => None,
            };
            replaced.push((sort.clone(), place(rows, sort, row)));
            let existed = current.is_some();
            answers.push((index, Ok(Written { version, existed })));
        }
        self.mutations += group.len() as u64;
        self.forget_if_empty(&id);
        answers
    }

    pub(super) fn delete_range(&mut self, request: &DeleteRangeRequest, now: Timestamp) -> Deleted {
        let mut deleted = Deleted::default();
        let id = (request.namespace, request.partition.clone());
        let Some(rows) = self.partitions.get_mut(&id) else {
            return deleted;
        };
        let mut sorts: Vec<Bytes> = within(rows, &request.range)
            .map(|(sort, _)| sort.clone())
            .take(request.rows_max as usize + 1)
            .collect();
        let has_more = sorts.len() > request.rows_max as usize;
        sorts.truncate(request.rows_max as usize);
        for sort in &sorts {
            let row = rows.remove(sort).expect("it was found under the same lock");
            if !row.is_expired(now) {
                deleted.rows += 1;
                deleted.bytes += (sort.len() + row.value.bytes.len()) as u64;
            }
        }
        deleted.resume_after = sorts.pop().filter(|_| has_more);
        self.commits += 1;
        self.mutations += deleted.rows;
        self.forget_if_empty(&id);
        deleted
    }

    /// Removes all rows of a namespace.
    pub(super) fn purge(&mut self, namespace: NamespaceId) {
        self.partitions.retain(|(id, _), _| *id != namespace);
    }

    pub(super) fn namespace_max(&self) -> NamespaceId {
        let last = self.partitions.last_key_value();
        last.map_or(NamespaceId::SYSTEM, |((namespace, _), _)| *namespace)
    }

    /// Returns the sizes of the namespaces that have rows, by id.
    pub(super) fn sizes(&self) -> Vec<NamespaceSize> {
        let mut sizes: Vec<NamespaceSize> = Vec::new();
        for ((namespace, partition), rows) in &self.partitions {
            if sizes.last().is_none_or(|last| last.namespace != *namespace) {
                sizes.push(NamespaceSize {
                    namespace: *namespace,
                    rows: 0,
                    bytes: 0,
                });
            }
            if let Some(size) = sizes.last_mut() {
                let len = |(sort, row): (&Bytes, &Row)| {
                    (partition.as_bytes().len() + sort.len() + row.value.bytes.len()) as u64
                };
                size.rows += rows.len() as u64;
                size.bytes += rows.iter().map(len).sum::<u64>();
            }
        }
        sizes
    }

    pub(super) fn rows(&self) -> u64 {
        self.partitions.values().map(|rows| rows.len() as u64).sum()
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    pub(super) fn mutations(&self) -> u64 {
        self.mutations
    }

    fn forget_if_empty(&mut self, id: &(NamespaceId, PartitionKey)) {
        if self.partitions.get(id).is_some_and(BTreeMap::is_empty) {
            self.partitions.remove(id);
        }
    }

    fn partitions_of(
        &self,
        namespace: NamespaceId,
    ) -> impl Iterator<Item = (&(NamespaceId, PartitionKey), &Partition)> {
        self.partitions
            .iter()
            .skip_while(move |((id, _), _)| *id < namespace)
            .take_while(move |((id, _), _)| *id == namespace)
    }
}

fn visible_version(rows: &Partition, sort: &[u8], now: Timestamp) -> Option<Version> {
    let row = rows.get(sort).filter(|row| !row.is_expired(now));
    row.map(|row| row.version)
}

/// Stores `row` under a sort key, and returns the previous row.
fn place(rows: &mut Partition, sort: Bytes, row: Option<Row>) -> Option<Row> {
    match row {
        Some(row) => rows.insert(sort, row),
        None => rows.remove(&sort),
    }
}

/// Returns the rows of a sort range, in order.
fn within<'a>(
    rows: &'a Partition,
    range: &SortRange,
) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a Row)> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    // A map panics on a range whose end is before its start.
    let end = match &range.end {
        Some(end) => Excluded(end.max(&range.start)),
        None => Unbounded,
    };
    rows.range::<Bytes, _>((Included(&range.start), end))
}

/// Answers a group of which one mutation was refused.
fn refuse(group: &[usize], refused: usize, error: &WriteError) -> Vec<Answer> {
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
