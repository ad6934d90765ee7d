//! Tests of a shard node over loopback sockets, with a client that speaks plain gRPC.

mod asking;
mod support;
