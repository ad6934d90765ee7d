//! Conditions that must hold after all faults are over.

use std::time::Duration;

use umbo_store::{ByKey as _, CallContext, RowRef, ScanRequest};
use umbo_types::NamespaceId;

use super::client;
use super::large_rows::{LOADED_PARTITION, LOADED_ROWS};
use super::uploads;
use super::world::LoadsWorld;
use crate::simulation::{is_violated, note, violated};

/// Time after the last fault within which every dispatcher knows the newest records, and shards have reclaimed the rows
/// of what was aborted or dropped.
const HEALING: Duration = Duration::from_secs(40);
/// Attempts to read something while nothing fails except at marked points.
const ATTEMPTS_MAX: u32 = 20;
/// Ids of namespaces, datasets, and contents and reports of loads in a run, and more.
const IDS_MAX: u32 = 300;

/// Checks that all dispatchers show the live version, and that nothing is left of the others.
pub(super) async fn check(world: &LoadsWorld) {
    tokio::time::sleep(HEALING).await;
    let live = world.datasets.borrow().live;
    for dispatcher in 0..world.dispatchers.len() {
        for partition in 0..world.partitions {
            let mut attempts = 0;
            while !client::range(world, dispatcher, partition, Some(live)).await {
                attempts += 1;
                if attempts == ATTEMPTS_MAX {
                    return violated("a range is refused although all faults are over");
                }
            }
        }
    }
    for sort in 0..LOADED_ROWS {
        for dispatcher in 0..world.dispatchers.len() {
            client::get(world, dispatcher, (LOADED_PARTITION, sort)).await;
        }
    }
    uploads::check(world).await;
    if !is_violated() {
        check_stored(world).await;
    }
}

/// Checks that rows of clients and loads are stored in as many datasets as there are versions, and no bytes of parts.
async fn check_stored(world: &LoadsWorld) {
    let mut answer = None;
    for _ in 0..ATTEMPTS_MAX {
        answer = world.ask(0, "GET", "versions", &[], Vec::new()).await;
        if answer.as_ref().is_some_and(|one| one.status.is_success()) {
            break;
        }
    }
    let Some(answer) = answer else {
        return violated("the versions are not listed although all faults are over");
    };
    let versions = answer.json();
    let versions = versions["versions"].as_array().map_or(0, Vec::len).max(1);
    let mut datasets = 0;
    for id in 1..=IDS_MAX {
        let (mut is_dataset, mut is_content) = (false, false);
        for partition in partitions(world, NamespaceId(id)).await {
            is_dataset |= partition.starts_with(b"p") && partition.len() == 2;
            is_content |= partition.contains(&b'/');
        }
        datasets += usize::from(is_dataset);
        if is_content {
            violated(&format!("parts of a load are stored at rest as id {id}"));
        }
    }
    note!("{versions} versions, {datasets} of which have rows");
    if datasets > versions {
        violated(&format!(
            "{datasets} datasets are stored at rest, and there are {versions} versions"
        ));
    }
}

/// Returns the partition keys of all rows of an id.
async fn partitions(world: &LoadsWorld, id: NamespaceId) -> Vec<Vec<u8>> {
    let request = ScanRequest {
        namespace: id,
        slots: 0..=umbo_types::limits::SLOTS - 1,
        after: None,
        rows_max: 10_000,
        bytes_max: 1 << 20,
        keys_only: true,
    };
    let copy = |row: RowRef<'_>| row.partition.to_vec();
    for _ in 0..ATTEMPTS_MAX {
        let Some(store) = world.stores.endpoints[0].store() else {
            continue;
        };
        match store.scan_all(&CallContext::internal(), &request).await {
            Ok(rows) => return rows.iter().map(copy).collect(),
            Err(umbo_store::StoreError::NamespaceGone { .. }) => return Vec::new(),
            Err(_) => {}
        }
    }
    violated("a scan is refused although all faults are over");
    Vec::new()
}
