//! Puts the rows of parts in the order of their keys: as sorted runs, which are stored and then merged.
//!
//! A run has the rows of one full buffer. While one run is stored, the rows of the next one are taken. The position in
//! the parts moves in the same write that records the stored run. So if the process ends at any point, only some rows
//! are taken again.

use std::collections::BTreeMap;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinSet, block_in_place};
use umbo_loads::layout::{self, PartProgress, PartRecord, SortedRun};
use umbo_loads::limits::PIECE_LEN;
use umbo_store::Mutation;
use umbo_types::NamespaceId;

use super::check::progress_row;
use super::host::Host;
use super::journal::{Journal, Stop};
use super::merge::merge_runs;
use super::open_batches::RejectedRows;
use super::rows::NumberedRows;
use super::sort_buffer::{SortBuffer, SortedRows};
use super::take::{TakenRows, UntakenRows};
use super::work::{Beats, continues, remove_part, wait};
use crate::host_error::HostError;
use crate::limits::{BATCH_BYTES_MAX, REJECTS_MAX, SORTED_RUN_LEN, SORTED_RUNS_MAX};

/// Pieces of a run that are stored at once: a commit of 1 MiB, as for rows.
const PIECES_TOGETHER: usize = 4;

/// Sorts the rows of parts.
pub(super) struct Sorter {
    host: Host,
    id: String,
    filling: SortBuffer,
    taken: Taken,
    /// The run that is being stored.
    storing: JoinSet<(RunWriter, Result<(), HostError>)>,
    removals: JoinSet<()>,
    /// Of all parts: a short part alone would end before its first beat.
    beats: Beats,
}

/// The progress in the parts that the rows of a buffer stand for.
#[derive(Debug, Default, Clone)]
struct Taken {
    /// Rows that were read, including rows that are not applied.
    rows: u64,
    skipped: u64,
    blocked: u64,
    unreadable: u64,
    /// Rows of the report about rejected rows, up to [`REJECTS_MAX`].
    rejects: Vec<Mutation>,
    /// Parts that were taken to their end.
    parts: Vec<(u16, PartRecord, PartProgress)>,
    /// The part that follows, and the progress in it.
    part: u32,
    of_part: PartProgress,
}

impl Sorter {
    /// Begins at the position of the run.
    pub(super) fn new(host: &Host, id: &str, journal: &Journal) -> Self {
        Self {
            host: host.clone(),
            id: id.to_owned(),
            filling: new_buffer(),
            taken: Taken {
                part: journal.run.part,
                of_part: PartProgress {
                    rows: journal.run.row,
                    rejected: journal.run.unreadable,
                },
                ..Taken::default()
            },
            storing: JoinSet::new(),
            removals: JoinSet::new(),
            beats: Beats::begin(),
        }
    }

    /// Takes the rows of a part. The first rows may be given in `first`.
    pub(super) async fn take_part(
        &mut self,
        part: &PartRecord,
        mut first: Option<NumberedRows>,
        rows: &mut UntakenRows,
        journal: &mut Journal,
        tries: &mut u32,
    ) -> Result<(), Stop> {
        loop {
            let is_full = self.filling.len() >= SORTED_RUN_LEN;
            if is_full && self.storing.is_empty() {
                if journal.run.runs.len() >= SORTED_RUNS_MAX {
                    merge_runs(&self.host, &self.id, journal, tries).await?;
                }
                self.store()?;
                continue;
            }
            if let Some(batch) = first.take() {
                self.take(rows.part, batch)?;
                continue;
            }
            tokio::select! {
                biased;
                () = self.beats.next() => self.beats.write(&self.host, &self.id, journal).await?,
                Some(ended) = self.storing.join_next() => self.stored(ended, journal, tries).await?,
                batch = rows.next(), if !is_full => match batch? {
                    Some(batch) => self.take(rows.part, batch)?,
                    None => break,
                },
            }
        }
        let progress = std::mem::take(&mut self.taken.of_part);
        self.taken.parts.push((rows.part, part.clone(), progress));
        self.taken.part = u32::from(rows.part) + 1;
        Ok(())
    }

    fn take(&mut self, part: u16, batch: NumberedRows) -> Result<(), Stop> {
        let load = continues(&self.host, &self.id)?;
        let TakenRows {
            len,
            rows,
            skipped,
            rejected,
        } = TakenRows::of(&self.host, &load, part, batch);
        for row in &rows {
            self.filling.push(row);
        }
        let RejectedRows {
            blocked,
            unreadable,
            rows: rejects,
        } = rejected;
        let taken = &mut self.taken;
        taken.rows += len;
        taken.skipped += skipped;
        taken.blocked += blocked;
        taken.unreadable += unreadable;
        let room = (REJECTS_MAX as usize).saturating_sub(taken.rejects.len());
        taken.rejects.extend(rejects.into_iter().take(room));
        taken.of_part.rows += len;
        taken.of_part.rejected += unreadable;
        Ok(())
    }

    /// Begins to store the rows that were taken as a run.
    fn store(&mut self) -> Result<(), Stop> {
        let next = Taken {
            part: self.taken.part,
            of_part: self.taken.of_part,
            ..Taken::default()
        };
        let writer = RunWriter {
            host: self.host.clone(),
            content: continues(&self.host, &self.id)?.content_id(),
            run: SortedRun {
                upload: fastrand::u64(1..),
                len: 0,
                applied: 0,
            },
            rows: Rows::Taken(std::mem::replace(&mut self.filling, new_buffer())),
            unwritten: Vec::new(),
            taken: std::mem::replace(&mut self.taken, next),
        };
        self.storing.spawn(writer.write());
        Ok(())
    }

