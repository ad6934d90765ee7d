//! Maps that change while a store serves.

use std::sync::Arc;

use tokio::sync::Notify;
use umbo_routing::ClusterMap;
use umbo_store::{Outcome, ShardState, Store, StoreReport};
use umbo_store_redb::{OpenError, RedbStore, ShardOpening};
use umbo_types::ShardId;

use super::{
    Cluster, ROWS, SHARDS, assert_has_its_rows, first_map, get, nodes, owner, planned, reason,
};
use crate::rows::{self, key, put, value, write};

pub(super) async fn follow(
    store: &Arc<RedbStore>,
    map: &Arc<ClusterMap>,
) -> Result<Vec<ShardOpening>, OpenError> {
    store.follow(map).await
}

fn shards_of(reports: &[ShardOpening]) -> Vec<ShardId> {
    reports.iter().map(|report| report.shard).collect()
}

fn is_serving(store: &RedbStore, shard: ShardId) -> bool {
    let status = store.status().into_iter().find(|one| one.shard == shard);
    status.is_some_and(|status| status.state == ShardState::Available)
}

#[tokio::test]
async fn files_move_while_the_other_shards_serve() {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["a", "b", "c"]);
    let a = Arc::new(cluster.open("a", &first));
    let b = Arc::new(cluster.open("b", &first));
    let c = Arc::new(cluster.open("c", &second));
    let moved = second.shards_of("c");
    for store in [&a, &b] {
        assert_eq!(follow(store, &second).await.unwrap(), []);
    }
    assert_has_its_rows(&a, &second, "a").await;
    assert_has_its_rows(&b, &second, "b").await;
    for &shard in &moved {
        assert!(reason(&c, shard).contains("has moved here"));
        cluster.copy(shard, first.node_of(shard).unwrap().name(), "c");
    }
    // The same map once more: the file that was missing is there now.
    let reports = follow(&c, &second).await.unwrap();
    assert_eq!(shards_of(&reports), moved);
    assert_has_its_rows(&c, &second, "c").await;
    for number in (0..ROWS).filter(|&number| moved.contains(&owner(&c, number))) {
        let row = write(&c, &cluster.clock, vec![put(key(number), b"newer", None)]);
        row.await[0].as_ref().unwrap();
    }

    // And back, into stores that have never stopped.
    let third = planned(&second, &["a", "b"]);
    assert_eq!(follow(&c, &third).await.unwrap(), []);
    assert!(c.status().is_empty());
    for (name, store) in [("a", &a), ("b", &b)] {
        let back: Vec<_> = third.shards_of(name);
        let back: Vec<_> = back
            .into_iter()
            .filter(|shard| moved.contains(shard))
            .collect();
        let reports = follow(store, &third).await.unwrap();
        assert_eq!(shards_of(&reports), back);
        for &shard in &back {
            let why = reason(store, shard);
            let has_had = first.node_of(shard).unwrap().name() == name;
            let expected = if has_had {
                "copy the file of node 'c'"
            } else {
                "has moved here"
            };
            assert!(why.contains(expected), "{why}");
            cluster.copy(shard, "c", name);
        }
        follow(store, &third).await.unwrap();
        for number in 0..ROWS {
            let shard = owner(store, number);
            if third.node_of(shard).unwrap().name() == name {
                let newest = if moved.contains(&shard) {
                    b"newer".to_vec()
                } else {
                    value(number)
                };
                assert_eq!(get(store, number).await.unwrap(), Some(newest));
            }
        }
    }
}

#[tokio::test]
async fn a_shard_that_was_away_between_two_maps_is_opened_anew() {
    let (cluster, first) = Cluster::filled().await;
    let third = planned(&planned(&first, &["a"]), &["a", "b"]);
    let away: Vec<_> = third.shards_of("b");
    let b = Arc::new(cluster.open("b", &first));
    // The map in between was never seen here, so no other node can have had what is open here.
    let reports = follow(&b, &third).await.unwrap();
    assert_eq!(shards_of(&reports), away);
    assert_has_its_rows(&b, &third, "b").await;
    drop(b);
    // After a restart that is no longer known.
    let (cluster, first) = Cluster::filled().await;
    drop(first);
    let b = cluster.open("b", &third);
    for shard in third.shards_of("b") {
        assert!(reason(&b, shard).contains("the file is outdated"));
    }
}

