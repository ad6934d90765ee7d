//! The remote store against real nodes over loopback: the contract, and failures of nodes and of the wires
//! between.

mod cluster;
mod contract;
mod faults;
mod fleet;
mod held;
mod maps;
mod order;
mod parts;
mod restarts;
#[path = "../support/rows.rs"]
mod rows;
mod tls;
mod wire;
