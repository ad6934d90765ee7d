//! The locks and atomics that tasks share. A test has another module of this name.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
