//! Applies the rows of sorted runs in the order of their keys. Of rows with equal keys, the row of a later run comes
//! later.
//!
//! A separate task reads the runs and makes batches. Applied pieces of a run are removed while the rest is applied, to
//! make room for the rows of the version.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use umbo_loads::LoadRecord;
use umbo_loads::layout::{self, RunRecord, SortedRun};
use umbo_loads::limits::{PIECE_LEN, SEGMENT_LEN};
use umbo_store::{GIVES_WAY_EVERY, give_way};

use super::apply::{Batches, apply};
use super::host::Host;
use super::journal::{Journal, Stop};
use super::open_batches::{Advance, Divided, value_len};
use super::sort_buffer::{RowBytes, TakenRow};
use super::take::{NewestVersions, newest_versions};
use super::work::continues;
use super::work::{removal, remove_bytes};
use crate::host_error::HostError;
use crate::limits::{BATCH_BYTES_MAX, BATCH_ROWS_MAX};
use crate::stored_rows::read_piece;

/// Pieces of a run that one write removes while its other pieces are still read. Until so many are applied, their rows
/// are stored twice: in the run, and in the version.
const REMOVED_TOGETHER: u64 = 2;
/// Removals under way at a time; removals in one shard share a commit. With fewer, rows are applied faster than pieces
/// are removed, and the files grow: ten million rows took 1.252 of their bytes with 32 and 1.236 with 64.
const REMOVALS_MAX: usize = 64;
/// Batches that wait while others are applied.
const BATCHES_AHEAD: usize = 2;

/// Applies the remaining rows of the sorted runs, and removes the runs.
pub(super) async fn merge_runs(
    host: &Host,
    id: &str,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    if journal.run.runs.is_empty() {
        return Ok(());
    }
    let load = continues(host, id)?;
    let newest = newest_versions(host, &load).await?;
    let mut rows = MergedRows::open(host, &load, newest, &journal.run.runs);
    apply(host, id, &mut rows, journal, tries).await?;
    drop(rows);
    let runs = std::mem::take(&mut journal.run.runs);
    journal.write().await?;
    for run in runs {
        remove_bytes(host, &load, run.upload, run.len).await;
    }
    Ok(())
}

/// Rows of all runs, and the position of each run after them.
type MergedBatch = (Vec<TakenRow>, Vec<u64>);

/// The rows of sorted runs, batch after batch. Reading ends after the last row, with an error, or when this is dropped.
struct MergedRows {
    newest: NewestVersions,
    batches: mpsc::Receiver<Result<MergedBatch, HostError>>,
    /// The applied bytes of each run.
    applied: watch::Sender<Vec<u64>>,
    _tasks: JoinSet<()>,
}

impl MergedRows {
    fn open(
        host: &Host,
        load: &Arc<LoadRecord>,
        newest: NewestVersions,
        runs: &[SortedRun],
    ) -> Self {
        let (to, batches) = mpsc::channel(BATCHES_AHEAD);
        let (applied, is_applied) = watch::channel(applied_of(runs));
        let mut tasks = JoinSet::new();
        let merge = Merge {
            host: host.clone(),
            load: Arc::clone(load),
            runs: runs.iter().map(RunReader::new).collect(),
            order: Vec::new(),
        };
        tasks.spawn(merge.run(to));
        tasks.spawn(remove_applied(
            host.clone(),
            Arc::clone(load),
            runs.to_vec(),
            is_applied,
        ));
        Self {
            newest,
            batches,
            applied,
            _tasks: tasks,
        }
    }
}

impl Batches for MergedRows {
    async fn next(&mut self, host: &Host, load: &LoadRecord) -> Result<Option<Divided>, HostError> {
        let Some(batch) = self.batches.recv().await else {
            return Ok(None);
        };
        let (rows, applied) = batch?;
        let advance = Advance::Runs(applied);
        Ok(Some(Divided::of_rows(
            host,
            (load, &self.newest),
            advance,
            rows,
        )))
    }

    fn note_stored(&mut self, run: &RunRecord) {
        self.applied.send_replace(applied_of(&run.runs));
    }
}

fn applied_of(runs: &[SortedRun]) -> Vec<u64> {
    runs.iter().map(|run| run.applied).collect()
}

