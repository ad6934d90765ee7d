//! Get: one row by its key. Hot path.

use std::sync::Arc;

use http::Uri;
use http_body::SizeHint;
use umbo_edge::body::ArrivingBody;
use umbo_edge::content_coding::{ContentCoding, InflateError, is_accepted, is_named};
use umbo_http::byte_range::ByteRange;
use umbo_http::decode::{self, GetAsk, Route};
use umbo_http::fields::Tags;
use umbo_http::{Answer, Fields, Representation, RequestError, RowAnswer};
use umbo_quota::{ActualUsage, CostHint};
use umbo_store::compression::{self, DamagedValue};
use umbo_types::{Key, Row, StoredForm, Value, Version, limits};

use super::Operate;
use super::body::RequestBody;
use super::stored_form::damaged;
use crate::bounds::DECODED_LEN_MAX;
use crate::large_read::LargeRead;
use crate::phase::admit::Admitted;
use crate::phase::locate::{Located, timed};
use crate::phase::read_through;
use crate::reply::Reply;

/// A get.
#[derive(Debug)]
pub(crate) struct Get(GetAsk);

impl Operate for Get {
    type Fetched = ReadAnswer;

    fn decode(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<Self, RequestError> {
        decode::get(route, uri, fields).map(Self)
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.0.key)
    }

