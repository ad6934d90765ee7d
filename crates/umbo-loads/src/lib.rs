//! Loads: datasets that are uploaded in parts and applied to a namespace by the servers.
//!
//! Owns the states of a load and the steps between them (`record`), the storage of its parts, its progress and its
//! rejects (`layout`), and the digests of parts. Deliberately awaits nothing and reads no clock: `umbo-bulk` has the
//! requests about loads and the runner that applies them.
//!
//! Each load has two separate namespaces, which have ids and no name. The *content* holds the bytes of its parts. It is
//! fenced when the load ends or its version is ready, so that its space is reclaimed. The *report* holds its parts,
//! progress and rejects. It is fenced when the load is forgotten.

pub mod digest;
mod error;
pub mod layout;
pub mod limits;
mod record;

pub use error::LoadError;
pub use layout::{PartProgress, PartRecord, RunRecord, UploadRecord};
pub use record::{CreationKey, LoadRecord, LoadStep, LoadTarget, new_id, shortened};
