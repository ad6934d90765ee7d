//! Answers of servers, and the memory that they may hold.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most bytes of answers of other dispatchers that a process holds at once, together with its answers to their
/// questions. They count until the reply with them is written; while a reply is made, its answers exist up to three
/// times. The last answers of other dispatchers come on top.
pub(super) const ROOM_BYTES: usize = 64 << 20;

/// An answer: its status, and its body.
pub(super) type ServerAnswer = (u16, Bytes);

/// Memory for answers.
#[derive(Debug, Clone)]
pub(super) struct FleetRoom(Arc<Semaphore>);

impl FleetRoom {
    pub(super) fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// Takes room for an answer. The error is in words.
    pub(super) fn take(&self, len: usize) -> Result<OwnedSemaphorePermit, String> {
        let permits = u32::try_from(len).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.0).try_acquire_many_owned(permits);
        taken.map_err(|_| "the answers to the fleet's questions are too long now".to_owned())
    }
}

/// Bytes with a hold.
struct Held<H>(Bytes, H);

impl<H> AsRef<[u8]> for Held<H> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Ties a hold to bytes: it is dropped with the last part of them.
pub(super) fn held<H: Send + 'static>(bytes: Bytes, hold: H) -> Bytes {
    Bytes::from_owner(Held(bytes, hold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_held_until_the_last_byte_is_dropped() {
        let room = FleetRoom::of(3);
        let mut body = held(Bytes::from_static(b"abc"), room.take(3).unwrap());
        assert!(room.take(1).is_err());
        let rest = body.split_off(2);
        drop(body);
        assert!(room.take(1).is_err());
        drop(rest);
        assert!(room.take(3).is_ok());
        assert!(room.take(4).is_err());
    }
}
