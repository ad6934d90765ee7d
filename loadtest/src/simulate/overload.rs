//! Overload, simulated: the real gates of `umbo-overload` in front of simulated shards, and what is
//! simpler beside them.
//!
//! Owns the scenarios, what they are run with and what is measured of them. The invariant: equal
//! scenarios give equal accounts, whatever the machine does besides.

mod account;
mod behaviour;
mod decision;
mod door;
mod figures;
mod scenario;
mod store;
mod world;

pub(crate) use self::behaviour::{Sharing, Spread};
pub(crate) use self::door::Discipline;
pub(crate) use self::figures::{Calm, Figures, inversions};
pub(crate) use self::scenario::{Kind, Scenario};
pub(crate) use self::world::run;

#[cfg(test)]
#[path = "overload_tests.rs"]
mod tests;
