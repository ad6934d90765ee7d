//! The open connections of a node: counted, and ended when their dispatcher has made a new one.
//!
//! The invariant: a connection is welcomed only after every older one of the same incarnation has withdrawn
//! its requests that were not begun, so that nothing of an older connection is begun after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::connection_signals::ConnectionSignals;

/// The open connections, by number. Bounded by the limit on connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<OpenTable>,
}

#[derive(Debug, Default)]
struct OpenTable {
    next: u64,
    by_number: HashMap<u64, ConnectionEntry>,
}

#[derive(Debug)]
struct ConnectionEntry {
    signals: Arc<ConnectionSignals>,
    /// Incarnation of the dispatcher, after its hello.
    incarnation: Option<u64>,
    ended: CancellationToken,
}

/// The entry of an open connection. Dropping it signals that the connection has ended, so it must be dropped
/// last.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    connections: Arc<Connections>,
    number: u64,
    signals: Arc<ConnectionSignals>,
}

impl Connections {
    /// Adds a connection.
    pub(crate) fn enter(self: &Arc<Self>) -> OpenConnection {
        let signals = Arc::new(ConnectionSignals::default());
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        let entry = ConnectionEntry {
            signals: Arc::clone(&signals),
            incarnation: None,
            ended: CancellationToken::new(),
        };
        open.by_number.insert(number, entry);
        OpenConnection {
            connections: Arc::clone(self),
            number,
            signals,
        }
    }

    /// Returns the number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_number.len()
    }

    fn lock(&self) -> MutexGuard<'_, OpenTable> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    /// Returns the signals to the connection.
    pub(crate) fn signals(&self) -> &Arc<ConnectionSignals> {
        &self.signals
    }

    /// Sets the incarnation of the dispatcher, ends every older connection of it, and waits until they have
    /// ended.
    pub(crate) async fn supersede(&self, incarnation: u64) {
        let older = self.mark_older(incarnation);
        for ended in older {
            ended.cancelled().await;
        }
    }

    fn mark_older(&self, incarnation: u64) -> Vec<CancellationToken> {
        let mut open = self.connections.lock();
        let mut ended = Vec::new();
        for (&number, entry) in &open.by_number {
            if number < self.number && entry.incarnation == Some(incarnation) {
                entry.signals.supersede();
                ended.push(entry.ended.clone());
            }
        }
        if let Some(own) = open.by_number.get_mut(&self.number) {
            own.incarnation = Some(incarnation);
        }
        ended
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let entry = self.connections.lock().by_number.remove(&self.number);
        if let Some(entry) = entry {
            entry.ended.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_connection_waits_for_every_older_one_of_its_dispatcher() {
        let connections = Arc::new(Connections::default());
        let first = connections.enter();
        assert_eq!(first.supersede(7).now_or_never(), Some(()));
        let other = connections.enter();
        assert_eq!(other.supersede(8).now_or_never(), Some(()));
        let second = connections.enter();
        let mut welcome_second = Box::pin(second.supersede(7));
        assert!(welcome_second.as_mut().now_or_never().is_none());
        assert!(first.signals().is_superseded() && !other.signals().is_superseded());
        let third = connections.enter();
        let mut welcome_third = Box::pin(third.supersede(7));
        assert!(welcome_third.as_mut().now_or_never().is_none());
        assert!(second.signals().is_superseded());
        drop(welcome_second);
        drop(second);
        assert!(
            welcome_third.as_mut().now_or_never().is_none(),
            "the first is still there"
        );
        drop(first);
        assert_eq!(welcome_third.as_mut().now_or_never(), Some(()));
        assert_eq!(connections.len(), 2);
    }
}
