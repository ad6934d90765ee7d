//! Sizes of namespaces: exact after every kind of change.

use std::collections::BTreeMap;

use bytes::Bytes;
use umbo_types::NamespaceId;

use crate::suite::subject::{CALL, NS, TestSubject, delete, key, put, whole};
use crate::suite::{Engine, Restart};
use crate::{Durability, SortRange, Store, WriteRequest};

const OTHER: NamespaceId = NamespaceId(8);
const PARTITIONS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// Returns rows and bytes of each namespace over all shards, and checks them against the rows of each shard.
fn sizes(store: &dyn Store) -> BTreeMap<NamespaceId, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for status in store.status() {
        let sizes = status.sizes.expect("the shard serves");
        let rows: u64 = sizes.iter().map(|size| size.rows).sum();
        assert_eq!(rows, status.rows, "shard {}", status.shard);
        for size in sizes {
            assert!(size.rows > 0, "a namespace without rows is not named");
            let sum: &mut (u64, u64) = sums.entry(size.namespace).or_default();
            *sum = (sum.0 + size.rows, sum.1 + size.bytes);
        }
    }
    sums
}

async fn fill<E: Engine>(t: &TestSubject<E>) {
    for partition in PARTITIONS {
        let rows = (0..20_u8).map(|n| put(&key(partition, [n]), [0; 100]));
        t.write(rows.collect()).await;
    }
    let elsewhere = WriteRequest {
        namespace: OTHER,
        durability: Durability::Async,
        ..t.request(vec![put(&key("p", "s"), "v")])
    };
    for answer in t.store.write(&CALL, elsewhere).await {
        answer.expect("the store serves");
    }
}

/// Rows that are put, replaced, removed one by one and removed by range are counted.
pub async fn sizes_follow_the_rows<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    assert!(!sizes(&*t.store).contains_key(&NS));
    fill(&t).await;
    let full = sizes(&*t.store);
    assert_eq!((full[&NS].0, full[&OTHER].0), (200, 1));
    let bytes = full[&NS].1;
    assert!(bytes >= 200 * 102 && full[&OTHER].1 >= 3, "{full:?}");
    // As large as before, smaller, and twice in one request.
    let row = |n: u8, value: &[u8]| put(&key("a", [n]), value);
    t.write(vec![row(0, &[1; 100])]).await;
    assert_eq!(sizes(&*t.store), full);
    t.write(vec![row(0, &[]), row(1, &[2; 7]), row(1, &[3; 50])])
        .await;
    assert_eq!(sizes(&*t.store)[&NS], (200, bytes - 150));
    t.write(vec![row(0, &[1; 100]), row(1, &[1; 100])]).await;
    assert_eq!(sizes(&*t.store), full);
    t.write(vec![delete(&key("a", [0])), delete(&key("a", [0]))])
        .await;
    let each = bytes / 200;
    assert_eq!(sizes(&*t.store)[&NS], (199, bytes - each));
    let range = SortRange {
        start: Bytes::from_static(&[5]),
        end: None,
    };
    let removed = t.remove(t.removal("b", range)).await;
    assert_eq!(removed.rows, 15);
    assert_eq!(sizes(&*t.store)[&NS], (184, bytes - 16 * each));
    for partition in PARTITIONS {
        t.remove(t.removal(partition, SortRange::default())).await;
    }
    assert_eq!(t.walk(&whole("a")).await.len(), 0);
    assert!(!sizes(&*t.store).contains_key(&NS), "it has no rows");
    assert_eq!(sizes(&*t.store)[&OTHER], full[&OTHER]);
}

/// Sizes are the same after a restart, whether the store was closed or not.
pub async fn sizes_outlive_a_restart<E: Restart>() {
    let mut t = TestSubject::<E>::fresh().await;
    fill(&t).await;
    t.write(vec![put(&key("a", [0]), "shorter"), delete(&key("a", [1]))])
        .await;
    let before = sizes(&*t.store);
    assert_eq!(before[&NS].0, 199);
    t = t.restart().await;
    assert_eq!(sizes(&*t.store)[&NS], before[&NS]);
    t = t.close_and_restart().await;
    assert_eq!(sizes(&*t.store)[&NS], before[&NS]);
    t.write(vec![delete(&key("a", [0]))]).await;
    assert_eq!(sizes(&*t.store)[&NS].0, 198);
}
