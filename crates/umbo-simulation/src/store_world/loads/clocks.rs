//! Wrong times of day: of one dispatcher or node of a seed, whose clock jumps by seconds, hours or days, both ways.
//!
//! One at a time: what cannot be undone is done where the clocks of a dispatcher and of the home agree, so no wrong clock
//! alone may have an effect that lasts.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::world::LoadsWorld;
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{met, note};
use crate::store_world::moves::NODES;

/// Longest jump of each kind, in seconds: less than a minute, less than a day, and longer than anything is kept.
const JUMPS_MAX: [u64; 3] = [59, 23 * 3_600, 30 * 86_400];
/// Time to live of rows: longer than any jump, so that a clock that is ahead hides none, and shorter than two, so that a
/// row is missed if its time counts from a clock that is behind.
pub(super) const TTL: &str = "31d";

/// Sets a clock wrong from time to time until the faults are over. Then it is right again, or stays wrong.
pub(super) async fn run(world: Rc<LoadsWorld>, mut chance: Chance) {
    if chance.per_mille(400) {
        return;
    }
    let dispatchers = world.dispatchers.iter().enumerate();
    let dispatchers = dispatchers.map(|(at, one)| (format!("dispatcher {at}"), &one.clock));
    let nodes = NODES.iter().zip(&world.stores.hosts);
    let nodes = nodes.map(|(name, host)| (format!("node {name}"), &host.clock));
    let mut clocks: Vec<(String, &Arc<SimulatedClock>)> = dispatchers.chain(nodes).collect();
    let (name, clock) = clocks.swap_remove(chance.index(clocks.len()));
    while !world.stores.is_over() {
        let wait = chance.between(100, 5_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let longest = chance.weighted(&JUMPS_MAX.map(|longest| (1, longest)));
        let jump = chance.between(1, longest * 1_000_000).cast_signed();
        let micros = chance.weighted(&[(2, jump), (2, -jump), (1, 0)]);
        met("clock jump");
        note!("fault: the clock of {name} is ahead by {micros} us");
        clock.set_ahead(micros);
    }
    if chance.per_mille(500) {
        clock.set_ahead(0);
    }
}