/// Removes pieces of runs after their rows are applied. The last pieces are removed with their run.
async fn remove_applied(
    host: Host,
    load: Arc<LoadRecord>,
    mut runs: Vec<SortedRun>,
    mut applied: watch::Receiver<Vec<u64>>,
) {
    for run in &mut runs {
        run.applied -= run.applied % PIECE_LEN;
    }
    let mut removals = JoinSet::new();
    while applied.changed().await.is_ok() {
        let ends = applied.borrow_and_update().clone();
        for (run, end) in runs.iter_mut().zip(ends) {
            while end - run.applied >= REMOVED_TOGETHER * PIECE_LEN {
                // One write has pieces of one segment.
                let of_segment = SEGMENT_LEN - run.applied % SEGMENT_LEN;
                let len = of_segment.min(REMOVED_TOGETHER * PIECE_LEN);
                let starts = (run.applied..run.applied + len).step_by(PIECE_LEN as usize);
                let keys = starts.map(|at| layout::piece_key(run.upload, at, PIECE_LEN));
                let keys = keys.map(removal).collect();
                while removals.len() >= REMOVALS_MAX {
                    removals.join_next().await;
                }
                let (host, content) = (host.clone(), load.content_id());
                removals.spawn(async move {
                    if let Err(error) = host.write(content, keys).await {
                        tracing::debug!(%error, "applied rows of a run are removed with it");
                    }
                });
                run.applied += len;
            }
        }
    }
}

/// A run that is being read.
struct RunReader {
    run: SortedRun,
    bytes: RowBytes,
    /// The first row that is not in a batch, and its position; `None` at the end of the run.
    first: Option<TakenRow>,
    first_at: u64,
}

impl RunReader {
    fn new(run: &SortedRun) -> Self {
        Self {
            run: *run,
            bytes: RowBytes::after(run.applied),
            first: None,
            first_at: run.applied,
        }
    }

    /// Reads the next row.
    async fn read(&mut self, host: &Host, load: &LoadRecord) -> Result<(), HostError> {
        let damaged = || HostError::Never("a stored sorted run is damaged".to_owned());
        loop {
            self.first_at = self.bytes.taken();
            self.first = self.bytes.take().map_err(|_| damaged())?;
            let end = self.bytes.end();
            if self.first.is_some() || self.first_at == self.run.len {
                return Ok(());
            }
            if end >= self.run.len {
                return Err(damaged());
            }
            let piece = read_piece(host, load.content_id(), self.run.upload, end).await?;
            self.bytes.add(piece.ok_or_else(damaged)?);
        }
    }
}

/// Merges runs.
struct Merge {
    host: Host,
    load: Arc<LoadRecord>,
    runs: Vec<RunReader>,
    /// Runs that have rows, as a binary heap: the run with the lowest row comes first.
    order: Vec<usize>,
}

impl Merge {
    async fn run(mut self, to: mpsc::Sender<Result<MergedBatch, HostError>>) {
        if let Err(error) = self.send_all(&to).await {
            // If the receiver is gone, this task is ended.
            drop(to.send(Err(error)).await);
        }
    }

    async fn send_all(
        &mut self,
        to: &mpsc::Sender<Result<MergedBatch, HostError>>,
    ) -> Result<(), HostError> {
        for run in &mut self.runs {
            run.read(&self.host, &self.load).await?;
        }
        self.order = (0..self.runs.len())
            .filter(|&run| self.runs[run].first.is_some())
            .collect();
        for at in (0..self.order.len()).rev() {
            self.sink(at);
        }
        let (mut rows, mut bytes) = (Vec::with_capacity(BATCH_ROWS_MAX), 0);
        while let Some(row) = self.next().await? {
            let (partition, sort) = (row.key.partition.as_bytes(), row.key.sort.as_bytes());
            bytes += partition.len() + sort.len() + value_len(&row.change);
            rows.push(row);
            give_way(rows.len(), GIVES_WAY_EVERY);
            if rows.len() >= BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX {
                bytes = 0;
                let whole = std::mem::replace(&mut rows, Vec::with_capacity(BATCH_ROWS_MAX));
                if to.send(Ok((whole, self.applied()))).await.is_err() {
                    return Ok(());
                }
            }
        }
        if !rows.is_empty() {
            drop(to.send(Ok((rows, self.applied()))).await);
        }
        Ok(())
    }

    /// Returns the position of the first row of each run that is in no batch.
    fn applied(&self) -> Vec<u64> {
        self.runs.iter().map(|run| run.first_at).collect()
    }

    /// Takes the lowest row of all runs.
    async fn next(&mut self) -> Result<Option<TakenRow>, HostError> {
        let Some(&lowest) = self.order.first() else {
            return Ok(None);
        };
        let run = &mut self.runs[lowest];
        let row = run.first.take();
        run.read(&self.host, &self.load).await?;
        if run.first.is_none() {
            self.order.swap_remove(0);
        }
        self.sink(0);
        Ok(row)
    }

    /// Restores the heap below a place after the first row of its run has changed.
    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2];
            let children = children
                .into_iter()
                .filter(|&child| child < self.order.len());
            let Some(child) = children.min_by(|&one, &other| self.key(one).cmp(&self.key(other)))
            else {
                return;
            };
            if self.key(at) <= self.key(child) {
                return;
            }
            self.order.swap(at, child);
            at = child;
        }
    }

    /// Returns the key by which runs are ordered. Of equal row keys, the row of the earlier run is lower.
    fn key(&self, at: usize) -> impl Ord {
        let run = self.order[at];
        (self.runs[run].first.as_ref().map(TakenRow::order), run)
    }
}
