//! A value that tasks wait for. They go on in the order in which they began to wait, unlike the receivers of
//! Tokio's watch channel, whose order is random.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// The value.
#[derive(Debug, Default)]
pub struct WatchedValue<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> WatchedValue<T> {
    /// Sets the value.
    pub fn set(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        self.changed.notify_waiters();
    }

    /// Returns the value.
    pub fn get(&self) -> T {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a value that meets the condition.
    pub async fn wait_for(&self, is_met: impl Fn(T) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_met(self.get()) {
                return;
            }
            changed.await;
        }
    }
}