    fn hint(&self, _body: &SizeHint) -> CostHint {
        CostHint {
            place: CostHint::place_of(&self.0.key),
            ..CostHint::default()
        }
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        _body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        if !self.0.is_head {
            admitted.reserve_answer(0, limits::VALUE_LEN_MAX).await?;
        }
        let map = &admitted.dispatcher.shard_map;
        let shard = map.locate(admitted.namespace_id(), &self.0.key.partition);
        Ok(admitted.locate_unasked(shard))
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<ReadAnswer, RequestError> {
        let mut row = read_through::row(located, &self.0.key).await?;
        // The chunks of a large value hold their memory one by one.
        let len = row.as_ref().map_or(0, |row| match row.value.form {
            StoredForm::Large => row.value.bytes.len(),
            StoredForm::Plain | StoredForm::Zstd => row.value.plain_len(),
        });
        if !self.0.is_head && located.hold_answer(len).is_err() {
            // A value that has no room waits in the store, not in memory: its length is known now.
            drop(row);
            located.reserve_answer(len, len).await?;
            located.ask_again();
            row = Box::pin(read_through::row(located, &self.0.key)).await?;
        }
        let row_len = row.as_ref().map_or(0, |row| {
            (self.0.key.sort.as_bytes().len() + row.value.bytes.len()) as u64
        });
        let mut answered = answer(&self.0, row, located);
        if let Ok(Answer::Row(answer)) = &mut answered
            && answer.representation == Representation::Identity
            // On the heap: few answers are decoded, and the future of every get would have room for it.
            && let Err(error) = Box::pin(decode(answer, &self.0, located)).await
        {
            answered = Err(error);
        }
        Ok(ReadAnswer { row_len, answered })
    }

    fn settle(
        self,
        ReadAnswer { row_len, answered }: ReadAnswer,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        let work = ActualUsage {
            // A row that is absent was looked up too.
            rows: 1,
            read_bytes: row_len,
            reads: 1,
            ..ActualUsage::default()
        };
        if let Ok(Answer::Row(answer)) = &answered
            && let Some(large) = answer.streamed()
        {
            let work = timed(work, located.log);
            located.charge.progress(&work);
            let of = (Arc::clone(&located.identified().namespace), self.0.key);
            let call = located.call();
            let whole = (0, large.len);
            let part = answer
                .part
                .map_or(whole, |part| (part.first, part.last + 1));
            let read = LargeRead::new(located.dispatcher, of, large, part, call, work);
            located.charge.announce(&read.whole_work());
            return Ok(Reply::large(answered?, read));
        }
        located.settle(work);
        Ok(answered?.into())
    }
}

/// The answer of a get, and the work for it.
pub(crate) struct ReadAnswer {
    /// Bytes of sort key and value that were read.
    row_len: u64,
    answered: Result<Answer, RequestError>,
}

/// Makes the answer of the row that was read. A value for a client that does not accept its coding is still to be
/// decoded.
fn answer(ask: &GetAsk, row: Option<Row>, located: &Located<'_>) -> Result<Answer, RequestError> {
    let current = row.as_ref().map(|row| row.version);
    // RFC 9110, section 13.2.2: If-Match is checked before If-None-Match.
    if let Some(tags) = &ask.if_match
        && !is_matched(tags, current, false)
    {
        return Err(RequestError::PreconditionFailed { current });
    }
    let row = row.ok_or(RequestError::KeyNotFound)?;
    let is_unchanged = |tags: &Tags| is_matched(tags, current, true);
    let is_unchanged = ask.if_none_match.as_ref().is_some_and(is_unchanged);
    let mut answer = choose(row, ask);
    if is_unchanged {
        return Ok(Answer::NotModified(answer));
    }
    if show(&mut answer).is_err() {
        let map = &located.dispatcher.shard_map;
        let shard = map.locate(located.namespace_id(), &ask.key.partition);
        return Err(damaged(shard));
    }
    if answer.representation != Representation::Identity {
        answer.part = part(&answer, ask)?;
    }
    Ok(Answer::Row(answer))
}

/// Chooses the representation for a client. The row has the bytes that are stored.
fn choose(row: Row, ask: &GetAsk) -> RowAnswer {
    let accepted = ask.accept_encoding.as_ref();
    let Value {
        form,
        content_encoding,
        ..
    } = &row.value;
    let is_compressed = *form == StoredForm::Zstd && content_encoding.is_empty();
    let representation =
        if is_compressed && ask.range.is_none() && is_named(accepted, ContentCoding::Zstd) {
            Representation::Zstd
        } else if content_encoding.is_empty() || is_accepted(accepted, content_encoding) {
            Representation::Stored
        } else {
            Representation::Identity
        };
    RowAnswer {
        representation,
        varies: is_compressed || !content_encoding.is_empty(),
        part: None,
        is_head: ask.is_head,
        row,
    }
}

/// Turns the stored form of the value into its plain bytes. A client that reads zstd gets the stored frame.
fn show(answer: &mut RowAnswer) -> Result<(), DamagedValue> {
    let value = &mut answer.row.value;
    if answer.representation == Representation::Zstd {
        value.bytes = compression::zstd_frame(value).ok_or(DamagedValue)?;
        value.form = StoredForm::Plain;
    } else if value.form == StoredForm::Zstd {
        *value = compression::plain(std::mem::take(value))?;
    }
    Ok(())
}

/// Returns the part of the value that the request asks for, or `None` if the answer is the whole value. `If-Range`
/// with a date or a weak tag is equal to no tag (RFC 9110, section 13.1.5).
fn part(answer: &RowAnswer, ask: &GetAsk) -> Result<Option<ByteRange>, RequestError> {
    let Some(range) = ask.range else {
        return Ok(None);
    };
    let tag = || answer.representation.etag(answer.row.version);
    if ask.if_range.as_ref().is_some_and(|asked| *asked != tag()) {
        return Ok(None);
    }
    let len = answer.row.value.plain_len() as u64;
    let part = range
        .of(len)
        .ok_or(RequestError::RangeNotSatisfiable { len })?;
    Ok(Some(part))
}

/// Decodes the value of an answer for a client that does not accept its coding, in memory for answers. Fails if the
/// value cannot be decoded.
async fn decode(
    answer: &mut RowAnswer,
    ask: &GetAsk,
    located: &mut Located<'_>,
) -> Result<(), RequestError> {
    let value = &mut answer.row.value;
    let coding = ContentCoding::parse(&value.content_encoding);
    // A large value is sent as it was stored.
    let coding = coding.filter(|_| value.form != StoredForm::Large);
    let coding = coding.ok_or_else(|| not_acceptable(value))?;
    loop {
        let hold = |len| located.log.try_grow_answer(len);
        match coding.inflate(&value.bytes, DECODED_LEN_MAX, hold).await {
            Ok(plain) => {
                value.bytes = plain;
                answer.part = part(answer, ask)?;
                return Ok(());
            }
            Err(InflateError::NoRoom { len, .. }) => {
                // A request that waits holds no memory that another one waits for.
                located.hold_answer(value.bytes.len())?;
                located.reserve_answer(len, len).await?;
            }
            Err(InflateError::TooLarge { .. } | InflateError::Malformed(_)) => {
                return Err(not_acceptable(value));
            }
        }
    }
}

fn not_acceptable(value: &Value) -> RequestError {
    RequestError::NotAcceptable {
        stored: String::from_utf8_lossy(&value.content_encoding).into_owned(),
    }
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
