//! Shards that move while a namespace is removed.

use std::sync::Arc;

use umbo_store::{RecordsKeeper, StoreError};

use super::follow::follow;
use super::{Cluster, ROWS, owner, planned};
use crate::fences::{fencing, is_gone, reclaimed};

#[tokio::test]
async fn a_shard_that_arrives_is_fenced_by_the_copy_of_its_folder() {
    let (cluster, first) = Cluster::filled().await;
    let second = planned(&first, &["a", "b", "c"]);
    let a = Arc::new(cluster.open("a", &first));
    let b = Arc::new(cluster.open("b", &first));
    let c = Arc::new(cluster.open("c", &second));
    for store in [&a, &b] {
        follow(store, &second).await.unwrap();
    }
    let moved = second.shards_of("c");
    // The file of each shard is being copied: the node has no shard that could take the fence.
    for (shard, answer) in c.keep_records(fencing()).await {
        assert!(moved.contains(&shard));
        assert!(matches!(answer, Err(StoreError::Unavailable { .. })));
    }
    for &shard in &moved {
        cluster.copy(shard, first.node_of(shard).unwrap().name(), "c");
    }
    follow(&c, &second).await.unwrap();
    for number in (0..ROWS).filter(|&number| moved.contains(&owner(&c, number))) {
        assert!(is_gone(&c, number).await, "row {number} is served");
    }
    for (_, answer) in c.keep_records(fencing()).await {
        answer.unwrap();
    }
    reclaimed(&c).await;
    // The shards of the other nodes have not received it.
    let own = (0..ROWS).find(|&number| second.node_of(owner(&a, number)).unwrap().name() == "a");
    assert!(!is_gone(&a, own.unwrap()).await);
}
