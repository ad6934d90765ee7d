//! Bulk uploads: requests about loads and versions, and the runner that applies sealed loads.
//!
//! Owns the routes `loads` and `versions` of a namespace (`wire`), how each of their requests is served (`request`), and how
//! a load is applied (`runner`). Stands above the dispatcher, whose phases, queues and quotas it works through
//! (`umbo_dispatcher::plane`), and deliberately knows no engine. States of loads and where their rows are stored are of
//! `umbo-loads`. Start reading at [`Bulk`].

mod bulk;
mod host_error;
pub mod limits;
mod request;
mod runner;
mod stored_rows;
mod waits;
mod wire;

pub use bulk::Bulk;
pub use wire::{BulkRoute, route};