#[tokio::test]
async fn what_was_acknowledged_before_a_shard_left_is_in_its_file() {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["b"]);
    let a = Arc::new(cluster.open("a", &first));
    let own: Vec<usize> = (0..ROWS)
        .filter(|&number| first.node_of(owner(&a, number)).unwrap().name() == "a")
        .collect();
    let is_written = Arc::new(Notify::new());
    let writer = {
        let (a, clock, own) = (Arc::clone(&a), Arc::clone(&cluster.clock), own.clone());
        let is_written = Arc::clone(&is_written);
        tokio::spawn(async move {
            let mut acknowledged = vec![0_u32; ROWS];
            for round in 1.. {
                for &number in &own {
                    let value = round.to_string();
                    let row = put(key(number), value.as_bytes(), None);
                    match &write(&a, &clock, vec![row]).await[0] {
                        Ok(_) => acknowledged[number] = round,
                        Err(error) => {
                            assert_eq!(error.outcome(), Outcome::NotApplied);
                            return acknowledged;
                        }
                    }
                }
                is_written.notify_one();
            }
            acknowledged
        })
    };
    // While the next round is written.
    is_written.notified().await;
    follow(&a, &second).await.unwrap();
    let acknowledged = writer.await.unwrap();
    for shard in first.shards_of("a") {
        cluster.copy(shard, "a", "b");
    }
    let b = cluster.open("b", &second);
    for number in own {
        let expected = match acknowledged[number] {
            0 => value(number),
            round => round.to_string().into_bytes(),
        };
        assert_eq!(
            get(&b, number).await.unwrap(),
            Some(expected),
            "row {number}"
        );
    }
    assert!(acknowledged.iter().any(|&round| round > 0));
}

#[tokio::test]
async fn a_map_that_does_not_follow_changes_nothing() {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["a", "b", "c"]);
    let a = Arc::new(cluster.open("a", &second));
    let others = Arc::new(ClusterMap::create("geo-us", nodes(&["a", "b"]), SHARDS).unwrap());
    for map in [&first, &others] {
        let error = follow(&a, map).await.unwrap_err();
        assert!(matches!(error, OpenError::NoSuccessor(_)), "{error}");
        assert_has_its_rows(&a, &second, "a").await;
    }
    let shard = second.shards_of("a")[0];
    assert!(is_serving(&a, shard));
    // Followed once, an older map is refused after a restart too.
    let third = planned(&second, &["a", "b"]);
    follow(&a, &third).await.unwrap();
    a.close().await;
    let error = follow(&a, &third).await.unwrap_err();
    assert!(matches!(error, OpenError::Closed { .. }), "{error}");
    drop(a);
    let error = super::try_open(
        cluster.folder("a"),
        super::member(&second, "a"),
        &cluster.clock,
    );
    assert!(matches!(
        error,
        Err(OpenError::OlderMap {
            found: 3,
            version: 2,
            ..
        })
    ));
}

#[tokio::test]
async fn a_node_that_left_the_cluster_holds_nothing() {
    let (cluster, first) = Cluster::filled().await;
    let a = Arc::new(cluster.open("a", &first));
    let second = planned(&first, &["b"]);
    assert_eq!(follow(&a, &second).await.unwrap(), []);
    assert!(a.status().is_empty());
    assert_has_its_rows(&a, &second, "a").await;
}

#[tokio::test]
async fn a_server_on_its_own_follows_no_map() {
    let folder = tempfile::tempdir().unwrap();
    let clock = rows::clock();
    let store = Arc::new(rows::open(folder.path(), &clock));
    let error = follow(&store, &first_map()).await.unwrap_err();
    assert!(matches!(error, OpenError::LoneFolder { .. }), "{error}");
    rows::fill(&store, &clock, 10).await;
}
