//! Put, touch, increment and delete: one row by its key. Hot path.
//!
//! A touch is a read of the row and a put of the value that was read, on the condition that the row still has that
//! version; so every engine has it. It gives the row a new version. Of a touch with an idempotency key the store
//! records only that it was applied: a condition that was false between read and put is tried again.

use std::pin::pin;
use std::sync::Arc;

use http::Uri;
use http_body::SizeHint;
use umbo_api::batch::DeleteRangeAnswer;
use umbo_edge::body::ArrivingBody;
use umbo_hotkey::WriteScope;
use umbo_http::decode::{self, Route, WriteAsk, WriteKind};
use umbo_http::{Answer, Fields, RequestError};
use umbo_quota::{ActualUsage, CostHint};
use umbo_store::{
    Atomicity, Change, Condition, Idempotency, Mutation, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, LargeRef, Row, RowError, Version, limits};

use super::Operate;
use super::body::RequestBody;
use super::large_upload::receive;
use super::received::{LargeUpload, Received};
use super::stored_form::stored;
use super::stored_row::stored_row;
use crate::phase::admit::Admitted;
use crate::phase::fetch;
use crate::phase::locate::Located;
use crate::phase::queue;
use crate::reply::Reply;
use crate::request_log::RequestLog;

/// Bytes that an increment is charged for its value: the longest decimal text of a number.
pub(super) const NUMBER_LEN: u64 = 20;
/// How often a touch reads the row again because it was written meanwhile.
const TOUCH_ATTEMPTS: usize = 8;

/// A put, touch, increment or delete.
#[derive(Debug)]
pub(crate) struct Write {
    ask: WriteAsk,
    /// The bytes of a large value, until the row refers to them.
    upload: Option<Arc<LargeUpload>>,
}

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Done {
    /// The store decided.
    Decided(Result<Written, WriteError>),
    /// There was no row to touch.
    NothingThere,
    /// Nothing was removed: it was a dry run.
    Counted(DeleteRangeAnswer),
}

impl Operate for Write {
    /// The outcome and its cost.
    type Fetched = (Done, ActualUsage);

    fn decode(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<Self, RequestError> {
        let ask = decode::write(route, uri, fields)?;
        Ok(Self { ask, upload: None })
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.ask.key)
    }

