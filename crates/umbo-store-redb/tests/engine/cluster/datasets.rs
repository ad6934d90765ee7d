//! Shards that move while their namespace has datasets.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, DatasetGroup, Durability, Mutation, RecordsCopy,
    RecordsKeeper as _, RecordsRevision, ScanRequest, Store as _, StoreReport as _, WriteError,
    WriteRequest, Written,
};
use umbo_store_redb::{RedbStore, ShardRepair, count_misplaced, repair_shards};
use umbo_types::limits::SLOTS;
use umbo_types::{Clock, NamespaceId, Version};

use super::{Cluster, ROWS, first_map, planned};
use crate::rows::{NAMESPACE, clock, config, key, put, value};

const LIVE: NamespaceId = NamespaceId(40);

/// The records of a namespace whose second version is live.
fn activated() -> Arc<RecordsCopy> {
    let group = DatasetGroup {
        epoch: 1,
        live: LIVE,
        kept: vec![NAMESPACE],
        building: None,
        identity: NAMESPACE,
    };
    Arc::new(RecordsCopy {
        revision: RecordsRevision {
            epoch: 1,
            number: 7,
        },
        fenced: Vec::new(),
        datasets: vec![group],
        content: Bytes::new(),
    })
}

#[tokio::test]
async fn a_folder_without_records_places_the_datasets_that_its_files_know() {
    let (cluster, first) = (Cluster::new(), first_map());
    for node in ["a", "b"] {
        let store = cluster.open(node, &first);
        for (_, answer) in store.keep_records(activated()).await {
            answer.unwrap();
        }
        cluster.fill(&store).await;
        store.close().await;
    }
    // Everything moves to a node whose folder is new.
    let second = planned(&first, &["c"]);
    for node in ["a", "b"] {
        cluster.release(node, &second);
        for shard in first.shards_of(node) {
            cluster.copy(shard, node, "c");
        }
    }
    let c = cluster.open("c", &second);
    assert!(!fs::exists(cluster.folder("c").join("records")).unwrap());
    let mut call = CallContext::internal();
    call.placed_as = Some(NAMESPACE);
    for number in 0..ROWS {
        for dataset in [LIVE, NAMESPACE] {
            let row = c.get_row(&call, dataset, &key(number)).await.unwrap();
            let found = row.map(|row| row.value.bytes.to_vec());
            assert_eq!(found, Some(value(number)), "row {number} of {dataset}");
        }
    }
}

/// What versions did that placed a dataset by its own id until they were told of its group.
async fn damaged() -> (tempfile::TempDir, Arc<umbo_store::ManualClock>) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(folder.path(), &clock);
    let rows = |range: std::ops::Range<usize>, text: &'static str| {
        let row = move |number| put(key(number), text.as_bytes(), None);
        range.map(row).collect()
    };
    for answer in write_to(&store, LIVE, rows(0..ROWS, "first")).await {
        answer.unwrap();
    }
    for (_, answer) in store.keep_records(activated()).await {
        answer.unwrap();
    }
    clock.advance(Duration::from_secs(1));
    for answer in write_to(&store, LIVE, rows(0..ROWS / 2, "second")).await {
        answer.unwrap();
    }
    store.close().await;
    (folder, clock)
}

fn open(folder: &Path, clock: &Arc<umbo_store::ManualClock>) -> RedbStore {
    let clock: Arc<dyn Clock> = Arc::<umbo_store::ManualClock>::clone(clock);
    RedbStore::open(config(folder, Some(4)), clock).unwrap()
}

async fn write_to(
    store: &RedbStore,
    namespace: NamespaceId,
    mutations: Vec<Mutation>,
) -> Vec<Result<Written, WriteError>> {
    let request = WriteRequest {
        namespace,
        epoch: 0,
        mutations,
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    };
    store.write_rows(&CallContext::internal(), request).await
}

#[tokio::test]
async fn rows_in_the_wrong_shard_are_counted_and_moved_to_their_own() {
    let (folder, clock) = damaged().await;
    let sum = |reports: &[ShardRepair], of: fn(&ShardRepair) -> u64| -> u64 {
        reports.iter().map(of).sum()
    };
    let counted = count_misplaced(folder.path()).unwrap();
    let misplaced = sum(&counted, |one| one.misplaced);
    assert!(misplaced > ROWS as u64 / 2, "{counted:?}");
    let repaired = repair_shards(folder.path(), clock.wall(), false).unwrap();
    assert_eq!(sum(&repaired, |one| one.misplaced), misplaced);
    assert_eq!(
        sum(&repaired, |one| one.moved + one.outdated),
        misplaced,
        "{repaired:?}"
    );
    assert!(
        repaired.iter().all(|one| one.failure.is_none()),
        "{repaired:?}"
    );
    let again = count_misplaced(folder.path()).unwrap();
    assert_eq!(sum(&again, |one| one.misplaced), 0, "{again:?}");
    let store = open(folder.path(), &clock);
    for number in 0..ROWS {
        let row = store
            .get_row(&CallContext::internal(), LIVE, &key(number))
            .await;
        let row = row.unwrap().expect("nothing is lost");
        let expected = if number < ROWS / 2 { "second" } else { "first" };
        assert_eq!(&row.value.bytes[..], expected.as_bytes(), "row {number}");
    }
    let scan = ScanRequest {
        namespace: LIVE,
        slots: 0..=SLOTS - 1,
        after: None,
        rows_max: ROWS as u32 * 2,
        bytes_max: 1 << 20,
        keys_only: true,
    };
    let rows = store.scan_all(&CallContext::internal(), &scan).await;
    assert_eq!(rows.unwrap().len(), ROWS, "no row is there twice");
    let rows: u64 = store
        .status()
        .iter()
        .filter_map(|shard| shard.sizes.as_ref())
        .flatten()
        .filter(|size| size.namespace == LIVE)
        .map(|size| size.rows)
        .sum();
    assert_eq!(rows, ROWS as u64);
    store.close().await;
}
