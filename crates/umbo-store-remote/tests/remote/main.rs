//! The remote store against real nodes over loopback: the contract, and what happens to nodes and
//! to the wires between.

mod cluster;
mod contract;
mod faults;
mod hedges;
mod held;
mod maps;
mod parts;
mod restarts;
mod rows;
mod strangers;
mod tls;
mod wire;
