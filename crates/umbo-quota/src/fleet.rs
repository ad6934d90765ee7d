//! Quotas of scope `fleet`: a counter counts once, however many dispatchers there are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::limiter::Limiter;

/// How often [`FleetQuota::tick`] is due.
pub const FLEET_TICK: Duration = Duration::from_millis(20);
/// Most owners, so that messages grow with the dispatchers and not with their square.
pub const OWNERS_MAX: usize = 8;

/// The row that says which dispatchers own counters. It is changed by compare-and-set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRow {
    /// Grows with each change.
    pub revision: u64,
    /// Presence ids of the owners, at most [`OWNERS_MAX`].
    pub owners: Vec<u64>,
}

/// A message to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMessage {
    /// Presence id of the owner.
    pub to: u64,
    /// The message.
    pub body: Vec<u8>,
}

/// A message that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message of quotas cannot be read")]
pub struct FleetMessageError;

/// A wish of a dispatcher for the ownership row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowWish {
    /// The row that is known will do.
    Nothing,
    /// The row has to be read.
    Read,
    /// This row should replace the row that is known.
    Change(OwnerRow),
}

/// The quotas of scope `fleet` at one dispatcher.
#[derive(Debug)]
pub struct FleetQuota {
    limiter: Arc<Limiter>,
    id: u64,
}

impl FleetQuota {
    /// Joins the counters of a limiter to those of the other dispatchers.
    pub fn new(limiter: Arc<Limiter>, id: u64, _secret: &[u8; 32], _now: Instant) -> Self {
        Self { limiter, id }
    }

    /// Returns the messages that are due.
    pub fn tick(&self, _now: Instant) -> Vec<FleetMessage> {
        let _ = (&self.limiter, self.id);
        Vec::new()
    }

    /// Takes the answer of an owner.
    pub fn answered(&self, _owner: u64, _body: &[u8], _now: Instant) {}

    /// Takes a message of another dispatcher, and returns the answer.
    pub fn hear(&self, _body: &[u8], _now: Instant) -> Result<Vec<u8>, FleetMessageError> {
        Err(FleetMessageError)
    }

    /// Takes the ownership row as it was read or written; an absent one is the default.
    pub fn set_row(&self, _row: &OwnerRow, _now: Instant) {}

    /// Takes the ids of all dispatchers, this one included.
    pub fn set_members(&self, _ids: &[u64], _now: Instant) {}

    /// Returns the wish for the ownership row.
    pub fn row_wish(&self, _now: Instant) -> RowWish {
        RowWish::Nothing
    }

    /// Returns the row without this dispatcher, if it is an owner.
    pub fn leaving(&self, _now: Instant) -> Option<OwnerRow> {
        None
    }
}
