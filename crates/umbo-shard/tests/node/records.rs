//! Umbo's own records: the node's store keeps copies, and changes are accepted only in their home.

use std::sync::Arc;

use bytes::Bytes;
use umbo_protocol::{Ask, NodeError, Outcome, Request};
use umbo_store::{DatasetGroup, RecordsCopy, RecordsRevision, StoreError, WriteRequest};
use umbo_types::{Key, NamespaceId, ShardId};

use crate::support::{NS, Started, get, hello, key_of, map, mutation, put, request, write_of};

fn copy(number: u64, len: usize) -> Arc<RecordsCopy> {
    Arc::new(RecordsCopy {
        revision: RecordsRevision { epoch: 1, number },
        fenced: vec![NS.into()],
        datasets: Vec::new(),
        content: Bytes::from(vec![5; len]),
    })
}

#[tokio::test]
async fn a_copy_is_kept_and_every_frame_says_its_revision() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let key = key_of(0, 0);
    peer.ask(put(&key, "x")).await;
    let answer = peer.ask(Ask::KeptRecords).await;
    assert_eq!(answer.outcome, Outcome::KeptRecords(None));
    // A copy that comes in chunks.
    let kept = copy(3, 300 << 10);
    let answer = peer.ask(Ask::KeepRecords(Arc::clone(&kept))).await;
    let own = vec![(ShardId(0), Ok(())), (ShardId(1), Ok(()))];
    assert_eq!(
        answer.outcome,
        Outcome::RecordsKept(own),
        "the shards of the node"
    );
    assert_eq!(peer.stamp.records, kept.revision);
    let answer = peer.ask(Ask::KeptRecords).await;
    assert_eq!(answer.outcome, Outcome::KeptRecords(Some(kept)));
    let answer = peer.ask(get(&key)).await;
    let gone = StoreError::NamespaceGone {
        shard: ShardId(0),
        namespace: NS,
    };
    assert_eq!(answer.outcome, Outcome::Failed(NodeError::Store(gone)));
}

/// A key of Umbo's own namespace that a shard owns.
fn own_key(shard: u16) -> Key {
    let map = map();
    let keys = (0..).map(|at| Key::new(format!("r{at}"), "").unwrap());
    let is_in = |key: &Key| {
        let own = map.shard_map().locate(NamespaceId::SYSTEM, &key.partition);
        own == ShardId(shard)
    };
    keys.into_iter().find(is_in).unwrap()
}

#[tokio::test]
async fn records_are_changed_in_their_home_and_nowhere_else() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let write = |shard| WriteRequest {
        namespace: NamespaceId::SYSTEM,
        ..write_of(vec![mutation(&own_key(shard), "x")])
    };
    let answer = peer.ask(Ask::Write(write(0))).await;
    assert!(matches!(&answer.outcome, Outcome::Written(all) if matches!(all[..], [Ok(Ok(_))])));
    let refused = |error: &NodeError| match error {
        NodeError::Store(StoreError::Unavailable {
            shard,
            reason,
            outcome,
        }) => {
            *shard == ShardId(1)
                && reason.contains("shard 0")
                && *outcome == umbo_store::Outcome::NotApplied
        }
        _ => false,
    };
    let answer = peer.ask(Ask::Write(write(1))).await;
    let Outcome::Failed(error) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert!(refused(error), "{error}");
    let answer = peer.ask(Ask::Get(NamespaceId::SYSTEM, own_key(1))).await;
    let Outcome::Failed(error) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert!(refused(error), "{error}");
    // An operator promotes another home.
    let promoted = map().promote_home(ShardId(1)).unwrap();
    node.node.replace_map(Arc::new(promoted)).unwrap();
    let answer = peer.ask(Ask::Write(write(1))).await;
    assert!(matches!(&answer.outcome, Outcome::Written(all) if matches!(all[..], [Ok(Ok(_))])));
    assert_eq!(peer.stamp.map_version, 2);
    let answer = peer.ask(Ask::Get(NamespaceId::SYSTEM, own_key(0))).await;
    assert!(matches!(&answer.outcome, Outcome::Failed(_)), "{answer:?}");
}

#[tokio::test]
async fn a_dataset_that_the_node_does_not_know_is_not_served() {
    const BUILT: NamespaceId = NamespaceId(77);
    let node = Started::new();
    let mut peer = node.peer().await;
    let key = key_of(0, 0);
    let placed_as = |id: u64, placed_as| Request {
        placed_as: Some(placed_as),
        ..request(id, Ask::Get(BUILT, key.clone()))
    };
    peer.send_requests(vec![placed_as(900, NS)]).await;
    let answer = peer.answer().await;
    let Outcome::Failed(NodeError::Misplaced { reason, .. }) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert!(reason.contains("77"), "{reason}");
    let group = DatasetGroup {
        epoch: 1,
        live: BUILT,
        kept: vec![NS],
        building: None,
        identity: NS,
    };
    let told = Arc::new(RecordsCopy {
        fenced: Vec::new(),
        datasets: vec![group],
        ..RecordsCopy::clone(&copy(5, 1))
    });
    peer.ask(Ask::KeepRecords(told)).await;
    peer.send_requests(vec![placed_as(901, NS)]).await;
    assert_eq!(peer.answer().await.outcome, Outcome::Row(None));
    // A dropped one is gone, whichever side remembers where it was.
    let dropped = Arc::new(RecordsCopy {
        fenced: vec![NamespaceId(76).into()],
        ..RecordsCopy::clone(&copy(6, 1))
    });
    peer.ask(Ask::KeepRecords(dropped)).await;
    let of_dropped = Request {
        placed_as: Some(NS),
        ..request(902, Ask::Get(NamespaceId(76), key.clone()))
    };
    peer.send_requests(vec![of_dropped]).await;
    let answer = peer.answer().await;
    let Outcome::Failed(NodeError::Store(StoreError::NamespaceGone { namespace, .. })) =
        answer.outcome
    else {
        panic!("{answer:?}")
    };
    assert_eq!(namespace, NamespaceId(76));
    // One that has placed it by its own id knows less than the node.
    peer.send_requests(vec![placed_as(903, BUILT)]).await;
    let answer = peer.answer().await;
    assert!(
        matches!(answer.outcome, Outcome::Failed(NodeError::Misplaced { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_dispatcher_that_does_not_say_how_it_places_waits_for_newer_records() {
    let node = Started::new();
    let mut hello = hello();
    hello.records = copy(5, 1).revision;
    let mut peer = node.peer_of(&hello).await;
    let key = key_of(0, 0);
    let answer = peer.ask(get(&key)).await;
    assert!(
        matches!(answer.outcome, Outcome::Failed(NodeError::Misplaced { .. })),
        "{answer:?}"
    );
    let told = RecordsCopy {
        fenced: Vec::new(),
        ..RecordsCopy::clone(&copy(5, 1))
    };
    peer.ask(Ask::KeepRecords(Arc::new(told))).await;
    assert_eq!(peer.ask(get(&key)).await.outcome, Outcome::Row(None));
}
