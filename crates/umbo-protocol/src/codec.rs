//! The one codec: from domain types to bytes and back.

pub(crate) mod answers;
mod chunks;
mod errors;
pub(crate) mod field;
pub(crate) mod greetings;
mod idempotency;
mod mutations;
mod records;
pub(crate) mod requests;
mod results;
mod rows;
mod sort_range;
mod statuses;
