//! Reads that are slow are sent a second time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use umbo_store_remote::{RemoteSettings, RemoteStore};

use crate::cluster::{Cluster, RealClock, until};
use crate::rows::{key_in, read, write};

/// Connects, and reads until it is known how long a read takes.
pub(crate) async fn practised(cluster: &Cluster, settings: RemoteSettings) -> Arc<RemoteStore> {
    let store = cluster.connect(settings).await;
    let at = key_in(&*store, cluster.shard_of(0));
    write(&*store, &at, b"v").await.expect("written");
    // What is known of slow reads is worked out once a second.
    for _ in 0..150 {
        for _ in 0..2 {
            assert!(read(&*store, &at).await.expect("served").is_some());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store
}

/// The second answer counts where it comes first, and the first request is cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_answer_counts() {
    let cluster = Cluster::start(1, Arc::new(RealClock)).await;
    let store = practised(&cluster, RemoteSettings::default()).await;
    let at = key_in(&*store, cluster.shard_of(0));
    let member = &cluster.members[0];
    let before = store.stats();
    member.store.hold(1);
    assert!(read(&*store, &at).await.expect("served").is_some());
    let after = store.stats();
    assert!(after.hedges > before.hedges && after.hedges_won > before.hedges_won);
    let node = member.node.as_ref().expect("served");
    until(|| store.stats().in_flight == 0 && node.requests_in_flight() == 0).await;
}

/// Without a budget nothing is sent twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_budget_a_slow_read_waits() {
    let cluster = Cluster::start(1, Arc::new(RealClock)).await;
    let settings = RemoteSettings {
        hedge_percent: 0,
        ..RemoteSettings::default()
    };
    let store = practised(&cluster, settings).await;
    let at = key_in(&*store, cluster.shard_of(0));
    let member = &cluster.members[0];
    member.store.hold(1);
    let task = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { read(&*store, &at).await })
    };
    until(|| member.store.held.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!task.is_finished());
    member.store.release();
    task.await.expect("no panic").expect("served");
    assert_eq!(store.stats().hedges, 0);
}
