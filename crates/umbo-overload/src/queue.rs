//! The queue of a shard: which request gets a permit, which waits, which is shed.
//!
//! Owns the limit of requests in flight ([`limit`]), the waiting requests ([`tier_queues`]), the decision that a tier
//! is overloaded ([`codel`]), the share kept for lower tiers ([`floor`]), the requests that are shed because the
//! runtime is late ([`late_runtime`]), and the queue that puts them together ([`admission_queue`]). Each shard has a
//! separate queue, and queues share nothing: a shard that stalls uses up its own permits and its own queue.
//!
//! Deliberately wakes no task itself: a queue is generic over the type that wakes a waiting request, and hands it back
//! with an admission once its lock is released.

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
