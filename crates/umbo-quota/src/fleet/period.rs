//! The pace of the messages about counters.

/// Time between two messages to an owner, in milliseconds.
pub(super) const PERIOD_MS: u64 = 100;
/// Periods without an answer after which an owner is silent, and without a report after which a dispatcher is.
pub(super) const SILENT_PERIODS: u64 = 5;
/// Periods without a request after which a dispatcher reports a counter no longer, and its share goes to the others: two
/// seconds, so that a client with a burst a second keeps its share.
pub(super) const IDLE_PERIODS: u64 = 20;
