//! Applies the rows of parts, in the order of parts and rows. In mode merge the parts are checked; in mode replace, where
//! no row is visible before the version is live, they are checked while they are applied.
//!
//! In mode replace rows go to the shards as they come as long as they are in the order of their keys, in which a B-tree
//! is built best. From the first batch on that is not, all of them are sorted first (`sort`).

use super::apply::{Batches, apply};
use super::check::progress_row;
use super::open_batches::Divided;
use super::remove::remove_part;
use super::sort::Sorter;
use super::take::{KeyOrder, TakenRows, UntakenRows};
use super::work::{Parts, continues};
use crate::host::{Host, HostError};
use crate::journal::{Journal, Stop};
use crate::layout::{PartProgress, PartRecord, RunRecord};
use crate::record::LoadRecord;
use crate::rows::NumberedRows;

/// Applies the parts from where the run is. The bytes of each are removed while the next one is applied, whose rows have
/// their room then.
pub(super) async fn apply_parts(
    host: &Host,
    id: &str,
    parts: &Parts,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    let mut done: Option<&PartRecord> = None;
    let mut order = KeyOrder::default();
    let mut sorter = (!journal.run.runs.is_empty()).then(|| Sorter::new(host, id, journal));
    let mut taken = journal.run.row;
    for (number, part) in parts.from(journal.run.part) {
        let load = continues(host, id)?;
        let mut rows = UntakenRows::open(host, &load, (number, part), std::mem::take(&mut taken))?;
        if let Some(sorter) = &mut sorter {
            sorter
                .take_part(part, None, &mut rows, journal, tries)
                .await?;
            continue;
        }
        let mut batches = PartBatches {
            rows: &mut rows,
            order: load.target.is_some().then_some(&mut order),
            unordered: None,
        };
        let applying = apply(host, id, &mut batches, journal, tries);
        let (applied, ()) = tokio::join!(applying, remove_part(host, &load, done));
        applied?;
        if let Some(unordered) = batches.unordered {
            done = None;
            let sorter = sorter.insert(Sorter::new(host, id, journal));
            sorter
                .take_part(part, Some(unordered), &mut rows, journal, tries)
                .await?;
            continue;
        }
        if load.target.is_some() {
            let progress = PartProgress {
                rows: journal.run.row,
                rejected: journal.run.unreadable,
            };
            journal
                .put_rows(vec![progress_row(number, &progress)])
                .await?;
            journal.run.checked = u32::from(number) + 1;
        }
        journal.run.part = u32::from(number) + 1;
        (journal.run.row, journal.run.unreadable) = (0, 0);
        journal.write().await?;
        // No run reads them again.
        done = Some(part);
    }
    match sorter {
        Some(sorter) => sorter.finish(journal, tries).await,
        None => Ok(()),
    }
}

/// The rows of a part, as they come.
struct PartBatches<'a> {
    rows: &'a mut UntakenRows,
    /// Ends the batches with the first one that is not in order.
    order: Option<&'a mut KeyOrder>,
    /// That one.
    unordered: Option<NumberedRows>,
}

impl Batches for PartBatches<'_> {
    async fn next(&mut self, host: &Host, load: &LoadRecord) -> Result<Option<Divided>, HostError> {
        let Some(batch) = self.rows.next().await? else {
            return Ok(None);
        };
        if self
            .order
            .as_mut()
            .is_some_and(|order| !order.takes(&batch))
        {
            self.unordered = Some(batch);
            return Ok(None);
        }
        let taken = TakenRows::of(host, load, self.rows.part, batch);
        Ok(Some(Divided::of_part(host, load, taken)))
    }

    fn note_stored(&mut self, _: &RunRecord) {}
}
