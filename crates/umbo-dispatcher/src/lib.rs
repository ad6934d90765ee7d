//! The life of a request of the data plane, from its head to its answer.
//!
//! Owns every step of a request between wire and store. Deliberately knows no storage engine (a `Store` is
//! handed in), no socket (`umbo-edge`), no header field (`umbo-http`) and no route of operators
//! (`umbo-admin`). Start reading at `request`, which is the life of a request from top to bottom.

mod answer_room;
pub mod bounds;
mod charge;
mod deadline_budget;
mod dispatcher;
pub mod hot_keys;
mod large_read;
mod long_poll;
mod low_priority;
mod operation;
pub mod overload;
mod own_rows;
mod page;
mod paid_write;
pub mod phase;
pub mod plane;
mod policy_record;
mod reply;
pub mod request;
mod request_log;
pub mod request_recorder;
pub mod running;
mod store_call;
mod until;

pub use dispatcher::{Dispatcher, DispatcherLimits, DispatcherParts, FleetQuotas};
pub use long_poll::LongPoll;
pub use low_priority::LowPriority;
pub use operation::usage::row as usage_row;
pub use reply::RoutedRequest;
/// What [`DispatcherParts::hot_keys`] is made of.
pub use umbo_hotkey::{KeySeed, ShieldSettings};
