//! The open streams of a node, so that each can be told that the node stops.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::task::AtomicWaker;

/// The streams, by a number of their own.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    wakers: HashMap<u64, Arc<AtomicWaker>>,
}

impl Streams {
    /// Counts a stream that is woken by `waker`; returns its number.
    pub(crate) fn enter(&self, waker: Arc<AtomicWaker>) -> u64 {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.next;
        open.next += 1;
        open.wakers.insert(number, waker);
        number
    }

    pub(crate) fn leave(&self, number: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.wakers.remove(&number);
    }

    pub(crate) fn wake_all(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.wakers.values().for_each(|waker| waker.wake());
    }

    pub(crate) fn open(&self) -> usize {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.wakers.len()
    }
}
