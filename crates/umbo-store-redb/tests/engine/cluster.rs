//! Folders of cluster nodes: files that come, go, stay behind and get lost.

mod datasets;
mod fences;
mod follow;
mod hand_over;
mod refusals;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_store::{
    ByKey as _, CallContext, ManualClock, Outcome, ScanRequest, ShardState, Store, StoreError,
    StoreReport,
};
use umbo_store_redb::{
    ClusterMember, Config, HandOver, OpenError, RedbStore, reclaim_shard, release_shards,
};
use umbo_types::{Clock, ShardId};

use crate::rows::{NAMESPACE, clock, config, key, put, value, write};

const ROWS: usize = 200;
const SHARDS: u16 = 6;

fn nodes(names: &[&str]) -> Vec<ClusterNode> {
    let node = |name: &&str| ClusterNode::new(name, &format!("{name}:7411")).unwrap();
    names.iter().map(node).collect()
}

fn first_map() -> Arc<ClusterMap> {
    Arc::new(ClusterMap::create("geo-eu", nodes(&["a", "b"]), SHARDS).unwrap())
}

fn planned(map: &ClusterMap, names: &[&str]) -> Arc<ClusterMap> {
    Arc::new(map.plan(nodes(names)).unwrap().map)
}

fn member(map: &Arc<ClusterMap>, node: &str) -> ClusterMember {
    ClusterMember {
        map: Arc::clone(map),
        node: node.to_owned(),
        create_missing: Vec::new(),
        accept: Vec::new(),
    }
}

fn try_open(
    folder: &Path,
    member: ClusterMember,
    clock: &Arc<ManualClock>,
) -> Result<RedbStore, OpenError> {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    let config = Config {
        cluster: Some(member),
        ..config(folder, None)
    };
    RedbStore::open(config, clock)
}

/// The folders of some nodes, and the clock.
struct Cluster {
    folders: BTreeMap<&'static str, TempDir>,
    clock: Arc<ManualClock>,
}

impl Cluster {
    fn new() -> Self {
        let folder = |name| (name, tempfile::tempdir().unwrap());
        Self {
            folders: ["a", "b", "c"].map(folder).into(),
            clock: clock(),
        }
    }

    /// Two nodes under the first map, filled and closed.
    async fn filled() -> (Self, Arc<ClusterMap>) {
        let (cluster, map) = (Self::new(), first_map());
        for node in ["a", "b"] {
            cluster.fill(&cluster.open(node, &map)).await;
        }
        (cluster, map)
    }

    fn open_with(&self, node: &'static str, member: ClusterMember) -> RedbStore {
        try_open(self.folder(node), member, &self.clock).unwrap()
    }

    fn open(&self, node: &'static str, map: &Arc<ClusterMap>) -> RedbStore {
        self.open_with(node, member(map, node))
    }

    fn folder(&self, node: &str) -> &Path {
        self.folders[node].path()
    }

    /// Stamps the shards that the map has given away, in the folder of a node that is not running.
    fn release(&self, node: &str, map: &Arc<ClusterMap>) -> Vec<HandOver> {
        release_shards(self.folder(node), map, &[], false).unwrap()
    }

    fn copy(&self, shard: ShardId, from: &str, to: &str) {
        let name = format!("shard-{:03}.redb", shard.0);
        fs::copy(self.folder(from).join(&name), self.folder(to).join(&name)).unwrap();
    }

    /// Writes the rows that belong to the shards of a store.
    async fn fill(&self, store: &RedbStore) {
        let own = store.status();
        let is_own = |number: &usize| {
            let owner = owner(store, *number);
            own.iter().any(|status| status.shard == owner)
        };
        let rows = (0..ROWS).filter(is_own);
        let rows = rows.map(|number| put(key(number), &value(number), None));
        for answer in write(store, &self.clock, rows.collect()).await {
            answer.unwrap();
        }
    }
}

fn owner(store: &RedbStore, number: usize) -> ShardId {
    store.shard_map().locate(NAMESPACE, &key(number).partition)
}

async fn get(store: &RedbStore, number: usize) -> Result<Option<Vec<u8>>, StoreError> {
    let call = CallContext::internal();
    let row = store.get_row(&call, NAMESPACE, &key(number)).await?;
    Ok(row.map(|row| row.value.bytes.to_vec()))
}

