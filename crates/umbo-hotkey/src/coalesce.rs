//! One read for many readers, and a local cache that no write can leave stale.
//!
//! Owns the parts of this crate that tasks share: generations, in-flight reads and the local cache. Does not decide
//! which keys are hot. Its locks and atomics come from one module, `sync`, so that a test compiles these files against
//! simulated ones and walks through the interleavings (`tests/interleavings`).

pub(crate) mod fetched;
pub(crate) mod generation;
pub(crate) mod in_flight;
pub(crate) mod local_cache;
pub(crate) mod shared_reads;
pub(crate) mod single_flight;
mod sync;

use crate::key;
