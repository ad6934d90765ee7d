//! Multi-get: rows by key, answered in the order asked for, each with its own status.
//!
//! The answer is made once all rows are known or there is no more time.

mod gather;

use std::pin::pin;

use bytes::{BufMut, BytesMut};
use http::Uri;
use http_body::SizeHint;
use umbo_api::batch::{BatchEnd, BatchEndLine, MultiGetBody};
use umbo_api::row::RowFields;
use umbo_edge::body::ArrivingBody;
use umbo_http::decode::{self, Route};
use umbo_http::{Answer, Fields, RequestError, encode, json_body, json_text, problem};
use umbo_quota::{ActualUsage, CostHint};
use umbo_store::StoreError;
use umbo_types::{Key, Row, Timestamp, limits};

use self::gather::{Gathered, KEYS_AT_ONCE, gather_all};
use super::Operate;
use super::body::RequestBody;
use crate::bounds::MULTI_GET_BODY_LEN_MAX;
use crate::page::value_field;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::read_through::RequestRows;
use crate::phase::{queue, shares};
use crate::reply::Reply;

/// Bytes of a line without its value, with keys of a usual length.
const LINE_LEN: usize = 160;
/// Longest text that room is kept for: values of the greatest total length, as base64. Text of control
/// characters is longer; it is accepted if there is room.
const TEXT_LEN_MAX: usize = limits::MULTI_GET_BYTES_MAX / 3 * 4;

/// A multi-get.
#[derive(Debug)]
pub(crate) struct MultiGet {
    /// Of the body.
    keys: Vec<Key>,
}

impl Operate for MultiGet {
    type Fetched = WrittenRows;

    fn decode(_route: &Route<'_>, uri: &Uri, _fields: &Fields<'_>) -> Result<Self, RequestError> {
        decode::bare(uri)?;
        Ok(Self { keys: Vec::new() })
    }

