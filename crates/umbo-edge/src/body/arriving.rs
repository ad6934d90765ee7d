//! Bodies as they come: the bytes that have come hold memory, and the next ones have to come fast enough.
//!
//! Memory is taken a little ahead of the bytes, at most doubling them, and never for bytes that a client only
//! announces. A streamed body has a minimum rate; a body in one piece has a time limit. While a body waits for memory,
//! bodies that hold some have a higher minimum rate, and give way when they are slower. While requests are turned away
//! because too many are in flight, all bodies have the higher rate. So a client that sends nothing costs the waiting
//! others at most [`CROWDED_PAUSE_MAX`].

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout};

use super::{BodyError, InFlightCounter, next_piece};
use crate::body::ArrivingBody;
use crate::bounds::{CROWDED_PAUSE_MAX, CROWDED_RATE_MIN, FREE_LEN};
use crate::limits::bytes_min;
use crate::memory::{CallerMemory, Full, MemoryPermit};

/// The memory for the bodies of a caller.
#[derive(Debug, Clone, Copy)]
pub struct BodyRoom<'a> {
    /// The memory of bodies.
    pub memory: &'a CallerMemory,
    /// Hash of the caller.
    pub caller: u64,
    /// How long to wait for room.
    pub patience: Duration,
    /// The requests in flight, including the request of the body.
    pub requests: &'a dyn InFlightCounter,
}

impl BodyRoom<'_> {
    /// Returns the bound that makes others wait for this body: its memory, or its place among the requests in flight.
    fn wanted(&self, held: Option<&MemoryPermit>) -> Option<Full> {
        let memory = held.and_then(MemoryPermit::wanted);
        memory.or_else(|| self.requests.gives_way().then_some(Full::Requests))
    }
}

/// Bytes of a body that gather, and the memory that they hold.
#[derive(Debug, Default)]
pub struct GatheredBody {
    bytes: Vec<u8>,
    permit: Option<MemoryPermit>,
}

impl GatheredBody {
    /// Returns how many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes memory for `len` bytes more, of at most `len_max` in the end; waits for room.
    pub async fn grow(
        &mut self,
        len: usize,
        len_max: usize,
        room: &BodyRoom<'_>,
    ) -> Result<(), BodyError> {
        let needed = self.room_for(len, len_max);
        match self.permit(needed, room) {
            Some(permit) => permit
                .reserve(needed, room.patience)
                .await
                .map_err(BodyError::NoRoom),
            None => Ok(()),
        }
    }

    /// Adds bytes. Their memory was taken before.
    pub fn push(&mut self, piece: &[u8], len_max: usize) {
        let needed = self.room_for(piece.len(), len_max);
        self.bytes.reserve_exact(needed - self.bytes.len());
        self.bytes.extend_from_slice(piece);
    }

    /// Takes the bytes out, with their memory.
    pub fn take(&mut self) -> (Bytes, Option<MemoryPermit>) {
        let Self {
            mut bytes,
            mut permit,
        } = std::mem::take(self);
        bytes.shrink_to_fit();
        if let Some(permit) = &mut permit {
            permit.resize(bytes.len());
        }
        (bytes.into(), permit)
    }

    /// Returns the memory that was taken for bytes that were not added.
    pub(super) fn into_permit(self) -> Option<MemoryPermit> {
        self.permit
    }

    /// Returns the memory of the bytes.
    pub const fn held(&self) -> Option<&MemoryPermit> {
        self.permit.as_ref()
    }

    /// Returns the capacity for `len` bytes more: up to twice the present one, so that a long body is not copied for
    /// each piece.
    fn room_for(&self, len: usize, len_max: usize) -> usize {
        let whole = self.bytes.len() + len;
        if whole <= self.bytes.capacity() {
            return self.bytes.capacity();
        }
        whole.max((2 * self.bytes.capacity()).min(len_max))
    }

