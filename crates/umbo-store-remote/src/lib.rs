//! The store contract over the shard protocol, for shards on other machines.
//!
//! Owns the connections to the nodes of a cluster, the repetition of requests, the wait for a node that is
//! away, and the map in effect. Holds no rows. The invariants: a write that may have been begun is never sent
//! again; a failing node affects its own shards only; no task, timer or channel is made per request.
//!
//! A request goes through these files: `contract` names its shard, `attempt` sends it and handles its
//! failure, `connection` queues it and is the wait for it, `in_flight` keeps the table of pending requests,
//! `transfer` moves the bytes. `records` copies Umbo's own records; `link`, `dial`, `connector`, `tls` and `watch` keep a node connected;
//! `peer` connects dispatchers with one another; `clock_offset` estimates the monotonic clock of a node,
//! `told_time` its time of day; `topology` and `map_keeper` find the node of a shard.

mod attempt;
mod budget;
mod clock_offset;
mod connect;
mod connection;
mod connector;
mod contract;
mod counters;
mod dial;
mod dial_error;
mod in_flight;
mod link;
mod map_keeper;
mod node;
mod peer;
mod peer_maps;
mod records;
mod seeded_random;
mod settings;
mod store;
mod told_time;
mod topology;
mod transfer;
mod unknown_shard;
mod watch;

pub use connector::{Connector, Io, Transport};
pub use peer::PeerDialer;
pub use peer_maps::{PeerMap, ask_map_versions, fetch_newest_map};
pub use settings::RemoteSettings;
pub use store::RemoteStore;
