//! Delete range: rows of a partition, in bounded steps; or how many they would be.

use umbo_api::batch::DeleteRangeAnswer;
use umbo_store::{DeleteRangeRequest, RangeRequest};
use umbo_telemetry::trace::Verb;
use umbo_types::limits;

use super::ask_store;
use crate::classify::Context;
use crate::decode::DeleteRangeAsk;
use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;

/// Rows removed in one step; each step is atomic, the whole is not.
const STEP_ROWS: u32 = 1_024;

pub(crate) async fn fetch(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    ask: DeleteRangeAsk,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure> {
    exchange.verb(Verb::Locate);
    exchange.located(pod.shard_map.locate(namespace.id, &ask.partition));
    let answer = if ask.range.is_empty() {
        DeleteRangeAnswer {
            rows: 0,
            bytes: 0,
            dry_run: ask.dry_run,
        }
    } else if ask.dry_run {
        ask_store(pod, context, exchange, count(pod, namespace, ask)).await??
    } else {
        let work = remove(pod, namespace, ask, context);
        ask_store(pod, context, exchange, work).await??
    };
    Ok(Answer::DeletedRange(answer))
}

async fn remove(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    ask: DeleteRangeAsk,
    context: &Context,
) -> Result<DeleteRangeAnswer, Failure> {
    let mut request = DeleteRangeRequest {
        namespace: namespace.id,
        partition: ask.partition,
        range: ask.range,
        rows_max: STEP_ROWS,
        durability: ask.durability.unwrap_or_else(|| namespace.durability()),
        deadline: Some(context.deadline),
    };
    let mut answer = DeleteRangeAnswer {
        rows: 0,
        bytes: 0,
        dry_run: false,
    };
    loop {
        let step = match pod.store.delete_range(request.clone()).await {
            Ok(step) => step,
            Err(source) if answer.rows > 0 => {
                let rows = answer.rows;
                return Err(Failure::RangeCutShort { rows, source });
            }
            Err(error) => return Err(error.into()),
        };
        answer.rows += step.rows;
        answer.bytes += step.bytes;
        let Some(last) = step.resume_after else {
            return Ok(answer);
        };
        request.range = request.range.beyond(&last, false);
    }
}

async fn count(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    ask: DeleteRangeAsk,
) -> Result<DeleteRangeAnswer, Failure> {
    let mut request = RangeRequest {
        namespace: namespace.id,
        partition: ask.partition,
        range: ask.range,
        reverse: false,
        rows_max: limits::CHUNK_ROWS_MAX,
        bytes_max: limits::CHUNK_BYTES_MAX,
        keys_only: true,
    };
    let mut answer = DeleteRangeAnswer {
        rows: 0,
        bytes: 0,
        dry_run: true,
    };
    loop {
        let page = pod.store.range(&request).await?;
        answer.rows += page.rows.len() as u64;
        answer.bytes += page
            .rows
            .iter()
            .map(|row| row.sort.len() as u64 + u64::from(row.value_len))
            .sum::<u64>();
        let Some(last) = page.resume_after else {
            return Ok(answer);
        };
        request.range = request.range.beyond(&last, false);
        // A long count must not keep the thread from other requests.
        tokio::task::yield_now().await;
    }
}
