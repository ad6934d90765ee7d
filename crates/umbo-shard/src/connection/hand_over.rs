//! Requests that change something: writes, removals and copies of Umbo's own records, passed to the store.

use std::sync::Arc;
use std::task::Context;

use umbo_protocol::{Answer, NodeError, Outcome};
use umbo_store::{DeleteRangeRequest, RecordsCopy, WriteRequest};
use umbo_types::{Criticality, Operation, ShardId};

use super::call::{RequestCall, check_deadline};
use super::charge::{ChargeRequest, settle, shares};
use super::stream::ShardStream;
use crate::ownership::Ownership;
use crate::quota::ChargeHandle;
use crate::reads::{outcome, since};
use crate::writes::{ServedWrite, SortedWrite};

impl ShardStream {
    pub(super) fn write(
        &mut self,
        call: RequestCall,
        request: WriteRequest,
        ownership: &Ownership,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let shard_map = ownership.shard_map();
        let first = request.mutations.first();
        let shard = first.map_or(ShardId(0), |mutation| {
            shard_map.locate(request.namespace, &mutation.key.partition)
        });
        check_deadline(&call, shard)?;
        let writing = SortedWrite::new(request, ownership);
        let charge = ChargeRequest::write(writing.request(), writing.bytes());
        let receipt = self.charge(&call, &charge, || {
            let mutations = writing.request().mutations.iter();
            let keys = mutations.map(|mutation| &mutation.key);
            shares(ownership, charge.namespace, keys)
        })?;
        let writing = (ServedWrite::Write(writing), receipt);
        self.hand_over(call, writing, shard, context)
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
        let rows_max = request.rows_max.into();
        let charge = ChargeRequest::read(request.namespace, Operation::DeleteRange, rows_max);
        let receipt = self.charge(&call, &charge, || vec![(shard, 1)])?;
        let writing = (ServedWrite::DeleteRange(request), receipt);
        self.hand_over(call, writing, shard, context)
    }

    fn hand_over(
        &mut self,
        call: RequestCall,
        (writing, receipt): (ServedWrite, Option<Box<dyn ChargeHandle>>),
        shard: ShardId,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let (taken, receipt) = self.take_for(call.context.criticality, shard, receipt)?;
        let node = Arc::clone(&self.node);
        let (kind, id) = (call.kind, call.id);
        let (mut rows, mut bytes) = writing.size();
        let work = async move {
            let outcome = writing.run(&**node.store(), &call.context).await;
            drop(taken);
            if let Outcome::Deleted(deleted) = &outcome {
                (rows, bytes) = (deleted.rows, deleted.bytes);
            }
            let elapsed = since(call.begun, node.clock().monotonic());
            let took = call.context.service_time().unwrap_or(elapsed);
            let mut answer = Answer::without_rows(id, took, outcome);
            answer.busy_time = call.context.busy_time().unwrap_or(took);
            (answer.rows, answer.bytes) = (rows, bytes);
            settle(receipt, &answer);
            vec![answer]
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
            vec![Answer::without_rows(id, took, Outcome::RecordsKept(kept))]
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
            vec![Answer::without_rows(
                id,
                since(begun, node.clock().monotonic()),
                outcome,
            )]
        };
        self.wait_for(call.kind, id, Box::pin(work), context);
        Ok(())
    }
}
