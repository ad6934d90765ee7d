//! Signals to the task of a connection from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

/// Signals to a connection from outside.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSignals {
    waker: AtomicWaker,
    is_superseded: AtomicBool,
}

impl ConnectionSignals {
    /// Registers the waker of the connection's task for later signals.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Returns whether the dispatcher has replaced this connection by a new one.
    pub(crate) fn is_superseded(&self) -> bool {
        self.is_superseded.load(Ordering::Acquire)
    }

    /// Ends the connection: its dispatcher has a new one.
    pub(crate) fn supersede(&self) {
        self.is_superseded.store(true, Ordering::Release);
        self.waker.wake();
    }
}