    fn hint(&self, body: &SizeHint) -> CostHint {
        let body_len = match self.ask.kind {
            WriteKind::Put => {
                let sort_len = self.ask.key.sort.as_bytes().len() as u64;
                // Chunks of a large value are charged as they come.
                let is_small = |len: &u64| *len <= limits::VALUE_LEN_MAX as u64;
                let len = body.exact().filter(is_small);
                let is_large = body.exact().is_some() && len.is_none();
                let beside = if is_large {
                    Some(LargeRef::LEN as u64)
                } else {
                    None
                };
                len.or(beside).map(|len| len + sort_len)
            }
            WriteKind::Touch => None,
            WriteKind::Increment => Some(self.ask.key.sort.as_bytes().len() as u64 + NUMBER_LEN),
            WriteKind::Delete | WriteKind::DeleteDryRun => Some(0),
        };
        CostHint {
            body_len: body_len.map(|len| len + record_bytes(&self.ask)),
            ..CostHint::default()
        }
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        let dispatcher = admitted.dispatcher;
        let namespace = admitted.namespace_id();
        let shard = dispatcher
            .shard_map
            .locate(namespace, &self.ask.key.partition);
        let mut located = admitted.locate_at(shard)?;
        let time = || dispatcher.lives_from(shard);
        self.ask.expire(located.namespace(), time)?;
        if self.ask.kind == WriteKind::Put
            && let Change::Put { value, .. } = &mut self.ask.change
        {
            let announced = body.size_hint().lower();
            if announced > limits::LARGE_VALUE_LEN_MAX {
                return Err(RowError::LongerThanAny(announced).into());
            }
            queue::turn_away(&located, shard)?;
            let received = if body.may_exceed(limits::VALUE_LEN_MAX) {
                Box::pin(receive(&mut located, &self.ask.key, body)).await?
            } else {
                let read = body.read(located.log, located.context(), limits::VALUE_LEN_MAX);
                Received::Small(read.await?)
            };
            *value = match received {
                Received::Small(bytes) => {
                    // The digest covers the bytes of the client, not their stored form.
                    if let Some(keyed) = &mut self.ask.keyed {
                        keyed.add(Some(&bytes));
                    }
                    value.bytes = bytes;
                    stored(std::mem::take(value), located.namespace()).await
                }
                Received::Large(upload) => {
                    let large = *upload.reference();
                    if let Some(keyed) = &mut self.ask.keyed {
                        keyed.add_large(&large);
                    }
                    self.upload = Some(upload);
                    located.charge.renew_deadline();
                    std::mem::take(value).of_large(&large)
                }
            };
            // From here on the bound on writes in the queue counts it.
            body.release_memory();
            // The body may have taken long.
            self.ask.expire(located.namespace(), time)?;
        } else {
            // The sender of a touch with a value believes that the value is stored.
            let is_patch = matches!(self.ask.kind, WriteKind::Touch | WriteKind::Increment);
            if is_patch && body.size_hint().exact() != Some(0) {
                let detail = "a touch or increment has no body; use PUT to store another value";
                return Err(RequestError::BadBody(detail.to_owned()));
            }
            queue::turn_away(&located, shard)?;
        }
        Ok(located)
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError> {
        let ask = &mut self.ask;
        match ask.kind {
            WriteKind::Put | WriteKind::Increment | WriteKind::Delete => {
                let condition = std::mem::replace(&mut ask.condition, Condition::Always);
                let change = std::mem::replace(&mut ask.change, Change::Delete);
                let mut work = written(&ask.key, &change);
                let decided = write(located, ask, change, condition).await?;
                add_record(&mut work, ask, located.log);
                // A replayed answer is of an earlier upload.
                if matches!(&decided, Ok(written) if !written.is_replayed)
                    && let Some(upload) = self.upload.take()
                {
                    upload.keep();
                }
                Ok((Done::Decided(decided), work))
            }
            WriteKind::Touch => Box::pin(touch(located, ask)).await,
            WriteKind::DeleteDryRun => Box::pin(count(located, ask)).await,
        }
    }

    fn settle(
        self,
        (done, work): Self::Fetched,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        // A false condition is charged like a true one.
        let is_refused =
            matches!(&done, Done::Decided(Err(error)) if matches!(error, WriteError::Store(_)));
        if !is_refused {
            located.settle(work);
            if self.upload.is_none() {
                let (quota, namespace) = (&located.dispatcher.quota, located.namespace_id());
                quota.note_row(namespace, &self.ask.key, work.write_bytes);
            }
        }
        let answer = match done {
            Done::Decided(written) => {
                let written = written?;
                match self.ask.kind {
                    WriteKind::Put | WriteKind::Touch => Answer::Put(written),
                    WriteKind::Increment => Answer::Incremented(written),
                    WriteKind::Delete | WriteKind::DeleteDryRun => Answer::Deleted {
                        existed: written.existed,
                    },
                }
            }
            Done::NothingThere => return Err(RequestError::KeyNotFound),
            Done::Counted(answer) => Answer::DeletedRange(answer),
        };
        Ok(answer.into())
    }
}

/// Asks the store for a change of the row.
async fn write(
    located: &mut Located<'_>,
    ask: &WriteAsk,
    change: Change,
    condition: Condition,
) -> Result<Result<Written, WriteError>, RequestError> {
    let (dispatcher, namespace) = (located.dispatcher, located.namespace_id());
    let shard = dispatcher.shard_map.locate(namespace, &ask.key.partition);
    let caller = &located.identified().caller.id;
    let keeps_refusals = ask.kind != WriteKind::Touch;
    let idempotency = ask.keyed.as_ref().map(|keyed| {
        let now = dispatcher.lives_from(shard);
        keyed.idempotency(caller, now, keeps_refusals, vec![0])
    });
    let request = WriteRequest {
        namespace: located.dataset(),
        epoch: located.namespace().epoch,
        mutations: vec![Mutation {
            key: ask.key.clone(),
            change,
            condition,
        }],
        atomicity: Atomicity::None,
        durability: ask
            .durability
            .unwrap_or_else(|| located.namespace().durability()),
        proposed: Version::proposed_at(located.context().now),
        idempotency,
        not_before: None,
        run: None,
    };
    let call = located.call();
    let scopes = [WriteScope::Row(namespace, &ask.key)];
    let source = call.source(namespace, Some(&ask.key.partition));
    let writing = fetch::write(dispatcher, shard, &call, source, scopes, request);
    let written = queue::ask(located, pin!(writing)).await?.pop();
    let written =
        written.ok_or_else(|| RequestError::Internal("a write was not answered".to_owned()))?;
    Ok(match written {
        Ok(written) => {
            located.log.replayed(written.is_replayed);
            Ok(written)
        }
        Err(error) => {
            let (error, is_replayed) = error.into_first();
            located.log.replayed(is_replayed);
            Err(error)
        }
    })
}

/// Returns the answer to an earlier touch with the same idempotency key, or `None` if there was no such touch. The
/// write only looks for the record: its condition is never true.
async fn earlier_touch(
    located: &mut Located<'_>,
    ask: &WriteAsk,
) -> Result<Option<Done>, RequestError> {
    if ask.keyed.is_none() {
        return Ok(None);
    }
    let never = Condition::VersionIn(Vec::new());
    let decided = write(located, ask, Change::Delete, never).await?;
    let is_none = matches!(decided, Err(WriteError::ConditionFailed { .. }));
    Ok((!is_none).then_some(Done::Decided(decided)))
}

/// Stores the present value with another expiry. Reads the row again if it was written in between; the condition of
/// the request is checked for each row that was read.
async fn touch(
    located: &mut Located<'_>,
    ask: &mut WriteAsk,
) -> Result<(Done, ActualUsage), RequestError> {
    let expires_at = match ask.change {
        Change::Put { expires_at, .. } => expires_at,
        Change::Delete | Change::Increment { .. } | Change::Upload(_) => None,
    };
    let mut work = ActualUsage::default();
    let mut current = None;
    for _ in 0..TOUCH_ATTEMPTS {
        let row = stored_row(located, &ask.key).await?;
        add_read(&mut work, &ask.key, row.as_ref());
        current = row.as_ref().map(|row| row.version);
        let Some(row) = row.filter(|_| ask.condition.holds(current)) else {
            // The row may have changed since the touch was applied.
            if let Some(done) = earlier_touch(located, ask).await? {
                return Ok((done, work));
            }
            if ask.condition.holds(current) {
                return Ok((Done::NothingThere, work));
            }
            break;
        };
        let value = row.value;
        let change = Change::Put { value, expires_at };
        let cost = written(&ask.key, &change);
        let unchanged = Condition::VersionIn(vec![row.version]);
        let decided = write(located, ask, change, unchanged).await?;
        work.write_bytes += cost.write_bytes;
        work.writes += cost.writes;
        add_record(&mut work, ask, located.log);
        if !matches!(decided, Err(WriteError::ConditionFailed { .. })) {
            return Ok((Done::Decided(decided), work));
        }
    }
    let refused = Err(WriteError::ConditionFailed { current });
    Ok((Done::Decided(refused), work))
}

/// Returns the rows and bytes that a delete would remove.
async fn count(
    located: &mut Located<'_>,
    ask: &WriteAsk,
) -> Result<(Done, ActualUsage), RequestError> {
    let row = stored_row(located, &ask.key).await?;
    let mut work = ActualUsage::default();
    add_read(&mut work, &ask.key, row.as_ref());
    let current = row.as_ref().map(|row| row.version);
    if !ask.condition.holds(current) {
        let refused = Err(WriteError::ConditionFailed { current });
        return Ok((Done::Decided(refused), work));
    }
    let answer = DeleteRangeAnswer {
        rows: work.rows,
        bytes: row.as_ref().map_or(0, |row| plain_bytes(&ask.key, row)),
        dry_run: true,
    };
    Ok((Done::Counted(answer), work))
}

/// Returns the work of a change of one row; a removal writes no bytes.
fn written(key: &Key, change: &Change) -> ActualUsage {
    let write_bytes = match change {
        Change::Put { value, .. } => (key.sort.as_bytes().len() + value.bytes.len()) as u64,
        Change::Increment { .. } => key.sort.as_bytes().len() as u64 + NUMBER_LEN,
        Change::Delete | Change::Upload(_) => 0,
    };
    ActualUsage {
        rows: 1,
        write_bytes,
        writes: 1,
        ..ActualUsage::default()
    }
}

/// Returns the bytes that are charged for the idempotency record of a request.
fn record_bytes(ask: &WriteAsk) -> u64 {
    let partition_len = ask.key.partition.as_bytes().len() as u64;
    let record = ask.keyed.as_ref();
    record.map_or(0, |_| Idempotency::charged_bytes(partition_len, 1))
}

/// Adds the bytes of the idempotency record; a repetition writes nothing.
fn add_record(work: &mut ActualUsage, ask: &WriteAsk, log: &RequestLog) {
    if log.is_replayed() {
        work.write_bytes = 0;
    } else {
        work.write_bytes += record_bytes(ask);
    }
}

/// Returns the bytes of sort key and value as the client stored them.
fn plain_bytes(key: &Key, row: &Row) -> u64 {
    (key.sort.as_bytes().len() + row.value.plain_len()) as u64
}

/// Adds a read of the row; a row that is read several times counts as one row.
fn add_read(work: &mut ActualUsage, key: &Key, row: Option<&Row>) {
    work.reads += 1;
    if let Some(row) = row {
        work.rows = 1;
        work.read_bytes += (key.sort.as_bytes().len() + row.value.bytes.len()) as u64;
    }
}