    fn hint(&self, body: &SizeHint) -> CostHint {
        CostHint {
            body_len: body.exact(),
            ..CostHint::default()
        }
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        let (dispatcher, context) = (admitted.dispatcher, admitted.context());
        let text = body.read_text(admitted.log, context, MULTI_GET_BODY_LEN_MAX);
        self.keys = parse(&text.await?)?;
        admitted.charge.foresee(CostHint {
            rows_max: Some(self.keys.len() as u64),
            ..CostHint::default()
        });
        let namespace = admitted.namespace_id();
        let shares = shares::by_keys(&dispatcher.shard_map, namespace, self.keys.iter());
        let mut located = admitted.locate(&shares)?;
        located
            .reserve_answer(self.keys.len() * LINE_LEN, TEXT_LEN_MAX)
            .await?;
        Ok(located)
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<WrittenRows, RequestError> {
        let keys = std::mem::take(&mut self.keys);
        let reads = keys.len() as u64;
        let reader = RequestRows::new(located, keys.len());
        let memory = &located.dispatcher.answer_memory;
        let gathered = Gathered::new(keys.len(), located.log.room.take_permit(memory));
        let work = async { Ok(gather_all(reader, keys, gathered).await) };
        let gathered = match queue::ask(located, pin!(work)).await {
            Ok((keys, gathered)) => {
                self.keys = keys;
                gathered
            }
            Err(error) => {
                // The rows that it has read are not known any more.
                located.progress(ActualUsage {
                    reads,
                    ..ActualUsage::default()
                });
                return Err(error);
            }
        };
        match failure_of_all(&gathered.rows) {
            Some(error) => Err(error),
            None => Ok(self.write(gathered, located).await),
        }
    }

    fn settle(
        self,
        written: WrittenRows,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        let WrittenRows {
            mut lines,
            failed,
            done,
            hits,
        } = written;
        let charged = if hits == done.reads {
            located.settle_hits(done)
        } else {
            located.settle(done)
        };
        let end = BatchEnd {
            rows: self.keys.len() as u64,
            failed,
            skipped: 0,
            ru: encode::ru(charged),
        };
        json_text::write_json_line(&mut lines, &BatchEndLine { end });
        let answer = Answer::Batch {
            lines: lines.freeze(),
            is_partial: failed > 0,
        };
        Ok(answer.into())
    }
}

/// The lines of all rows, and the work for them.
pub(crate) struct WrittenRows {
    lines: BytesMut,
    /// How many are errors.
    failed: u64,
    done: ActualUsage,
    /// How many cost no read of the store.
    hits: u64,
}

impl MultiGet {
    async fn write(&self, gathered: Gathered, located: &mut Located<'_>) -> WrittenRows {
        let text_len = gathered.value_bytes() + self.keys.len() * LINE_LEN;
        let Gathered {
            rows,
            done,
            hits,
            permit,
            ..
        } = gathered;
        located.log.room.put_permit(permit);
        let mut lines = BytesMut::with_capacity(text_len);
        let mut failed = 0;
        for (index, (key, row)) in self.keys.iter().zip(rows).enumerate() {
            let row = row.expect("every row is known once all are gathered");
            let row = match row {
                Ok(Some(row)) if !fits(&row, &lines) => Err(RequestError::AnswerFull),
                row => row,
            };
            failed += u64::from(row.is_err());
            write_line(&mut lines, index, key, row);
            if index % KEYS_AT_ONCE == KEYS_AT_ONCE - 1 {
                // Many large rows must not keep the thread from other requests.
                tokio::task::yield_now().await;
            }
        }
        WrittenRows {
            lines,
            failed,
            done,
            hits,
        }
    }
}

/// Returns why the request failed as a whole: the namespace was removed, or all rows were shed or late. One
/// error says more than a thousand rows.
fn failure_of_all(rows: &[Option<Result<Option<Row>, RequestError>>]) -> Option<RequestError> {
    let failures = || {
        rows.iter().map(|row| match row {
            Some(Err(failure)) => Some(failure),
            _ => None,
        })
    };
    let is_gone = |failure: &&RequestError| {
        matches!(
            failure,
            RequestError::Store(StoreError::NamespaceGone { .. })
        )
    };
    if let Some(gone) = failures().flatten().find(is_gone) {
        return Some(gone.clone());
    }
    let is_all = |is: fn(&RequestError) -> bool| failures().all(|failure| failure.is_some_and(is));
    if is_all(|failure| {
        matches!(
            failure,
            RequestError::Shed(_) | RequestError::AnswerMemoryFull(_)
        )
    }) {
        return failures().flatten().next().cloned();
    }
    if !is_all(RequestError::is_late) {
        return None;
    }
    // If the store was asked for any row, the error says so.
    let mut late = failures().flatten();
    let in_store =
        |failure: &&RequestError| matches!(failure, RequestError::DeadlineInStore { .. });
    let in_store = late.clone().find(in_store);
    in_store.or_else(|| late.next()).cloned()
}

/// Returns whether a row still fits into the answer. The first always does.
fn fits(row: &Row, lines: &BytesMut) -> bool {
    lines.is_empty() || lines.len() + row.value.bytes.len() <= limits::MULTI_GET_BYTES_MAX
}

fn parse(bytes: &[u8]) -> Result<Vec<Key>, RequestError> {
    let ask: MultiGetBody = json_body::json_object(bytes)?;
    if ask.keys.len() > limits::MULTI_GET_KEYS_MAX {
        return Err(RequestError::BatchTooLarge {
            what: "keys",
            max: limits::MULTI_GET_KEYS_MAX,
        });
    }
    let keys = ask.keys.iter().enumerate();
    keys.map(|(index, fields)| json_body::key(index, fields))
        .collect()
}

fn write_line(
    lines: &mut BytesMut,
    index: usize,
    key: &Key,
    row: Result<Option<Row>, RequestError>,
) {
    let key_fields = RowFields {
        partition: Some(key.partition.as_bytes()),
        sort: key.sort.as_bytes(),
        ..RowFields::default()
    };
    let (status, problem, row) = match row {
        Ok(Some(row)) => (200, None, Some(row)),
        Ok(None) => (404, None, None),
        Err(failure) => {
            let problem = problem::of_row(&failure);
            (problem.status, Some(problem), None)
        }
    };
    lines.put_slice(format!("{{\"i\":{index},\"status\":{status},").as_bytes());
    match &row {
        Some(row) => RowFields {
            version: row.version.0,
            expires_at: row.expires_at.map(Timestamp::as_millis),
            content_type: &row.value.content_type,
            content_encoding: &row.value.content_encoding,
            value: value_field(row.value.form, &row.value.bytes),
            ..key_fields
        }
        .write(lines),
        None => key_fields.write(lines),
    }
    if let Some(problem) = problem {
        lines.put_slice(b",\"error\":");
        json_text::write_json(lines, &problem);
    }
    lines.put_slice(b"}\n");
}