    /// Records a stored run. If a shard has refused it for now, waits and continues to store it.
    async fn stored(
        &mut self,
        ended: Result<(RunWriter, Result<(), HostError>), JoinError>,
        journal: &mut Journal,
        tries: &mut u32,
    ) -> Result<(), Stop> {
        let (writer, outcome) = ended.map_err(|error| Stop::Failed(error.to_string()))?;
        match outcome {
            Ok(()) => {
                if std::mem::take(tries) > 0 {
                    journal.waits_for(None);
                }
                self.record(writer.taken, Some(writer.run), journal).await
            }
            Err(HostError::Wait { after, reason }) => {
                wait(&self.host, &self.id, journal, after, &reason, tries).await?;
                self.storing.spawn(writer.write());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Records the progress of the run, and removes the bytes of the parts that it does not read again.
    async fn record(
        &mut self,
        taken: Taken,
        run: Option<SortedRun>,
        journal: &mut Journal,
    ) -> Result<(), Stop> {
        let mut rejects = taken.rejects;
        let room = REJECTS_MAX.saturating_sub(journal.run.rejected);
        rejects.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        journal.put_rows(rejects).await?;
        let progress = taken.parts.iter();
        let progress = progress.map(|(part, _, progress)| progress_row(*part, progress));
        journal.put_rows(progress.collect()).await?;
        let rejected = taken.blocked + taken.unreadable;
        journal.count(taken.skipped, rejected, &BTreeMap::new());
        let record = &mut journal.run;
        record.rows += taken.rows;
        record.blocked += taken.blocked;
        record.checked = taken.part;
        record.part = taken.part;
        record.row = taken.of_part.rows;
        record.unreadable = taken.of_part.rejected;
        record.runs.extend(run);
        journal.write().await?;
        if let Some(load) = self.host.load(&self.id) {
            let host = self.host.clone();
            self.removals.spawn(async move {
                for (_, part, _) in &taken.parts {
                    remove_part(&host, &load, part).await;
                }
            });
        }
        Ok(())
    }

    /// Stores the rows that are left and applies all runs.
    pub(super) async fn finish(
        mut self,
        journal: &mut Journal,
        tries: &mut u32,
    ) -> Result<(), Stop> {
        loop {
            if self.storing.is_empty() {
                if self.filling.is_empty() {
                    break;
                }
                self.store()?;
            }
            tokio::select! {
                biased;
                () = self.beats.next() => self.beats.write(&self.host, &self.id, journal).await?,
                Some(ended) = self.storing.join_next() => self.stored(ended, journal, tries).await?,
            }
        }
        let taken = std::mem::take(&mut self.taken);
        if !taken.parts.is_empty() {
            // The last rows were all skipped or rejected.
            self.record(taken, None, journal).await?;
        }
        merge_runs(&self.host, &self.id, journal, tries).await?;
        while self.removals.join_next().await.is_some() {}
        Ok(())
    }
}

/// Returns a buffer that need not grow for the last batch of a run.
fn new_buffer() -> SortBuffer {
    SortBuffer::with_capacity(SORTED_RUN_LEN + 2 * BATCH_BYTES_MAX)
}

/// Rows of a run.
#[derive(Debug)]
enum Rows {
    Taken(SortBuffer),
    Sorted(SortedRows),
}

/// Stores a run.
#[derive(Debug)]
struct RunWriter {
    host: Host,
    content: NamespaceId,
    run: SortedRun,
    rows: Rows,
    /// Pieces that a shard has not taken.
    unwritten: Vec<Mutation>,
    taken: Taken,
}

impl RunWriter {
    /// Stores the remaining pieces. After an error it is called again, or the run is given up.
    async fn write(mut self) -> (Self, Result<(), HostError>) {
        self.rows = match self.rows {
            Rows::Taken(buffer) => Rows::Sorted(sorted(buffer)),
            rows @ Rows::Sorted(_) => rows,
        };
        loop {
            if self.unwritten.is_empty() {
                self.make_pieces();
            }
            if self.unwritten.is_empty() {
                return (self, Ok(()));
            }
            let pieces = self.unwritten.clone();
            if let Err(error) = self.host.store(self.content, pieces).await {
                return (self, Err(error));
            }
            self.unwritten.clear();
        }
    }

    fn make_pieces(&mut self) {
        let Rows::Sorted(rows) = &mut self.rows else {
            return;
        };
        let mut pieces = std::iter::from_fn(|| rows.take(PIECE_LEN as usize));
        for bytes in pieces.by_ref().take(PIECES_TOGETHER) {
            let SortedRun { upload, len, .. } = &mut self.run;
            let end = *len + bytes.len() as u64;
            self.unwritten.push(layout::piece(*upload, *len, bytes));
            *len = end;
        }
    }
}

/// Sorts rows, which takes a tenth of a second: meanwhile the other tasks of this thread go on elsewhere.
fn sorted(buffer: SortBuffer) -> SortedRows {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        // As in simulations.
        return buffer.sort();
    }
    block_in_place(|| buffer.sort())
}
