//! The remote store against real nodes over loopback: the contract, and what happens to nodes.

mod cluster;
mod contract;
mod restarts;
mod rows;
