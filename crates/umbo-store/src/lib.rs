//! The store contract: what every storage engine of Umbo promises.
//!
//! Owns the [`Store`] trait with its requests, answers and error, the in-memory reference, and (feature
//! `testing`) the contract suite that every engine must pass. Deliberately does not depend on HTTP or on any
//! engine. Start with [`Store`].

mod call;
mod error;
#[cfg(feature = "testing")]
mod manual_clock;
mod memory;
mod records;
mod request;
mod row_batch;
mod store;
#[cfg(feature = "testing")]
pub mod suite;

pub use call::CallContext;
pub use error::{Outcome, StoreError, WriteError};
#[cfg(feature = "testing")]
pub use manual_clock::ManualClock;
pub use memory::MemoryStore;
pub use records::{RecordsCopy, RecordsRevision};
pub use request::{
    Atomicity, Change, Condition, DeleteRangeRequest, Deleted, Durability, Mutation, Page,
    RangeRequest, ScanPage, ScanPosition, ScanRequest, SortRange, Touched, WriteRequest, Written,
};
pub use row_batch::{RowBatch, RowRef};
pub use store::{NamespaceSize, NodeStatus, RemoteStats, ShardState, ShardStatus, Store};
