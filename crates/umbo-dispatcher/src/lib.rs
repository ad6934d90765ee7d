//! The life of a request of the data plane, from its head to its answer.
//!
//! Owns what happens to a request between wire and store. Deliberately knows no storage engine (a `Store` is
//! handed in), no socket (`umbo-edge`), no header field (`umbo-http`) and no route of operators
//! (`umbo-admin`). Start reading at `request`, which is the life of a request from top to bottom.

mod answer_room;
mod charge;
mod deadline_budget;
mod dispatcher;
pub mod hot_keys;
mod long_reads;
mod operation;
pub mod overload;
mod page;
pub mod phase;
mod reply;
pub mod request;
mod request_log;
mod store_call;
mod until;

pub use dispatcher::{Dispatcher, DispatcherLimits, Parts};
pub use long_reads::LongReads;
pub use reply::RoutedRequest;
