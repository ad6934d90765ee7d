//! Faults: shards fail for a while, alone or with others of their node, and dispatchers are killed.

use std::rc::Rc;
use std::time::Duration;

use super::shared_store::Fault;
use super::world::World;
use crate::chance::Chance;
use crate::simulation::{elapsed, met, note};

/// Causes faults until the world's time is over, then removes them all.
pub(super) async fn run(world: &Rc<World>, mut chance: Chance) {
    let shards = usize::from(world.plan.shards);
    // Each seed has only some of the faults.
    let mut faults = vec![(1, Fault::Away)];
    for fault in [Fault::Away, Fault::Mute, Fault::Full, Fault::Slow(300)] {
        if chance.per_mille(600) {
            faults.push((chance.between(1, 3), fault));
        }
    }
    let kills_per_mille = chance.weighted(&[(1, 0), (1, 300)]);
    let cuts_per_mille = if world.plan.has_quota { 200 } else { 0 };
    while !world.is_over() {
        let every = world.plan.fault_every_ms;
        let wait = chance.between(every / 10, every * 2);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if world.is_over() {
            break;
        }
        world.calm_since.set(None);
        if chance.per_mille(kills_per_mille) {
            let number = chance.index(world.plan.dispatchers);
            note!("fault: dispatcher {number} is killed");
            met("dispatcher killed");
            world.dispatchers[number].kill();
            tokio::time::sleep(Duration::from_millis(chance.below(500))).await;
            world.start(number).await;
        } else if chance.per_mille(cuts_per_mille) {
            note!("fault: dispatchers reach no other dispatcher");
            met("dispatchers cut off");
            world.ways.cut(true);
            tokio::time::sleep(Duration::from_millis(chance.below(3_000))).await;
            world.ways.cut(false);
        } else {
            let fault = chance.weighted(&faults);
            let first = chance.index(shards);
            let count = chance.between(1, shards as u64) as usize;
            let failing: Vec<_> = (0..count).map(|at| (first + at) % shards).collect();
            note!("fault: shards {failing:?}: {fault:?}");
            for &shard in &failing {
                world.store.set_fault(shard, fault);
            }
            let lasts = chance.weighted(&[(2, 300), (2, 1_500), (1, 4_000)]);
            tokio::time::sleep(Duration::from_millis(chance.below(lasts))).await;
            for &shard in &failing {
                world.store.set_fault(shard, Fault::None);
            }
            note!("shards {failing:?} serve again");
        }
        world.calm_since.set(Some(elapsed()));
    }
    for shard in 0..shards {
        world.store.set_fault(shard, Fault::None);
    }
}
