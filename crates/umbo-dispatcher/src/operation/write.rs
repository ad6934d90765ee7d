//! Put, touch and delete: one row by its key. Hot path.
//!
//! A touch is a read of the row and a put of the value that was read, on the condition that the row still has that
//! version; so every engine has it. It gives the row a new version.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http_body::{Body, SizeHint};
use umbo_api::batch::DeleteRangeAnswer;
use umbo_edge::body::BodyError;
use umbo_hotkey::WriteScope;
use umbo_http::decode::{self, Route, WriteAsk, WriteKind};
use umbo_http::{Answer, Fields, RequestError};
use umbo_quota::{ActualUsage, CostHint};
use umbo_store::{Atomicity, Change, Condition, Mutation, WriteError, WriteRequest, Written};
use umbo_types::{Key, Row, RowError, Timestamp, Version, limits};

use super::Operate;
use super::body::RequestBody;
use super::stored_row::stored_row;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::queue;
use crate::phase::write_through::write_through;
use crate::reply::Reply;
use crate::store_call::Answered;

/// How often a touch reads the row again because it was written meanwhile.
const TOUCH_ATTEMPTS: usize = 8;

/// A put, touch or delete.
#[derive(Debug)]
pub(crate) struct Write(WriteAsk);

/// What became of a write.
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
    /// What became of it, and what it cost.
    type Fetched = (Done, ActualUsage);

    fn decode(
        route: &Route<'_>,
        uri: &Uri,
        fields: &Fields<'_>,
        now: Timestamp,
    ) -> Result<Self, RequestError> {
        decode::write(route, uri, fields, now).map(Self)
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.0.key)
    }

    fn hint(&self, body: &SizeHint) -> CostHint {
        let body_len = match self.0.kind {
            WriteKind::Put => {
                let sort_len = self.0.key.sort.as_bytes().len() as u64;
                body.exact().map(|len| len + sort_len)
            }
            WriteKind::Touch => None,
            WriteKind::Delete | WriteKind::DeleteDryRun => Some(0),
        };
        CostHint {
            body_len,
            ..CostHint::default()
        }
    }

    async fn locate<'l, B>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let dispatcher = admitted.dispatcher;
        let (namespace, now) = (admitted.namespace_id(), admitted.context().now);
        let shard = dispatcher
            .shard_map
            .locate(namespace, &self.0.key.partition);
        let located = admitted.locate_at(shard)?;
        if self.0.kind == WriteKind::Put
            && let Change::Put { value, expires_at } = &mut self.0.change
        {
            let announced = body.size_hint().lower();
            if announced > limits::VALUE_LEN_MAX as u64 {
                return Err(RowError::ValueTooLarge(announced as usize).into());
            }
            queue::turn_away(&located, shard)?;
            let read = body.read(located.log, located.context(), limits::VALUE_LEN_MAX);
            value.bytes = read.await.map_err(|error| match error {
                RequestError::Body(BodyError::TooLarge { len_max }) => {
                    RequestError::BadValue(RowError::ValueTooLarge(len_max as usize + 1))
                }
                other => other,
            })?;
            // From here on the bound on writes in the queue counts it.
            body.release_memory();
            *expires_at = expires_at.or_else(|| located.namespace().default_expiry(now));
        } else {
            // One who sends a value with a touch believes that it is stored.
            if self.0.kind == WriteKind::Touch && body.size_hint().exact() != Some(0) {
                let detail = "a touch has no body: PUT stores another value";
                return Err(RequestError::BadBody(detail.to_owned()));
            }
            queue::turn_away(&located, shard)?;
        }
        Ok(located)
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError> {
        let ask = &mut self.0;
        match ask.kind {
            WriteKind::Put | WriteKind::Delete => {
                let condition = std::mem::replace(&mut ask.condition, Condition::Always);
                let change = std::mem::replace(&mut ask.change, Change::Delete);
                let work = written(&ask.key, &change);
                let decided = write(located, ask, change, condition).await?;
                Ok((Done::Decided(decided), work))
            }
            WriteKind::Touch => Box::pin(touch(located, ask)).await,
            WriteKind::DeleteDryRun => Box::pin(count(located, ask)).await,
        }
    }

    async fn settle(
        self,
        (done, work): Self::Fetched,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        // A condition that was false cost as much as one that was true.
        let is_refused = matches!(&done, Done::Decided(Err(error))
            if !matches!(error, WriteError::ConditionFailed { .. }));
        if !is_refused {
            located.settle(work);
        }
        let answer = match done {
            Done::Decided(written) => {
                let written = written?;
                match self.0.kind {
                    WriteKind::Put | WriteKind::Touch => Answer::Put(written),
                    WriteKind::Delete | WriteKind::DeleteDryRun => Answer::Deleted,
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
    let namespace = located.namespace_id();
    let request = WriteRequest {
        namespace,
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
    };
    let (dispatcher, mut call) = (located.dispatcher, located.call());
    call.is_continued = ask.kind == WriteKind::Touch;
    let (store, to_store) = (Arc::clone(&dispatcher.store), call.context());
    let put = async move {
        let written = store.write(&to_store, request).await;
        Answered::new(&to_store, written)
    };
    let shard = dispatcher.shard_map.locate(namespace, &ask.key.partition);
    let scopes = [WriteScope::Row(namespace, &ask.key)];
    let writing = write_through(dispatcher, shard, &call, scopes, put);
    let written = queue::ask(located, pin!(writing)).await?.pop();
    written.ok_or_else(|| RequestError::Internal("a write was not answered".to_owned()))
}

/// Stores the value that is there with another expiry. Reads again where the row was written in between; a
/// condition of the request is held against each row that was read.
async fn touch(
    located: &mut Located<'_>,
    ask: &mut WriteAsk,
) -> Result<(Done, ActualUsage), RequestError> {
    let expires_at = match ask.change {
        Change::Put { expires_at, .. } => expires_at,
        Change::Delete => None,
    };
    let mut work = ActualUsage::default();
    let mut current = None;
    for _ in 0..TOUCH_ATTEMPTS {
        let row = stored_row(located, &ask.key).await?;
        add_read(&mut work, &ask.key, row.as_ref());
        current = row.as_ref().map(|row| row.version);
        if !ask.condition.holds(current) {
            break;
        }
        let Some(row) = row else {
            return Ok((Done::NothingThere, work));
        };
        let value = row.value;
        let change = Change::Put { value, expires_at };
        let cost = written(&ask.key, &change);
        let unchanged = Condition::VersionIn(vec![row.version]);
        let decided = write(located, ask, change, unchanged).await?;
        work.write_bytes += cost.write_bytes;
        work.writes += cost.writes;
        if !matches!(decided, Err(WriteError::ConditionFailed { .. })) {
            return Ok((Done::Decided(decided), work));
        }
    }
    let refused = Err(WriteError::ConditionFailed { current });
    Ok((Done::Decided(refused), work))
}

/// Says what a delete would remove.
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
        bytes: work.read_bytes,
        dry_run: true,
    };
    Ok((Done::Counted(answer), work))
}

/// Returns the work of a change of one row; a removal writes no bytes.
fn written(key: &Key, change: &Change) -> ActualUsage {
    let write_bytes = match change {
        Change::Put { value, .. } => (key.sort.as_bytes().len() + value.bytes.len()) as u64,
        Change::Delete => 0,
    };
    ActualUsage {
        rows: 1,
        write_bytes,
        writes: 1,
        ..ActualUsage::default()
    }
}

/// Adds a read of the row; one that is read more than once is one row.
fn add_read(work: &mut ActualUsage, key: &Key, row: Option<&Row>) {
    work.reads += 1;
    if let Some(row) = row {
        work.rows = 1;
        work.read_bytes += (key.sort.as_bytes().len() + row.value.bytes.len()) as u64;
    }
}
