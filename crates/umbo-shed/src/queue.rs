//! The queue of a shard: who gets one of its slots, who waits, who is shed.
//!
//! Owns the limit of requests in flight ([`limit`], how it begins, and what it is compared with), those
//! who wait ([`lanes`]), when a tier is overloaded ([`codel`]), what is kept for the lower tiers
//! ([`floor`]), who is turned away because the runtime is late ([`lag`]), and the gate that puts them
//! together ([`gate`]). Each shard has a gate of its own, and gates share nothing: a shard that
//! stalls fills its own slots and its own queue.
//!
//! Deliberately wakes nobody itself: a gate is generic over whatever wakes who waits, and hands it
//! back with a verdict once its lock is released.

pub(crate) mod codel;
pub(crate) mod floor;
pub(crate) mod gate;
pub(crate) mod lag;
pub(crate) mod lanes;
pub(crate) mod limit;
pub(crate) mod line;
pub(crate) mod slab;
mod start;
pub(crate) mod status;
mod unloaded;
mod usage;
pub(crate) mod verdict;
pub(crate) mod window;
