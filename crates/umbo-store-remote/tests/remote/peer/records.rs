//! Copies of Umbo's own records.

use std::sync::Arc;

use bytes::Bytes;
use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_store::{
    ByKey as _, CallContext, RecordsCopy, RecordsKeeper, RecordsRevision, StoreError,
};
use umbo_types::{Key, NamespaceId, ShardId};

use crate::peer::connected;

fn copy(number: u64) -> Arc<RecordsCopy> {
    Arc::new(RecordsCopy {
        revision: RecordsRevision { epoch: 1, number },
        fenced: vec![NamespaceId(4).into()],
        datasets: Vec::new(),
        // Longer than an inline body.
        content: Bytes::from(vec![b'r'; 100_000]),
    })
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_handed_to_the_node_and_its_word_is_told() {
    let (store, _peers, mut peer) = connected().await;
    let failed = StoreError::Full {
        shard: ShardId(0),
        outcome: umbo_store::Outcome::NotApplied,
    };
    let results = [
        (vec![(ShardId(0), Ok(()))], Ok(())),
        (
            vec![(ShardId(0), Err(NodeError::Store(failed.clone())))],
            Err(failed),
        ),
    ];
    for (told, expected) in results {
        let handing = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.keep_records(copy(7)).await }
        });
        let request = peer.request().await;
        assert_eq!(request.ask, Ask::KeepRecords(copy(7)));
        peer.answer(request.id, Outcome::RecordsKept(told)).await;
        assert_eq!(handing.await.unwrap(), [(ShardId(0), expected)]);
    }
    // A shard that the answer does not contain is not kept.
    let handing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.keep_records(copy(8)).await }
    });
    let request = peer.request().await;
    peer.answer(request.id, Outcome::RecordsKept(Vec::new()))
        .await;
    let [(shard, Err(error))] = &handing.await.unwrap()[..] else {
        panic!("it was not told of")
    };
    assert_eq!(
        (*shard, error.outcome()),
        (ShardId(0), umbo_store::Outcome::Unknown)
    );
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_a_node_is_returned() {
    let (store, _peers, mut peer) = connected().await;
    for kept in [None, Some(copy(9))] {
        let asking = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.kept_records().await }
        });
        let request = peer.request().await;
        assert_eq!(request.ask, Ask::KeptRecords);
        peer.answer(request.id, Outcome::KeptRecords(kept.clone()))
            .await;
        assert_eq!(asking.await.unwrap(), Ok(kept));
    }
    let asking = tokio::spawn(async move { store.kept_records().await });
    let request = peer.request().await;
    let unreadable = StoreError::Corrupt {
        shard: ShardId(0),
        reason: "the copy cannot be read".to_owned(),
    };
    let failed = Outcome::Failed(NodeError::Store(unreadable.clone()));
    peer.answer(request.id, failed).await;
    assert_eq!(asking.await.unwrap(), Err(unreadable));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_know_a_dataset_is_handed_the_records_and_asked_again() {
    let (store, _peers, mut peer) = connected().await;
    let handing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.keep_records(copy(7)).await }
    });
    let request = peer.request().await;
    peer.answer(request.id, Outcome::RecordsKept(vec![(ShardId(0), Ok(()))]))
        .await;
    handing.await.unwrap();
    let read = || {
        let store = Arc::clone(&store);
        let key = Key::new("p", "").unwrap();
        let read = async move {
            let call = CallContext::internal();
            store.get_row(&call, NamespaceId(9), &key).await
        };
        tokio::spawn(read)
    };
    let reading = [read(), read()];
    for _ in &reading {
        let request = peer.request().await;
        assert_eq!(request.placed_as, Some(NamespaceId(9)));
        let refused = NodeError::Misplaced {
            shard: ShardId(0),
            reason: "it is not known here".to_owned(),
        };
        peer.answer(request.id, Outcome::Failed(refused)).await;
    }
    // One of them hands the records over, and both ask again.
    let (mut handed, mut asked) = (0, 0);
    while handed + asked < 3 {
        let request = peer.request().await;
        let answer = match request.ask {
            Ask::KeepRecords(kept) => {
                assert_eq!(kept, copy(7));
                handed += 1;
                Outcome::RecordsKept(vec![(ShardId(0), Ok(()))])
            }
            Ask::Get(..) => {
                asked += 1;
                Outcome::Row(None)
            }
            other => panic!("{other:?}"),
        };
        peer.answer(request.id, answer).await;
    }
    assert_eq!((handed, asked), (1, 2));
    for reading in reading {
        assert_eq!(reading.await.unwrap(), Ok(None));
    }
}
