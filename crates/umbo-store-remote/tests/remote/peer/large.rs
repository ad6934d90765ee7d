//! Large answers, and credit.

use std::sync::Arc;

use umbo_protocol::Outcome;
use umbo_store::StoreReport;
use umbo_types::{Row, Value, Version};

use crate::peer::{answer, connected, put_varint, until};
use crate::rows::{key, read};

fn row(len: usize) -> Row {
    Row {
        value: Value::new(vec![3; len], "", "").expect("a value"),
        version: Version(1),
        expires_at: None,
    }
}

/// Answers of more than a window pass, because received bytes are granted back.
#[tokio::test(start_paused = true)]
async fn large_answers_pass_and_are_granted_back() {
    let (store, _peers, mut peer) = connected().await;
    for _ in 0..4 {
        let reads: Vec<_> = (0..8)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { read(&*store, &key("a")).await })
            })
            .collect();
        for _ in 0..8 {
            let request = peer.request().await;
            peer.writer
                .push(&answer(request.id, Outcome::Row(Some(row(1 << 20)))));
        }
        let serving = tokio::spawn(async move {
            peer.flush().await;
            while peer.writer.queued_len() > 0 {
                let (requests, _) = peer.settle().await;
                assert!(requests.is_empty());
            }
            peer
        });
        for read in reads {
            let row = read.await.unwrap().unwrap().expect("a row");
            assert_eq!(row.value.bytes.len(), 1 << 20);
        }
        peer = serving.await.unwrap();
    }
}

/// The rest of an answer whose caller has gone is dropped.
#[tokio::test(start_paused = true)]
async fn the_rest_of_an_answer_that_was_left_is_dropped() {
    let (store, _peers, mut peer) = connected().await;
    for _ in 0..100 {
        let reading = tokio::spawn({
            let store = Arc::clone(&store);
            async move { read(&*store, &key("a")).await }
        });
        let request = peer.request().await;
        // The first chunk of its answer.
        let mut chunk = vec![0, 0, 0, 0, 3];
        chunk.extend([0; 11]);
        put_varint(&mut chunk, request.id);
        chunk.extend(b"\0begun");
        chunk[0] = chunk.len() as u8 - 4;
        peer.raw(&chunk).await;
        reading.abort();
        assert_eq!(peer.cancelled().await, request.id);
    }
    until(|| store.stats().in_flight == 0).await;
    assert_eq!(store.stats().connections_lost, 0);
}

/// A node that sends more than its credit is disconnected.
#[tokio::test(start_paused = true)]
async fn a_node_that_breaks_the_window_is_cut_off() {
    let (store, _peers, mut peer) = connected().await;
    // A frame that grants credit for bytes that were never sent.
    peer.writer.grant(1 << 20);
    peer.flush().await;
    until(|| store.stats().connections_lost == 1).await;
    let failure = store.nodes()[0].failure.clone().unwrap_or_default();
    assert!(failure.contains("more than was sent"), "{failure}");
}