/// Asserts that a store has every row of its shards, and reports where the others are.
async fn assert_has_its_rows(store: &RedbStore, map: &ClusterMap, node: &str) {
    for number in 0..ROWS {
        let owner = map.node_of(owner(store, number)).unwrap().name();
        let read = get(store, number).await;
        if owner == node {
            assert_eq!(read.unwrap(), Some(value(number)), "row {number}");
            continue;
        }
        let Err(StoreError::Unavailable {
            reason, outcome, ..
        }) = read
        else {
            panic!("row {number} is on node {owner}: {read:?}");
        };
        assert_eq!(
            reason,
            format!("it is not on node '{node}', but on node '{owner}'")
        );
        assert_eq!(outcome, Outcome::NotApplied);
    }
}

/// Returns why a shard does not serve.
fn reason(store: &RedbStore, shard: ShardId) -> String {
    let status = store.status().into_iter().find(|one| one.shard == shard);
    match status.expect("a shard of this node").state {
        ShardState::Unavailable(reason) => reason,
        state => panic!("shard {shard} is {state:?}"),
    }
}

/// The content of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn each_node_begins_and_serves_its_own_shards() {
    let (cluster, map) = Cluster::filled().await;
    let mut scanned = 0;
    for node in ["a", "b"] {
        let store = cluster.open(node, &map);
        assert!(!store.report().was_created);
        assert_has_its_rows(&store, &map, node).await;
        let served: Vec<_> = store.status().iter().map(|status| status.shard).collect();
        assert_eq!(served, map.shards_of(node));
        let reported = store.report().shards.iter();
        assert_eq!(reported.map(|one| one.shard).collect::<Vec<_>>(), served);
        let scan = ScanRequest {
            namespace: NAMESPACE,
            slots: 0..=4_095,
            after: None,
            rows_max: 1_000,
            bytes_max: u32::MAX,
            keys_only: true,
        };
        let call = CallContext::internal();
        for shard in served {
            scanned += store.scan(&call, shard, &scan).await.unwrap().rows.len();
        }
        let others = map.shards_of(if node == "a" { "b" } else { "a" });
        let refused = store.scan(&call, others[0], &scan).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable { shard, .. } if shard == others[0]));
        let foreign = (0..ROWS).find(|&number| others.contains(&owner(&store, number)));
        let answers = write(
            &store,
            &cluster.clock,
            vec![put(key(foreign.unwrap()), b"x", None)],
        );
        assert_eq!(
            answers.await[0].as_ref().unwrap_err().outcome(),
            Outcome::NotApplied
        );
    }
    assert_eq!(scanned, ROWS);
}

#[tokio::test]
async fn files_that_were_copied_go_on_at_the_new_node() {
    let (cluster, map) = Cluster::filled().await;
    let newer = planned(&map, &["a", "b", "c"]);
    let moved = newer.shards_of("c");
    assert_eq!(moved.len(), 2);
    for node in ["a", "b"] {
        assert_eq!(cluster.release(node, &newer).len(), 1);
    }
    for &shard in &moved {
        cluster.copy(shard, map.node_of(shard).unwrap().name(), "c");
    }
    for node in ["a", "b", "c"] {
        let store = cluster.open(node, &newer);
        assert_has_its_rows(&store, &newer, node).await;
        // The file that stayed behind is reported, and left alone.
        let others = &store.report().others;
        assert_eq!(others.len(), usize::from(node != "c"), "{others:?}");
        assert!(others.iter().all(|path| path.exists()));
    }
}

#[tokio::test]
async fn a_missing_file_is_named_and_begun_anew_only_by_an_operators_word() {
    let (cluster, map) = Cluster::filled().await;
    let newer = planned(&map, &["a", "b", "c"]);
    let moved = newer.shards_of("c")[0];
    let from = map.node_of(moved).unwrap().name();
    let store = cluster.open("c", &newer);
    let why = reason(&store, moved);
    let file = format!("shard-{:03}.redb", moved.0);
    assert!(
        why.contains(&file) && why.contains(&format!("node '{from}'")),
        "{why}"
    );
    assert!(why.contains(&format!("--create-shards {moved}")), "{why}");
    assert!(!cluster.folder("c").join(&file).exists());
    drop(store);

    // A file that the folder has had, also under the first map.
    let own = map.shards_of("a")[0];
    let lost = cluster.folder("a").join(format!("shard-{:03}.redb", own.0));
    fs::remove_file(&lost).unwrap();
    let store = cluster.open("a", &map);
    let why = reason(&store, own);
    assert!(why.contains("restore it"), "{why}");
    assert!(!lost.exists());
    drop(store);

    let told = ClusterMember {
        create_missing: vec![own],
        ..member(&map, "a")
    };
    let store = cluster.open_with("a", told.clone());
    assert!(
        store
            .status()
            .iter()
            .all(|one| one.state == ShardState::Available)
    );
    cluster.fill(&store).await;
    drop(store);
    // With the option again, it finds the file and keeps it.
    assert_has_its_rows(&cluster.open_with("a", told), &map, "a").await;
}

