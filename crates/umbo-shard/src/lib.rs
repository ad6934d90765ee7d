//! A shard node: the shard protocol in, a store out.
//!
//! Owns the sockets of a node, what it admits, which shards it answers for, and the order in which
//! it stops. Deliberately knows no engine and no HTTP contract of callers. The invariants: whatever
//! a peer sends or does not read, the node holds a bounded share of memory for it and the other
//! streams do not notice; a write that was begun is brought to its end.
//!
//! Start with [`Node`], then [`server::serve`]. A stream is an `exchange`: it reads frames
//! (`messages`), answers what the store knows at once in place, and leaves what has to wait to
//! `pending`.

pub mod admin;
mod admission;
mod exchange;
mod kind;
mod limits;
mod messages;
mod multi_get;
mod node;
mod outbox;
mod ownership;
mod pending;
pub mod quota;
mod reads;
mod refusals;
pub mod server;
mod status;
mod streams;
mod writes;

pub use limits::NodeLimits;
pub use node::{Node, NodeParts};
pub use ownership::NodeError;
