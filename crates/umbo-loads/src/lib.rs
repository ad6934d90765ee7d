//! Loads: datasets that are uploaded in parts and applied to a namespace by the servers.
//!
//! Owns the states of a load and the steps between them (`record`), where its parts, its progress and its rejects are
//! stored (`layout`), and the runner that applies a sealed load (`runner`). Deliberately knows no HTTP and no engine: a
//! [`LoadHost`] gives it the store, by way of the queues and quotas of its dispatcher, and Umbo's own records.
//!
//! A load has two namespaces of its own, which have ids and no name. The *content* holds the bytes of its parts and is
//! fenced when it ends, so that their space is reclaimed; the *report* holds its parts, progress and rejects, and is fenced when the
//! load is forgotten.

pub mod digest;
mod error;
mod host;
mod journal;
pub mod layout;
pub mod limits;
mod part_bytes;
mod places;
mod record;
mod rows;
mod runner;
mod sort_buffer;
mod stored_rows;

pub use error::LoadError;
pub use host::{HostError, LoadHost, RowCounts, WriteAnswers};
pub use layout::{PartProgress, PartRecord, RunRecord, UploadRecord};
pub use record::{CreationKey, LoadRecord, LoadStep, LoadTarget, new_id};
pub use rows::check_format;
pub use runner::LoadRunner;
pub use stored_rows::{RowSource, all_rows, kept_len, read_json, read_json_rows, read_piece};
