//! One read for many readers, and a local cache that no write can leave stale.
//!
//! Owns everything of this crate in which tasks meet: generations, flights, the afterglow and the
//! local cache. Deliberately knows nothing of what is hot: it is told. Its locks and atomics come
//! from one module, `sync`, so that a test compiles these files against simulated ones and walks
//! through the interleavings (`tests/interleavings`).

pub(crate) mod afterglow;
pub(crate) mod board;
pub(crate) mod cache;
pub(crate) mod duty;
pub(crate) mod fill;
pub(crate) mod flight;
pub(crate) mod generation;
pub(crate) mod reads;
mod sync;

use crate::key;
