//! Requests of one connection that wait for their answers, in slots that are used again.
//!
//! A request is found by its id, which holds the number of its slot; an id is never used twice, so
//! an answer that comes after its request was given up finds nobody. Knows nothing of sockets.

use std::task::Waker;
use std::time::Instant;

use umbo_protocol::{Answer, Outcome};

/// Bits of an id that are the number of the slot. Ids below `1 << SLOT_BITS` are never given.
const SLOT_BITS: u32 = 16;
/// Most requests that can wait at once.
pub(crate) const WAITING_MAX: usize = 1 << SLOT_BITS;

/// Id of a slot that nobody holds.
const NO_ID: u64 = 0;

/// What a request does, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads so little that it may be sent a second time when it is slow.
    SmallRead,
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// What has become of a request that is asked for.
#[derive(Debug)]
pub(crate) enum Event {
    /// It was answered.
    Answered(Answer),
    /// Its connection ended; whether it had been sent by then.
    Lost { was_sent: bool },
    /// It takes longer than most do. Told once.
    Slow,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting,
    /// Parts of its answer have come.
    Begun(Answer),
    Answered(Answer),
    Lost {
        was_sent: bool,
    },
    /// A write that nobody waits for.
    Left,
}

#[derive(Debug)]
struct Slot {
    id: u64,
    kind: Kind,
    state: State,
    /// When it is given out among the requests of the connection; `u64::MAX` until it is queued.
    position: u64,
    asked_at: Instant,
    is_slow: Slowness,
    /// Rows that a multi-get may be answered with.
    rows_max: usize,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slowness {
    No,
    ToBeTold,
    Told,
}

/// An answer for which the sum of parts is more than was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMuch;

#[derive(Debug)]
pub(crate) struct Waiting {
    slots: Vec<Slot>,
    free: Vec<u32>,
    max: usize,
    given: u64,
}

impl Waiting {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            max: max.min(WAITING_MAX),
            given: 0,
        }
    }

    /// Returns how many requests hold a slot.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives a request a slot and returns its id; none where all are taken.
    pub(crate) fn open(&mut self, kind: Kind, rows_max: usize, now: Instant) -> Option<u64> {
        self.given += 1;
        let slot = Slot {
            id: NO_ID,
            kind,
            state: State::Waiting,
            position: u64::MAX,
            asked_at: now,
            is_slow: Slowness::No,
            rows_max,
            waker: None,
        };
        let number = if let Some(number) = self.free.pop() {
            self.slots[number as usize] = slot;
            number
        } else {
            if self.slots.len() >= self.max {
                return None;
            }
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        let id = self.given << SLOT_BITS | u64::from(number);
        self.slots[number as usize].id = id;
        Some(id)
    }

    /// Notes that a request is queued as the one of this position.
    pub(crate) fn queued(&mut self, id: u64, position: u64) {
        if let Some(slot) = self.slot(id) {
            slot.position = position;
        }
    }

    /// Returns what has become of a request, or keeps the waker until something does.
    pub(crate) fn poll(&mut self, id: u64, waker: &Waker) -> Option<Event> {
        let slot = self.slot(id)?;
        if slot.is_slow == Slowness::ToBeTold && matches!(slot.state, State::Waiting) {
            slot.is_slow = Slowness::Told;
            return Some(Event::Slow);
        }
        if matches!(slot.state, State::Answered(_) | State::Lost { .. }) {
            return match self.release(id) {
                State::Answered(answer) => Some(Event::Answered(answer)),
                State::Lost { was_sent } => Some(Event::Lost { was_sent }),
                _ => None,
            };
        }
        match &mut slot.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        None
    }

    /// Forgets a request that nobody waits for; says whether the node is to be told.
    pub(crate) fn leave(&mut self, id: u64) -> bool {
        let Some(slot) = self.slot(id) else {
            return false;
        };
        let is_open = matches!(slot.state, State::Waiting | State::Begun(_));
        if is_open && slot.kind == Kind::Write {
            slot.state = State::Left;
            slot.waker = None;
            return false;
        }
        self.release(id);
        is_open
    }

    /// Keeps an answer, or a part of one, for its request. Returns who waits for it, and when a
    /// read that is complete was asked.
    pub(crate) fn answer(
        &mut self,
        answer: Answer,
    ) -> Result<(Option<Waker>, Option<Instant>), TooMuch> {
        let id = answer.id;
        let Some(slot) = self.slot(id) else {
            return Ok((None, None));
        };
        let has_more = answer.has_more;
        let whole = match std::mem::replace(&mut slot.state, State::Waiting) {
            State::Waiting => answer,
            State::Begun(begun) => joined(begun, answer)?,
            State::Left if has_more => {
                slot.state = State::Left;
                return Ok((None, None));
            }
            State::Left => {
                self.release(id);
                return Ok((None, None));
            }
            // Answered twice: the first counts.
            over @ (State::Free | State::Answered(_) | State::Lost { .. }) => {
                slot.state = over;
                return Ok((None, None));
            }
        };
        if matches!(&whole.outcome, Outcome::MultiGot(rows) if rows.len() > slot.rows_max) {
            return Err(TooMuch);
        }
        if has_more {
            slot.state = State::Begun(whole);
            return Ok((None, None));
        }
        slot.state = State::Answered(whole);
        let asked_at = (slot.kind == Kind::SmallRead).then_some(slot.asked_at);
        Ok((slot.waker.take(), asked_at))
    }

    /// Marks small reads that were asked before an instant as slow, and returns who waits.
    pub(crate) fn mark_slow(&mut self, asked_before: Instant, wakers: &mut Vec<Waker>) {
        for slot in &mut self.slots {
            if slot.kind == Kind::SmallRead
                && slot.is_slow == Slowness::No
                && matches!(slot.state, State::Waiting)
                && slot.asked_at < asked_before
            {
                slot.is_slow = Slowness::ToBeTold;
                wakers.extend(slot.waker.take());
            }
        }
    }

    /// Ends all: the connection is gone. Of the requests those up to position `sent` have left.
    pub(crate) fn lose(&mut self, sent: u64, wakers: &mut Vec<Waker>) {
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            match slot.state {
                State::Waiting | State::Begun(_) => {
                    let was_sent = slot.position <= sent;
                    slot.state = State::Lost { was_sent };
                    wakers.extend(slot.waker.take());
                }
                State::Left => {
                    let id = slot.id;
                    self.release(id);
                }
                State::Free | State::Answered(_) | State::Lost { .. } => {}
            }
        }
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let number = id as usize % WAITING_MAX;
        let slot = self.slots.get_mut(number)?;
        (slot.id == id && id != NO_ID).then_some(slot)
    }

    fn release(&mut self, id: u64) -> State {
        let number = (id % WAITING_MAX as u64) as u32;
        let slot = &mut self.slots[number as usize];
        slot.id = NO_ID;
        slot.waker = None;
        self.free.push(number);
        std::mem::replace(&mut slot.state, State::Free)
    }
}

/// Joins the next part of an answer to what has come of it. Only rows of a multi-get come in parts.
fn joined(mut begun: Answer, part: Answer) -> Result<Answer, TooMuch> {
    if let Outcome::Failed(_) = part.outcome {
        return Ok(part);
    }
    let (Outcome::MultiGot(rows), Outcome::MultiGot(more)) = (&mut begun.outcome, part.outcome)
    else {
        return Err(TooMuch);
    };
    rows.extend(more);
    begun.service_time = part.service_time;
    begun.rows += part.rows;
    begun.bytes += part.bytes;
    Ok(begun)
}

#[cfg(test)]
mod tests;
