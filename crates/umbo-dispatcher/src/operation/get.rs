//! Get: one row by its key. Hot path.

use bytes::Bytes;
use http::Uri;
use http_body::Body;
use umbo_edge::content_coding::{ContentCoding, is_accepted};
use umbo_http::decode::{self, GetAsk, Route};
use umbo_http::encode::IDENTITY;
use umbo_http::fields::Tags;
use umbo_http::{Answer, Fields, RequestError};
use umbo_quota::ActualUsage;
use umbo_types::{Key, Row, Timestamp, Version, limits};

use super::Operate;
use super::body::RequestBody;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::read_through;
use crate::reply::Reply;

/// Longest value that is decoded for a client that does not accept its coding, in bytes.
const DECODED_LEN_MAX: usize = 8 * limits::VALUE_LEN_MAX;

/// A get.
#[derive(Debug)]
pub(crate) struct Get(GetAsk);

impl Operate for Get {
    type Fetched = Option<Row>;

    fn decode(
        route: &Route<'_>,
        uri: &Uri,
        fields: &Fields<'_>,
        _now: Timestamp,
    ) -> Result<Self, RequestError> {
        decode::get(route, uri, fields).map(Self)
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.0.key)
    }

    async fn locate<'l, B>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        _body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        if !self.0.is_head {
            admitted.reserve_answer(0, limits::VALUE_LEN_MAX).await?;
        }
        let map = &admitted.dispatcher.shard_map;
        let shard = map.locate(admitted.namespace_id(), &self.0.key.partition);
        Ok(admitted.locate_unasked(shard))
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Option<Row>, RequestError> {
        let row = read_through::row(located, &self.0.key).await?;
        let len = row.as_ref().map_or(0, |row| row.value.bytes.len());
        if self.0.is_head || located.hold_answer(len).is_ok() {
            return Ok(row);
        }
        // A value that has no room waits in the store, not in memory: its length is known now.
        drop(row);
        located.reserve_answer(len, len).await?;
        located.ask_again();
        Box::pin(read_through::row(located, &self.0.key)).await
    }

    async fn settle(
        self,
        row: Option<Row>,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        let ask = self.0;
        located.settle(ActualUsage {
            // A row that is absent was looked up too.
            rows: 1,
            read_bytes: row.as_ref().map_or(0, |row| {
                (ask.key.sort.as_bytes().len() + row.value.bytes.len()) as u64
            }),
            reads: 1,
            ..ActualUsage::default()
        });
        let current = row.as_ref().map(|row| row.version);
        // RFC 9110, section 13.2.2: If-Match is looked at before If-None-Match.
        if let Some(tags) = &ask.if_match
            && !is_matched(tags, current, false)
        {
            return Err(RequestError::PreconditionFailed { current });
        }
        let row = row.ok_or(RequestError::KeyNotFound)?;
        let answer = match &ask.if_none_match {
            Some(tags) if is_matched(tags, current, true) => Answer::NotModified(row),
            _ => {
                let accepted = ask.accept_encoding.as_ref();
                let row = match &row.value.content_encoding {
                    stored if stored.is_empty() => row,
                    stored if is_accepted(accepted, stored) => row,
                    _ => Box::pin(decoded(row)).await?,
                };
                Answer::Row {
                    row,
                    is_head: ask.is_head,
                }
            }
        };
        Ok(answer.into())
    }
}

/// Decodes a value for a client that does not accept its coding; refuses one that cannot be decoded.
async fn decoded(mut row: Row) -> Result<Row, RequestError> {
    let value = &mut row.value;
    let plain = match ContentCoding::parse(&value.content_encoding) {
        Some(coding) => coding.inflate(&value.bytes, DECODED_LEN_MAX).await.ok(),
        None => None,
    };
    let Some(plain) = plain else {
        let stored = String::from_utf8_lossy(&value.content_encoding).into_owned();
        return Err(RequestError::NotAcceptable { stored });
    };
    value.bytes = plain;
    value.content_encoding = Bytes::from_static(IDENTITY.as_bytes());
    Ok(row)
}

/// Returns whether any tag matches; weak tags count only in a weak comparison.
fn is_matched(tags: &Tags, current: Option<Version>, is_weak: bool) -> bool {
    current.is_some_and(|current| match tags {
        Tags::Any => true,
        Tags::Versions { strong, weak } => {
            strong.contains(&current) || (is_weak && weak.contains(&current))
        }
    })
}
