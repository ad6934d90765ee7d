//! Shards that move while their namespace has datasets.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use umbo_store::{
    CallContext, DatasetGroup, RecordsCopy, RecordsKeeper as _, RecordsRevision, Store as _,
};
use umbo_types::NamespaceId;

use super::{Cluster, ROWS, first_map, planned};
use crate::rows::{NAMESPACE, key, value};

const LIVE: NamespaceId = NamespaceId(40);

/// The records of a namespace whose second version is live.
fn activated() -> Arc<RecordsCopy> {
    let group = DatasetGroup {
        epoch: 1,
        live: LIVE,
        kept: vec![NAMESPACE],
        building: None,
        identity: NAMESPACE,
    };
    Arc::new(RecordsCopy {
        revision: RecordsRevision {
            epoch: 1,
            number: 7,
        },
        fenced: Vec::new(),
        datasets: vec![group],
        content: Bytes::new(),
    })
}

#[tokio::test]
async fn a_folder_without_records_places_the_datasets_that_its_files_know() {
    let (cluster, first) = (Cluster::new(), first_map());
    for node in ["a", "b"] {
        let store = cluster.open(node, &first);
        for (_, answer) in store.keep_records(activated()).await {
            answer.unwrap();
        }
        cluster.fill(&store).await;
        store.close().await;
    }
    // Everything moves to a node whose folder is new.
    let second = planned(&first, &["c"]);
    for node in ["a", "b"] {
        cluster.release(node, &second);
        for shard in first.shards_of(node) {
            cluster.copy(shard, node, "c");
        }
    }
    let c = cluster.open("c", &second);
    assert!(!fs::exists(cluster.folder("c").join("records")).unwrap());
    let mut call = CallContext::internal();
    call.placed_as = Some(NAMESPACE);
    for number in 0..ROWS {
        for dataset in [LIVE, NAMESPACE] {
            let row = c.get(&call, dataset, &key(number)).await.unwrap();
            let found = row.map(|row| row.value.bytes.to_vec());
            assert_eq!(found, Some(value(number)), "row {number} of {dataset}");
        }
    }
}
