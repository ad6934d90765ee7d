//! Put and delete: one row by its key. Hot path.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http_body::{Body, SizeHint};
use umbo_edge::body::BodyError;
use umbo_hotkey::WriteScope;
use umbo_http::decode::{self, Route, WriteAsk};
use umbo_http::{Answer, Fields, RequestError};
use umbo_quota::{ActualUsage, CostHint};
use umbo_store::{Atomicity, Change, Condition, Mutation, WriteError, WriteRequest, Written};
use umbo_types::{Key, RowError, Timestamp, Version, limits};

use super::Operate;
use super::body::RequestBody;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::queue;
use crate::phase::write_through::write_through;
use crate::reply::Reply;
use crate::store_call::Answered;

/// A put or delete.
#[derive(Debug)]
pub(crate) struct Write {
    ask: WriteAsk,
    is_put: bool,
}

impl Operate for Write {
    /// What the store has said of it, and what it cost.
    type Fetched = (Result<Written, WriteError>, ActualUsage);

    fn decode(
        route: &Route<'_>,
        uri: &Uri,
        fields: &Fields<'_>,
        now: Timestamp,
    ) -> Result<Self, RequestError> {
        let ask = decode::write(route, uri, fields, now)?;
        let is_put = matches!(ask.change, Change::Put { .. });
        Ok(Self { ask, is_put })
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.ask.key)
    }

    fn hint(&self, body: &SizeHint) -> CostHint {
        let body_len = match self.ask.change {
            Change::Put { .. } => {
                let sort_len = self.ask.key.sort.as_bytes().len() as u64;
                body.exact().map(|len| len + sort_len)
            }
            Change::Delete => Some(0),
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
            .locate(namespace, &self.ask.key.partition);
        let located = admitted.locate_at(shard)?;
        if let Change::Put { value, expires_at } = &mut self.ask.change {
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
            queue::turn_away(&located, shard)?;
        }
        Ok(located)
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError> {
        let ask = &mut self.ask;
        let namespace = located.namespace_id();
        let work = ActualUsage {
            rows: 1,
            write_bytes: bytes_of(ask),
            writes: 1,
            ..ActualUsage::default()
        };
        let request = WriteRequest {
            namespace,
            mutations: vec![Mutation {
                key: ask.key.clone(),
                change: std::mem::replace(&mut ask.change, Change::Delete),
                condition: std::mem::replace(&mut ask.condition, Condition::Always),
            }],
            atomicity: Atomicity::None,
            durability: ask
                .durability
                .unwrap_or_else(|| located.namespace().durability()),
            proposed: Version::proposed_at(located.context().now),
        };
        let (dispatcher, call) = (located.dispatcher, located.call());
        let (store, to_store) = (Arc::clone(&dispatcher.store), call.context());
        let put = async move {
            let written = store.write(&to_store, request).await;
            Answered::new(&to_store, written)
        };
        let shard = dispatcher.shard_map.locate(namespace, &ask.key.partition);
        let scopes = [WriteScope::Row(namespace, &ask.key)];
        let writing = write_through(dispatcher, shard, &call, scopes, put);
        let written = queue::ask(located, pin!(writing)).await?.pop();
        let written =
            written.ok_or_else(|| RequestError::Internal("a write was not answered".to_owned()))?;
        Ok((written, work))
    }

    async fn settle(
        self,
        (written, work): Self::Fetched,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        // A condition that was false cost as much as one that was true.
        if matches!(written, Ok(_) | Err(WriteError::ConditionFailed { .. })) {
            located.settle(work);
        }
        let written = written?;
        let answer = if self.is_put {
            Answer::Put(written)
        } else {
            Answer::Deleted
        };
        Ok(answer.into())
    }
}

/// Returns the bytes that a put writes; a removal writes none.
fn bytes_of(ask: &WriteAsk) -> u64 {
    match &ask.change {
        Change::Put { value, .. } => (ask.key.sort.as_bytes().len() + value.bytes.len()) as u64,
        Change::Delete => 0,
    }
}