    fn permit(&mut self, needed: usize, room: &BodyRoom<'_>) -> Option<&mut MemoryPermit> {
        if needed > FREE_LEN && self.permit.is_none() {
            self.permit = Some(room.memory.permit(room.caller));
        }
        self.permit.as_mut()
    }
}

/// The speed of a body. Only the time counts that its reader waits for the client.
#[derive(Debug)]
pub struct BodyPace {
    timeout: Duration,
    /// Whether a new timeout begins when enough bytes have come in the last one.
    is_streamed: bool,
    /// Time waited in the current timeout.
    waited: Duration,
    /// Bytes that have come in the current timeout.
    come: u64,
    /// How long the body may still pause while others want its memory.
    pause_left: Duration,
}

impl BodyPace {
    /// Begins with a body that has to come within a time.
    pub const fn whole(timeout: Duration) -> Self {
        Self {
            timeout,
            is_streamed: false,
            waited: Duration::ZERO,
            come: 0,
            pause_left: CROWDED_PAUSE_MAX,
        }
    }

    /// Begins with a body that has to come at [`crate::bounds::RATE_MIN`], within each `timeout`.
    pub const fn streamed(timeout: Duration) -> Self {
        Self {
            is_streamed: true,
            ..Self::whole(timeout)
        }
    }

    /// Waits for the next bytes of a body; `None` at its end. `held` is the memory of the bytes before.
    pub async fn next<B: ArrivingBody>(
        &mut self,
        body: &mut B,
        held: Option<&MemoryPermit>,
        room: &BodyRoom<'_>,
    ) -> Result<Option<Bytes>, BodyError> {
        if let Some(ready) = next_piece(body).now_or_never() {
            return self.came(ready?);
        }
        loop {
            // A body that is too slow for a crowd looks for a crowd again and again.
            let is_slow = self.pause_left.is_zero();
            if is_slow && let Some(full) = room.wanted(held) {
                return Err(BodyError::GaveWay(full));
            }
            let look = if is_slow {
                CROWDED_PAUSE_MAX
            } else {
                self.pause_left
            };
            let wanted = async {
                match held {
                    Some(held) if is_slow => held.until_wanted().await,
                    _ => std::future::pending().await,
                }
            };
            let began = Instant::now();
            let wait = look.min(self.timeout.saturating_sub(self.waited));
            let next = tokio::select! {
                biased;
                next = timeout(wait, next_piece(body)) => next.ok(),
                () = wanted => None,
            };
            let pause = began.elapsed();
            self.waited += pause;
            self.pause_left = self.pause_left.saturating_sub(pause);
            match next {
                Some(piece) => return self.came(piece?),
                None if self.waited >= self.timeout => self.end_timeout()?,
                None => {}
            }
        }
    }

    fn came(&mut self, piece: Option<Bytes>) -> Result<Option<Bytes>, BodyError> {
        let len = piece.as_ref().map_or(0, |piece| piece.len() as u64);
        self.come += len;
        let earned = Duration::from_micros(len * 1_000_000 / CROWDED_RATE_MIN);
        self.pause_left = (self.pause_left + earned).min(CROWDED_PAUSE_MAX);
        if piece.is_some() && self.waited >= self.timeout {
            self.end_timeout()?;
        }
        Ok(piece)
    }

