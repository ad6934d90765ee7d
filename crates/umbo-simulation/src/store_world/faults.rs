//! Faults: drawn at random, one after the other, some of them lasting.

use std::rc::Rc;
use std::time::Duration;

use super::fences::NamespaceRemovals;
use super::rest;
use super::world::World;
use crate::chance::Chance;
use crate::disk::DiskFaults;
use crate::simulation::{met, note};

#[derive(Debug, Clone, Copy)]
enum Fault {
    PowerNow,
    PowerAfter,
    Close,
    FailedSyncs,
    FailedReads,
    FailedWrites,
    Full,
    Slow,
    BadSector,
    FlippedBit,
    ClockJump,
    Fence,
    None,
}

const ALL: [Fault; 11] = [
    Fault::PowerNow,
    Fault::PowerAfter,
    Fault::Close,
    Fault::FailedSyncs,
    Fault::FailedReads,
    Fault::FailedWrites,
    Fault::Full,
    Fault::Slow,
    Fault::BadSector,
    Fault::FlippedBit,
    Fault::ClockJump,
];

/// Causes faults until the world's time is over. Returns the removals of namespaces, some of which a
/// shard may not have confirmed.
pub(super) async fn run(world: &Rc<World>, mut chance: Chance) -> NamespaceRemovals {
    // Each seed has only some of the faults.
    let mut faults: Vec<(u64, Fault)> = vec![(1, Fault::None)];
    for fault in ALL {
        if chance.per_mille(350) {
            faults.push((chance.between(1, 4), fault));
        }
    }
    if world.plan.fences {
        faults.push((2, Fault::Fence));
    }
    let mut fences = NamespaceRemovals::default();
    while !world.is_over() {
        let every = world.plan.fault_every_ms * 1_000;
        let wait = Duration::from_micros(chance.between(every / 10, every * 2));
        let power = world.hosts[0].disk.power_failed();
        if tokio::time::timeout(wait, power).await.is_ok() {
            recover(world).await;
            continue;
        }
        if world.is_over() {
            break;
        }
        let fault = chance.weighted(&faults);
        inject(world, fault, &mut chance, &mut fences).await;
    }
    // A power failure that was scheduled and has not occurred is cancelled.
    if world.hosts[0].disk.is_off() {
        recover(world).await;
    }
    world.hosts[0].disk.heal();
    fences
}

async fn inject(
    world: &Rc<World>,
    fault: Fault,
    chance: &mut Chance,
    fences: &mut NamespaceRemovals,
) {
    note!("fault: {fault:?}");
    let disk = &world.hosts[0].disk;
    match fault {
        Fault::PowerNow => recover(world).await,
        Fault::PowerAfter => disk.fail_power_after(chance.below(60)),
        Fault::Close => {
            met("orderly restart");
            world.hosts[0].close().await;
            if disk.is_off() {
                return recover(world).await;
            }
            world.hosts[0].open().await;
        }
        Fault::FailedSyncs => {
            let sync = chance.weighted(&[(1, 10_000), (1, 2_000)]);
            last(
                world,
                chance,
                DiskFaults {
                    sync,
                    ..DiskFaults::default()
                },
            )
            .await;
        }
        Fault::FailedReads => {
            let read = chance.weighted(&[(1, 3_000), (2, 300)]);
            last(
                world,
                chance,
                DiskFaults {
                    read,
                    ..DiskFaults::default()
                },
            )
            .await;
        }
        Fault::FailedWrites => {
            let write = chance.weighted(&[(1, 10_000), (1, 300)]);
            last(
                world,
                chance,
                DiskFaults {
                    write,
                    ..DiskFaults::default()
                },
            )
            .await;
        }
        Fault::Full => {
            disk.set_room(Some(chance.below(256 << 10)));
            pause(world, chance, 3_000).await;
            disk.set_room(None);
        }
        Fault::Slow => {
            met("slow disk");
            disk.set_commit_time(5_000, 25_000);
            pause(world, chance, 1_000).await;
            disk.set_commit_time(100, 2_000);
        }
        Fault::BadSector | Fault::FlippedBit => damage(world, fault, chance),
        Fault::ClockJump => {
            met("clock jump");
            let ahead = chance.between(0, 10_000_000).cast_signed() - 8_000_000;
            world.note_wall();
            world.clock.set_ahead(ahead);
            world.note_wall();
        }
        Fault::Fence => fences.raise(world, chance).await,
        Fault::None => {}
    }
}

/// Causes lasting faults of the disk for a while.
async fn last(world: &Rc<World>, chance: &mut Chance, faults: DiskFaults) {
    world.hosts[0].disk.set_faults(faults);
    pause(world, chance, 500).await;
    world.hosts[0].disk.set_faults(DiskFaults::default());
}

/// Waits for at most this many milliseconds, or until the power fails.
async fn pause(world: &Rc<World>, chance: &mut Chance, millis: u64) {
    let wait = Duration::from_micros(chance.between(1_000, millis * 1_000));
    let power = world.hosts[0].disk.power_failed();
    if tokio::time::timeout(wait, power).await.is_ok() {
        recover(world).await;
    }
}

/// Turns the power on again, opens the store and checks its rows.
async fn recover(world: &Rc<World>) {
    met("power failure");
    world.hosts[0].lose_power().await;
    world.hosts[0].disk.heal();
    world.hosts[0].open().await;
    rest::audit(world).await;
}

/// Damages the value of a row.
fn damage(world: &Rc<World>, fault: Fault, chance: &mut Chance) {
    let Some(value) = world.some_value(chance) else {
        return;
    };
    let is_flip = matches!(fault, Fault::FlippedBit);
    if is_flip && world.hosts[0].disk.flip_bit_of(&value) {
        met("flipped bit");
    } else if !is_flip && world.hosts[0].disk.spoil_sector_of(&value) {
        met("bad sector");
    }
}
