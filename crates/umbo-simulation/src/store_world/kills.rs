//! World 6: one engine with a log, whose process or power ends at each change of its disk in turn.
//!
//! So many seeds in a row have one workload, and share the points at which it ends: before each write, change of length
//! and sync, which is after the one before it, once by a kill (what was written stays) and once by a power failure
//! (what was not synced is torn). Some end once more while the store opens again. Then all rows are compared with all
//! acknowledged writes, the clients go on, and the power fails once more at rest: what a kill left and a client read
//! must be on the disk by then.

use std::rc::Rc;

use super::client;
use super::rest;
use super::world::{StorePlan, World};
use crate::chance::Chance;
use crate::simulation::{is_violated, met, note, violated};

/// Seeds that share the points of one workload.
const SEEDS_A_WORKLOAD: u64 = 16;
/// Ends within a recovery, in thousandths, and the most changes before them: a recovery has some twenty.
const ENDS_AGAIN_PER_MILLE: u64 = 300;
const CHANGES_OF_RECOVERY: u64 = 24;

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessEnd {
    Kill,
    PowerFailure,
}

/// Runs the world.
pub async fn run(seed: u64) {
    let workload = seed / SEEDS_A_WORKLOAD;
    let changes = WorkloadRun::new(workload, "no end").without_end().await;
    note!("workload {workload:#x} changes its disk {changes} times");
    let mut point = seed % SEEDS_A_WORKLOAD;
    while point <= changes && !is_violated() {
        for end in [ProcessEnd::Kill, ProcessEnd::PowerFailure] {
            note!("{end:?} before change {point}");
            let run = WorkloadRun::new(workload, &format!("{end:?} {point}"));
            run.ended(end, point).await;
        }
        point += SEEDS_A_WORKLOAD;
    }
}

/// One run of a workload.
struct WorkloadRun {
    world: Rc<World>,
    workload: u64,
    /// Of what follows the end.
    chance: Chance,
}

impl WorkloadRun {
    fn new(workload: u64, end: &str) -> Self {
        let plan = StorePlan::short(&mut Chance::new(workload, "plan of the store"));
        let world = World::of_one_host(workload, plan);
        world.hosts[0].config.borrow_mut().has_log = true;
        Self {
            world: Rc::new(world),
            workload,
            chance: Chance::new(workload, end),
        }
    }

    /// Returns the number of changes of the disk.
    async fn without_end(self) -> u64 {
        let host = &self.world.hosts[0];
        host.open().await;
        self.clients_and(std::future::ready(())).await;
        rest::settle_by_read(&self.world).await;
        host.close().await;
        host.disk.changes()
    }

    async fn ended(mut self, end: ProcessEnd, point: u64) {
        let world = Rc::clone(&self.world);
        let host = &world.hosts[0];
        end_after(&world, end, point);
        host.open().await;
        let chance = self.chance.clone();
        self.clients_and(recover(Rc::clone(&world), end, chance))
            .await;
        if is_violated() {
            return;
        }
        rest::settle_by_read(&world).await;
        if self.chance.per_mille(500) {
            host.close().await;
        }
        host.lose_power().await;
        host.open().await;
        rest::audit(&world).await;
        host.close().await;
    }

    /// Runs the clients until the time of the world is over, and something beside them.
    async fn clients_and(&self, beside: impl Future<Output = ()>) {
        let clients = (0..self.world.plan.clients).map(|number| {
            let chance = Chance::new(self.workload, &format!("client {number}"));
            tokio::task::spawn_local(client::run(Rc::clone(&self.world), number as u32, chance))
        });
        let clients: Vec<_> = clients.collect();
        beside.await;
        for client in clients {
            if let Err(error) = client.await {
                violated(&format!("a client panicked: {error}"));
            }
        }
    }
}

/// Waits for the end, if there is one before the time is over, opens the store again and compares all rows.
async fn recover(world: Rc<World>, end: ProcessEnd, mut chance: Chance) {
    let host = &world.hosts[0];
    let left = world
        .plan
        .lasts
        .saturating_sub(crate::simulation::elapsed());
    let ended = tokio::time::timeout(left, host.disk.power_failed()).await;
    if ended.is_err() && !host.disk.is_off() {
        return host.disk.heal();
    }
    host.lose_power().await;
    if chance.per_mille(ENDS_AGAIN_PER_MILLE) {
        met("end amid a recovery");
        end_after(&world, end, chance.below(CHANGES_OF_RECOVERY));
    }
    host.open().await;
    host.disk.heal();
    rest::audit(&world).await;
}

fn end_after(world: &World, end: ProcessEnd, changes: u64) {
    let disk = &world.hosts[0].disk;
    match end {
        ProcessEnd::Kill => disk.kill_after(changes),
        ProcessEnd::PowerFailure => disk.fail_power_after(changes),
    }
}
