//! Nodes and wires that fail: the error of each caller, and the recovery.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbo_store::{
    ByKey as _, CallContext, Outcome, ScanRequest, ShardState, Store, StoreError, StoreReport,
    WriteError,
};
use umbo_store_remote::RemoteSettings;

use crate::cluster::{Cluster, impatient, key_in};
use crate::network::Mode;
use crate::rows::{NS, put, read, unavailable, unavailable_for_write, write, write_of};
use crate::time::until;

/// The outcome of a write that was sent and not answered is unknown; a concurrent read is sent again.
#[tokio::test(start_paused = true)]
async fn what_was_sent_and_lost_is_unknown() {
    let cluster = Cluster::start(1);
    let store = cluster.connect(impatient()).await;
    let (shard, member) = (cluster.shard_of(0), &cluster.members[0]);
    let at = key_in(&*store, shard);
    member.store.hold(1);
    let task = {
        let (store, at) = (Arc::clone(&store), at.clone());
        tokio::spawn(async move { write(&*store, &at, b"v").await })
    };
    until(|| member.store.held.load(Ordering::SeqCst) == 1).await;
    member.wire.set(Mode::Cut);
    let answer = task.await.expect("no panic");
    assert_eq!(unavailable_for_write(answer), (shard, Outcome::Unknown));
    member.wire.set(Mode::Open);
    until(|| store.nodes()[0].failure.is_none()).await;
    // Whether it was applied or not, it is not applied after a write that was acknowledged later.
    write(&*store, &at, b"later").await.expect("written");
    member.store.release();
    until(|| {
        member
            .node
            .as_ref()
            .is_some_and(|node| node.requests_in_flight() == 0)
    })
    .await;
    let row = read(&*store, &at).await.expect("served").expect("a row");
    assert_eq!(row.value.bytes, "later");
    assert!(store.stats().connections_lost >= 1);
}

/// A read that was lost is sent again while the budget lasts, and fails without one.
#[tokio::test(start_paused = true)]
async fn lost_reads_are_sent_again_within_the_budget() {
    for percent in [0, 10] {
        let cluster = Cluster::start(1);
        let settings = RemoteSettings {
            retry_percent: percent,
            ..RemoteSettings::default()
        };
        let store = cluster.connect(settings).await;
        let (shard, member) = (cluster.shard_of(0), &cluster.members[0]);
        let at = key_in(&*store, shard);
        write(&*store, &at, b"v").await.expect("written");
        member.store.hold(1);
        let task = {
            let (store, at) = (Arc::clone(&store), at.clone());
            tokio::spawn(async move { read(&*store, &at).await })
        };
        until(|| member.store.held.load(Ordering::SeqCst) == 1).await;
        member.wire.set(Mode::Cut);
        until(|| store.stats().connections_lost == 1).await;
        member.wire.set(Mode::Open);
        let answer = task.await.expect("no panic");
        if percent == 0 {
            assert_eq!(unavailable(&answer.unwrap_err()).0, shard);
            assert_eq!(store.stats().retries, 0);
        } else {
            assert!(answer.expect("sent again").is_some());
            assert!(store.stats().retries > 0);
        }
    }
}

/// While a node is down, requests for its shards fail at once, without effect, and other shards serve; when
/// it is back, everything recovers.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_fails_its_own_shards_only() {
    let mut cluster = Cluster::start(3);
    let store = cluster.connect(impatient()).await;
    let keys: Vec<_> = (0..3)
        .map(|at| key_in(&*store, cluster.shard_of(at)))
        .collect();
    let rows = || keys.iter().map(|key| put(key, b"v")).collect();
    for answer in store
        .write_rows(&CallContext::internal(), write_of(rows()))
        .await
    {
        answer.expect("written");
    }
    cluster.stop(1).await;
    until(|| store.nodes()[1].failure.is_some()).await;
    let down = cluster.shard_of(1);
    assert!(store.is_reachable(down), "nothing to wait for");
    assert_eq!(
        unavailable(&read(&*store, &keys[1]).await.unwrap_err()),
        (down, Outcome::NotApplied)
    );
    let call = CallContext::internal();
    for (at, answer) in store
        .get_rows(&call, NS, &keys)
        .await
        .into_iter()
        .enumerate()
    {
        match answer {
            Ok(row) => assert!(at != 1 && row.is_some()),
            Err(error) => assert_eq!((at, unavailable(&error).0), (1, down)),
        }
    }
    for (at, answer) in store
        .write_rows(&call, write_of(rows()))
        .await
        .into_iter()
        .enumerate()
    {
        match answer {
            Ok(written) => assert!(at != 1 && written.existed),
            answer => assert_eq!(unavailable_for_write(answer), (down, Outcome::NotApplied)),
        }
    }
    let states = store.status();
    for status in &states {
        let is_down = cluster.map.shards_of("node-1").contains(&status.shard);
        let is_told = matches!(status.state, ShardState::Unavailable(_));
        assert_eq!(is_down, is_told, "{status:?}");
    }
    assert!(read(&*store, &keys[0]).await.expect("served").is_some());
    cluster.serve(1);
    until(|| store.nodes()[1].failure.is_none()).await;
    assert!(read(&*store, &keys[1]).await.expect("served").is_some());
}

