//! Maps that change while the store is used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbo_routing::{ClusterMap, Succession, SuccessionError};
use umbo_store::StoreReport;
use umbo_store_remote::RemoteSettings;

use crate::cluster::{Cluster, Member, key_in};
use crate::rows::write;
use crate::time::until;

/// Plans the map for some members.
fn planned(cluster: &Cluster, members: &[usize]) -> Arc<ClusterMap> {
    let named = members
        .iter()
        .map(|&at| Member::named(&cluster.members[at]));
    let plan = cluster.map.plan(named.collect()).expect("a plan");
    assert!(!plan.moves.is_empty());
    Arc::new(plan.map)
}

/// A node answers that a shard has moved: its map is fetched, and the request goes to the new node.
#[tokio::test(start_paused = true)]
async fn a_newer_map_is_fetched_from_a_node() {
    let mut cluster = Cluster::start(2);
    let store = cluster.connect(RemoteSettings::default()).await;
    let new = cluster.make();
    cluster.map = planned(&cluster, &[0, 1, 2]);
    cluster.serve(new);
    for at in [0, 1] {
        cluster.follow(at, &cluster.map);
    }
    let at = key_in(&*store, cluster.shard_of(new));
    write(&*store, &at, b"v").await.expect("written");
    assert_eq!(store.map(), *cluster.map);
    let of_the_new = &cluster.members[new].rows;
    let row = crate::rows::read(&**of_the_new, &at).await.expect("served");
    assert!(row.is_some(), "the row is not where the map says");
}

/// The store has the map before the nodes: requests wait for them.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_behind_are_asked_again() {
    let cluster = Cluster::start(2);
    let store = cluster.connect(RemoteSettings::default()).await;
    let moved = cluster.shard_of(1);
    let after = planned(&cluster, &[0]);
    store
        .set_map(ClusterMap::clone(&after))
        .expect("it follows");
    let at = key_in(&*store, moved);
    let task = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { write(&*store, &at, b"v").await })
    };
    until(|| store.stats().retries > 0).await;
    assert!(!task.is_finished());
    cluster.follow(0, &after);
    task.await.expect("no panic").expect("written");
}

/// A node that is removed from the map answers its pending requests before it is disconnected.
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_answers_what_it_was_asked() {
    let cluster = Cluster::start(2);
    let store = cluster.connect(RemoteSettings::default()).await;
    let member = &cluster.members[1];
    let at = key_in(&*store, cluster.shard_of(1));
    member.store.hold(1);
    let task = {
        let (store, at) = (Arc::clone(&store), at.clone());
        tokio::spawn(async move { write(&*store, &at, b"v").await })
    };
    until(|| member.store.held.load(Ordering::SeqCst) == 1).await;
    let map = planned(&cluster, &[0]);
    cluster.follow(0, &map);
    store.set_map(ClusterMap::clone(&map)).expect("it follows");
    assert_eq!(store.nodes().len(), 1);
    write(&*store, &at, b"w")
        .await
        .expect("written to the other");
    member.store.release();
    task.await
        .expect("no panic")
        .expect("answered where it was sent");
    let left = member.node.as_ref().expect("served");
    until(|| left.connections_open() == 0).await;
}

/// A map that is not a successor changes nothing.
#[tokio::test(start_paused = true)]
async fn a_map_that_does_not_follow_is_refused() {
    let cluster = Cluster::start(2);
    let store = cluster.connect(RemoteSettings::default()).await;
    let own = ClusterMap::clone(&cluster.map);
    assert_eq!(store.set_map(own.clone()), Ok(Succession::Same));
    let named = cluster.members.iter().map(Member::named).collect();
    let other = ClusterMap::create("other", named, 6).expect("a map");
    assert!(matches!(
        store.set_map(other),
        Err(SuccessionError::OtherCluster { .. })
    ));
    assert_eq!(store.map(), own);
    let at = key_in(&*store, cluster.shard_of(1));
    write(&*store, &at, b"v").await.expect("written");
}
