//! Applies batches of rows to the shards.
//!
//! A batch is divided by shard, and a few batches are under way: while shards commit, the next ones are read, and each
//! shard takes them in order (`open_batches`). So of two rows with one key the later one is applied later. Progress
//! counts only rows that all shards have committed: a request is answered once it is on the disk.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use umbo_loads::LoadRecord;
use umbo_loads::digest::Sha256;
use umbo_loads::layout::{PartProgress, RunRecord, ValueUpload};
use umbo_store::{GIVES_WAY_EVERY, WriteError, give_way};
use umbo_types::ShardId;

use super::check::progress_row;
use super::host::{Host, WriteAnswers};
use super::journal::{Journal, Stop};
use super::long_values::{LongValues, ShardRequest, long_value};
use super::open_batches::{
    Advance, Divided, JudgedPiece, OpenBatches, RejectedRows, ShardPiece, len_of,
};
use super::work::{continues, wait};
use crate::host_error::HostError;
use crate::limits::{BEAT, REJECTS_MAX};

/// How often progress is written while rows are applied: each time is a commit. Often, because applied bytes of parts
/// and runs are removed then, and make room for the next rows.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Batches of rows, in the order of their application.
pub(super) trait Batches {
    /// Returns the next batch, or `None` at the end; it is not called again then. If the call is dropped, nothing is
    /// lost.
    fn next(
        &mut self,
        host: &Host,
        load: &LoadRecord,
    ) -> impl Future<Output = Result<Option<Divided>, HostError>> + Send;

    /// Takes the progress of the run after it was stored.
    fn note_stored(&mut self, run: &RunRecord);
}

/// Applies batches of rows until their end.
pub(super) async fn apply(
    host: &Host,
    id: &str,
    batches: &mut impl Batches,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    let mut writer = Writer {
        host: host.clone(),
        load: continues(host, id)?,
        open: OpenBatches::default(),
        writes: JoinSet::new(),
        long_values: LongValues::default(),
        refusal: None,
    };
    let outcome = writer.apply(id, batches, journal, tries).await;
    // Later work of the run comes later in the shards too.
    while writer.writes.join_next().await.is_some() {}
    outcome
}

/// An ended request to a shard.
struct EndedRequest {
    shard: ShardId,
    pieces: Vec<ShardPiece>,
    /// Chunks of a long value that were asked for instead of the pieces.
    chunks: Option<(Sha256, u32)>,
    answers: Result<WriteAnswers, HostError>,
}

/// Writes rows to the shards.
struct Writer {
    host: Host,
    load: Arc<LoadRecord>,
    open: OpenBatches,
    writes: JoinSet<EndedRequest>,
    long_values: LongValues,
    /// Why a shard refuses rows for now. No further request is started until the run has waited.
    refusal: Option<(Duration, String)>,
}

impl Writer {
    async fn apply(
        &mut self,
        id: &str,
        batches: &mut impl Batches,
        journal: &mut Journal,
        tries: &mut u32,
    ) -> Result<(), Stop> {
        let mut written = Instant::now();
        let mut has_more = true;
        loop {
            self.count_ended(journal).await?;
            if !has_more && self.open.is_empty() {
                journal.run.values.clear();
                return Ok(());
            }
            if self.writes.is_empty()
                && let Some((after, reason)) = self.refusal.take()
            {
                wait(&self.host, id, journal, after, &reason, tries).await?;
            }
            self.start(journal, *tries > 0).map_err(Stop::Failed)?;
            let takes = has_more && self.refusal.is_none() && self.open.has_room();
            tokio::select! {
                biased;
                Some(ended) = self.writes.join_next() => self.answered(ended, journal, tries)?,
                batch = batches.next(&self.host, &self.load), if takes => match batch? {
                    Some(divided) => self.open.push(divided),
                    None => has_more = false,
                },
                () = sleep_until(written + PROGRESS_INTERVAL) => {}
            }
            self.load = continues(&self.host, id)?;
            if written.elapsed() >= PROGRESS_INTERVAL {
                written = Instant::now();
                journal.write().await?;
                batches.note_stored(&journal.run);
            }
        }
    }

    /// Starts the next request of each shard that has none under way.
    fn start(&mut self, journal: &mut Journal, is_refused: bool) -> Result<(), String> {
        while self.refusal.is_none()
            && let Some((shard, pieces)) = self.open.take()
        {
            let (host, load) = (self.host.clone(), Arc::clone(&self.load));
            let values = &mut journal.run.values;
            let request = &mut self.long_values;
            let request = request.next_request(shard, &pieces, values, is_refused)?;
            self.writes.spawn(async move {
                let ShardRequest { rows, chunks } = request;
                let answers = host.apply(&load, shard, rows).await;
                EndedRequest {
                    shard,
                    pieces,
                    chunks,
                    answers,
                }
            });
        }
        Ok(())
    }