/// The connection to a node that is connected but sends nothing is closed; other nodes are not affected.
#[tokio::test(start_paused = true)]
async fn a_frozen_node_is_given_up() {
    for mode in [Mode::Frozen, Mode::Deaf] {
        let cluster = Cluster::start(2);
        let store = cluster.connect(impatient()).await;
        let keys = [0, 1].map(|at| key_in(&*store, cluster.shard_of(at)));
        for key in &keys {
            write(&*store, key, b"v").await.expect("written");
        }
        cluster.members[0].wire.set(mode);
        // The wait for it is not charged as work of its shard.
        let call = CallContext::internal();
        let get = store.get_row(&call, NS, &keys[0]);
        get.await.expect_err("the node is silent");
        assert!(call.busy_time().expect("known").as_micros() == 0);
        cluster.members[0].wire.set(Mode::Open);
        until(|| store.nodes()[0].failure.is_none()).await;
        cluster.members[0].wire.set(mode);
        let asked = tokio::join!(
            read(&*store, &keys[0]),
            write(&*store, &keys[0], b"w"),
            read(&*store, &keys[1])
        );
        unavailable(&asked.0.expect_err("the node is silent"));
        assert_eq!(unavailable_for_write(asked.1).1, Outcome::Unknown);
        assert!(asked.2.expect("the other serves").is_some());
        until(|| store.nodes()[0].failure.is_some()).await;
        unavailable(&read(&*store, &keys[0]).await.unwrap_err());
        assert_eq!(store.nodes()[0].in_flight, Some(0));
        assert!(store.nodes()[1].failure.is_none());
        cluster.members[0].wire.set(Mode::Open);
        until(|| store.nodes()[0].failure.is_none()).await;
        assert!(read(&*store, &keys[0]).await.expect("it is back").is_some());
    }
}

/// A scan fails in the failing shard, and only there.
#[tokio::test(start_paused = true)]
async fn a_scan_of_another_shard_does_not_fail() {
    let mut cluster = Cluster::start(2);
    let store = cluster.connect(impatient()).await;
    let keys = [0, 1].map(|at| key_in(&*store, cluster.shard_of(at)));
    for key in &keys {
        write(&*store, key, b"v").await.expect("written");
    }
    cluster.stop(1).await;
    until(|| store.nodes()[1].failure.is_some()).await;
    let call = CallContext::internal();
    let scan = ScanRequest {
        namespace: NS,
        slots: 0..=4_095,
        after: None,
        rows_max: 10,
        bytes_max: 1 << 20,
        keys_only: false,
    };
    let down = store.scan(&call, cluster.shard_of(1), &scan).await;
    unavailable(&down.unwrap_err());
    let page = store.scan(&call, cluster.shard_of(0), &scan).await;
    assert_eq!(page.expect("served").rows.len(), 1);
}

/// When the caller goes away, the node is notified, and the entry is free.
#[tokio::test(start_paused = true)]
async fn a_dropped_read_is_cancelled() {
    let cluster = Cluster::start(1);
    let store = cluster.connect(RemoteSettings::default()).await;
    let member = &cluster.members[0];
    let at = key_in(&*store, cluster.shard_of(0));
    member.store.hold(1);
    let task = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { read(&*store, &at).await })
    };
    until(|| member.store.held.load(Ordering::SeqCst) == 1).await;
    assert_eq!(store.stats().in_flight, 1);
    task.abort();
    until(|| store.stats().in_flight == 0).await;
    let node = member.node.as_ref().expect("served");
    until(|| node.requests_in_flight() == 0).await;
}

/// Closing a store waits for all answers, and refuses new requests.
#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_is_under_way() {
    let cluster = Cluster::start(1);
    let store = cluster.connect(RemoteSettings::default()).await;
    let member = &cluster.members[0];
    let at = key_in(&*store, cluster.shard_of(0));
    member.store.hold(1);
    let task = {
        let (store, at) = (Arc::clone(&store), at.clone());
        tokio::spawn(async move { write(&*store, &at, b"v").await })
    };
    until(|| member.store.held.load(Ordering::SeqCst) == 1).await;
    let closing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.close().await })
    };
    until(|| !store.is_reachable(cluster.shard_of(0)) || store.nodes()[0].failure.is_some()).await;
    let late = write(&*store, &at, b"late").await;
    assert_eq!(late, Err(WriteError::Store(StoreError::Closing)));
    assert_eq!(read(&*store, &at).await, Err(StoreError::Closing));
    member.store.release();
    task.await
        .expect("no panic")
        .expect("what was sent is answered");
    closing.await.expect("no panic");
    until(|| {
        member
            .node
            .as_ref()
            .is_some_and(|node| node.connections_open() == 0)
    })
    .await;
}
