//! One shard of the memory store: rows in order, and the version clock.
//!
//! Uses no locks or clocks: the caller holds the lock and passes the time in.

mod datasets;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use umbo_types::{Key, NamespaceId, PartitionKey, Row, SortKey, Timestamp, VersionClock};

use crate::capabilities::VersionOrder;
use crate::commit_view::StoredRow;
use crate::dataset_groups::DatasetGroups;
use crate::decision::decide;
use crate::error::WriteError;
use crate::fencing_tokens::FencingTokens;
use crate::large::ChunkRequest;
use crate::memory::idempotency::IdempotencyRecords;
use crate::memory::rows::{Partition, referred, within};
use crate::memory::uploads::Uploads;
use crate::report::NamespaceSize;
use crate::request::{
    DeleteRangeRequest, Deleted, Mutation, Page, RangeRequest, SortRange, WriteRequest, Written,
};
use crate::row_batch::RowRef;
use crate::row_collector::RowCollector;

/// A partition of a namespace.
type PartitionId = (NamespaceId, PartitionKey);

#[derive(Debug)]
pub(super) struct MemoryShard {
    partitions: BTreeMap<PartitionId, Partition>,
    order: VersionOrder,
    /// The clock of each partition, or that of the shard.
    versions: BTreeMap<Option<PartitionId>, VersionClock>,
    commits: u64,
    mutations: u64,
    idempotency: IdempotencyRecords,
    uploads: Uploads,
    /// Datasets that take the same writes.
    groups: DatasetGroups,
    /// What clients have written or removed of the datasets that are being built.
    written: BTreeSet<(PartitionId, Bytes)>,
    /// What they have removed by range.
    written_ranges: Vec<(PartitionId, SortRange)>,
    /// The latest runs of loads.
    pub(super) runs: FencingTokens,
}

impl MemoryShard {
    pub(super) fn new(order: VersionOrder) -> Self {
        Self {
            partitions: BTreeMap::new(),
            order,
            versions: BTreeMap::new(),
            commits: 0,
            mutations: 0,
            idempotency: IdempotencyRecords::new(),
            uploads: Uploads::new(),
            groups: DatasetGroups::default(),
            written: BTreeSet::new(),
            written_ranges: Vec::new(),
            runs: FencingTokens::default(),
        }
    }

    pub(super) fn visible(
        &self,
        namespace: NamespaceId,
        key: &Key,
        now: Timestamp,
    ) -> Option<&Row> {
        self.partitions
            .get(&(namespace, key.partition.clone()))?
            .get(key.sort.as_bytes())
            .map(|stored| &stored.row)
            .filter(|row| !row.is_expired(now))
    }

    pub(super) fn chunk(&self, request: &ChunkRequest) -> Option<Bytes> {
        self.uploads.chunk(request)
    }

    /// Removes the uploads that no row needs any more.
    pub(super) fn sweep_uploads(&mut self, now: Timestamp) {
        self.uploads.sweep(referred(&self.partitions), now);
    }

