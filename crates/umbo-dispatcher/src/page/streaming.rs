//! A page of several chunks as a body: the next chunk is read when the connection has room for it.
//!
//! Each chunk holds its memory until the connection has taken it, and the next one is not read before
//! there is room for one of the same length. Log and charge live until the stream ends: each chunk is
//! charged when it is read, and a client that leaves pays for the chunks read until then.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use umbo_api::json_line;
use umbo_api::stream::ErrorLine;
use umbo_edge::body::{ReplyAborted, ReplyBody};
use umbo_http::cursor::CursorError;
use umbo_http::problem::FailedRequest;
use umbo_http::{RequestError, encode, problem};
use umbo_store::StoreError;
use umbo_telemetry::trace::Phase;

use super::{EncodedChunk, PageWalk};
use crate::charge::Charge;
use crate::request_log::RequestLog;
use crate::running::RunningGuard;

/// Time for the error line of a failed stream to leave before the connection is cut.
const ABORT_DELAY: Duration = Duration::from_millis(50);

/// A page that is being streamed.
struct PageStream {
    walk: Box<PageWalk>,
    // The charge is dropped before the log that it is counted with.
    charge: Charge,
    log: RequestLog,
    running: RunningGuard,
}

/// States of a streamed page.
enum StreamState {
    First(Bytes, PageStream),
    More(PageStream),
    Abort,
    End,
}

impl PageWalk {
    /// Turns the rest of the page into a body. Log and charge go with it and end with it.
    pub(crate) fn into_body(
        self: Box<Self>,
        first: Bytes,
        mut log: RequestLog,
        charge: Charge,
    ) -> ReplyBody {
        let first = hold(&mut log, first, false);
        let streamed = PageStream {
            walk: self,
            running: log.list(Phase::Encode, charge.charged()),
            charge,
            log,
        };
        let state = StreamState::First(first, streamed);
        ReplyBody::stream(stream::unfold(state, |state| async move {
            match state {
                StreamState::First(text, streamed) => Some((Ok(text), StreamState::More(streamed))),
                StreamState::More(streamed) => {
                    let dispatcher = Arc::clone(&streamed.walk.dispatcher);
                    let (mut streamed, read) = dispatcher.long_reads.run(streamed.read_on()).await;
                    match read {
                        Ok(chunk) => {
                            let text = hold(&mut streamed.log, chunk.text, chunk.is_last);
                            let next = if chunk.is_last {
                                StreamState::End
                            } else {
                                StreamState::More(streamed)
                            };
                            Some((Ok(text), next))
                        }
                        Err(error) => Some((Ok(streamed.error_line(&error)), StreamState::Abort)),
                    }
                }
                StreamState::Abort => {
                    // An HTTP/2 reset overtakes data that is still queued, so the error line gets time to
                    // leave.
                    tokio::time::sleep(ABORT_DELAY).await;
                    Some((Err(ReplyAborted), StreamState::End))
                }
                StreamState::End => None,
            }
        }))
    }
}

impl Drop for PageStream {
    fn drop(&mut self) {
        let Self { log, charge, .. } = self;
        log.end(|at| Some(charge.end(at)));
    }
}

impl PageStream {
    /// Reads and encodes the next chunk.
    async fn read_on(mut self) -> (Self, Result<EncodedChunk, RequestError>) {
        let read = self.next_chunk().await;
        (self, read)
    }

    async fn next_chunk(&mut self) -> Result<EncodedChunk, RequestError> {
        let Self {
            walk,
            charge,
            log,
            running,
        } = self;
        running.check()?;
        log.reserve_piece().await?;
        let timed = match walk.read().await {
            Err(RequestError::Store(gone @ StoreError::NamespaceGone { namespace, .. })) => {
                let control = &walk.dispatcher.control;
                let found = control.find_after_drop(namespace, &charge.identified().namespace);
                return Err(match Box::pin(found).await {
                    // A page never continues in another version than the one it began with.
                    Ok(Some(_)) => CursorError::Dropped.into(),
                    Ok(None) | Err(_) => gone.into(),
                });
            }
            read => read?,
        };
        log.stored(timed.time);
        let chunk = walk.encode(timed.answer, log, charge);
        running.charged(charge.charged());
        chunk
    }

    fn error_line(&mut self, error: &RequestError) -> Bytes {
        let Self {
            walk, charge, log, ..
        } = self;
        log.stream_failed(error);
        charge.close_failed(error);
        let request = FailedRequest {
            request_id: log.request_id(),
            operation: log.operation(),
            is_change: log.is_change(),
            retry_ticket: None,
        };
        let error = problem::of_request(error, &request);
        let ru = encode::ru(charge.charged());
        // The walk has not moved beyond the rows that were encoded.
        let cursor = walk.cursor();
        let line = ErrorLine { error, cursor, ru };
        let mut text = Vec::new();
        json_line::write(&mut text, &line).expect("a vector that grows takes every write");
        text.push(b'\n');
        text.into()
    }
}

/// Counts a piece as sent, and ties the memory that it holds to its bytes.
fn hold(log: &mut RequestLog, piece: Bytes, is_last: bool) -> Bytes {
    log.sent(piece.len());
    log.hold_piece(piece, is_last)
}