#[tokio::test]
async fn a_disk_that_was_replaced_does_not_become_an_empty_shard_later_on() {
    let (cluster, map) = Cluster::filled().await;
    let newer = planned(&planned(&map, &["a", "b", "c"]), &["a", "b"]);
    for entry in fs::read_dir(cluster.folder("a")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let store = cluster.open("a", &newer);
    for status in store.status() {
        let why = reason(&store, status.shard);
        assert!(why.contains("is missing"), "{why}");
    }
}

#[tokio::test]
async fn a_file_that_stayed_behind_is_not_taken_for_the_last() {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["a"]);
    let shard = first.shards_of("b")[0];
    cluster.release("b", &second);
    for shard in first.shards_of("b") {
        cluster.copy(shard, "b", "a");
    }
    let number = (0..ROWS).find(|&number| {
        let partition = &key(number).partition;
        first.shard_map().locate(NAMESPACE, partition) == shard
    });
    let number = number.unwrap();
    let store = cluster.open("a", &second);
    let newer = write(
        &store,
        &cluster.clock,
        vec![put(key(number), b"newer", None)],
    );
    newer.await[0].as_ref().unwrap();
    drop(store);

    let third = planned(&second, &["a", "b"]);
    let back = third.shards_of("b");
    assert!(back.contains(&shard), "{back:?}");
    let store = cluster.open("b", &third);
    let why = reason(&store, shard);
    assert!(
        why.contains("given to node 'a' as move 1") && why.contains("copy the file of node 'a'"),
        "{why}"
    );
    drop(store);

    cluster.release("a", &third);
    cluster.copy(shard, "a", "b");
    let store = cluster.open("b", &third);
    assert_eq!(get(&store, number).await.unwrap(), Some(b"newer".to_vec()));
    drop(store);

    // And the other node's copy is now the one that stayed behind.
    let fourth = planned(&third, &["a"]);
    let accepting = ClusterMember {
        accept: vec![shard],
        ..member(&fourth, "a")
    };
    for member in [member(&fourth, "a"), accepting] {
        let store = cluster.open_with("a", member);
        assert!(reason(&store, shard).contains("given to node 'b' as move 2"));
    }
    // After an operator takes it back it is the valid one.
    reclaim_shard(cluster.folder("a"), &fourth, shard).unwrap();
    let store = cluster.open("a", &fourth);
    assert_eq!(get(&store, number).await.unwrap(), Some(b"newer".to_vec()));
}

#[tokio::test]
async fn a_file_that_was_copied_while_in_use_is_refused() {
    let (cluster, map) = Cluster::filled().await;
    let newer = planned(&map, &["b"]);
    let running = cluster.open("a", &map);
    let shard = map.shards_of("a")[0];
    // Nothing has been written since it was opened, and yet the next write would be lost.
    cluster.copy(shard, "a", "b");
    let store = cluster.open("b", &newer);
    let not_given = "node 'a' has not given this file away";
    let why = reason(&store, shard);
    assert!(why.contains(not_given), "{why}");
    drop(store);
    let refused = release_shards(cluster.folder("a"), &newer, &[], false).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    running.close().await;
    drop(running);
    // A closed file is not given away: the node might open it again.
    cluster.copy(shard, "a", "b");
    let store = cluster.open("b", &newer);
    assert!(reason(&store, shard).contains(not_given));
    drop(store);
    cluster.release("a", &newer);
    cluster.copy(shard, "a", "b");
    let store = cluster.open("b", &newer);
    let status = store.status().into_iter().find(|one| one.shard == shard);
    assert_eq!(status.unwrap().state, ShardState::Available);
}

#[tokio::test]
async fn a_node_goes_on_with_files_that_a_kill_has_left() {
    let (cluster, map) = Cluster::filled().await;
    let running = cluster.open("a", &map);
    let killed = tempfile::tempdir().unwrap();
    for (name, bytes) in contents(cluster.folder("a")) {
        fs::write(killed.path().join(name), bytes).unwrap();
    }
    let store = try_open(killed.path(), member(&map, "a"), &cluster.clock).unwrap();
    assert!(store.report().shards.iter().all(|one| one.was_recovered));
    assert_has_its_rows(&store, &map, "a").await;
    drop(running);
}
