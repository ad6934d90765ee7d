//! Space: expired rows are reclaimed in bounded steps, overwritten rows do not grow the file.

use std::time::Duration;

use crate::rows::{NAMESPACE, clock, get, key, later, put, try_open, write};
use umbo_store::{SortRange, Store};

#[tokio::test]
async fn expired_rows_are_reclaimed_between_commits() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    let expiry = later(&clock, Duration::from_mins(1));
    let rows = (0..1_000).map(|number| put(key(number), b"value", Some(expiry)));
    write(&store, &clock, rows.collect()).await;
    // Some get another life, some lose their expiry, some go before their time.
    let far = later(&clock, Duration::from_mins(10));
    write(&store, &clock, vec![put(key(0), b"kept", None)]).await;
    write(&store, &clock, vec![put(key(1), b"longer", Some(far))]).await;
    let first = key(2);
    store
        .delete_range(
            &umbo_store::CallContext::internal(),
            umbo_store::DeleteRangeRequest {
                namespace: NAMESPACE,
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
    // Each commit takes a step along, so that it ends within a known number of commits.
    for _ in 0..40 {
        write(&store, &clock, vec![put(key(0), b"again", None)]).await;
    }
    let status = store.status().remove(0);
    assert_eq!((status.reclaimed, status.rows), (997, 2));
    assert!(get(&store, 0).await.is_some() && get(&store, 1).await.is_some());
    clock.advance(Duration::from_mins(10));
    write(&store, &clock, vec![put(key(0), b"again", None)]).await;
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
    // The committer looks at the clock once a second; a minute is for a machine that is stuck.
    let begun = std::time::Instant::now();
    while store.status()[0].reclaimed < 1_000 && begun.elapsed() < Duration::from_mins(1) {
        tokio::task::yield_now().await;
    }
    let status = store.status().remove(0);
    assert_eq!((status.reclaimed, status.rows), (1_000, 0));
}

#[tokio::test]
async fn overwriting_does_not_grow_the_file_without_bound() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    let mut sizes = Vec::new();
    for round in 0..100_usize {
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
    let (middle, last) = (sizes[49], sizes[99]);
    assert!(last <= middle, "{middle} bytes became {last}");
}
