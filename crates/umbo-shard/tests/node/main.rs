//! Tests of a shard node over loopback sockets, with a peer that speaks the protocol by hand.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod asking;
mod bounds;
mod greeting;
mod maps;
mod order;
mod records;
mod slow;
mod support;
mod wild;
