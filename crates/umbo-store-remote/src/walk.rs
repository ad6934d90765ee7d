//! Scans, which walk from shard to shard.

use umbo_protocol::{Ask, Outcome};
use umbo_store::{CallContext, RowBatch, ScanPage, ScanPosition, ScanRequest, StoreError, Touched};
use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX};
use umbo_types::{Key, ShardId};

use crate::attempt::AccessKind;
use crate::store::RemoteStore;

impl RemoteStore {
    /// Reads a chunk of a namespace: one shard after the other, until the chunk is full.
    pub(crate) async fn walk(
        &self,
        call: &CallContext,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        let shards = request.shards(self.shard_map());
        let first = match &request.after {
            None => 0,
            Some(after) => {
                let at = shards.iter().position(|&shard| shard == after.shard);
                at.ok_or_else(|| unusable(after.shard, "the scan cannot continue there"))?
            }
        };
        let rows_max = request.rows_max.clamp(1, CHUNK_ROWS_MAX);
        let bytes_max = request.bytes_max.min(CHUNK_BYTES_MAX);
        let (mut chunk, mut touched) = (RowBatch::default(), Touched::default());
        let mut after = request.after.clone();
        // A scan that was admitted at its first shard is not rejected at the next ones.
        let mut later: Option<CallContext> = None;
        let mut shards = shards[first..].iter().peekable();
        while let Some(&shard) = shards.next() {
            let ask = ScanRequest {
                shard: Some(shard),
                after: after.take(),
                rows_max: rows_max - chunk.len() as u32,
                bytes_max: bytes_max.saturating_sub(chunk.plain_bytes() as u32),
                ..request.clone()
            };
            let asking = later.as_ref().unwrap_or(call);
            let ask = Ask::Scan(ask);
            let answered = self.ask(asking, shard, AccessKind::Read, &ask);
            let Outcome::Scanned(page) = answered.await? else {
                return Err(unusable(
                    shard,
                    "its node sent an answer that is not a scan",
                ));
            };
            let times = later.and_then(|part| part.service_time().zip(part.busy_time()));
            if let Some((service_time, busy_time)) = times {
                call.note_shared_time(service_time, busy_time);
            }
            later = Some(call.later_part());
            join(&mut chunk, page.rows);
            touched += page.touched;
            let resume_after = page
                .resume_after
                .map(|after| ScanPosition { shard, ..after });
            let is_read = touched.bytes >= u64::from(CHUNK_BYTES_MAX) && !chunk.is_empty();
            let is_full = is_read
                || chunk.len() as u32 >= rows_max
                || chunk.plain_bytes() as u32 >= bytes_max.max(1);
            if resume_after.is_some() || (is_full && shards.peek().is_some()) {
                let resume_after = resume_after.or_else(|| end_of(&chunk, shard));
                return Ok(ScanPage {
                    rows: chunk,
                    resume_after,
                    touched,
                });
            }
        }
        Ok(ScanPage {
            rows: chunk,
            resume_after: None,
            touched,
        })
    }
}

fn join(chunk: &mut RowBatch, rows: RowBatch) {
    if chunk.is_empty() {
        *chunk = rows;
        return;
    }
    chunk.reserve(rows.len(), rows.bytes());
    for row in rows.iter() {
        chunk.push(row);
    }
}

/// Returns the position after the last row of a chunk, which ends a shard.
fn end_of(chunk: &RowBatch, shard: ShardId) -> Option<ScanPosition> {
    let last = chunk.iter().last()?;
    let (partition, sort) = (last.partition.to_vec(), last.sort.to_vec());
    let key = Key::new(partition, sort).ok()?;
    Some(ScanPosition { shard, key })
}

fn unusable(shard: ShardId, reason: &str) -> StoreError {
    StoreError::Unavailable {
        shard,
        reason: reason.to_owned(),
        outcome: umbo_store::Outcome::NotApplied,
    }
}
