//! The phases of a request between its head and its answer, in their order.
//!
//! Each stage is made of the one before, so that a phase cannot be left out: `Identified`, `Admitted`,
//! `Located`.

pub(crate) mod admit;
pub(crate) mod fetch;
pub mod identify;
pub(crate) mod leader_bound;
pub(crate) mod listed;
pub(crate) mod locate;
pub(crate) mod queue;
mod reach;
pub(crate) mod read_through;
pub(crate) mod shares;
pub(crate) mod write_through;
