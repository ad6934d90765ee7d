//! The store contract: the promises of every storage engine of Umbo.
//!
//! Owns the [`Store`] trait with its requests, answers and error, and the further promises that an engine declares
//! ([`Capabilities`]). For tests (feature `testing`) it has the in-memory reference, the contract suite that every
//! engine must pass, and [`WrappedStore`], which stands between a store and its user. Deliberately does not depend on
//! HTTP or on any engine. Start with [`Store`].

mod backup;
#[cfg(feature = "testing")]
mod by_key;
mod call;
mod capabilities;
mod commit_view;
#[cfg(feature = "testing")]
mod compressed_store;
pub mod compression;
mod dataset_group;
mod dataset_groups;
mod decision;
mod error;
mod fencing_tokens;
mod give_way;
mod id_range;
mod idempotency;
mod idempotency_record;
mod increment;
mod large;
#[cfg(feature = "testing")]
mod manual_clock;
#[cfg(feature = "testing")]
mod memory;
mod records;
mod report;
mod request;
mod row_batch;
mod row_collector;
mod row_sink;
mod store;
#[cfg(feature = "testing")]
pub mod suite;
#[cfg(feature = "testing")]
mod wrapped;

pub use backup::{BACKUP_IDLE, BackupRequest};
#[cfg(feature = "testing")]
pub use by_key::ByKey;
pub use call::{CallContext, CommitTime};
pub use capabilities::{Capabilities, VersionOrder};
pub use commit_view::{CommitView, StoredRow};
#[cfg(feature = "testing")]
pub use compressed_store::CompressedStore;
pub use dataset_group::DatasetGroup;
pub use dataset_groups::DatasetGroups;
pub use decision::decide;
pub use error::{Outcome, StoreError, WriteError};
pub use fencing_tokens::{FencingToken, FencingTokens};
pub use give_way::{GIVES_WAY_EVERY, give_way};
pub use id_range::IdRange;
pub use idempotency::{DIGEST_LEN, Idempotency};
pub use idempotency_record::IdempotencyRecord;
pub use increment::{CounterRow, NUMBER_TYPE, increment, number_of};
pub use large::{ChunkRequest, READ_GRACE, UPLOAD_IDLE, UploadState, UploadStep};
#[cfg(feature = "testing")]
pub use manual_clock::ManualClock;
#[cfg(feature = "testing")]
pub use memory::MemoryStore;
pub use records::{RecordsCopy, RecordsKeeper, RecordsRevision, home_partition, place_datasets};
pub use report::{
    DiskSpace, NamespaceSize, NodeStatus, RemoteStats, ShardState, ShardStatus, StoreReport,
};
pub use request::{
    Atomicity, Change, Condition, DeleteRangeRequest, Deleted, Durability, Mutation, Page,
    RangeRequest, RowStamp, ScanPage, ScanRequest, SortRange, Touched, WriteRequest, Written,
};
pub use row_batch::{RowBatch, RowRef};
pub use row_collector::RowCollector;
pub use row_sink::RowSink;
pub use store::Store;
#[cfg(feature = "testing")]
pub use wrapped::WrappedStore;
