//! Delete range: rows of a partition, in bounded steps; or how many they would be.

use std::pin::pin;
use std::sync::Arc;

use http::Uri;
use umbo_api::batch::DeleteRangeAnswer;
use umbo_control::NamespaceEntry;
use umbo_edge::body::ArrivingBody;
use umbo_http::decode::{self, DeleteRangeAsk, Route};
use umbo_http::{Answer, Fields, RequestError};
use umbo_quota::ActualUsage;
use umbo_store::{DeleteRangeRequest, RangeRequest, StoreError, Touched};
use umbo_types::limits;

use super::Operate;
use super::body::RequestBody;
use crate::dispatcher::Dispatcher;
use crate::phase::admit::Admitted;
use crate::phase::fetch::{self, CallPlace};
use crate::phase::locate::Located;
use crate::phase::queue;
use crate::reply::Reply;
use crate::store_call::{StoreCall, StoreTime, Timed};

/// Rows removed in one step; each step is atomic, the whole is not.
const STEP_ROWS: u32 = 1_024;

/// A delete of a range.
#[derive(Debug)]
pub(crate) struct DeleteRange(DeleteRangeAsk);

impl Operate for DeleteRange {
    type Fetched = (DeleteRangeAnswer, Touched);

    fn decode(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<Self, RequestError> {
        decode::delete_range(route, uri, fields).map(Self)
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        _body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        let map = &admitted.dispatcher.shard_map;
        let shard = map.locate(admitted.namespace_id(), &self.0.partition);
        admitted.locate_at(shard)
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError> {
        let mut answer = DeleteRangeAnswer {
            rows: 0,
            bytes: 0,
            dry_run: self.0.dry_run,
        };
        let mut touched = Touched::default();
        if self.0.range.is_empty() {
            return Ok((answer, touched));
        }
        let (dispatcher, call) = (located.dispatcher, located.call());
        let namespace = Arc::clone(&located.identified().namespace);
        let shard = dispatcher.shard_map.locate(namespace.id, &self.0.partition);
        let at = (shard, namespace.id);
        if self.0.dry_run {
            let counts = (&mut answer, &mut touched);
            let work = count(dispatcher, &namespace, at, call, &self.0, counts);
            queue::ask(located, pin!(work)).await?;
            return Ok((answer, touched));
        }
        let work = remove(dispatcher, &namespace, at, call, &self.0, &mut answer);
        let outcome = queue::ask(located, pin!(work)).await;
        match outcome {
            Ok(()) => Ok((answer, touched)),
            Err(error) => {
                located.progress(removed(&answer));
                Err(match error {
                    // Ended in the middle of a step: the earlier steps are done.
                    RequestError::DeadlineInStore { .. } if answer.rows > 0 => {
                        RequestError::RangeCutShort {
                            rows: answer.rows,
                            source: StoreError::DeadlinePassed { shard },
                        }
                    }
                    other => other,
                })
            }
        }
    }

    fn settle(
        self,
        (answer, touched): Self::Fetched,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        if self.0.dry_run && !self.0.range.is_empty() {
            located.settle(ActualUsage {
                rows: touched.rows,
                read_bytes: touched.bytes,
                reads: 1,
                ..ActualUsage::default()
            });
        } else if !self.0.range.is_empty() {
            located.settle(removed(&answer));
        }
        Ok(Answer::DeletedRange(answer).into())
    }
}

fn removed(answer: &DeleteRangeAnswer) -> ActualUsage {
    ActualUsage {
        rows: answer.rows,
        writes: answer.rows,
        ..ActualUsage::default()
    }
}

/// Removes step by step; `answer` counts the finished steps, even if the removal fails.
async fn remove(
    dispatcher: &Arc<Dispatcher>,
    namespace: &NamespaceEntry,
    place: CallPlace,
    call: StoreCall,
    ask: &DeleteRangeAsk,
    answer: &mut DeleteRangeAnswer,
) -> Result<Timed<()>, RequestError> {
    let mut time = StoreTime::default();
    let mut request = DeleteRangeRequest {
        namespace: namespace.dataset,
        epoch: namespace.epoch,
        partition: ask.partition.clone(),
        range: ask.range.clone(),
        rows_max: STEP_ROWS,
        durability: ask.durability.unwrap_or_else(|| namespace.durability()),
    };
    loop {
        let timed = match fetch::delete_range(dispatcher, place, &call, request.clone()).await {
            Err(RequestError::Shed(_)) if answer.rows > 0 => {
                let (rows, source) = (answer.rows, StoreError::QueueFull { shard: place.0 });
                return Err(RequestError::RangeCutShort { rows, source });
            }
            Err(RequestError::DeadlineBeforeStore { .. }) if answer.rows > 0 => {
                let (rows, source) = (answer.rows, StoreError::DeadlinePassed { shard: place.0 });
                return Err(RequestError::RangeCutShort { rows, source });
            }
            timed => timed?,
        };
        time += timed.time;
        let step = match timed.answer {
            Ok(step) => step,
            Err(
                gone @ StoreError::NamespaceGone {
                    namespace: dropped, ..
                },
            ) => {
                let found = dispatcher.control.find_after_drop(dropped, namespace);
                match Box::pin(found).await {
                    Ok(Some(found)) => {
                        (request.namespace, request.epoch) = (found.dataset, found.epoch);
                        continue;
                    }
                    // Rows that earlier steps removed belonged to the removed namespace, too.
                    Ok(None) => return Err(gone.into()),
                    Err(_) if answer.rows > 0 => {
                        let (rows, source) = (answer.rows, gone);
                        return Err(RequestError::RangeCutShort { rows, source });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Err(source) if answer.rows > 0 => {
                let rows = answer.rows;
                return Err(RequestError::RangeCutShort { rows, source });
            }
            Err(error) => return Err(error.into()),
        };
        answer.rows += step.rows;
        answer.bytes += step.bytes;
        let Some(last) = step.resume_after else {
            return Ok(Timed { answer: (), time });
        };
        request.range = request.range.beyond(&last, false);
    }
}

async fn count(
    dispatcher: &Dispatcher,
    namespace: &NamespaceEntry,
    place: CallPlace,
    call: StoreCall,
    ask: &DeleteRangeAsk,
    (answer, touched): (&mut DeleteRangeAnswer, &mut Touched),
) -> Result<Timed<()>, RequestError> {
    let mut time = StoreTime::default();
    let mut request = RangeRequest {
        namespace: namespace.dataset,
        partition: ask.partition.clone(),
        range: ask.range.clone(),
        reverse: false,
        rows_max: limits::CHUNK_ROWS_MAX,
        bytes_max: limits::CHUNK_BYTES_MAX,
        keys_only: true,
    };
    loop {
        let timed = fetch::range(dispatcher, place, &call, &request).await?;
        time += timed.time;
        let page = timed.answer?;
        *touched += page.touched;
        answer.rows += page.rows.len() as u64;
        answer.bytes += page
            .rows
            .iter()
            .map(|row| row.sort.len() as u64 + u64::from(row.value_len))
            .sum::<u64>();
        let Some(last) = page.resume_after else {
            return Ok(Timed { answer: (), time });
        };
        request.range = request.range.beyond(&last, false);
        // A long count must not keep the thread from other requests.
        tokio::task::yield_now().await;
    }
}
