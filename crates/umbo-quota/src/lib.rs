//! What a request costs, and who may spend how much.
//!
//! Owns the cost model, token buckets, policies and reservations. Deliberately reads no clock, spawns
//! nothing, waits for nothing and logs nothing: the instant and the random number of every decision
//! are parameters, so that all of it runs under a simulated clock.

mod subject;

pub use subject::Subject;
