//! Request bodies: bounded in length, in time and, by caller and all together, in memory.

use bytes::Bytes;
use http::HeaderValue;
use http_body::SizeHint;
use umbo_edge::body::{ArrivingBody, BodyLimits, BodyPace, BodyRoom, GatheredBody, read_bounded};
use umbo_edge::bounds::ROOM_PATIENCE;
use umbo_edge::content_coding::ContentCoding;
use umbo_edge::memory::MemoryPermit;
use umbo_http::content_digest::ContentDigest;
use umbo_http::{Fields, RequestError};
use umbo_types::{Deadline, NamespaceId};

use super::received::Received;
use crate::dispatcher::Dispatcher;
use crate::phase::identify::Context;
use crate::request_log::RequestLog;

/// The body of a request: read once, kept while the request may have to be repeated.
#[derive(Debug)]
pub(crate) struct RequestBody<'a, B> {
    dispatcher: &'a Dispatcher,
    /// Hash of who pays.
    caller: u64,
    stream: B,
    /// `Content-Encoding` of the body.
    coding: Option<&'a HeaderValue>,
    /// `Content-Digest` of the body.
    digest: Option<&'a HeaderValue>,
    received: Option<Received>,
    /// Whether the reading of pieces has begun. Pieces cannot be read again, unless they were kept.
    is_spent: bool,
    /// How fast its pieces come.
    pace: BodyPace,
    /// The body's part of the shared memory.
    memory: Option<MemoryPermit>,
}

impl<'a, B: ArrivingBody> RequestBody<'a, B> {
    /// Begins with an unread body. `caller` returns the hash of the payer; it is called only if there is a body.
    pub(crate) fn new(
        dispatcher: &'a Dispatcher,
        caller: impl FnOnce() -> u64,
        stream: B,
        fields: &Fields<'a>,
    ) -> Self {
        Self {
            dispatcher,
            caller: if stream.is_end_stream() { 0 } else { caller() },
            stream,
            coding: fields.content_encoding,
            digest: fields.content_digest,
            received: None,
            is_spent: false,
            pace: BodyPace::streamed(dispatcher.limits.body_timeout),
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
        let room = room(self.dispatcher, self.caller, context.deadline);
        let (text, memory) = coding.inflate_body(&body, len_max, &room).await?;
        self.memory = Some(memory);
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
        if let Some(Received::Small(bytes)) = &self.received {
            return Ok(bytes.clone());
        }
        let digest = ContentDigest::read(self.digest)?;
        let limits = BodyLimits {
            len_max: len_max as u64,
            timeout: self.dispatcher.limits.body_timeout,
        };
        let room = room(self.dispatcher, self.caller, context.deadline);
        let (bytes, memory) = read_bounded(&mut self.stream, limits, &room).await?;
        self.memory = memory;
        log.received(bytes.len());
        if let Some(digest) = digest {
            digest.check(&bytes)?;
        }
        self.received = Some(Received::Small(bytes.clone()));
        Ok(bytes)
    }

    /// Returns whether the body may have more than `len` bytes.
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

    /// Returns the body that was received before, if any.
    pub(crate) fn received(&self) -> Option<Received> {
        self.received.clone()
    }

    /// Keeps the received pieces and their memory, for a repetition of the request.
    pub(crate) fn keep(&mut self, received: Received, memory: Option<MemoryPermit>) {
        self.received = Some(received);
        self.memory = memory;
    }

    /// Returns whether the request can be repeated with this body for a namespace: the body was not begun, or the
    /// received body is still there and belongs to that namespace.
    pub(crate) fn is_whole_for(&self, namespace: NamespaceId) -> bool {
        match &self.received {
            Some(Received::Small(_)) => true,
            Some(Received::Large(upload)) => upload.namespace_id() == namespace,
            None => !self.is_spent,
        }
    }

    /// Begins to read the body piece by piece, which can be done once. Returns its digest, which is for the reader to
    /// compare.
    pub(crate) fn begin_pieces(&mut self) -> Result<Option<ContentDigest>, RequestError> {
        self.is_spent = true;
        ContentDigest::read(self.digest)
    }

    /// Reads the next piece, at the minimum rate of a body; `None` at the end. `gathered` holds the memory of the
    /// pieces before it.
    pub(crate) async fn next_piece(
        &mut self,
        gathered: &GatheredBody,
    ) -> Result<Option<Bytes>, RequestError> {
        let room = self.room();
        let next = self.pace.next(&mut self.stream, gathered.held(), &room);
        Ok(next.await?)
    }

    /// Returns the memory for its pieces.
    pub(crate) fn room(&self) -> BodyRoom<'a> {
        self.dispatcher.body_room(self.caller, ROOM_PATIENCE)
    }

    /// Gives back its part of the shared memory: the bytes are counted elsewhere from now on.
    pub(crate) fn release_memory(&mut self) {
        self.memory = None;
    }
}

/// Returns the memory for a body, which waits for room until a deadline at most.
fn room(dispatcher: &Dispatcher, caller: u64, deadline: Deadline) -> BodyRoom<'_> {
    let remaining = deadline.remaining(dispatcher.clock.monotonic());
    dispatcher.body_room(caller, remaining.min(ROOM_PATIENCE))
}
