//! Delete range: rows of a partition, in bounded steps; or how many they would be.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use umbo_api::batch::DeleteRangeAnswer;
use umbo_hotkey::Touched;
use umbo_quota::Work;
use umbo_store::{DeleteRangeRequest, RangeRequest, StoreError};
use umbo_telemetry::trace::Verb;
use umbo_types::{ShardId, limits};

use super::ask_store;
use crate::classify::Context;
use crate::decode::DeleteRangeAsk;
use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::shield;
use crate::wait::{Answered, Call, Timed, in_slot};

/// Rows removed in one step; each step is atomic, the whole is not.
const STEP_ROWS: u32 = 1_024;

pub(crate) async fn fetch(
    pod: &Arc<Dispatcher>,
    namespace: &NamespaceEntry,
    ask: DeleteRangeAsk,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure> {
    exchange.verb(Verb::Locate);
    let shard = pod.shard_map.locate(namespace.id, &ask.partition);
    exchange.located(shard)?;
    let mut answer = DeleteRangeAnswer {
        rows: 0,
        bytes: 0,
        dry_run: ask.dry_run,
    };
    if ask.range.is_empty() {
        return Ok(Answer::DeletedRange(answer));
    }
    if ask.dry_run {
        let call = exchange.call(context);
        let work = count(pod, namespace, shard, call, ask, &mut answer);
        ask_store(context, exchange, pin!(work)).await?;
        exchange.settle(Work {
            rows: answer.rows,
            read_bytes: answer.bytes,
            reads: 1,
            ..Work::default()
        });
        return Ok(Answer::DeletedRange(answer));
    }
    let call = exchange.call(context);
    let work = remove(pod, namespace, shard, call, ask, &mut answer);
    let outcome = ask_store(context, exchange, pin!(work)).await;
    let removed = Work {
        rows: answer.rows,
        writes: answer.rows,
        ..Work::default()
    };
    if outcome.is_ok() {
        exchange.settle(removed);
    } else {
        exchange.progress(removed);
    }
    match outcome {
        Ok(()) => {}
        // Given up in the middle of a step: those before it are done.
        Err(Failure::DeadlineInStore { .. }) if answer.rows > 0 => {
            return Err(Failure::RangeCutShort {
                rows: answer.rows,
                source: StoreError::DeadlinePassed { shard },
            });
        }
        Err(failure) => return Err(failure),
    }
    Ok(Answer::DeletedRange(answer))
}

/// Removes step by step; `answer` counts the steps that are done, also where it is given up.
async fn remove(
    pod: &Arc<Dispatcher>,
    namespace: &NamespaceEntry,
    shard: ShardId,
    mut call: Call,
    ask: DeleteRangeAsk,
    answer: &mut DeleteRangeAnswer,
) -> Result<Timed<()>, Failure> {
    let mut service_time = Duration::ZERO;
    let mut request = DeleteRangeRequest {
        namespace: namespace.id,
        partition: ask.partition,
        range: ask.range,
        rows_max: STEP_ROWS,
        durability: ask.durability.unwrap_or_else(|| namespace.durability()),
    };
    loop {
        let (store, step) = (Arc::clone(&pod.store), request.clone());
        let touched = [Touched::Partition(namespace.id, &request.partition)];
        let context = call.context();
        let work = async move {
            let removed = store.delete_range(&context, step).await;
            Answered::new(&context, removed)
        };
        let timed = match shield::write(pod, shard, &call, touched, work).await {
            Err(Failure::Shed(_)) if answer.rows > 0 => {
                let (rows, source) = (answer.rows, StoreError::QueueFull { shard });
                return Err(Failure::RangeCutShort { rows, source });
            }
            Err(Failure::DeadlineBeforeStore { .. }) if answer.rows > 0 => {
                let (rows, source) = (answer.rows, StoreError::DeadlinePassed { shard });
                return Err(Failure::RangeCutShort { rows, source });
            }
            timed => timed?,
        };
        service_time += timed.service_time;
        let step = match timed.answer {
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
            return Ok(Timed {
                answer: (),
                service_time,
            });
        };
        request.range = request.range.beyond(&last, false);
        call.is_continued = true;
    }
}

async fn count(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    shard: ShardId,
    mut call: Call,
    ask: DeleteRangeAsk,
    answer: &mut DeleteRangeAnswer,
) -> Result<Timed<()>, Failure> {
    let mut service_time = Duration::ZERO;
    let mut request = RangeRequest {
        namespace: namespace.id,
        partition: ask.partition,
        range: ask.range,
        reverse: false,
        rows_max: limits::CHUNK_ROWS_MAX,
        bytes_max: limits::CHUNK_BYTES_MAX,
        keys_only: true,
    };
    loop {
        let context = call.context();
        let work = async {
            let page = pod.store.range(&context, &request).await;
            Answered::new(&context, page)
        };
        let timed = in_slot(pod, shard, &call, pin!(work)).await?;
        service_time += timed.service_time;
        let page = timed.answer?;
        answer.rows += page.rows.len() as u64;
        answer.bytes += page
            .rows
            .iter()
            .map(|row| row.sort.len() as u64 + u64::from(row.value_len))
            .sum::<u64>();
        let Some(last) = page.resume_after else {
            return Ok(Timed {
                answer: (),
                service_time,
            });
        };
        request.range = request.range.beyond(&last, false);
        call.is_continued = true;
        // A long count must not keep the thread from other requests.
        tokio::task::yield_now().await;
    }
}
