//! The store contract over the shard protocol: shards on other machines.
//!
//! Owns the connections to the nodes of a cluster, what is sent again and where, how long a node
//! that has gone is waited for, and the map in effect. Holds no rows. The invariants: a write that
//! may have been begun is never sent again; a node that fails fails its own shards only; nothing a
//! request is done for but its own encoding, so no task, timer or channel is made for one.
//!
//! A request goes through these files: `contract` names its shard and its connection, `attempt`
//! sends it and decides on its failure, `connection` queues it in its `outbox`, `waiting` keeps who
//! waits, `asked` is the wait, `reader` brings the answer. `fan_out` and `walk` are for requests of many shards; `link`, `dial` and `tls`
//! keep a node connected; `topology` and `map_keeper` know which node that is.

mod asked;
mod attempt;
mod budget;
mod connection;
mod contract;
mod counters;
mod dial;
mod fan_out;
mod latency;
mod link;
mod map_keeper;
mod node;
mod outbox;
mod reader;
mod settings;
mod store;
mod tls;
mod topology;
mod waiting;
mod walk;

pub use settings::{RemoteSettings, TlsFiles, TlsIdentity};
pub use store::RemoteStore;
