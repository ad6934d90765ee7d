//! Umbo's own records: namespaces, tokens, quota policies and lists of hot keys.
//!
//! Owns where they are kept, how every dispatcher follows them, and how they are changed. Deliberately
//! knows no HTTP: what a client is told of a [`ControlError`] is decided in `umbo-http`. Start reading at
//! `records` (the set, its home, its copies), then `follow` (how a revision takes effect), then `changes`
//! (what operators change).

pub mod auth;
mod changes;
mod control_plane;
mod error;
mod first_records;
mod follow;
mod followed_records;
pub mod hot_lists;
pub mod namespaces;
pub mod policies;
mod promote;
pub mod quota_spec;
mod records;
mod removal;
mod tokens;

pub use control_plane::{ControlParts, ControlPlane};
pub use error::ControlError;
pub use followed_records::RecordsReport;
pub use namespaces::{NamespaceEntry, Namespaces};
pub use promote::promote;
pub use records::Unreadable;
