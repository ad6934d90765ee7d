//! Files that are given away: the steps of a move in every order, and with steps left out.

use std::fs;
use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_store::{ShardState, Store as _, StoreReport};
use umbo_store_redb::{
    HandOverOutcome, OpenError, RedbStore, given_shards, note_map_version, reclaim_shard,
    release_shards,
};
use umbo_types::ShardId;

use super::{Cluster, assert_has_its_rows, member, nodes, planned, reason, try_open};

fn is_serving(store: &RedbStore, shard: ShardId) -> bool {
    let status = store.status().into_iter().find(|one| one.shard == shard);
    status.is_some_and(|status| status.state == ShardState::Available)
}

/// Two nodes, and the map that gives all shards of `a` to `b`.
async fn moving() -> (Cluster, Arc<ClusterMap>, Arc<ClusterMap>, ShardId) {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["b"]);
    let shard = first.shards_of("a")[0];
    (cluster, first, second, shard)
}

#[tokio::test]
async fn a_node_that_gave_a_shard_away_opens_under_no_older_map() {
    let (cluster, first, second, shard) = moving().await;
    let handed_over = cluster.release("a", &second);
    assert_eq!(handed_over.len(), 3);
    for one in &handed_over {
        assert_eq!(one.outcome, HandOverOutcome::Given);
        assert_eq!((&*one.node, one.moves), ("b", 1));
    }
    let error = try_open(cluster.folder("a"), member(&first, "a"), &cluster.clock).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("version 2") && message.contains("version 1"),
        "{message}"
    );
    assert!(message.contains("umbo cluster map"), "{message}");
    // A folder without that record, such as one restored from a backup, finds it in the file.
    let manifest = cluster.folder("a").join("umbo.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let text = text.replace("\"map_version\": 2", "\"map_version\": 1");
    fs::write(&manifest, text).unwrap();
    let store = cluster.open("a", &first);
    for shard in first.shards_of("a") {
        let why = reason(&store, shard);
        assert!(why.contains("given to node 'b' as move 1"), "{why}");
        assert!(why.contains("the map is too old"), "{why}");
    }
    assert!(!is_serving(&store, shard));
}

#[tokio::test]
async fn releasing_twice_changes_nothing_and_a_copy_from_before_is_refused() {
    let (cluster, first, second, shard) = moving().await;
    cluster.copy(shard, "a", "c");
    cluster.release("a", &second);
    for one in cluster.release("a", &second) {
        assert!(
            matches!(&one.outcome, HandOverOutcome::GivenBefore(to) if to.contains("node 'b'")),
            "{one:?}"
        );
    }
    let only = release_shards(cluster.folder("a"), &second, &[shard], false).unwrap();
    assert_eq!(only.len(), 1);
    // A copy from before the stamp opens at neither node.
    for shard in first.shards_of("a") {
        cluster.copy(shard, "a", "b");
    }
    cluster.copy(shard, "c", "b");
    let store = cluster.open("b", &second);
    assert!(reason(&store, shard).contains("has not given this file away"));
    assert!(is_serving(&store, first.shards_of("a")[1]));
    drop(store);
    cluster.copy(shard, "a", "b");
    assert_has_its_rows(&cluster.open("b", &second), &second, "b").await;
}

#[tokio::test]
async fn the_copy_that_was_taken_over_does_not_replace_the_file_that_went_on() {
    let (cluster, first, second, shard) = moving().await;
    cluster.release("a", &second);
    for shard in first.shards_of("a") {
        cluster.copy(shard, "a", "b");
    }
    let store = cluster.open("b", &second);
    cluster.fill(&store).await;
    drop(store);
    cluster.copy(shard, "a", "b");
    let store = cluster.open("b", &second);
    let why = reason(&store, shard);
    assert!(why.contains("opened the shard as move 1 before"), "{why}");
}

#[tokio::test]
async fn a_node_that_starts_with_the_new_map_stamps_what_it_has_left() {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["a", "b", "c"]);
    let moved = second.shards_of("c");
    for node in ["a", "b"] {
        drop(cluster.open(node, &second));
    }
    for &shard in &moved {
        cluster.copy(shard, first.node_of(shard).unwrap().name(), "c");
    }
    assert_has_its_rows(&cluster.open("c", &second), &second, "c").await;
    for node in ["a", "b"] {
        let given = given_shards(cluster.folder(node), &second).unwrap();
        assert_eq!(given.len(), 1, "{given:?}");
        assert_eq!((&*given[0].node, &*given[0].address), ("c", "c:7411"));
        assert_eq!((given[0].moves, given[0].map_version), (1, 2));
    }
}

