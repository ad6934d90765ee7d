//! The resources of an answer until its connection has taken it: memory, and a place among the requests in
//! flight.
//!
//! Room is asked for before the store is, by the length of recent answers of the same connection; the actual
//! length is settled once it is known. A connection with only small recent answers takes nothing beforehand,
//! and a small answer takes nothing at all. An answer without room is shed. The answer to a write is sent in
//! any case, because the write was applied.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_edge::body::{AnswerHold, HeldBytes, InFlightRequest};
use umbo_edge::bounds::FREE_LEN;
use umbo_edge::memory::{ConnectionAnswers, Full, Memory, MemoryPermit};
use umbo_http::RequestError;

/// The memory and the place of one request's answer.
#[derive(Debug)]
pub(crate) struct AnswerRoom {
    answers: Arc<ConnectionAnswers>,
    /// `None` while nothing is held, and after it goes with the body.
    permit: Option<MemoryPermit>,
    /// `None` after it goes with the body.
    in_flight: Option<InFlightRequest>,
}

impl AnswerRoom {
    /// Begins with no memory.
    pub(crate) const fn new(answers: Arc<ConnectionAnswers>, in_flight: InFlightRequest) -> Self {
        Self {
            answers,
            permit: None,
            in_flight: Some(in_flight),
        }
    }

    /// Waits up to `timeout` for room for an answer of at most `len_max` bytes. It reserves room only if
    /// recent answers of the connection were long or `len_min` says that this one is. Sheds the request if
    /// there is no room.
    pub(crate) async fn reserve(
        &mut self,
        memory: &Arc<Memory>,
        len_min: usize,
        len_max: usize,
        timeout: impl FnOnce() -> Duration,
    ) -> Result<(), RequestError> {
        let len = self.answers.expected_len().max(len_min).min(len_max);
        if len <= FREE_LEN {
            return Ok(());
        }
        Box::pin(self.wait(memory, len, timeout())).await
    }

    async fn wait(
        &mut self,
        memory: &Arc<Memory>,
        len: usize,
        timeout: Duration,
    ) -> Result<(), RequestError> {
        let mut permit = MemoryPermit::empty(memory, self.answers.holder());
        let reserved = permit.reserve(len, timeout).await;
        reserved.map_err(RequestError::AnswerMemoryFull)?;
        self.permit = Some(permit);
        Ok(())
    }

    /// Takes the permit out, to make it follow an answer that is still being gathered.
    pub(crate) fn take_permit(&mut self, memory: &Arc<Memory>) -> MemoryPermit {
        let permit = self.permit.take();
        permit.unwrap_or_else(|| MemoryPermit::empty(memory, self.answers.holder()))
    }

    /// Puts the permit of an answer that was gathered back.
    pub(crate) fn put_permit(&mut self, permit: MemoryPermit) {
        self.permit = Some(permit);
    }

    /// Holds memory for at least `len` bytes, if there is room now.
    pub(crate) fn try_grow(&mut self, memory: &Arc<Memory>, len: usize) -> Result<(), Full> {
        let mut permit = self.take_permit(memory);
        let grown = permit.try_grow(len);
        self.permit = Some(permit);
        grown
    }

    /// Holds the memory of an answer that is made, `len` bytes; or sheds it.
    pub(crate) fn hold(&mut self, memory: &Arc<Memory>, len: usize) -> Result<(), RequestError> {
        if let Some(mut permit) = self.permit_of(memory, len) {
            let resized = permit.try_resize(len);
            resized.map_err(RequestError::AnswerMemoryFull)?;
            self.permit = Some(permit);
        }
        Ok(())
    }

    /// Holds the memory of an answer that is given whether or not there is room for it.
    pub(crate) fn hold_in_any_case(&mut self, memory: &Arc<Memory>, len: usize) {
        if let Some(mut permit) = self.permit_of(memory, len) {
            permit.resize(len);
            self.permit = Some(permit);
        }
    }

    /// Learns the length of an answer that is made, and takes its permit out. A small answer has none.
    fn permit_of(&mut self, memory: &Arc<Memory>, len: usize) -> Option<MemoryPermit> {
        let is_small = len <= FREE_LEN;
        if !is_small || self.permit.take().is_some() {
            self.answers.learn(len);
        }
        (!is_small).then(|| self.take_permit(memory))
    }

    /// Ties the memory that a piece of a stream holds to its bytes.
    pub(crate) fn hold_piece(
        &mut self,
        memory: &Arc<Memory>,
        piece: Bytes,
        is_last: bool,
    ) -> Bytes {
        self.answers.learn(piece.len());
        let mut permit = self.take_permit(memory);
        permit.resize(piece.len());
        let hold = AnswerHold {
            permit: Some(permit),
            in_flight: if is_last { self.in_flight.take() } else { None },
        };
        HeldBytes::new(piece, hold).into_bytes()
    }

    /// Ties the resources of the answer to its body.
    pub(crate) fn hand_over(&mut self, body: Bytes) -> HeldBytes {
        let hold = AnswerHold {
            in_flight: self.in_flight.take(),
            permit: self.permit.take(),
        };
        HeldBytes::new(body, hold)
    }
}
