//! Shared by checking and applying: the parts of a load, whether to continue, waiting, and the removal of bytes that no
//! run reads again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval, interval_at, sleep};
use umbo_loads::layout::{self, PartRecord, RunRecord};
use umbo_loads::limits::SEGMENT_LEN;
use umbo_loads::{LoadRecord, shortened};
use umbo_store::{Change, Condition, Mutation, SortRange};
use umbo_types::Key;

use super::host::Host;
use super::journal::{Journal, Stop};
use crate::limits::BEAT;
use crate::stored_rows::{all_rows, read_json_rows_from, whole};

/// Longest wait before something is tried again.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The beats of a run between other writes of its row: they renew its lease.
#[derive(Debug)]
pub(super) struct Beats(Interval);

impl Beats {
    pub(super) fn begin() -> Self {
        Self(interval_at(Instant::now() + BEAT, BEAT))
    }

    /// Waits for the next beat.
    pub(super) async fn next(&mut self) {
        self.0.tick().await;
    }

    /// Writes the beat, if the run is to continue. The next beat comes [`BEAT`] after the write has ended: slow writes
    /// leave the run time for its work.
    pub(super) async fn write(
        &mut self,
        host: &Host,
        id: &str,
        journal: &mut Journal,
    ) -> Result<(), Stop> {
        continues(host, id)?;
        journal.write().await?;
        self.0.reset();
        Ok(())
    }
}

/// Waits, and reports the reason.
pub(super) async fn wait(
    host: &Host,
    id: &str,
    journal: &mut Journal,
    after: Duration,
    reason: &str,
    tries: &mut u32,
) -> Result<(), Stop> {
    if journal.run.waits.is_none() {
        tracing::info!(load = id, reason, "a load waits");
    }
    journal.waits_for(Some(shortened(reason)));
    // Each refusal in a row doubles the wait.
    let factor = 1_u32 << (*tries).min(5);
    *tries += 1;
    let mut left = after
        .max(Duration::from_millis(10))
        .saturating_mul(factor.div_ceil(2));
    // A quota may be raised meanwhile.
    left = left.min(WAIT_MAX);
    host.places.set_waits(id, true);
    while !left.is_zero() {
        let step = left.min(BEAT);
        tokio::select! {
            biased;
            () = sleep(step) => left -= step,
            () = host.places.next_asked() => {}
        }
        continues(host, id)?;
        // The shard without room may be the one that holds this row.
        match journal.write().await {
            Ok(()) | Err(Stop::Later { .. }) => {}
            Err(end) => return Err(end),
        }
    }
    host.places.set_waits(id, false);
    Ok(())
}

/// Returns the load if the run is to continue here.
pub(super) fn continues(host: &Host, id: &str) -> Result<Arc<LoadRecord>, Stop> {
    let ends_here = host.is_ending() || host.places.is_asked(id);
    let is_to_run = |load: &Arc<LoadRecord>| load.is_to_run() && !ends_here;
    let load = host.load(id).filter(is_to_run);
    load.ok_or(Stop::LetGo)
}

/// Parts of a load, by number and without a gap.
pub(super) struct Parts(Vec<(u16, PartRecord)>);

impl Parts {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Reads the parts from the position of the run on. If the load is not sealed, reads the parts that are
    /// there.
    pub(super) async fn read(
        host: &Host,
        load: &LoadRecord,
        run: &RunRecord,
    ) -> Result<Self, Stop> {
        let from = u16::try_from(run.part).unwrap_or(u16::MAX);
        let report = load.report_id();
        let found: Vec<(u16, PartRecord)> =
            read_json_rows_from(host, report, layout::PARTS, from).await?;
        let parts: Vec<_> = found
            .into_iter()
            .zip(run.part..load.parts.unwrap_or(u32::MAX))
            .take_while(|((number, _), at)| u32::from(*number) == *at)
            .map(|(part, _)| part)
            .collect();
        let end = run.part + parts.len() as u32;
        match load.parts {
            Some(count) if end < count => Err(Stop::Failed(format!("part {end} is missing"))),
            // It became whole while the load was being sealed without it.
            Some(count) if run.begun > count => Err(Stop::Failed(format!(
                "part {count} was uploaded while the load was being sealed with {count} parts; its rows may be applied"
            ))),
            _ => Ok(Self(parts)),
        }
    }

    /// Returns the number after the last one; `None` without parts.
    pub(super) fn end(&self) -> Option<u32> {
        self.0.last().map(|(number, _)| u32::from(*number) + 1)
    }

    /// Returns the parts from a number on.
    pub(super) fn from(&self, number: u32) -> impl Iterator<Item = (u16, &PartRecord)> {
        let parts = self.0.iter().map(|(number, part)| (*number, part));
        parts.filter(move |(of, _)| u32::from(*of) >= number)
    }
}

/// Removes the bytes of a part.
pub(super) async fn remove_part(host: &Host, load: &LoadRecord, part: &PartRecord) {
    remove_bytes(host, load, part.upload, part.len).await;
}

/// Removes the bytes of an upload. Bytes that a shard refuses to remove are reclaimed when the load
/// ends.
pub(super) async fn remove_bytes(host: &Host, load: &LoadRecord, upload: u64, len: u64) {
    let mut at = 0;
    while at < len {
        let segment = layout::segment(upload, at);
        let mut request = whole(load.content_id(), segment, SortRange::default());
        request.keys_only = true;
        let mut removals = Vec::new();
        let listed = all_rows(host, request, |row| {
            let bounds = layout::piece_bounds(row.sort);
            let key = |(start, end)| layout::piece_key(upload, start, end - start);
            removals.extend(bounds.map(key).map(removal));
        });
        let removed = match listed.await {
            Ok(()) if removals.is_empty() => Ok(()),
            Ok(()) => host.write(load.content_id(), removals).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "bytes of a load that are not needed are removed with it");
        }
        at += SEGMENT_LEN;
    }
}

pub(super) fn removal(key: Key) -> Mutation {
    Mutation {
        key,
        change: Change::Delete,
        condition: Condition::Always,
    }
}