    pub(super) fn range(&self, request: &RangeRequest, now: Timestamp) -> Page {
        let mut chunk = RowCollector::new(request.rows_max, request.bytes_max, request.keys_only);
        let id = (request.namespace, request.partition.clone());
        if let Some(rows) = self.partitions.get(&id) {
            let mut visit = |(sort, stored): (&Bytes, &StoredRow)| {
                let row = row_ref(&[], sort, &stored.row);
                chunk.visit(row, row.stored_bytes(), now, || Bytes::clone(sort))
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
        namespace: NamespaceId,
        after: Option<&Key>,
        is_wanted: impl Fn(&PartitionKey) -> bool,
        now: Timestamp,
        chunk: &mut RowCollector<Key>,
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
            for (sort, stored) in within(rows, &range) {
                let position = || Key {
                    partition: partition.clone(),
                    sort: SortKey::new(sort.clone()).expect("it was a sort key when stored"),
                };
                let row = row_ref(partition.as_bytes(), sort, &stored.row);
                if !chunk.visit(row, row.stored_bytes(), now, position) {
                    return;
                }
            }
        }
    }

    /// Applies a request, whose mutations are all of this shard.
    pub(super) fn write(
        &mut self,
        request: &WriteRequest,
        now: Timestamp,
    ) -> Vec<Result<Written, WriteError>> {
        self.commits += 1;
        let is_of_client = |one: &Mutation| !one.condition.is_unwritten();
        if request.mutations.iter().any(is_of_client) {
            self.groups.learn(request.namespace, request.epoch);
        }
        let answers = decide(self, request, now);
        self.mutations += answers.iter().filter(|answer| answer.is_ok()).count() as u64;
        self.sweep_uploads(now);
        answers
    }

    /// Stores a row or removes it, and returns the previous one.
    fn place_at(
        &mut self,
        at: &PartitionId,
        sort: Bytes,
        row: Option<StoredRow>,
    ) -> Option<StoredRow> {
        let before = match row {
            Some(row) => self
                .partitions
                .entry(at.clone())
                .or_default()
                .insert(sort, row),
            None => self.partitions.get_mut(at)?.remove(&sort),
        };
        self.forget_if_empty(at);
        before
    }

    pub(super) fn delete_range(&mut self, request: &DeleteRangeRequest, now: Timestamp) -> Deleted {
        self.groups.learn(request.namespace, request.epoch);
        let group = self.groups.of(request.namespace).cloned();
        let ids: Vec<_> = match &group {
            Some(group) => group.ids().collect(),
            None => vec![request.namespace],
        };
        let sorts_of = |id: &NamespaceId| -> Vec<Bytes> {
            let rows = self.partitions.get(&(*id, request.partition.clone()));
            let rows = rows
                .into_iter()
                .flat_map(|rows| within(rows, &request.range));
            let sorts = rows.map(|(sort, _)| sort.clone());
            sorts.take(request.rows_max as usize + 1).collect()
        };
        // The step ends with the last row that any of the datasets may lose.
        let last_of = |sorts: Vec<Bytes>| {
            let has_more = sorts.len() > request.rows_max as usize;
            has_more.then(|| sorts[request.rows_max as usize - 1].clone())
        };
        let mut deleted = Deleted {
            resume_after: ids.iter().map(sorts_of).filter_map(last_of).min(),
            ..Deleted::default()
        };
        let end = deleted.resume_after.as_ref();
        let covered = end.map_or_else(
            || request.range.clone(),
            |last| {
                let beyond = request.range.clone().beyond(last, false).start;
                let up_to = SortRange {
                    start: Bytes::new(),
                    end: Some(beyond),
                };
                request.range.clone().intersect(up_to)
            },
        );
        for (at, id) in ids.iter().enumerate() {
            let id = (*id, request.partition.clone());
            let rows = self.partitions.get(&id).map(|rows| {
                let sorts = within(rows, &covered).map(|(sort, _)| sort.clone());
                sorts.collect::<Vec<_>>()
            });
            for sort in rows.unwrap_or_default() {
                let len = sort.len();
                let row = self
                    .place_at(&id, sort, None)
                    .filter(|row| !row.row.is_expired(now));
                if let Some(row) = row.filter(|_| at == 0) {
                    deleted.rows += 1;
                    deleted.bytes += (len + row.row.value.plain_len()) as u64;
                }
            }
        }
        if let Some(building) = group.and_then(|group| group.building) {
            let id = (building, request.partition.clone());
            self.written_ranges.push((id, covered));
        }
        self.commits += 1;
        self.mutations += deleted.rows;
        self.sweep_uploads(now);
        deleted
    }

    /// Removes all rows of the fenced namespaces.
    pub(super) fn purge(&mut self, is_fenced: impl Fn(NamespaceId) -> bool) {
        let groups = &self.groups;
        self.idempotency
            .purge(|namespace| is_fenced(namespace) && !groups.is_identity(namespace));
        self.partitions.retain(|(id, _), _| !is_fenced(*id));
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
                    bytes_saved: 0,
                });
            }
            if let Some(size) = sizes.last_mut() {
                let len = |(sort, stored): (&Bytes, &StoredRow)| {
                    (partition.as_bytes().len() + sort.len() + stored.row.value.stored_len()) as u64
                };
                size.rows += rows.len() as u64;
                size.bytes += rows.iter().map(len).sum::<u64>();
                let saved = |stored: &StoredRow| {
                    let value = &stored.row.value;
                    value.plain_len().saturating_sub(value.stored_len())
                };
                size.bytes_saved += rows.values().map(saved).sum::<usize>() as u64;
            }
        }
        sizes
    }

    pub(super) fn rows(&self) -> u64 {
        self.partitions.values().map(|rows| rows.len() as u64).sum()
    }

    /// Returns the numbers of commits and of mutations so far.
    pub(super) fn changes(&self) -> (u64, u64) {
        (self.commits, self.mutations)
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

fn row_ref<'a>(partition: &'a [u8], sort: &'a [u8], row: &'a Row) -> RowRef<'a> {
    RowRef {
        partition,
        sort,
        value: &row.value.bytes,
        form: row.value.form,
        value_len: row.value.plain_len() as u32,
        content_type: &row.value.content_type,
        content_encoding: &row.value.content_encoding,
        version: row.version,
        expires_at: row.expires_at,
    }
}
