//! A page of several chunks as a body: the next chunk is read when the connection has room for it.
//!
//! The exchange lives as long as the stream, and with it the charge: each chunk is charged when it
//! is read, and a client that leaves pays for what was read until then.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use umbo_api::stream::ErrorLine;

use super::{Chunk, PageWalk};
use crate::edge::body::{ReplyAborted, ReplyBody};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::{encode, problem};

/// Time for the error line of a failed stream to leave before the connection is cut.
const ABORT_DELAY: Duration = Duration::from_millis(50);

impl PageWalk {
    /// Turns the rest of the page into a body. The exchange goes with it and settles at its end.
    pub(crate) fn into_body(self, first: Bytes, exchange: Exchange) -> ReplyBody {
        let state = Walk::First(first, Box::new(self), exchange);
        ReplyBody::stream(stream::unfold(state, |state| async move {
            match state {
                Walk::First(text, walk, mut exchange) => {
                    exchange.sent(text.len());
                    Some((Ok(text), Walk::More(walk, exchange)))
                }
                Walk::More(mut walk, mut exchange) => match read_on(&mut walk, &mut exchange).await
                {
                    Ok(chunk) => {
                        exchange.sent(chunk.text.len());
                        let next = if chunk.is_last {
                            Walk::End
                        } else {
                            Walk::More(walk, exchange)
                        };
                        Some((Ok(chunk.text), next))
                    }
                    Err(failure) => {
                        let line = error_line(&failure, &mut exchange);
                        Some((Ok(line), Walk::Abort))
                    }
                },
                Walk::Abort => {
                    // An HTTP/2 reset overtakes what has not left yet: let the error line leave.
                    tokio::time::sleep(ABORT_DELAY).await;
                    Some((Err(ReplyAborted), Walk::End))
                }
                Walk::End => None,
            }
        }))
    }
}

/// Reads and encodes the next chunk of a page that is being streamed.
async fn read_on(walk: &mut PageWalk, exchange: &mut Exchange) -> Result<Chunk, Failure> {
    let timed = walk.read().await?;
    exchange.stored(timed.service_time);
    Ok(walk.encode(&timed.answer, exchange))
}

/// States of a streamed page.
enum Walk {
    First(Bytes, Box<PageWalk>, Exchange),
    More(Box<PageWalk>, Exchange),
    Abort,
    End,
}

fn error_line(failure: &Failure, exchange: &mut Exchange) -> Bytes {
    exchange.stream_failed(failure);
    let error = problem::of_request(failure, exchange);
    let ru = encode::ru(exchange.charged());
    let mut line = serde_json::to_vec(&ErrorLine { error, ru }).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
