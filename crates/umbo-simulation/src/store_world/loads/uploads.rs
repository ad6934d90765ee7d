//! A client that puts large values, and often leaves before it is answered: then the upload is given up while the put of
//! its row may be on its way.
//!
//! Each row is put once, and touched: a row that is there has all of its bytes, and a touch stores it again.

use std::rc::Rc;
use std::time::Duration;

use super::client::{get, send};
use super::datasets::RowId;
use super::large_rows::PARTITION;
use super::world::LoadsWorld;
use crate::chance::Chance;
use crate::simulation::{met, note, violated};

/// Large values of a seed: each is a megabyte, in up to three datasets.
pub(super) const VALUES_MAX: u64 = 6;

/// Puts large values until the faults are over.
pub(super) async fn run(world: Rc<LoadsWorld>, mut chance: Chance) {
    let values = chance.weighted(&[(1, 0), (1, VALUES_MAX)]);
    for number in 0..values {
        let wait = chance.between(10, 2_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if world.stores.is_over() {
            return;
        }
        let dispatcher = chance.index(world.dispatchers.len());
        let row = (PARTITION, number);
        // With slow commits the put and the giving up of its upload often are in one.
        let (is_slow, leaves) = (chance.per_mille(600), chance.per_mille(750));
        let longest = if is_slow { 400_000 } else { 50_000 };
        let left = chance.below(if leaves { longest } else { 60_000_000 });
        if is_slow {
            set_commit_time(&world, 10_000, 100_000);
        }
        let left = Duration::from_micros(left);
        let value = Some(format!("u{number}"));
        if send(&world, dispatcher, ("PUT", row), value, left)
            .await
            .is_none()
        {
            met("upload left");
        }
        set_commit_time(&world, 100, 2_000);
        if chance.per_mille(500) {
            get(&world, dispatcher, row).await;
            touch(&world, dispatcher, row).await;
        }
    }
}

/// Sets how long commits take on all nodes, in microseconds.
fn set_commit_time(world: &LoadsWorld, shortest: u64, longest: u64) {
    for host in &world.stores.hosts {
        host.disk.set_commit_time(shortest, longest);
    }
}

/// Stores a row with a large value again. The bytes of one that is there must not be gone.
async fn touch(world: &LoadsWorld, dispatcher: usize, row: RowId) {
    let value = Some(format!("u{}", row.1));
    let touched = send(world, dispatcher, ("PATCH", row), value, Duration::MAX).await;
    if let Some(answer) = touched {
        note!("touch: {} {}", answer.status.as_u16(), answer.code());
        if answer.status.is_success() {
            met("large value touched");
        } else if answer.code() == "upload-gone" {
            violated("the bytes of a large value are gone, whose row is there");
        }
    }
}

/// Checks all large values after all faults are over.
pub(super) async fn check(world: &LoadsWorld) {
    for number in 0..VALUES_MAX {
        get(world, 0, (PARTITION, number)).await;
        touch(world, 0, (PARTITION, number)).await;
    }
}
