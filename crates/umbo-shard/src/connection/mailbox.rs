//! The address of the dispatcher of a connection.

use std::sync::Arc;

use crate::connection_signals::ConnectionSignals;
use crate::connections::OpenConnection;

/// The address of a connection's dispatcher.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) incarnation: u64,
    pub(super) connection: u64,
    pub(super) signals: Arc<ConnectionSignals>,
}

impl Mailbox {
    pub(super) fn new(incarnation: u64, place: &OpenConnection) -> Self {
        Self {
            incarnation,
            connection: place.number(),
            signals: Arc::clone(place.signals()),
        }
    }
}
