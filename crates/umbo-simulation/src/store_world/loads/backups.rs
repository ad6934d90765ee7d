//! Backups that are made while everything else goes on, each restored at once into a store of its own: what that one
//! serves is what reads could have found when the backup was begun.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use umbo_control::{promote, restored_records};
use umbo_store::Store;
use umbo_store_redb::{Config, Opener, Restore};
use umbo_types::{Clock, NamespaceId};

use super::client::{partition_of, row_of};
use super::large_rows::PARTITION;
use super::uploads::VALUES_MAX;
use super::world::{LoadsWorld, NAME};
use crate::chance::Chance;
use crate::records_world::process::{Process, ProcessAnswer};
use crate::simulation::{elapsed, is_violated, met, note, violated};
use crate::store_world::host::SimulatedHost;

/// Attempts to make a restored store the home of its records.
const PROMOTIONS_MAX: u32 = 10;
/// How often the restored server looks at its records: nobody else changes them.
const REFRESH: Duration = Duration::from_secs(1);

/// States of a load that has failed after a restore.
const UNDER_WAY: [&str; 5] = ["created", "uploading", "sealed", "building", "verifying"];

/// A backup.
struct Backup {
    /// When it was asked for, and when it was begun.
    asked: Duration,
    begun: Duration,
    records: Bytes,
    revision: u64,
    /// The pieces of each shard.
    shards: Vec<Vec<Bytes>>,
}

/// Makes and restores backups until the faults are over.
pub(super) async fn run(world: Rc<LoadsWorld>, seed: u64, mut chance: Chance) {
    for number in 0..chance.weighted(&[(2, 0_u64), (1, 1), (1, 3)]) {
        let wait = chance.between(500, 5_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if world.stores.is_over() || is_violated() {
            return;
        }
        let Some(backup) = take(&world, &mut chance).await else {
            met("backup given up");
            continue;
        };
        let shards = chance.between(1, 5) as u16;
        if let Err(reason) = restore(&world, &backup, (seed, number), shards).await {
            violated(&format!("a backup is not restored: {reason}"));
        }
    }
}

async fn ask(
    world: &LoadsWorld,
    chance: &mut Chance,
    method: &str,
    path: &str,
) -> Option<ProcessAnswer> {
    let process = &world.dispatchers[chance.index(world.dispatchers.len())].process;
    process.ask(method, path, &[], Vec::new()).await
}

/// Makes a backup through any dispatchers; none if it is gone, or a shard is away.
async fn take(world: &LoadsWorld, chance: &mut Chance) -> Option<Backup> {
    let asked = elapsed();
    let answer = ask(world, chance, "POST", "/admin/v1/backups").await?;
    let begun = elapsed();
    note!("a backup is begun: {}", answer.status.as_u16());
    if answer.status != StatusCode::OK {
        return None;
    }
    let told = answer.json();
    let (name, records) = (told["backup"].as_str()?, told["records"].as_str()?);
    let mut shards = Vec::new();
    for shard in 0..told["shards"].as_u64()? {
        let mut pieces = Vec::new();
        loop {
            let path = format!("/admin/v1/backups/{name}/{shard}/{}", pieces.len() + 1);
            let piece = ask(world, chance, "GET", &path).await?;
            match piece.status {
                StatusCode::OK => pieces.push(piece.body),
                StatusCode::NO_CONTENT => break,
                _ => return None,
            }
        }
        shards.push(pieces);
    }
    note!("a backup is made");
    Some(Backup {
        asked,
        begun,
        records: STANDARD.decode(records).ok()?.into(),
        revision: told["revision"].as_u64()?,
        shards,
    })
}

/// Restores a backup, and checks what is served then.
async fn restore(
    world: &LoadsWorld,
    backup: &Backup,
    (seed, number): (u64, u64),
    shards: u16,
) -> Result<(), String> {
    let own = Arc::clone(&world.stores.clock);
    let clock: Arc<dyn Clock> = Arc::clone(&own) as Arc<dyn Clock>;
    let (content, revision) = (backup.records.clone(), backup.revision);
    let records = restored_records(content, revision, None, clock.wall());
    let records = records.map_err(|error| error.to_string())?;
    let config = Config {
        shards: Some(shards),
        cache_bytes: world.stores.plan.cache_bytes,
        ..Config::default()
    };
    let host = SimulatedHost::new(seed, &format!("restored {number}"), config, &own);
    host.open().await;
    host.close().await;
    let opener: Arc<dyn Opener> = Arc::new(host.disk.clone());
    let failed = |error: umbo_store_redb::RestoreError| host.without_path(&error);
    let folder = host.data_folder();
    let begun = Restore::begin_simulated(&folder, records.clone(), clock.wall(), &opener);
    let mut restore = begun.map_err(failed)?;
    for shard in &backup.shards {
        for piece in shard {
            restore.read(piece).map_err(failed)?;
        }
        restore.end_shard().map_err(failed)?;
    }
    let restored = restore.end().map_err(failed)?;
    note!("{restored:?} into {shards} shards");
    host.open().await;
    let store = host.endpoint.store().ok_or("the store does not open")?;
    // Its answer may be lost; the next one finds what it has done.
    let mut promoted = promote(&store, &clock, &records, NamespaceId::SYSTEM).await;
    for _ in 0..PROMOTIONS_MAX {
        if promoted.is_ok() {
            break;
        }
        promoted = promote(&store, &clock, &records, NamespaceId::SYSTEM).await;
    }
    promoted.map_err(|error| error.to_string())?;
    let checked = check(world, backup, (store, clock)).await;
    host.close().await;
    checked
}

async fn check(
    world: &LoadsWorld,
    backup: &Backup,
    (store, clock): (Arc<dyn Store>, Arc<dyn Clock>),
) -> Result<(), String> {
    let process = Process::default();
    let is_dead = Arc::new(AtomicBool::new(false));
    if !process.open(store, clock, is_dead, (0, REFRESH)).await {
        return Err("no server opens it".to_owned());
    }
    let checked = check_served(world, backup, &process).await;
    process.kill();
    checked
}

async fn check_served(
    world: &LoadsWorld,
    backup: &Backup,
    process: &Process,
) -> Result<(), String> {
    let mut seen = Vec::new();
    for partition in 0..world.partitions {
        let rows = partition_of(process, partition, world.sorts).await;
        seen.push(rows.ok_or("a range is not answered")?);
    }
    for number in 0..VALUES_MAX {
        let row = (PARTITION, number);
        let value = row_of(process, row).await;
        seen.push(vec![(row, value.ok_or("a large value is not answered")?)]);
    }
    let path = format!("/v1/ns/{NAME}/loads");
    let loads = process.ask("GET", &path, &[], Vec::new()).await;
    let loads = loads.ok_or("the loads are not listed")?.json();
    let mut loads = loads["loads"].as_array().into_iter().flatten();
    let is_open = |load: &&Value| UNDER_WAY.contains(&load["state"].as_str().unwrap_or_default());
    if let Some(load) = loads.find(is_open) {
        return Err(format!("a load is {} after it", load["state"]));
    }
    let mut datasets = world.datasets.borrow_mut();
    for rows in &seen {
        datasets.check(rows, (backup.asked, backup.begun), None)?;
    }
    met("backup restored");
    Ok(())
}
