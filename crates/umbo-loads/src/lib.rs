//! Loads: datasets that are uploaded in parts and applied to a namespace by the servers.
//!
//! Owns the states of a load and the steps between them (`record`), where its parts, its progress and its rejects are
//! stored (`layout`), and the digests of parts. Deliberately awaits nothing and reads no clock: requests about loads and
//! the runner that applies them are of `umbo-bulk`.
//!
//! A load has two namespaces of its own, which have ids and no name. The *content* holds the bytes of its parts and is
//! fenced when it ends, so that their space is reclaimed; the *report* holds its parts, progress and rejects, and is fenced when the
//! load is forgotten.

pub mod digest;
mod error;
pub mod layout;
pub mod limits;
mod record;

pub use error::LoadError;
pub use layout::{PartProgress, PartRecord, RunRecord, UploadRecord};
pub use record::{CreationKey, LoadRecord, LoadStep, LoadTarget, new_id, shortened};
