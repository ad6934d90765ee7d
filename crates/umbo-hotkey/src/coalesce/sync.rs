//! The locks and atomics in which tasks meet. A test has a module of this name of its own.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
