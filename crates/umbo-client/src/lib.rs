//! The Rust client of Umbo.
//!
//! Owns typed calls over HTTP, the repetition of what is safe to repeat, and streams that follow
//! cursors and know whether they reached their end. Deliberately uses no server crate and keeps no
//! state between calls but its pool of connections.
//!
//! The invariant: a call that returns `Ok` was answered in full. A stream cut short, an answer
//! that cannot be read and a row that is missing are errors, never a shorter result.
//!
//! Start with [`Client`] and [`Options`].

mod admin;
mod batch;
mod block;
mod client;
mod error;
mod kv;
mod page;
mod range;
mod retry;
mod scan;
mod tls;

pub use batch::{BatchOptions, BatchResult};
pub use client::{Client, Options};
pub use error::Error;
pub use kv::{Condition, PutOptions, StoredValue, Written};
pub use page::RowReader;
pub use range::{DeleteSelection, RangeOptions};
pub use retry::{Repeat, RetryPolicy};
pub use scan::ScanOptions;
