//! Sizes of namespaces: exact after every kind of change.

use std::collections::BTreeMap;

use bytes::Bytes;
use umbo_types::NamespaceId;

use crate::suite::subject::{CALL, NS, TestSubject, delete, key, put};
use crate::suite::{Engine, Restart};
use crate::{ByKey as _, Durability, ShardStatus, SortRange, WriteRequest};

const OTHER: NamespaceId = NamespaceId(8);
const PARTITIONS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// Rows and bytes by namespace.
type NamespaceSums = BTreeMap<NamespaceId, (u64, u64)>;

/// Adds up the shards.
fn sums(shards: &[ShardStatus]) -> NamespaceSums {
    let mut sums = NamespaceSums::new();
    for size in shards
        .iter()
        .flat_map(|status| status.sizes.iter().flatten())
    {
        let sum = sums.entry(size.namespace).or_default();
        // Compression changes how the bytes are kept, not how many there are.
        let bytes = size.bytes + size.bytes_saved;
        *sum = (sum.0 + size.rows, sum.1 + bytes);
    }
    sums
}

/// Returns the rows of all namespaces of a shard; none if they are unknown.
fn rows_of(status: &ShardStatus) -> Option<u64> {
    let sizes = status.sizes.as_ref()?;
    Some(sizes.iter().map(|size| size.rows).sum())
}

/// Returns the sizes once they are as expected, or after a while, and checks them against the rows of each
/// shard.
async fn sizes<E: Engine>(
    t: &TestSubject<E>,
    is_so: impl Fn(&NamespaceSums) -> bool,
) -> NamespaceSums {
    let is_told = |shards: &[ShardStatus]| {
        shards
            .iter()
            .all(|status| rows_of(status) == Some(status.rows))
    };
    let shards = t
        .told(|shards| is_told(shards) && is_so(&sums(shards)))
        .await;
    for status in &shards {
        assert_eq!(rows_of(status), Some(status.rows), "shard {}", status.shard);
        let mut sizes = status.sizes.iter().flatten();
        let is_named_for_nothing = sizes.any(|size| size.rows == 0);
        assert!(
            !is_named_for_nothing,
            "a namespace without rows is not named"
        );
    }
    sums(&shards)
}

/// Checks the size of the namespace of most cases.
async fn expect<E: Engine>(t: &TestSubject<E>, size: (u64, u64)) {
    let found = sizes(t, |sizes| sizes.get(&NS) == Some(&size)).await;
    assert_eq!(found.get(&NS), Some(&size));
}

/// Fills two namespaces, and returns their sizes.
async fn fill<E: Engine>(t: &TestSubject<E>) -> NamespaceSums {
    for partition in PARTITIONS {
        let rows = (0..20_u8).map(|n| put(&key(partition, [n]), [0; 100]));
        t.write(rows.collect()).await;
    }
    let elsewhere = WriteRequest {
        namespace: OTHER,
        durability: Durability::Async,
        ..t.request(vec![put(&key("p", "s"), "v")])
    };
    for answer in t.store.write_rows(&CALL, elsewhere).await {
        answer.expect("the store serves");
    }
    let rows = |sizes: &NamespaceSums, id| sizes.get(&id).map_or(0, |size| size.0);
    let full = sizes(t, |sizes| rows(sizes, NS) == 200 && rows(sizes, OTHER) == 1).await;
    assert_eq!((full[&NS].0, full[&OTHER].0), (200, 1));
    full
}

/// Rows that are put, replaced, removed one by one and removed by range are counted.
pub async fn sizes_follow_the_rows<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let before = sizes(&t, |_| true).await;
    assert!(!before.contains_key(&NS));
    let full = fill(&t).await;
    let (rows, bytes) = full[&NS];
    assert!(bytes >= 200 * 102 && full[&OTHER].1 >= 3, "{full:?}");
    // As large as before, smaller, and twice in one request.
    let row = |n: u8, value: &[u8]| put(&key("a", [n]), value);
    t.write(vec![row(0, &[1; 100])]).await;
    expect(&t, (rows, bytes)).await;
    t.write(vec![row(0, &[]), row(1, &[2; 7]), row(1, &[3; 50])])
        .await;
    expect(&t, (rows, bytes - 150)).await;
    t.write(vec![row(0, &[1; 100]), row(1, &[1; 100])]).await;
    expect(&t, (rows, bytes)).await;
    t.write(vec![delete(&key("a", [0])), delete(&key("a", [0]))])
        .await;
    let each = bytes / rows;
    expect(&t, (rows - 1, bytes - each)).await;
    let range = SortRange {
        start: Bytes::from_static(&[5]),
        end: None,
    };
    let removed = t.remove(t.removal("b", range)).await;
    assert_eq!(removed.rows, 15);
    expect(&t, (rows - 16, bytes - 16 * each)).await;
    for partition in PARTITIONS {
        t.remove(t.removal(partition, SortRange::default())).await;
    }
    let left = sizes(&t, |sizes| !sizes.contains_key(&NS)).await;
    assert_eq!((left.get(&NS), left.get(&OTHER)), (None, full.get(&OTHER)));
}

/// Sizes are the same after a restart, whether the store was closed or not.
pub async fn sizes_outlive_a_restart<E: Restart>() {
    let mut t = TestSubject::<E>::fresh().await;
    fill(&t).await;
    t.write(vec![put(&key("a", [0]), "shorter"), delete(&key("a", [1]))])
        .await;
    let size = sizes(&t, |sizes| sizes[&NS].0 == 199).await[&NS];
    assert_eq!(size.0, 199);
    t = t.restart().await;
    expect(&t, size).await;
    t = t.close_and_restart().await;
    expect(&t, size).await;
    t.write(vec![delete(&key("a", [0]))]).await;
    let left = sizes(&t, |sizes| sizes[&NS].0 == 198).await;
    assert_eq!(left[&NS].0, 198);
}
