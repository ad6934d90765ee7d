//! Bulk uploads: requests about loads and versions, and the runner that applies loads.
//!
//! Owns the routes `loads` and `versions` of a namespace (`wire`), the service of each of their requests (`request`),
//! and the application of loads (`runner`). Stands above the dispatcher and works through its phases, queues and quotas
//! (`umbo_dispatcher::plane`). Deliberately knows no engine. `umbo-loads` owns the states of loads and the layout of
//! their rows. Start reading at [`Bulk`].

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
