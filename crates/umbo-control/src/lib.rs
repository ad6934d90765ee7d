//! Umbo's own records: namespaces, tokens, quota policies, lists of hot keys and loads.
//!
//! Owns their storage, their changes, and how every dispatcher follows them. Deliberately knows no HTTP:
//! `umbo-http` decides how a [`ControlError`] is answered. Start reading at `records` (the set, its home,
//! its copies), then `follow` (how a revision takes effect), then `changes` (the changes by operators).

pub mod auth;
mod backup;
mod changes;
mod control_plane;
mod datasets;
mod error;
pub mod events;
mod first_records;
mod follow;
mod followed_records;
mod home_clock;
pub mod hot_lists;
mod load_changes;
pub mod loads;
mod namespace_entry;
pub mod namespaces;
pub mod policies;
pub mod policy_file;
mod promote;
mod records;
mod removal;
mod tokens;
mod versions;

pub use backup::restored_records;
pub use control_plane::{ControlParts, ControlPlane};
pub use datasets::VersionError;
pub use error::ControlError;
pub use followed_records::RecordsReport;
pub use namespace_entry::NamespaceEntry;
pub use namespaces::Namespaces;
pub use promote::promote;
pub use records::Unreadable;
