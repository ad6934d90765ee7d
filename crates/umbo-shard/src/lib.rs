//! A shard node: serves a store over the protocol of shard nodes.
//!
//! Owns the port of a node and its connections, its admission, the set of shards that it serves, and the order of its
//! shutdown. Deliberately does not depend on an engine or on HTTP. The invariants: the node holds a bounded amount of
//! memory for each peer, and no peer affects other connections, even if it misbehaves or does not read. When a
//! connection ends, its requests that the store has not begun are withdrawn.
//!
//! Start with [`Node`], then [`server::serve`] or, without a socket, [`serve_connection`]. A connection is
//! one task, in `connection`: it reads frames, answers requests in place if the store answers at once, and
//! polls the pending ones.

pub mod admin;
mod admission;
mod connection;
mod connection_end;
mod connection_signals;
mod connections;
mod kind;
mod limits;
mod node;
mod observer;
mod ownership;
mod reads;
mod refusals;
pub mod server;
mod status;
mod writes;

pub use connection::serve_connection;
pub use connection_end::ConnectionEnd;
pub use limits::NodeLimits;
pub use node::{Node, NodeParts};
pub use observer::observe;
pub use ownership::OwnershipError;