    /// Ends a timeout: another one begins for a streamed body if enough has come.
    fn end_timeout(&mut self) -> Result<(), BodyError> {
        if !self.is_streamed || self.come < bytes_min(self.timeout) {
            return Err(BodyError::TimedOut {
                timeout: self.timeout,
            });
        }
        (self.waited, self.come) = (Duration::ZERO, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use futures_util::stream;
    use http_body::{Body, Frame};
    use http_body_util::StreamBody;

    use super::*;
    use crate::body::{BodyLimits, NoRequests, read_bounded};
    use crate::bounds::BODY_PARTS;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const BUDGET: usize = 1 << 20;

    /// Lets simulated time pass.
    async fn pass(time: Duration) {
        let never = std::future::pending::<()>();
        assert!(timeout(time, never).await.is_err());
    }

    /// A body of so many pieces, one after each pause.
    fn paced(
        pieces: usize,
        len: usize,
        pause: Duration,
    ) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        Box::pin(StreamBody::new(stream::unfold(0, move |at| async move {
            pass(pause).await;
            let frame = Frame::data(Bytes::from(vec![b'x'; len]));
            (at < pieces).then_some((Ok(frame), at + 1))
        })))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn room(memory: &CallerMemory, caller: u64) -> BodyRoom<'_> {
        BodyRoom {
            memory,
            caller,
            patience: Duration::ZERO,
            requests: &NoRequests,
        }
    }

    async fn streamed(pieces: usize, len: usize, pause: Duration) -> Result<usize, BodyError> {
        let (mut body, mut pace) = (paced(pieces, len, pause), BodyPace::streamed(TIMEOUT));
        let (memory, mut read) = (CallerMemory::new(BUDGET, BODY_PARTS), 0);
        while let Some(piece) = pace.next(&mut body, None, &room(&memory, 1)).await? {
            read += piece.len();
        }
        Ok(read)
    }

    #[tokio::test(start_paused = true)]
    async fn a_streamed_body_has_a_least_rate_and_no_end() {
        let late = Err(BodyError::TimedOut { timeout: TIMEOUT });
        assert_eq!(streamed(600, 1 << 10, seconds(1)).await, Ok(600 << 10));
        assert_eq!(streamed(20, 30 << 10, seconds(29)).await, Ok(600 << 10));
        assert_eq!(streamed(600, 1_000, seconds(1)).await, late);
        assert_eq!(streamed(600, 1, seconds(5)).await, late);
        assert_eq!(streamed(600, 1 << 20, seconds(31)).await, late);
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_body_has_one_time_however_it_comes() {
        let memory = CallerMemory::new(BUDGET, BODY_PARTS);
        for (pause, is_late) in [(2, false), (4, true)] {
            let limits = BodyLimits {
                len_max: 100_000,
                timeout: TIMEOUT,
            };
            let mut body = paced(10, 10_000, seconds(pause));
            let read = read_bounded(&mut body, limits, &room(&memory, 1)).await;
            assert_eq!(read.is_err(), is_late, "{pause}");
            drop(read);
            assert_eq!(memory.held_bytes(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_taken_as_a_body_comes_and_given_up_where_it_is_wanted_and_slow() {
        let memory = Arc::new(CallerMemory::new(BUDGET, BODY_PARTS));
        let read = |pieces, len, pause| {
            let memory = Arc::clone(&memory);
            tokio::spawn(async move {
                let limits = BodyLimits {
                    len_max: 16 << 20,
                    timeout: TIMEOUT,
                };
                let mut body = paced(pieces, len, pause);
                let read = read_bounded(&mut body, limits, &room(&memory, 1)).await;
                read.map(|(bytes, _)| bytes.len())
            })
        };
        let slow: Vec<_> = (0..8).map(|_| read(6, 10_000, seconds(4))).collect();
        let quick = read(500, 400, Duration::from_millis(2));
        assert_eq!(quick.await.unwrap(), Ok(200_000));
        assert_eq!(memory.held_bytes(), 0, "nothing has come of the slow ones");
        pass(seconds(12)).await;
        let held = memory.held_bytes();
        assert!((8 * 30_000..=BUDGET / 2).contains(&held), "{held}");
        assert!(
            slow.iter().all(|slow| !slow.is_finished()),
            "nobody wants it"
        );
        let mut wanting = memory.permit(2);
        assert!(wanting.reserve(BUDGET / 2, seconds(1)).await.is_ok());
        for slow in slow {
            assert_eq!(slow.await.unwrap(), Err(BodyError::GaveWay(Full::Server)));
        }
        drop(wanting);
        assert_eq!(memory.held_bytes(), 0);
    }
}
