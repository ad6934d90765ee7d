//! Applies the rows of parts, in the order of parts and rows. In mode merge the parts are checked; in mode replace, where
//! no row is visible before the version is live, they are checked while they are applied.
//!
//! A batch is divided by shard, and a few batches are under way: while shards commit, the next ones are read, and each
//! shard takes them in order (`open_batches`). So of two rows with one key the later one is applied later. Progress is what all
//! shards have committed: a request is answered once it is on the disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use umbo_api::batch::KeyFields;
use umbo_api::loads::RejectLine;
use umbo_rows::{LoadChange, LoadRow};
use umbo_store::{Change, Condition, Mutation, SortRange, WriteError};
use umbo_types::{Key, ShardId, Timestamp};

use super::check::{progress_row, reject, reject_row};
use super::open_batches::{Divided, JudgedPiece, OpenBatches, RejectedRows, ShardPiece, len_of};
use super::work::{Parts, continues, wait};
use crate::host::{Host, HostError, WriteAnswers};
use crate::journal::{Journal, Stop};
use crate::layout::{self, PartProgress, PartRecord};
use crate::limits::{BEAT, REJECTS_MAX, SEGMENT_LEN};
use crate::record::LoadRecord;
use crate::rows::{NumberedRows, PartRows};
use crate::stored_rows::{all_rows, whole};

/// How often progress is written while rows are applied: each time is a commit.
const PROGRESS_INTERVAL: Duration = BEAT;

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
    for (number, part) in parts.from(journal.run.part) {
        let load = continues(host, id)?;
        let applying = apply_part(host, id, number, part, journal, tries);
        let (applied, ()) = tokio::join!(applying, remove_bytes(host, &load, done));
        applied?;
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
    Ok(())
}

/// Removes the bytes of a part. What a shard refuses to remove is reclaimed when the load ends.
async fn remove_bytes(host: &Host, load: &LoadRecord, part: Option<&PartRecord>) {
    let Some(part) = part else {
        return;
    };
    let mut at = 0;
    while at < part.len {
        let segment = layout::segment(part.upload, at);
        let mut request = whole(load.content_id(), segment, SortRange::default());
        request.keys_only = true;
        let mut removals = Vec::new();
        let listed = all_rows(host, request, |row| {
            let bounds = layout::piece_bounds(row.sort);
            let key = |(start, end)| layout::piece_key(part.upload, start, end - start);
            removals.extend(bounds.map(key).map(removal));
        });
        let removed = match listed.await {
            Ok(()) if removals.is_empty() => Ok(()),
            Ok(()) => host.write(load.content_id(), removals).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "bytes of an applied part are removed with the load");
        }
        at += SEGMENT_LEN;
    }
}

fn removal(key: Key) -> Mutation {
    Mutation {
        key,
        change: Change::Delete,
        condition: Condition::Always,
    }
}

async fn apply_part(
    host: &Host,
    id: &str,
    number: u16,
    part: &PartRecord,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    let load = continues(host, id)?;
    let rows = PartRows::open(host.clone(), &load, number, part)?;
    let mut writer = Writer {
        host: host.clone(),
        load,
        part: number,
        left_out: journal.run.row,
        open: OpenBatches::default(),
        writes: JoinSet::new(),
        refusal: None,
    };
    let outcome = writer.apply(id, rows, journal, tries).await;
    // What a run does after this one comes after it in the shards too.
    while writer.writes.join_next().await.is_some() {}
    outcome
}

/// A request to a shard that has ended.
type EndedRequest = (ShardId, Vec<ShardPiece>, Result<WriteAnswers, HostError>);

/// Writes the rows of a part.
struct Writer {
    host: Host,
    load: Arc<LoadRecord>,
    part: u16,
    /// Rows that an earlier run has applied.
    left_out: u64,
    open: OpenBatches,
    writes: JoinSet<EndedRequest>,
    /// Why a shard refuses rows for now; no further request is started until it was waited for.
    refusal: Option<(Duration, String)>,
}

impl Writer {
    async fn apply(
        &mut self,
        id: &str,
        mut rows: PartRows,
        journal: &mut Journal,
        tries: &mut u32,
    ) -> Result<(), Stop> {
        let mut written = Instant::now();
        let mut has_more = true;
        loop {
            self.count_ended(journal, tries).await?;
            if !has_more && self.open.is_empty() {
                return Ok(());
            }
            if self.writes.is_empty()
                && let Some((after, reason)) = self.refusal.take()
            {
                wait(&self.host, id, journal, after, &reason, tries).await?;
            }
            self.start();
            let takes = has_more && self.refusal.is_none() && self.open.has_room();
            tokio::select! {
                biased;
                Some(ended) = self.writes.join_next() => self.answered(ended)?,
                batch = rows.next(), if takes => match batch? {
                    Some(batch) => self.push(batch),
                    None => has_more = false,
                },
                () = sleep_until(written + PROGRESS_INTERVAL) => {}
            }
            self.load = continues(&self.host, id)?;
            if written.elapsed() >= PROGRESS_INTERVAL {
                written = Instant::now();
                journal.write().await?;
            }
        }
    }

    fn push(&mut self, mut batch: NumberedRows) {
        let known = usize::try_from(self.left_out)
            .unwrap_or(usize::MAX)
            .min(batch.len());
        batch.drain(..known);
        self.left_out -= known as u64;
        if !batch.is_empty() {
            let divided = divide(&self.host, &self.load, self.part, batch);
            self.open.push(divided);
        }
    }

