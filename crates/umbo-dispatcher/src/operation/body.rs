//! Request bodies: bounded in length, in time and, all together, in memory.

use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, SizeHint};
use tokio::sync::SemaphorePermit;
use umbo_edge::body::{BodyError, BodyLimits, read_bounded};
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
    pub(crate) const fn new(dispatcher: &'a Dispatcher, stream: B) -> Self {
        Self {
            dispatcher,
            stream,
            received: None,
            memory: None,
        }
    }

    /// Returns a hint of its length.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.stream.size_hint()
    }

    /// Reads a body of at most `len_max` bytes.
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

async fn take_memory(
    dispatcher: &Dispatcher,
    bytes: u64,
    deadline: Deadline,
) -> Result<SemaphorePermit<'_>, RequestError> {
    let permits = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX);
    let remaining = deadline.remaining(dispatcher.clock.monotonic());
    let wait = remaining.min(Duration::from_secs(1));
    match tokio::time::timeout(wait, dispatcher.body_memory.acquire_many(permits)).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(RequestError::BodyMemoryFull),
    }
}
