//! Tests of a shard node over loopback sockets, with a client that speaks plain gRPC.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod asking;
mod greeting;
mod maps;
mod quotas;
mod support;
mod wild;
