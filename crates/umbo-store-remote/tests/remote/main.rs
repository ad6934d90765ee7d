//! The remote store: the contract and TLS on loopback, and failures of nodes and of the wires between in memory and in
//! simulated time, against real nodes and against one that a test simulates (`peer`).

#![cfg(test)]

mod clocks;
mod cluster;
mod contract;
mod faults;
mod held;
mod maps;
mod network;
mod order;
mod peer;
mod restarts;
mod rows;
mod time;
mod tls;
