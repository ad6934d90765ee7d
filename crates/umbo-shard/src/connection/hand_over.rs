//! Requests that change something: writes, removals and copies of Umbo's own records, passed to the store.

use std::sync::Arc;
use std::task::Context;

use umbo_protocol::{Answer, NodeError, Outcome};
use umbo_store::{DeleteRangeRequest, RecordsCopy, WriteRequest};
use umbo_types::{Criticality, ShardId};

use super::call::{RequestCall, check_deadline};
use super::stream::ShardStream;
use crate::ownership::Ownership;
use crate::reads::{outcome, since};
use crate::writes::ServedWrite;

impl ShardStream {
    pub(super) fn write(
        &mut self,
        call: RequestCall,
        request: WriteRequest,
        ownership: &Ownership,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let partitions = request.mutations.iter().map(|one| &one.key.partition);
        let shard = ownership.locate_all(request.namespace, partitions)?;
        check_deadline(&call, shard)?;
        self.hand_over(call, ServedWrite::Write(request), shard, context)
    }

    pub(super) fn delete_range(
        &mut self,
        call: RequestCall,
        request: DeleteRangeRequest,
        ownership: &Ownership,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let shard = ownership.locate(request.namespace, &request.partition)?;
        check_deadline(&call, shard)?;
        self.hand_over(call, ServedWrite::DeleteRange(request), shard, context)
    }

    fn hand_over(
        &mut self,
        call: RequestCall,
        writing: ServedWrite,
        shard: ShardId,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let taken = self.take(call.context.criticality, shard)?;
        let node = Arc::clone(&self.node);
        let (kind, id) = (call.kind, call.id);
        let (mut rows, mut bytes) = writing.size();
        let work = async move {
            let outcome = writing.run(&**node.store(), &call.context, shard).await;
            drop(taken);
            if let Outcome::Deleted(deleted) = &outcome {
                (rows, bytes) = (deleted.rows, deleted.bytes);
            }
            let elapsed = since(call.begun, node.clock().monotonic());
            let took = call.context.service_time().unwrap_or(elapsed);
            let mut answer = Answer::without_rows(id, took, outcome);
            answer.busy_time = call.context.busy_time().unwrap_or(took);
            (answer.rows, answer.bytes) = (rows, bytes);
            answer
        };
        self.wait_for(kind, id, Box::pin(work), context);
        Ok(())
    }

    /// Passes a copy of Umbo's own records to the store; answers for each shard that the map assigns to the
    /// node.
    pub(super) fn keep_records(
        &mut self,
        call: &RequestCall,
        copy: Arc<RecordsCopy>,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let taken = self.take(Criticality::CriticalPlus, ShardId(0))?;
        let node = Arc::clone(&self.node);
        let (id, begun) = (call.id, call.begun);
        let work = async move {
            let kept = node.store().keep_records(copy).await;
            drop(taken);
            let kept = node.ownership_whole().answers_for(kept);
            let took = since(begun, node.clock().monotonic());
            Answer::without_rows(id, took, Outcome::RecordsKept(kept))
        };
        self.wait_for(call.kind, id, Box::pin(work), context);
        Ok(())
    }

    /// Returns the copy of Umbo's own records that the store keeps.
    pub(super) fn kept_records(
        &mut self,
        call: &RequestCall,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let taken = self.take(Criticality::CriticalPlus, ShardId(0))?;
        let node = Arc::clone(&self.node);
        let (id, begun) = (call.id, call.begun);
        let work = async move {
            let kept = node.store().kept_records().await;
            drop(taken);
            let outcome = outcome(kept, Outcome::KeptRecords);
            Answer::without_rows(id, since(begun, node.clock().monotonic()), outcome)
        };
        self.wait_for(call.kind, id, Box::pin(work), context);
        Ok(())
    }
}
