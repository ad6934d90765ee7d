//! The queue of a shard: which request gets a permit, which waits, which is shed.
//!
//! Owns the limit of requests in flight ([`limit`], how it begins, and what it is compared with), the requests
//! that wait ([`tiers`]), when a tier is overloaded ([`codel`]), what is kept for the lower tiers
//! ([`floor`]), which requests are shed because the runtime is late ([`late_runtime`]), and the queue that puts them
//! together ([`queue`]). Each shard has a queue of its own, and queues share nothing: a shard that
//! stalls uses up its own permits and its own queue.
//!
//! Deliberately wakes no task itself: a queue is generic over what wakes a waiting request, and hands it
//! back with an admission once its lock is released.

pub(crate) mod admission;
pub(crate) mod admission_queue;
pub(crate) mod codel;
pub(crate) mod floor;
pub(crate) mod late_runtime;
pub(crate) mod limit;
pub(crate) mod queue_state;
pub(crate) mod settings;
pub(crate) mod slab;
pub(crate) mod status;
pub(crate) mod tier_queues;
pub(crate) mod window;

/// Values of each tier, lowest first.
pub(crate) type PerTier<T> = [T; tier_queues::TIERS];
