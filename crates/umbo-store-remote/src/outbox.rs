//! What is to be sent on a connection, and who waits for what: the state under its lock.
//!
//! A request is encoded into the frame that is being filled; one that is large is a frame of its
//! own. The invariant: frames go out in the order of their requests, so that a position says what
//! has been sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use umbo_protocol::{FRAME_LEN_TARGET, RequestFrame, RequestRef};

use crate::waiting::Waiting;

#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) waiting: Waiting,
    /// Frames that are full.
    pub(crate) full: VecDeque<Frame>,
    /// The frame that is being filled.
    filling: Frame,
    /// Bytes of all of them.
    pub(crate) len: usize,
    /// Requests queued so far, and of those how many have been given to the stream.
    queued: u64,
    pub(crate) sent: u64,
    /// Bytes given to the stream since the node was last heard.
    pub(crate) sent_unheard: usize,
    /// The sending side, when it has nothing to send.
    pub(crate) sender: Option<Waker>,
    pub(crate) phase: Phase,
}

#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) bytes: BytesMut,
    pub(crate) requests: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Takes requests.
    Open,
    /// Takes none; what is queued goes out, what was asked is answered.
    Draining,
    /// Nothing comes any more.
    Ended(Ending),
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) reason: Arc<str>,
    /// Whether this side ended it, because nothing useful came any more.
    pub(crate) is_given_up: bool,
}

impl Outbox {
    /// Makes an outbox whose first frame is this one.
    pub(crate) fn new(first: &[u8], in_flight_max: usize) -> Self {
        let first = Frame {
            bytes: BytesMut::from(first),
            requests: 0,
        };
        Self {
            waiting: Waiting::new(in_flight_max),
            len: first.bytes.len(),
            full: VecDeque::from([first]),
            filling: Frame::default(),
            queued: 0,
            sent: 0,
            sent_unheard: 0,
            sender: None,
            phase: Phase::Open,
        }
    }

    /// Says whether there is nothing but a frame that still has room.
    pub(crate) fn has_room(&self) -> bool {
        self.full.is_empty() && self.filling.requests > 0
    }

    /// Ends everything: who waits is told, and nothing goes out any more.
    pub(crate) fn end(&mut self, ending: Ending, wakers: &mut Vec<Waker>) {
        self.phase = Phase::Ended(ending);
        self.waiting.lose(self.sent, wakers);
        self.full.clear();
        self.filling = Frame::default();
        self.len = 0;
        wakers.extend(self.sender.take());
    }

    /// Adds a request to the frame that is being filled.
    pub(crate) fn push(&mut self, request: &RequestRef<'_>) {
        let id = request.id;
        let before = self.filling.bytes.len();
        RequestFrame::push(&mut self.filling.bytes, request);
        self.len += self.filling.bytes.len() - before;
        self.note(id);
        self.filling.requests += 1;
        if self.filling.bytes.len() >= FRAME_LEN_TARGET {
            self.fill_next();
        }
    }

    /// Adds a request that is a frame of its own.
    pub(crate) fn push_alone(&mut self, bytes: BytesMut, id: u64) {
        self.fill_next();
        self.len += bytes.len();
        self.note(id);
        self.full.push_back(Frame { bytes, requests: 1 });
    }

    fn note(&mut self, id: u64) {
        self.queued += 1;
        self.waiting.queued(id, self.queued);
    }

    fn fill_next(&mut self) {
        if self.filling.requests > 0 {
            let full = std::mem::take(&mut self.filling);
            self.full.push_back(full);
        }
    }

    /// Takes the next frame, full or not.
    pub(crate) fn take(&mut self) -> Option<(Bytes, u64)> {
        let frame = match self.full.pop_front() {
            Some(full) => full,
            None if self.filling.requests > 0 => Frame {
                bytes: self.filling.bytes.split(),
                requests: std::mem::take(&mut self.filling.requests),
            },
            None => return None,
        };
        self.len -= frame.bytes.len();
        self.sent += frame.requests;
        self.sent_unheard += frame.bytes.len();
        Some((frame.bytes.freeze(), frame.requests))
    }
}
