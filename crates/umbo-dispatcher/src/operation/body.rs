//! Request bodies: bounded in length, in time and, all together, in memory.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body, SizeHint};
use tokio::sync::SemaphorePermit;
use umbo_edge::body::{BodyError, BodyLimits, read_bounded};
use umbo_edge::content_coding::ContentCoding;
use umbo_http::RequestError;
use umbo_types::Deadline;

use crate::dispatcher::Dispatcher;
use crate::phase::identify::Context;
use crate::request_log::RequestLog;

/// Bodies up to this length take no part of the shared memory: connections bound them.
const FREE_LEN: u64 = 64 << 10;

/// The body of a request: read once, kept while the request may have to be repeated.
#[derive(Debug)]
pub(crate) struct RequestBody<'a, B> {
    dispatcher: &'a Dispatcher,
    stream: B,
    /// Its `Content-Encoding`.
    coding: Option<&'a HeaderValue>,
    received: Option<Bytes>,
    /// Its part of the shared memory.
    memory: Option<SemaphorePermit<'a>>,
}

impl<'a, B> RequestBody<'a, B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// Begins with a body of which nothing was read.
    pub(crate) const fn new(
        dispatcher: &'a Dispatcher,
        stream: B,
        coding: Option<&'a HeaderValue>,
    ) -> Self {
        Self {
            dispatcher,
            stream,
            coding,
            received: None,
            memory: None,
        }
    }

    /// Returns a hint of its length.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.stream.size_hint()
    }

    /// Reads a body that is text for the server itself: at most `len_max` bytes, also once inflated.
    pub(crate) async fn read_text(
        &mut self,
        log: &mut RequestLog,
        context: Context,
        len_max: usize,
    ) -> Result<Bytes, RequestError> {
        let Some(coding) = ContentCoding::of_body(self.coding)? else {
            return self.read(log, context, len_max).await;
        };
        let is_inflated = self.received.is_some();
        let body = self.read(log, context, len_max).await?;
        if is_inflated {
            return Ok(body);
        }
        // It may turn out as long as any. Memory of the shared is taken once: two parts could wait for each other.
        self.memory = None;
        self.memory = Some(take_memory(self.dispatcher, len_max as u64, context.deadline).await?);
        let text = coding.inflate(&body, len_max).await?;
        if let Some(memory) = &mut self.memory {
            drop(memory.split(memory.num_permits() - permits(text.len() as u64) as usize));
        }
        self.received = Some(text.clone());
        Ok(text)
    }

    /// Reads a body of at most `len_max` bytes, as it was sent.
    pub(crate) async fn read(
        &mut self,
        log: &mut RequestLog,
        context: Context,
        len_max: usize,
    ) -> Result<Bytes, RequestError> {
        let len_max = len_max as u64;
        if let Some(bytes) = &self.received {
            return Ok(bytes.clone());
        }
        let hint = self.stream.size_hint();
        if hint.lower() > len_max {
            return Err(BodyError::TooLarge { len_max }.into());
        }
        // A body of unknown length may turn out as long as any.
        let most = hint.upper().map_or(len_max, |upper| upper.min(len_max));
        if most > FREE_LEN {
            self.memory = Some(take_memory(self.dispatcher, most, context.deadline).await?);
        }
        let limits = BodyLimits {
            len_max,
            timeout: self.dispatcher.limits.body_timeout,
        };
        let bytes = read_bounded(&mut self.stream, limits).await?;
        log.received(bytes.len());
        self.received = Some(bytes.clone());
        Ok(bytes)
    }

    /// Gives back its part of the shared memory: the bytes are counted elsewhere from now on.
    pub(crate) fn release_memory(&mut self) {
        self.memory = None;
    }
}

/// Returns how many permits stand for so many bytes.
fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX)
}

async fn take_memory(
    dispatcher: &Dispatcher,
    bytes: u64,
    deadline: Deadline,
) -> Result<SemaphorePermit<'_>, RequestError> {
    let permits = permits(bytes);
    let remaining = deadline.remaining(dispatcher.clock.monotonic());
    let wait = remaining.min(Duration::from_secs(1));
    match tokio::time::timeout(wait, dispatcher.body_memory.acquire_many(permits)).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(RequestError::BodyMemoryFull),
    }
}
