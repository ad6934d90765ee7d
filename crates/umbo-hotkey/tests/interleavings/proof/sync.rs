//! The locks and atomics of the simulation: every use is a point at which another task may go on.

pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
