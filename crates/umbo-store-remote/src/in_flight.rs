//! Requests of one connection that wait for their answers, in a reusable table.
//!
//! A request is found by its id, which contains the index of its entry; an id is never used twice, so an
//! answer after the cancellation of its request is ignored. Does not use sockets.

use std::task::Waker;

use umbo_protocol::{Answer, NodeError, Outcome, Placed};

/// Bits of an id that are the index of the entry. Ids below `1 << SLOT_BITS` are never assigned.
const SLOT_BITS: u32 = 16;
/// Most requests that can wait at once.
pub(crate) const IN_FLIGHT_MAX: usize = 1 << SLOT_BITS;

/// Refusal of an answer with further parts to follow.
const IN_PARTS: &str = "it answers in parts, as nodes of an older release do: upgrade it";

/// Id of a free entry.
const NO_ID: u64 = 0;

/// Event of a request.
#[derive(Debug)]
pub(crate) enum ReplyEvent {
    /// The request was answered.
    Answered(Answer),
    /// The connection of the request ended; `was_sent` says whether the whole request had been sent by then.
    Lost { was_sent: bool },
}

#[derive(Debug)]
enum EntryState {
    Free,
    Waiting,
    Ended(ReplyEvent),
}

/// Progress of sending a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendProgress {
    NotQueued,
    Queued(Placed),
    /// All of a large request was handed to the socket.
    Sent,
}

#[derive(Debug)]
struct InFlightCall {
    id: u64,
    state: EntryState,
    way: SendProgress,
    waker: Option<Waker>,
}

#[derive(Debug)]
pub(crate) struct InFlight {
    slots: Vec<InFlightCall>,
    free: Vec<u32>,
    max: usize,
    given: u64,
}

impl InFlight {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            max: max.min(IN_FLIGHT_MAX),
            given: 0,
        }
    }

    /// Returns the number of pending requests.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a request and returns its id, or `None` if the table is full.
    pub(crate) fn open(&mut self) -> Option<u64> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.slots.len() < self.max => {
                self.slots.push(InFlightCall {
                    id: NO_ID,
                    state: EntryState::Free,
                    way: SendProgress::NotQueued,
                    waker: None,
                });
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        self.given += 1;
        let id = self.given << SLOT_BITS | u64::from(number);
        let slot = &mut self.slots[number as usize];
        slot.id = id;
        slot.state = EntryState::Waiting;
        slot.way = SendProgress::NotQueued;
        Some(id)
    }

    /// Records the place where a request was queued.
    pub(crate) fn queued(&mut self, id: u64, placed: Placed) {
        if let Some(slot) = self.slot(id) {
            slot.way = SendProgress::Queued(placed);
        }
    }

    /// Records that the last chunk of a large request was handed to the socket.
    pub(crate) fn sent(&mut self, id: u64) {
        if let Some(slot) = self.slot(id) {
            slot.way = SendProgress::Sent;
        }
    }

    /// Returns whether a request still waits for an answer.
    pub(crate) fn is_open(&mut self, id: u64) -> bool {
        self.slot(id)
            .is_some_and(|slot| matches!(slot.state, EntryState::Waiting))
    }

    /// Returns the event of a request, or keeps the waker until there is one.
    pub(crate) fn poll(&mut self, id: u64, waker: &Waker) -> Option<ReplyEvent> {
        let slot = self.slot(id)?;
        if matches!(slot.state, EntryState::Ended(_)) {
            return match self.release(id) {
                EntryState::Ended(event) => Some(event),
                EntryState::Free | EntryState::Waiting => None,
            };
        }
        match &mut slot.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        None
    }

    /// Forgets a request whose caller no longer waits. Returns the place of its queuing if it has no answer yet and so
    /// must be cancelled.
    pub(crate) fn cancel(&mut self, id: u64) -> Option<Placed> {
        let slot = self.slot(id)?;
        let is_open = matches!(slot.state, EntryState::Waiting);
        let placed = match slot.way {
            SendProgress::NotQueued => None,
            SendProgress::Queued(placed) => Some(placed),
            SendProgress::Sent => Some(Placed::Large),
        };
        self.release(id);
        placed.filter(|_| is_open)
    }

    /// Stores an answer for its request. Returns the waker of the request.
    pub(crate) fn answer(&mut self, mut answer: Answer) -> Option<Waker> {
        let slot = self.slot(answer.id)?;
        // Answered twice: the first answer counts.
        if !matches!(slot.state, EntryState::Waiting) {
            return None;
        }
        if answer.has_more {
            answer.outcome = Outcome::Failed(NodeError::BadRequest(IN_PARTS.to_owned()));
        }
        slot.state = EntryState::Ended(ReplyEvent::Answered(answer));
        slot.waker.take()
    }

    /// Ends all requests after the loss of the connection. `handed` small requests had been handed to the
    /// socket.
    pub(crate) fn lose(&mut self, handed: u64, wakers: &mut Vec<Waker>) {
        for slot in &mut self.slots {
            if matches!(slot.state, EntryState::Waiting) {
                let was_sent = match slot.way {
                    SendProgress::NotQueued | SendProgress::Queued(Placed::Large) => false,
                    SendProgress::Queued(Placed::Small(position)) => position <= handed,
                    SendProgress::Sent => true,
                };
                slot.state = EntryState::Ended(ReplyEvent::Lost { was_sent });
                wakers.extend(slot.waker.take());
            }
        }
    }

    fn slot(&mut self, id: u64) -> Option<&mut InFlightCall> {
        let number = id as usize % IN_FLIGHT_MAX;
        let slot = self.slots.get_mut(number)?;
        (slot.id == id && id != NO_ID).then_some(slot)
    }

    fn release(&mut self, id: u64) -> EntryState {
        let number = (id % IN_FLIGHT_MAX as u64) as u32;
        let slot = &mut self.slots[number as usize];
        slot.id = NO_ID;
        slot.waker = None;
        self.free.push(number);
        std::mem::replace(&mut slot.state, EntryState::Free)
    }
}

#[cfg(test)]
mod tests;