    fn answered(
        &mut self,
        ended: Result<EndedRequest, JoinError>,
        journal: &mut Journal,
        tries: &mut u32,
    ) -> Result<(), Stop> {
        let defect = |error: JoinError| Stop::Failed(error.to_string());
        let EndedRequest {
            shard,
            pieces,
            chunks,
            answers,
        } = ended.map_err(defect)?;
        let values = &mut journal.run.values;
        let (pieces, refusal) = if let Some(chunks) = chunks {
            let (is_taken, refusal) = judge_chunks(shard, chunks, answers, values);
            if is_taken {
                *tries = 0;
            }
            (pieces.into_iter().map(JudgedPiece::left).collect(), refusal)
        } else {
            let Judged {
                pieces,
                refusal,
                gone,
            } = judge(pieces, answers);
            self.long_values.answered(shard, &gone, &pieces, values);
            (pieces, refusal)
        };
        // If some rows are taken, a quota says exactly how long the next ones have to wait.
        if pieces.iter().any(JudgedPiece::has_done_rows) {
            *tries = 0;
        }
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
    async fn count_ended(&mut self, journal: &mut Journal) -> Result<(), Stop> {
        while let Some(ended) = self.open.pop_ended() {
            if journal.run.waits.is_some() {
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
            journal.run.blocked += blocked;
            journal.run.unreadable += unreadable;
            match ended.advance {
                Advance::Rows(rows) => {
                    journal.run.row += rows;
                    if !self.load.is_checked_first() {
                        journal.run.rows += rows;
                    }
                }
                Advance::PartEnd(number) => {
                    let next = u32::from(number) + 1;
                    if !self.load.is_checked_first() {
                        let progress = PartProgress {
                            rows: journal.run.row,
                            rejected: journal.run.unreadable,
                        };
                        let progress = progress_row(number, &progress);
                        journal.put_rows(vec![progress]).await?;
                        journal.run.checked = next;
                    }
                    journal.run.part = next;
                    (journal.run.row, journal.run.unreadable) = (0, 0);
                }
                Advance::Runs(applied) => {
                    for (run, applied) in journal.run.runs.iter_mut().zip(applied) {
                        run.applied = applied;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Records the answers to chunks of a long value. Returns whether the chunks are stored, and the reason if not.
fn judge_chunks(
    shard: ShardId,
    chunks: (Sha256, u32),
    answers: Result<WriteAnswers, HostError>,
    values: &mut [ValueUpload],
) -> (bool, Option<HostError>) {
    let refused = answers.map(|answers| answers.into_iter().find_map(Result::err));
    let refusal = match refused {
        Ok(None) => {
            LongValues::stored(shard, chunks, values);
            return (true, None);
        }
        Ok(Some(WriteError::UploadGone)) => {
            LongValues::given_up(shard, &chunks.0, values);
            None
        }
        Ok(Some(WriteError::Store(error))) => Some(error.into()),
        Ok(Some(other)) => Some(HostError::Never(other.to_string())),
        Err(error) => Some(error),
    };
    (false, refusal)
}

/// The judged answers to the rows of a request.
struct Judged {
    pieces: Vec<JudgedPiece>,
    /// Why some rows are left.
    refusal: Option<HostError>,
    /// Long values that their shard has given up.
    gone: Vec<Bytes>,
}

/// Judges the answers to the pieces of a request. Also returns why some of their rows are left.
fn judge(pieces: Vec<ShardPiece>, answers: Result<WriteAnswers, HostError>) -> Judged {
    let (mut refusal, mut gone) = (None, Vec::new());
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
        for (at, (mutation, answer)) in piece.mutations.into_iter().zip(answers).enumerate() {
            give_way(at, GIVES_WAY_EVERY);
            match answer {
                Ok(_) => {
                    judged.counts.applied += 1;
                    judged.counts.bytes += len_of(&mutation);
                }
                Err(WriteError::ConditionFailed { .. }) => judged.counts.skipped += 1,
                Err(error) => {
                    let error = match error {
                        WriteError::Store(error) => error.into(),
                        // Its shard has given up the bytes of a large value, which are stored again with the row.
                        WriteError::UploadGone => {
                            gone.extend(long_value(&mutation).map(|value| value.bytes.clone()));
                            HostError::Wait {
                                after: BEAT,
                                reason: "the shard has dropped the bytes of a large value: its row came too late"
                                    .to_owned(),
                            }
                        }
                        other => HostError::Never(other.to_string()),
                    };
                    // A permanent failure is told before one that has to wait.
                    if !matches!(refusal, Some(HostError::Never(_) | HostError::Gone)) {
                        refusal = Some(error);
                    }
                    judged.left.push(mutation);
                }
            }
        }
        judged
    };
    let pieces = pieces.into_iter().map(&mut judge_piece).collect();
    Judged {
        pieces,
        refusal,
        gone,
    }
}
