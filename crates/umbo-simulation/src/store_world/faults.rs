//! Faults: drawn at random, one after the other, some of them lasting.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_store::{RecordsCopy, RecordsRevision, Store};
use umbo_types::NamespaceId;

use super::{World, rest};
use crate::chance::Chance;
use crate::disk::DiskFaults;
use crate::simulation::{met, note, violated};

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
pub(super) async fn run(world: &Rc<World>, mut chance: Chance) -> Fences {
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
    let mut fences = Fences::default();
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

async fn inject(world: &Rc<World>, fault: Fault, chance: &mut Chance, fences: &mut Fences) {
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

/// Namespaces that were removed.
#[derive(Debug, Default)]
pub(super) struct Fences {
    number: u64,
    fenced: Vec<NamespaceId>,
    last: u32,
}

impl Fences {
    /// Removes a namespace and begins another one.
    async fn raise(&mut self, world: &Rc<World>, chance: &mut Chance) {
        let namespaces = world.namespaces.borrow().clone();
        let victim = namespaces[chance.index(namespaces.len())];
        if !self.fenced.contains(&victim) {
            self.fenced.push(victim);
            self.fenced.sort_unstable();
            self.number += 1;
        }
        if self.keep(world).await != Some(0) {
            return;
        }
        // Clients use the old id a little longer.
        self.last += 1;
        let mut namespaces = world.namespaces.borrow_mut();
        if namespaces.len() >= 4 {
            namespaces.remove(0);
        }
        namespaces.push(NamespaceId(100 + self.last));
    }

    /// Has the shards keep the removals; returns how many of them failed. A removal is in effect for
    /// certain when none did.
    async fn keep(&self, world: &Rc<World>) -> Option<usize> {
        let copy = Arc::new(RecordsCopy {
            revision: RecordsRevision {
                epoch: 0,
                number: self.number,
            },
            fenced: self.fenced.clone(),
            content: bytes::Bytes::from(format!("records {}", self.number)),
        });
        let keep = async |store: Arc<dyn Store>| store.keep_records(copy).await;
        let kept = world.endpoints[0].ask(keep).await?;
        if kept.is_empty() {
            return None;
        }
        let failed = kept.iter().filter(|(_, kept)| kept.is_err()).count();
        note!(
            "namespaces {:?} are fenced, {failed} shards failed",
            self.fenced
        );
        if failed > 0 {
            met("fence refused");
            return Some(failed);
        }
        met("fence");
        let mut history = world.history.borrow_mut();
        for id in &self.fenced {
            history.fence(u64::from(id.0));
        }
        Some(0)
    }

    /// Asks again for the removals that a shard has not confirmed, as a dispatcher does until all have.
    pub(super) async fn complete(&self, world: &Rc<World>) {
        if !self.fenced.is_empty() && self.keep(world).await != Some(0) {
            violated("a removal is not confirmed although all faults are over");
        }
    }
}
