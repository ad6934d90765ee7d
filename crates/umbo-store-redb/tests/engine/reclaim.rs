//! Space: expired rows are reclaimed in bounded steps, overwritten rows do not grow the file.

use std::time::Duration;

use crate::rows::{NAMESPACE, clock, get, key, later, put, try_open, write};
use umbo_store::{ByKey as _, SortRange, Store, StoreReport};
use umbo_types::Clock;

/// Most rows of a memtable.
const MEMTABLE_ROWS_MAX: u64 = 16_384;

#[tokio::test]
async fn expired_rows_are_reclaimed_between_commits() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    let expiry = later(&clock, Duration::from_mins(1));
    let rows = (0..1_000).map(|number| put(key(number), b"value", Some(expiry)));
    write(&store, &clock, rows.collect()).await;
    // Some get a new expiry, some lose theirs, some are removed before it.
    let far = later(&clock, Duration::from_mins(10));
    write(&store, &clock, vec![put(key(0), b"kept", None)]).await;
    write(&store, &clock, vec![put(key(1), b"longer", Some(far))]).await;
    let first = key(2);
    store
        .remove_rows(
            &umbo_store::CallContext::internal(),
            umbo_store::DeleteRangeRequest {
                namespace: NAMESPACE,
                epoch: 0,
                partition: first.partition.clone(),
                range: SortRange::default(),
                rows_max: 10,
                durability: umbo_store::Durability::Sync,
            },
        )
        .await
        .unwrap();
    assert_eq!(store.status()[0].rows, 999);
    assert_eq!(store.status()[0].reclaimed, 0);
    clock.advance(Duration::from_mins(1));
    for number in 3..1_000 {
        assert!(get(&store, number).await.is_none());
    }
    while store.status()[0].rows > 2 {
        write(&store, &clock, vec![put(key(0), b"again", None)]).await;
    }
    let status = store.status().remove(0);
    assert_eq!((status.reclaimed, status.rows), (997, 2));
    assert!(get(&store, 0).await.is_some() && get(&store, 1).await.is_some());
    clock.advance(Duration::from_mins(10));
    while store.status()[0].rows > 1 {
        write(&store, &clock, vec![put(key(0), b"again", None)]).await;
    }
    let status = store.status().remove(0);
    assert_eq!((status.reclaimed, status.rows), (998, 1));
}

#[tokio::test]
async fn an_idle_store_reclaims_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    let expiry = later(&clock, Duration::from_mins(1));
    let rows = (0..1_000).map(|number| put(key(number), b"value", Some(expiry)));
    write(&store, &clock, rows.collect()).await;
    clock.advance(Duration::from_secs(61));
    // The committer checks the clock once a second.
    let reclaiming = async {
        while store.status()[0].reclaimed < 1_000 {
            tokio::task::yield_now().await;
        }
    };
    let reclaimed = tokio::time::timeout(Duration::from_mins(1), reclaiming).await;
    reclaimed.expect("an idle store reclaims");
    let status = store.status().remove(0);
    assert_eq!((status.reclaimed, status.rows), (1_000, 0));
}

/// Batches that expire after a second, from a caller that never pauses: the stored rows stay near the number
/// of live rows.
#[tokio::test]
async fn reclaiming_keeps_pace_with_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    let mut most = 0;
    for round in 0..200 {
        let expiry = later(&clock, Duration::from_secs(1));
        let rows = (0..1_000).map(|n| put(key(round * 1_000 + n), b"value", Some(expiry)));
        write(&store, &clock, rows.collect()).await;
        most = most.max(store.status()[0].rows);
        clock.advance(Duration::from_millis(500));
    }
    // The rows of two rounds are live at a time; those of the round before may await reclaiming, and those that come
    // while the memtable before is applied.
    assert!(
        most <= 4_000 + 2 * MEMTABLE_ROWS_MAX,
        "{most} rows are stored"
    );
}

#[tokio::test]
async fn expired_rows_that_await_reclaiming_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    let expiry = later(&clock, Duration::from_secs(1));
    for part in 0..10 {
        let rows = (0..1_000).map(|n| put(key(part * 1_000 + n), b"value", Some(expiry)));
        write(&store, &clock, rows.collect()).await;
    }
    assert_eq!(store.status()[0].expired, 0);
    clock.advance(Duration::from_secs(1));
    write(&store, &clock, vec![put(key(0), b"value", None)]).await;
    while store.status()[0].rows == 10_000 {
        tokio::task::yield_now().await;
    }
    let status = store.status().remove(0);
    let (expired, rows) = (status.expired, status.rows);
    assert!(
        (1..=rows).contains(&expired) || rows == 1,
        "{expired} of {rows}"
    );
    while store.status()[0].rows > 1 {
        tokio::task::yield_now().await;
    }
    write(&store, &clock, vec![put(key(0), b"value", None)]).await;
    assert_eq!(store.status()[0].expired, 0);
}

/// Rows that a jump of the clock hides are not reclaimed, and are there again when the clock goes back.
#[tokio::test]
async fn a_clock_that_jumps_ahead_costs_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let mut store = try_open(folder.path(), Some(1), &clock).unwrap();
    let expiry = later(&clock, Duration::from_hours(1));
    let rows = (0..500).map(|number| put(key(number), b"value", Some(expiry)));
    write(&store, &clock, rows.collect()).await;
    let right = clock.wall();
    let wrong = later(&clock, Duration::from_hours(100_000));
    for reopens in [false, true] {
        clock.set_wall(wrong);
        if reopens {
            // The clock may be wrong from the start.
            store.close().await;
            drop(store);
            store = try_open(folder.path(), Some(1), &clock).unwrap();
        }
        for _ in 0..20 {
            write(&store, &clock, vec![put(key(1_000), b"value", None)]).await;
            clock.advance(Duration::from_secs(1));
        }
        assert!(get(&store, 0).await.is_none(), "it has expired for readers");
        assert_eq!(store.status()[0].reclaimed, 0);
        assert_eq!(store.status()[0].rows, 501);
        clock.set_wall(right);
        assert!(get(&store, 0).await.is_some());
        write(&store, &clock, vec![put(key(1_000), b"value", None)]).await;
    }
    // A time of day that lasts is trusted.
    clock.set_wall(wrong);
    write(&store, &clock, vec![put(key(1_000), b"value", None)]).await;
    clock.advance(Duration::from_mins(11));
    while store.status()[0].rows > 1 {
        write(&store, &clock, vec![put(key(1_000), b"value", None)]).await;
    }
    assert_eq!(store.status()[0].reclaimed, 500);
}

#[tokio::test]
async fn overwriting_does_not_grow_the_file_without_bound() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    let mut sizes = Vec::new();
    for round in 0..1_000_usize {
        // A different hundred of the thousand rows each time, read meanwhile.
        let rows = (0..100).map(|number| {
            let number = (number * 10 + round) % 1_000;
            put(key(number), &[round as u8; 500], None)
        });
        write(&store, &clock, rows.collect()).await;
        assert!(get(&store, round % 10).await.is_some());
        sizes.push(store.status()[0].file_bytes);
    }
    assert_eq!(store.status()[0].rows, 1_000);
    let (middle, last) = (sizes[499], sizes[999]);
    assert!(last <= middle, "{middle} bytes became {last}");
}
