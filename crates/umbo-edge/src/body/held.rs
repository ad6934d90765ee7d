//! Bytes of an answer with their holds: while the bytes exist, the request counts as in flight and the
//! memory as held.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use umbo_types::Operation;

use crate::bounds::FREE_LEN;
use crate::memory::MemoryPermit;

/// Counts the requests in flight of a server.
pub trait InFlightCounter: fmt::Debug + Send + Sync {
    /// Counts one request less.
    fn request_ended(&self, operation: Operation);

    /// Returns whether a request that waits for its client is to give way, because others were turned away.
    fn gives_way(&self) -> bool;
}

/// One request in flight, until it is dropped.
#[derive(Debug)]
#[must_use = "the request counts as in flight only while this lives"]
pub struct InFlightRequest {
    counter: Arc<dyn InFlightCounter>,
    operation: Operation,
}

impl InFlightRequest {
    /// Stands for a request that was counted.
    pub fn new(counter: Arc<dyn InFlightCounter>, operation: Operation) -> Self {
        Self { counter, operation }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.counter.request_ended(self.operation);
    }
}

/// The holds of some bytes of an answer.
#[derive(Debug, Default)]
pub struct AnswerHold {
    /// The request, if these bytes are the last of its answer.
    pub in_flight: Option<InFlightRequest>,
    /// The memory, if it is counted.
    pub permit: Option<MemoryPermit>,
}

/// Bytes of an answer and their hold.
#[derive(Debug, Default)]
pub struct HeldBytes {
    pub(crate) bytes: Bytes,
    hold: AnswerHold,
}

impl HeldBytes {
    /// Ties a hold to bytes.
    pub fn new(bytes: Bytes, hold: AnswerHold) -> Self {
        Self { bytes, hold }
    }

    /// Returns whether the hold has to outlive the body: its memory is counted.
    pub(crate) const fn is_large(&self) -> bool {
        self.hold.permit.is_some() || self.bytes.len() > FREE_LEN
    }

    /// Gives up the hold.
    pub(crate) fn into_unheld(self) -> Bytes {
        self.bytes
    }

    /// Makes bytes that keep the hold until the last part of them is dropped.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Bytes> for HeldBytes {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, AnswerHold::default())
    }
}

/// No requests in flight.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct NoRequests;

#[cfg(test)]
impl InFlightCounter for NoRequests {
    fn request_ended(&self, _: Operation) {}

    fn gives_way(&self) -> bool {
        false
    }
}
