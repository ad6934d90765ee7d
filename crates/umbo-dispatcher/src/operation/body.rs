//! Request bodies: bounded in length, in time and, all together, in memory.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body, SizeHint};
use tokio::sync::SemaphorePermit;
use umbo_edge::body::{BodyError, BodyLimits, next_piece, read_bounded};
use umbo_edge::content_coding::ContentCoding;
use umbo_http::content_digest::ContentDigest;
use umbo_http::{Fields, RequestError};
use umbo_types::{Deadline, NamespaceId};

use super::received::Received;
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
    /// `Content-Encoding` of the body.
    coding: Option<&'a HeaderValue>,
    /// `Content-Digest` of the body.
    digest: Option<&'a HeaderValue>,
    received: Option<Received>,
    /// Whether its pieces were read: they cannot be read again, but for what was kept of them.
    is_spent: bool,
    /// The body's part of the shared memory.
    memory: Option<SemaphorePermit<'a>>,
}

impl<'a, B> RequestBody<'a, B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// Begins with a body of which nothing was read.
    pub(crate) const fn new(dispatcher: &'a Dispatcher, stream: B, fields: &Fields<'a>) -> Self {
        Self {
            dispatcher,
            stream,
            coding: fields.content_encoding,
            digest: fields.content_digest,
            received: None,
            is_spent: false,
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
        // The text may turn out as long as any. Shared memory is taken once: two parts could wait for each other.
        self.memory = None;
        self.memory = Some(take_memory(self.dispatcher, len_max as u64, context.deadline).await?);
        let text = coding.inflate(&body, len_max).await?;
        if let Some(memory) = &mut self.memory {
            drop(memory.split(memory.num_permits() - permits(text.len() as u64) as usize));
        }
        self.received = Some(Received::Small(text.clone()));
        Ok(text)
    }

    /// Reads a body of at most `len_max` bytes, as it was sent, and holds it against its digest.
    pub(crate) async fn read(
        &mut self,
        log: &mut RequestLog,
        context: Context,
        len_max: usize,
    ) -> Result<Bytes, RequestError> {
        let len_max = len_max as u64;
        if let Some(Received::Small(bytes)) = &self.received {
            return Ok(bytes.clone());
        }
        let digest = ContentDigest::read(self.digest)?;
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
        if let Some(digest) = digest {
            digest.check(&bytes)?;
        }
        self.received = Some(Received::Small(bytes.clone()));
        Ok(bytes)
    }

    /// Returns whether the body may have more than so many bytes.
    pub(crate) fn may_exceed(&self, len: usize) -> bool {
        match &self.received {
            Some(Received::Small(_)) => false,
            Some(Received::Large(_)) => true,
            None => {
                let upper = self.stream.size_hint().upper();
                upper.is_none_or(|upper| upper > len as u64)
            }
        }
    }

    /// Returns what was received before.
    pub(crate) fn received(&self) -> Option<Received> {
        self.received.clone()
    }

    /// Keeps what was received in pieces, for a repetition of the request.
    pub(crate) fn keep(&mut self, received: Received) {
        self.received = Some(received);
    }

    /// Returns whether the request can be repeated with this body for a namespace: it was not begun, or what was
    /// received is there.
    pub(crate) fn is_whole_for(&self, namespace: NamespaceId) -> bool {
        match &self.received {
            Some(Received::Small(_)) => true,
            Some(Received::Large(upload)) => upload.namespace_id() == namespace,
            None => !self.is_spent,
        }
    }

    /// Begins to read the body piece by piece, which can be done once, and takes its part of the shared memory. Returns
    /// its digest, which is for the reader to compare.
    pub(crate) async fn begin_pieces(
        &mut self,
        memory: u64,
        deadline: Deadline,
    ) -> Result<Option<ContentDigest>, RequestError> {
        self.is_spent = true;
        let digest = ContentDigest::read(self.digest)?;
        let upper = self.stream.size_hint().upper();
        let memory = upper.map_or(memory, |upper| upper.min(memory));
        self.memory = Some(take_memory(self.dispatcher, memory, deadline).await?);
        Ok(digest)
    }

    /// Reads the next piece, within the time that a body has; none at the end.
    pub(crate) async fn next_piece(&mut self) -> Result<Option<Bytes>, RequestError> {
        let timeout = self.dispatcher.limits.body_timeout;
        let next = tokio::time::timeout(timeout, next_piece(&mut self.stream)).await;
        Ok(next.unwrap_or(Err(BodyError::TimedOut { timeout }))?)
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

/// Takes a part of the memory of bodies.
pub(crate) async fn take_memory(
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
