//! The order of writes, and late writes: a write that was given up never overtakes an acknowledged one.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;
use umbo_store::{ByKey as _, CallContext, StoreError, WriteError};
use umbo_store_remote::RemoteSettings;
use umbo_types::Deadline;

use crate::cluster::{Cluster, impatient, key_in};
use crate::network::Mode;
use crate::rows::{put, read, write, write_of};
use crate::time::until;

/// A write that arrives after its deadline is not begun.
#[tokio::test(start_paused = true)]
async fn a_write_that_comes_late_is_not_begun() {
    for len in [1, 200_000] {
        let cluster = Cluster::start(1);
        let settings = RemoteSettings {
            probe_timeout: Duration::from_secs(30),
            ..RemoteSettings::default()
        };
        let store = cluster.connect(settings).await;
        let member = &cluster.members[0];
        let at = key_in(&*store, cluster.shard_of(0));
        let deadline = Deadline::after(cluster.clock().monotonic(), Duration::from_millis(100));
        let call = CallContext::internal_until(deadline);
        member.wire.set(Mode::Frozen);
        let mut late = store.write_rows(&call, write_of(vec![put(&at, &vec![1; len])]));
        assert!((&mut late).now_or_never().is_none());
        until(|| deadline.has_passed(cluster.clock().monotonic())).await;
        member.wire.set(Mode::Open);
        let answer = late.await.remove(0);
        assert!(
            matches!(
                answer,
                Err(WriteError::Store(StoreError::DeadlinePassed { .. }))
            ),
            "{answer:?}"
        );
        assert_eq!(read(&*store, &at).await, Ok(None));
    }
}

/// A write that its caller gave up never overtakes one that was acknowledged later, whatever their sizes.
#[tokio::test(start_paused = true)]
async fn what_was_given_up_does_not_overtake() {
    let cluster = Cluster::start(1);
    let settings = RemoteSettings {
        probe_timeout: Duration::from_secs(30),
        ..RemoteSettings::default()
    };
    let store = cluster.connect(settings).await;
    let member = &cluster.members[0];
    let at = key_in(&*store, cluster.shard_of(0));
    for (first, second) in [(1, 200_000), (200_000, 1), (1, 1), (200_000, 200_000)] {
        for round in 0..10_u8 {
            member.wire.set(Mode::Frozen);
            let old = vec![0xff; first];
            let mut given_up = Box::pin(write(&*store, &at, &old));
            assert!((&mut given_up).now_or_never().is_none());
            drop(given_up);
            let value = vec![round; second];
            let mut later = Box::pin(write(&*store, &at, &value));
            assert!((&mut later).now_or_never().is_none());
            member.wire.set(Mode::Open);
            later.await.expect("written");
            let row = read(&*store, &at).await.expect("served").expect("a row");
            assert_eq!(row.value.bytes, value);
        }
    }
    let row = read(&*store, &at).await.expect("served").expect("a row");
    assert_eq!(row.value.bytes[0], 9);
}

/// Nor does a write on a connection that was closed.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_lost_connection_does_not_overtake() {
    let cluster = Cluster::start(1);
    let settings = RemoteSettings {
        probe_timeout: Duration::from_millis(50),
        silence_max: Duration::from_millis(10),
        grace: Duration::from_secs(10),
        ..impatient()
    };
    let store = cluster.connect(settings).await;
    let member = &cluster.members[0];
    let at = key_in(&*store, cluster.shard_of(0));
    for round in 0..10_u8 {
        member.wire.set(Mode::Frozen);
        let unknown = write(&*store, &at, b"given up").await.expect_err("silent");
        assert_eq!(unknown.outcome(), umbo_store::Outcome::Unknown);
        member.wire.set(Mode::Open);
        let value = [round];
        while write(&*store, &at, &value).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..5 {
            let row = read(&*store, &at).await.expect("served").expect("a row");
            assert_eq!(row.value.bytes[..], value);
        }
    }
}
