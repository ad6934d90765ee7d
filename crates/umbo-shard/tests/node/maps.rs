//! A node uses a newer map while it serves.

use std::sync::Arc;

use umbo_protocol::{Ask, NodeError, Outcome, StatusOfNode};
use umbo_routing::ClusterMap;
use umbo_store::{ShardState, StoreError};
use umbo_types::ShardId;

use crate::support::{Started, get, key_of, map, put};

/// Version 2: shard 0 moves from `a` to `b`.
fn without_shard_0() -> ClusterMap {
    let text = map().to_toml().replace("version = 1", "version = 2");
    let moved = text.replacen("node = \"a\"", "node = \"b\"\nmoves = 1\nfrom = \"a\"", 1);
    ClusterMap::parse(&moved).unwrap()
}

#[tokio::test]
async fn a_shard_that_was_given_away_is_refused_from_then_on() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let (gone, kept) = (key_of(0, 0), key_of(1, 0));
    peer.ask(put(&gone, "x")).await;
    assert_eq!(
        node.node.replace_map(Arc::new(without_shard_0())),
        Ok(Vec::new())
    );
    for ask in [get(&gone), put(&gone, "y")] {
        let answer = peer.ask(ask).await;
        let error = match answer.outcome {
            Outcome::Failed(error) => error,
            Outcome::Written(mut all) => all.remove(0).unwrap_err(),
            other => panic!("{other:?}"),
        };
        let shard = ShardId(0);
        let map_version = 2;
        assert_eq!(error, NodeError::NotOwner { shard, map_version });
    }
    assert!(matches!(
        peer.ask(get(&kept)).await.outcome,
        Outcome::Row(None)
    ));
    let answer = peer.ask(Ask::Probe).await;
    let Outcome::Status(StatusOfNode {
        map_version: 2,
        shards,
        ..
    }) = &answer.outcome
    else {
        panic!("{answer:?}")
    };
    assert_eq!(shards.len(), 1);
}

#[tokio::test]
async fn a_shard_that_comes_waits_for_the_next_start() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let text = map().to_toml().replace("version = 1", "version = 2");
    let text = text.replacen("node = \"b\"", "node = \"a\"\nmoves = 1\nfrom = \"b\"", 1);
    let newer = Arc::new(ClusterMap::parse(&text).unwrap());
    let unopened = node.node.replace_map(newer).unwrap();
    // The store of this test has all shards open, as one that had the shard before would.
    let answer = peer.ask(get(&key_of(2, 0))).await;
    let is_unavailable = matches!(
        &answer.outcome,
        Outcome::Failed(NodeError::Store(StoreError::Unavailable { shard, .. })) if shard.0 == 2
    );
    assert!(is_unavailable, "{answer:?}");
    assert_eq!(unopened, [ShardId(2)]);
    let answer = peer.ask(Ask::Probe).await;
    let Outcome::Status(StatusOfNode {
        map_version: 2,
        shards,
        ..
    }) = &answer.outcome
    else {
        panic!("{answer:?}")
    };
    let states: Vec<_> = shards
        .iter()
        .map(|shard| (shard.shard.0, shard.state == ShardState::Available))
        .collect();
    assert_eq!(states, [(0, true), (1, true), (2, false)]);
}

#[tokio::test]
async fn a_map_that_does_not_follow_changes_nothing() {
    let node = Started::new();
    let other = map().to_toml().replace("\"test\"", "\"others\"");
    let other = Arc::new(ClusterMap::parse(&other).unwrap());
    assert!(node.node.replace_map(other).is_err());
    assert_eq!(node.node.replace_map(Arc::new(map())), Ok(Vec::new()));
    assert_eq!(node.node.cluster_map().version(), 1);
}
