//! The remote store against a node that the test simulates, over a connection in memory: what is sent, when
//! and in which order, and how failures of the node or the connection are handled.

mod greetings;
mod large;
mod losses;
mod order;
mod peer;
mod records;
#[path = "../support/rows.rs"]
mod rows;
mod strangers;