    /// Starts the next request of each shard that has none under way.
    fn start(&mut self) {
        while self.refusal.is_none()
            && let Some((shard, pieces)) = self.open.take()
        {
            let (host, load) = (self.host.clone(), Arc::clone(&self.load));
            self.writes.spawn(async move {
                let rows = pieces.iter().flat_map(|piece| &piece.mutations);
                let answers = host.apply(&load, shard, rows.cloned().collect()).await;
                (shard, pieces, answers)
            });
        }
    }

    fn answered(&mut self, ended: Result<EndedRequest, JoinError>) -> Result<(), Stop> {
        let defect = |error: JoinError| Stop::Failed(error.to_string());
        let (shard, pieces, answers) = ended.map_err(defect)?;
        let (pieces, refusal) = judge(pieces, answers);
        self.open.answered(shard, pieces);
        match refusal {
            Some(HostError::Wait { after, reason }) => {
                self.refusal = self.refusal.take().max(Some((after, reason)));
                Ok(())
            }
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Counts the batches that have ended, and keeps their rejects. Until then an end of the run means that a batch is
    /// applied again.
    async fn count_ended(&mut self, journal: &mut Journal, tries: &mut u32) -> Result<(), Stop> {
        while let Some(ended) = self.open.pop_ended() {
            if std::mem::take(tries) > 0 {
                journal.waits_for(None);
            }
            let RejectedRows {
                blocked,
                unreadable,
                rows: mut rejects,
            } = ended.rejected;
            let room = REJECTS_MAX.saturating_sub(journal.run.rejected);
            rejects.truncate(usize::try_from(room).unwrap_or(usize::MAX));
            journal.put_rows(rejects).await?;
            journal.count(ended.skipped, blocked + unreadable, &ended.counts);
            journal.run.row += ended.len;
            journal.run.blocked += blocked;
            journal.run.unreadable += unreadable;
            if self.load.target.is_some() {
                journal.run.rows += ended.len;
            }
        }
        Ok(())
    }
}

/// Divides the rows of a part by shard. Those that are rejected are left out.
fn divide(host: &Host, load: &LoadRecord, part: u16, batch: NumberedRows) -> Divided {
    let (now, default) = (host.now(), host.default_expiry(load));
    let condition = || {
        if load.target.is_some() {
            Condition::Unwritten
        } else if load.force {
            Condition::Always
        } else {
            Condition::NotNewerThan(Timestamp::from_millis(load.as_of))
        }
    };
    let mut divided = Divided {
        len: batch.len() as u64,
        ..Divided::default()
    };
    let rejected = &mut divided.rejected;
    for (line, row) in batch {
        let LoadRow { key, change } = match row {
            Ok(row) => row,
            Err(row) => {
                // In mode merge they were counted when the parts were checked.
                if load.target.is_some() {
                    rejected.unreadable += 1;
                    rejected.keep(|| reject(part, &row));
                }
                continue;
            }
        };
        if host.is_blocked(load, &key) {
            rejected.blocked += 1;
            rejected.keep(|| blocked(part, line, &key));
            continue;
        }
        let change = match change {
            LoadChange::Put { value, expiry } => {
                let expires_at = expiry.map(|expiry| expiry.instant(now));
                if expires_at.is_some_and(|at| at <= now) {
                    divided.skipped += 1;
                    continue;
                }
                let expires_at = expires_at.or(default);
                Change::Put { value, expires_at }
            }
            LoadChange::Delete => Change::Delete,
        };
        let shard = host.shard_of(load.namespace_id(), &key.partition);
        divided.by_shard.entry(shard).or_default().push(Mutation {
            key,
            change,
            condition: condition(),
        });
    }
    divided
}

impl RejectedRows {
    /// Keeps a row of the report, up to as many as a load has.
    fn keep(&mut self, row: impl FnOnce() -> Mutation) {
        if (self.rows.len() as u64) < REJECTS_MAX {
            self.rows.push(row());
        }
    }
}

/// Returns the row of the report about a row whose key is blocked.
fn blocked(part: u16, line: u64, key: &Key) -> Mutation {
    let fields = KeyFields::of(key.partition.as_bytes(), key.sort.as_bytes());
    reject_row(&RejectLine {
        part,
        line,
        reason: "an operator has blocked the key".to_owned(),
        text: serde_json::to_string(&fields).ok(),
        b64: None,
    })
}

/// Returns what became of the pieces of a request, and why some of their rows are left.
fn judge(
    pieces: Vec<ShardPiece>,
    answers: Result<WriteAnswers, HostError>,
) -> (Vec<JudgedPiece>, Option<HostError>) {
    let mut refusal = None;
    let mut answers = match answers {
        Ok(answers) => Some(answers.into_iter()),
        Err(error) => {
            refusal = Some(error);
            None
        }
    };
    let mut judge_piece = |piece: ShardPiece| {
        let mut judged = JudgedPiece::of(&piece);
        let Some(answers) = &mut answers else {
            judged.left = piece.mutations;
            return judged;
        };
        for (mutation, answer) in piece.mutations.into_iter().zip(answers) {
            match answer {
                Ok(_) => {
                    judged.counts.applied += 1;
                    judged.counts.bytes += len_of(&mutation);
                }
                Err(WriteError::ConditionFailed { .. }) => judged.counts.skipped += 1,
                Err(error) => {
                    let error = match error {
                        WriteError::Store(error) => error.into(),
                        other => HostError::Never(other.to_string()),
                    };
                    // What can never be done is told before what has to wait.
                    if !matches!(refusal, Some(HostError::Never(_) | HostError::Gone)) {
                        refusal = Some(error);
                    }
                    judged.left.push(mutation);
                }
            }
        }
        judged
    };
    let judged = pieces.into_iter().map(&mut judge_piece).collect();
    (judged, refusal)
}