#[tokio::test]
async fn a_killed_node_gives_its_files_away_after_they_have_recovered() {
    let (cluster, first, second, shard) = moving().await;
    let running = cluster.open("a", &first);
    cluster.fill(&running).await;
    // As a kill leaves it: the file is copied while it is open.
    for (name, bytes) in super::contents(cluster.folder("a")) {
        fs::write(cluster.folder("c").join(name), bytes).unwrap();
    }
    drop(running);
    let given = release_shards(cluster.folder("c"), &second, &[], false).unwrap();
    assert!(
        given
            .iter()
            .all(|one| one.outcome == HandOverOutcome::Given),
        "{given:?}"
    );
    for shard in first.shards_of("a") {
        cluster.copy(shard, "c", "b");
    }
    let store = cluster.open("b", &second);
    assert!(is_serving(&store, shard));
    assert_has_its_rows(&store, &second, "b").await;
}

#[tokio::test]
async fn a_shard_is_taken_back_only_under_a_map_that_counts_the_way_back() {
    let (cluster, first, second, shard) = moving().await;
    cluster.release("a", &second);
    let refused = reclaim_shard(cluster.folder("a"), &second, shard).unwrap_err();
    assert!(
        refused.to_string().contains("umbo cluster plan"),
        "{refused}"
    );
    let older = reclaim_shard(cluster.folder("a"), &first, shard).unwrap_err();
    assert!(matches!(older, OpenError::OlderMap { .. }), "{older}");

    let back = [shard, first.shards_of("a")[2]];
    let way_back = back.map(|shard| (shard, "a".to_owned()));
    let third = second.plan_moves(nodes(&["a", "b"]), &way_back).unwrap();
    let third = Arc::new(third.map);
    let refused = reclaim_shard(cluster.folder("b"), &third, third.shards_of("b")[0]);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cannot be taken back"), "{refused}");
    let store = cluster.open("a", &third);
    assert!(back.iter().all(|&shard| !is_serving(&store, shard)));
    drop(store);
    for &shard in &back {
        reclaim_shard(cluster.folder("a"), &third, shard).unwrap();
    }
    let store = cluster.open("a", &third);
    assert_has_its_rows(&store, &third, "a").await;
    drop(store);
    // And on from here, in order.
    let fourth = planned(&third, &["b"]);
    for one in cluster.release("a", &fourth) {
        if back.contains(&one.shard) {
            assert_eq!(one.outcome, HandOverOutcome::Given);
        } else {
            assert!(matches!(one.outcome, HandOverOutcome::GivenBefore(_)));
        }
    }
}

#[tokio::test]
async fn a_move_that_was_never_carried_out_needs_an_operators_word_to_go_on() {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["a"]);
    let third = planned(&second, &["a", "c"]);
    let moved: Vec<_> = third
        .shards_of("c")
        .into_iter()
        .filter(|&shard| first.node_of(shard).unwrap().name() == "b")
        .collect();
    assert!(!moved.is_empty());
    for one in release_shards(cluster.folder("b"), &third, &moved, false).unwrap() {
        assert!(matches!(one.outcome, HandOverOutcome::Kept(_)), "{one:?}");
    }
    for one in release_shards(cluster.folder("b"), &third, &moved, true).unwrap() {
        assert_eq!(one.outcome, HandOverOutcome::Given);
        cluster.copy(one.shard, "b", "c");
    }
    let store = cluster.open("c", &third);
    assert!(moved.iter().all(|&shard| is_serving(&store, shard)));
}

#[tokio::test]
async fn a_store_that_is_closed_under_a_plan_gives_its_files_away() {
    let (cluster, first, second, shard) = moving().await;
    let store = cluster.open("a", &first);
    store.give_away(&second).await.unwrap();
    store.close().await;
    drop(store);
    for shard in first.shards_of("a") {
        cluster.copy(shard, "a", "b");
    }
    let store = cluster.open("b", &second);
    assert!(is_serving(&store, shard));
    assert_has_its_rows(&store, &second, "b").await;
    let error = try_open(cluster.folder("a"), member(&first, "a"), &cluster.clock).unwrap_err();
    assert!(matches!(error, OpenError::OlderMap { .. }), "{error}");
}

#[tokio::test]
async fn a_version_that_was_only_heard_of_is_remembered() {
    let (cluster, first) = Cluster::filled().await;
    let folder = cluster.folder("a");
    note_map_version(folder, &first, 5).unwrap();
    for older in [&first, &planned(&first, &["a", "b", "c"])] {
        let error = try_open(folder, member(older, "a"), &cluster.clock).unwrap_err();
        assert!(
            matches!(error, OpenError::OlderMap { found: 5, .. }),
            "{error}"
        );
    }
    let text = first.to_toml().replace("version = 1", "version = 5");
    let fifth = Arc::new(ClusterMap::parse(&text).unwrap());
    assert_has_its_rows(&cluster.open("a", &fifth), &fifth, "a").await;
    // Without a folder there is nothing to record.
    let new = tempfile::tempdir().unwrap();
    note_map_version(new.path(), &first, 5).unwrap();
    assert_eq!(fs::read_dir(new.path()).unwrap().count(), 0);
    let us = ClusterMap::create("geo-us", nodes(&["a"]), 6).unwrap();
    assert!(note_map_version(folder, &Arc::new(us), 6).is_err());
}
