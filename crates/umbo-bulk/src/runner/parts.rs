//! Applies the rows of parts, in the order of parts and rows. If a load is checked first, its parts are checked by
//! then. The parts of other loads are checked while they are applied.
//!
//! Rows of a load that is not checked first go to the shards at once while they come in the order of their keys: a
//! B-tree is built best in this order. From the first batch that is out of order, all rows are sorted first (`sort`).

use std::sync::Arc;
use std::vec::IntoIter;

use tokio::task::JoinSet;
use umbo_loads::LoadRecord;
use umbo_loads::layout::{PartRecord, RunRecord};

use super::apply::{Batches, apply};
use super::host::Host;
use super::journal::{Journal, Stop};
use super::open_batches::{Advance, Divided};
use super::rows::NumberedRows;
use super::sort::Sorter;
use super::take::{KeyOrder, NewestVersions, TakenRows, UntakenRows, newest_versions};
use super::work::remove_part;
use super::work::{Parts, continues};
use crate::host_error::HostError;

/// Applies the remaining parts of the run, and removes their bytes. Before the load is sealed it only applies rows in
/// the order of their keys, because a sorted run should have rows of as many parts as fit in memory.
pub(super) async fn apply_parts(
    host: &Host,
    id: &str,
    parts: &Parts,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    let load = continues(host, id)?;
    let is_sealed = load.parts.is_some();
    let newest = newest_versions(host, &load).await?;
    let mut batches = PartBatches::new(host, (load, newest), parts, journal);
    // Rows that come after sorted ones are sorted with them.
    if !journal.run.is_sorting() {
        apply(host, id, &mut batches, journal, tries).await?;
        journal.run.last = batches.order.as_ref().and_then(KeyOrder::last);
        journal.run.unordered = batches.unordered.is_some();
        journal.write().await?;
        batches.note_stored(&journal.run);
    }
    if is_sealed && journal.run.is_sorting() {
        let mut sorter = Sorter::new(host, id, journal);
        let mut first = batches.unordered.take();
        while let Some((rows, part)) = batches.open_next()? {
            let first = first.take();
            sorter.take_part(part, first, rows, journal, tries).await?;
            batches.open = None;
        }
        sorter.finish(journal, tries).await?;
    }
    while batches.removals.join_next().await.is_some() {}
    Ok(())
}

/// The rows of parts, as they come.
struct PartBatches {
    host: Host,
    load: Arc<LoadRecord>,
    newest: NewestVersions,
    /// Parts that are not begun.
    left: IntoIter<(u16, PartRecord)>,
    /// Rows of the first of them that an earlier run has taken.
    taken: u64,
    /// The part that is being read.
    open: Option<(UntakenRows, PartRecord)>,
    /// The part after it. Its first rows are read ahead, because opening a part takes the time of many of its rows.
    ahead: Option<(UntakenRows, PartRecord)>,
    /// Ends the batches before the first batch that is out of order.
    order: Option<KeyOrder>,
    /// The first batch that is not in order.
    unordered: Option<NumberedRows>,
    /// Parts with stored bytes.
    kept: Vec<(u16, PartRecord)>,
    removals: JoinSet<()>,
}

impl PartBatches {
    fn new(
        host: &Host,
        (load, newest): (Arc<LoadRecord>, NewestVersions),
        parts: &Parts,
        journal: &Journal,
    ) -> Self {
        let parts = parts.from(journal.run.part);
        let parts: Vec<_> = parts.map(|(number, part)| (number, part.clone())).collect();
        Self {
            host: host.clone(),
            order: (!load.is_checked_first()).then(|| KeyOrder::after(journal.run.last.as_ref())),
            load,
            newest,
            left: parts.into_iter(),
            taken: journal.run.row,
            open: None,
            ahead: None,
            unordered: None,
            kept: Vec::new(),
            removals: JoinSet::new(),
        }
    }

    /// Returns the open part, or opens the next one. Returns `None` if no part is left.
    fn open_next(&mut self) -> Result<Option<&mut (UntakenRows, PartRecord)>, HostError> {
        if self.open.is_none() {
            self.open = match self.ahead.take() {
                Some(ahead) => Some(ahead),
                None => self.begin_next()?,
            };
            self.ahead = self.begin_next()?;
        }
        Ok(self.open.as_mut())
    }

    /// Begins to read the first part that is left.
    fn begin_next(&mut self) -> Result<Option<(UntakenRows, PartRecord)>, HostError> {
        let Some((number, part)) = self.left.next() else {
            return Ok(None);
        };
        let taken = std::mem::take(&mut self.taken);
        let rows = UntakenRows::open(&self.host, &self.load, (number, &part), taken)?;
        Ok(Some((rows, part)))
    }
}

impl Batches for PartBatches {
    async fn next(&mut self, host: &Host, load: &LoadRecord) -> Result<Option<Divided>, HostError> {
        let Some((rows, _)) = self.open_next()? else {
            return Ok(None);
        };
        let number = rows.part;
        let Some(batch) = rows.next().await? else {
            let ended = self.open.take().map(|(_, part)| (number, part));
            self.kept.extend(ended);
            return Ok(Some(Divided {
                advance: Advance::PartEnd(number),
                ..Divided::default()
            }));
        };
        if self
            .order
            .as_mut()
            .is_some_and(|order| !order.takes(&batch))
        {
            self.unordered = Some(batch);
            return Ok(None);
        }
        let taken = TakenRows::of(host, load, number, batch);
        Ok(Some(Divided::of_part(host, (load, &self.newest), taken)))
    }

    fn note_stored(&mut self, run: &RunRecord) {
        // No run reads the parts before again.
        let is_applied = |part: &mut (u16, PartRecord)| u32::from(part.0) < run.part;
        for (_, part) in self.kept.extract_if(.., is_applied) {
            let (host, load) = (self.host.clone(), Arc::clone(&self.load));
            self.removals
                .spawn(async move { remove_part(&host, &load, &part).await });
        }
    }
}
