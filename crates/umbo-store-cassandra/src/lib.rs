//! The store contract on Apache Cassandra: for those who need more than one copy of each row.
//!
//! A shard is a range of hash slots without a node, and a bucket is a part of it: one Cassandra partition with the rows
//! of all datasets of a namespace. Every commit to a bucket is one conditional batch (a lightweight transaction) that
//! names the last one, so that all decisions are exact with any number of processes. Start with [`CassandraStore`].
//! Does not depend on HTTP. The invariant of the crate: a commit changes a bucket wholly or not at all, and only if the
//! bucket is as its decisions saw it.

mod about;
mod bucket;
mod cell;
mod changes;
mod commit;
mod engine;
mod error;
mod fast;
mod found;
mod guard;
mod guarded;
mod hedge;
mod needs;
mod node_report;
mod nodes;
mod place;
mod probe;
mod queue;
mod reads;
mod reclaim;
mod records;
mod removal;
mod runner;
mod schema;
mod session;
mod settings;
mod sizes;
mod store;
mod tunnel;
mod view;

pub use probe::ContactError;
pub use settings::{CassandraOpenError, CassandraSettings};
pub use store::CassandraStore;
