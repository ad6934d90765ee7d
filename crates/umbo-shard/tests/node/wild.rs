//! Dispatchers gone wild: whatever one of them does, the node stays small and serves the others.

use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_shard::NodeLimits;
use umbo_store::StoreError;
use umbo_types::Criticality;

use crate::slow::Slow;
use crate::support::{NS, Started, get, key_of, mutation, put, write_of};

fn is_busy(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Failed(NodeError::Store(StoreError::NodeBusy { .. }))
    )
}

#[tokio::test]
async fn a_hundred_thousand_requests_at_once_are_answered_and_others_too() {
    let node = Started::new();
    let (mut wild, mut good) = (node.peer().await, node.peer().await);
    let key = key_of(0, 0);
    for _ in 0..50 {
        wild.send(vec![get(&key); 2_000]).await;
    }
    for _ in 0..20 {
        good.ask(get(&key)).await;
    }
    wild.answers(100_000).await;
}

#[tokio::test]
async fn a_flood_is_turned_away_at_once_and_leaves_room_for_what_matters() {
    let store = Slow::new();
    let limits = NodeLimits {
        in_flight_max: 64,
        ..NodeLimits::default()
    };
    let node = Started::with(store.clone(), limits);
    let key = key_of(0, 0);
    let mut floods = Vec::new();
    for _ in 0..3 {
        let mut wild = node.peer().await;
        wild.send(vec![put(&key, "x"); 1_000]).await;
        // A connection has half of the places at most, the tier three quarters.
        let refused = wild.answers(1_000 - 32).await;
        assert!(refused.iter().all(|answer| is_busy(&answer.outcome)));
        floods.push(wild);
    }
    assert_eq!(node.node.requests_in_flight(), 48);
    let mut good = node.peer().await;
    let mut request = good.request(put(&key, "y"));
    request.criticality = Criticality::Critical;
    let id = good.send_requests(vec![request]).await[0];
    store.until_begun(49).await;
    store.let_all();
    let answer = good.answer().await;
    assert!(answer.id == id && matches!(answer.outcome, Outcome::Written(_)));
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_up_nobody() {
    let node = Started::new();
    let key = key_of(0, 0);
    let mut good = node.peer().await;
    good.ask(put(&key, vec![7; 64 << 10])).await;
    let mut deaf = node.peer().await;
    // 256 MiB of answers, if they were made.
    deaf.send(vec![get(&key); 4_000]).await;
    for _ in 0..50 {
        good.ask(get(&key)).await;
    }
    // Who begins to read gets everything.
    assert_eq!(deaf.answers(4_000).await.len(), 4_000);
}

#[tokio::test]
async fn writes_of_a_peer_that_reads_nothing_give_back_their_places() {
    let store = Slow::new();
    let limits = NodeLimits {
        in_flight_max: 64,
        ..NodeLimits::default()
    };
    let node = Started::with(store.clone(), limits);
    let mut deaf = node.peer().await;
    let key = key_of(0, 0);
    deaf.send(vec![put(&key, "x"); 20]).await;
    store.until_begun(20).await;
    assert_eq!(node.node.requests_in_flight(), 20);
    store.let_all();
    while node.node.requests_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.node.request_memory(), 0);
    assert_eq!(deaf.answers(20).await.len(), 20);
}

#[tokio::test]
async fn long_writes_arrive_whole_and_hold_their_room_until_they_are_done() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let mut peer = node.peer().await;
    let rows = (0..10).map(|at| mutation(&key_of(0, at), vec![3; 1 << 20]));
    peer.send(vec![Ask::Write(write_of(rows.collect()))]).await;
    store.until_begun(1).await;
    store.let_all();
    let answer = peer.answer().await;
    let Outcome::Written(all) = &answer.outcome else {
        panic!("{:?}", answer.outcome)
    };
    assert!(all.iter().all(|one| matches!(one, Ok(Ok(_)))), "{all:?}");
    let keys = (0..7).map(|at| key_of(0, at)).collect();
    let answer = peer.ask(Ask::MultiGet(NS, keys)).await;
    assert!(matches!(answer.outcome, Outcome::MultiGot(rows) if rows.len() == 7));
}

#[tokio::test]
async fn large_requests_that_the_node_has_no_room_for_are_refused_one_by_one() {
    let store = Slow::new();
    let limits = NodeLimits {
        // Room for one of them while it arrives, and for one that waits.
        request_memory_max: 3 << 20,
        ..NodeLimits::default()
    };
    let node = Started::with(store.clone(), limits);
    let (mut first, mut second) = (node.peer().await, node.peer().await);
    let large = |number| put(&key_of(0, number), vec![3; 1 << 20]);
    first.send(vec![large(0)]).await;
    store.until_begun(1).await;
    second.send(vec![large(1), get(&key_of(0, 9))]).await;
    let refused = second.answer().await;
    assert!(is_busy(&refused.outcome), "{refused:?}");
    store.let_all();
    assert!(matches!(first.answer().await.outcome, Outcome::Written(_)));
    assert!(matches!(second.answer().await.outcome, Outcome::Row(None)));
    assert!(matches!(
        second.ask(large(2)).await.outcome,
        Outcome::Written(_)
    ));
    assert_eq!(node.node.request_memory(), 0);
}
