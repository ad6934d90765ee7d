//! Scans, which walk from shard to shard, and purges, which go to every node.

use std::sync::Arc;

use umbo_protocol::{Ask, Outcome};
use umbo_store::{
    CallContext, PurgeProgress, RowBatch, ScanPage, ScanPosition, ScanRequest, StoreError,
};
use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX};
use umbo_types::{Key, NamespaceId, ShardId};

use crate::attempt::Failure;
use crate::node::{Lane, Node};
use crate::store::RemoteStore;
use crate::waiting::Kind;

const BULKY_READ: (Lane, Kind) = (Lane::Bulky, Kind::Read);

impl RemoteStore {
    /// Reads a chunk of a namespace: of one shard after the other, until the chunk is full.
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
        let mut chunk = RowBatch::default();
        let mut after = request.after.clone();
        // Whoever was let in where it began is not stopped on its way.
        let mut later: Option<CallContext> = None;
        let mut shards = shards[first..].iter().peekable();
        while let Some(&shard) = shards.next() {
            let ask = ScanRequest {
                shard: Some(shard),
                after: after.take(),
                rows_max: rows_max - chunk.len() as u32,
                bytes_max: bytes_max.saturating_sub(chunk.bytes() as u32),
                ..request.clone()
            };
            let asking = later.as_ref().unwrap_or(call);
            let answered = self.ask(asking, shard, BULKY_READ, Ask::Scan(ask));
            let Outcome::Scanned(page) = answered.await? else {
                return Err(unusable(shard, "its node answered what is no scan"));
            };
            if let Some(took) = later.and_then(|part| part.service_time()) {
                call.note_service_time(took);
            }
            later = Some(call.later_part());
            join(&mut chunk, page.rows);
            let resume_after = page
                .resume_after
                .map(|after| ScanPosition { shard, ..after });
            let is_full =
                chunk.len() as u32 >= rows_max || chunk.bytes() as u32 >= bytes_max.max(1);
            if resume_after.is_some() || (is_full && shards.peek().is_some()) {
                let resume_after = resume_after.or_else(|| end_of(&chunk, shard));
                return Ok(ScanPage {
                    rows: chunk,
                    resume_after,
                });
            }
        }
        Ok(ScanPage {
            rows: chunk,
            resume_after: None,
        })
    }

    /// Removes rows of a namespace on every node, up to a number of them in all.
    pub(crate) async fn purge_all(
        &self,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError> {
        let mut progress = PurgeProgress::default();
        let mut failed = None;
        let nodes = self.topology().nodes.clone();
        for node in nodes {
            let room = u64::from(rows_max).saturating_sub(progress.rows);
            if room == 0 {
                progress.more = true;
                break;
            }
            match self.purge_node(&node, namespace, room as u32).await {
                Ok(step) => {
                    progress.rows += step.rows;
                    progress.more |= step.more;
                }
                // The others are purged all the same.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(progress), Err)
    }

    async fn purge_node(
        &self,
        node: &Arc<Node>,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError> {
        let call = CallContext::internal();
        let shard = self.topology().first_shard_of(node);
        let ask = Ask::Purge(namespace, rows_max);
        let mut tries = 0;
        loop {
            let target = (Lane::Bulky, Kind::Write);
            let failure = match self.attempt(node, &call, target, &ask).await {
                Ok(Outcome::Purged(step)) => return Ok(step),
                Ok(_) => Failure::Unusable("it answered what is no purge".to_owned()),
                Err(failure) => failure,
            };
            let target = (shard, Kind::Write);
            self.settle(failure, node, &call, target, &mut tries)
                .await?;
        }
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
