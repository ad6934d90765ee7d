//! Per-shard quotas are enforced on the node, for all callers.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_shard::NodeLimits;
use umbo_shard::quota::{ActualWork, ChargeHandle, QuotaExceeded, ShardCharge, ShardQuota};
use umbo_store::{MemoryStore, StoreError};
use umbo_types::{Attribute, Operation, OwnedAttributes, ShardId};

use crate::support::{NS, Started, WallClock, get, key_of, mutation, put, write_of};

/// Operation, and the share of each shard.
type Charged = (Operation, Vec<(ShardId, u32)>);

/// Admits every caller but one, and records the charges.
#[derive(Debug, Default)]
struct Ledger {
    charged: Mutex<Vec<Charged>>,
    /// For each charge, whether it continued another one, and its user.
    parts: Mutex<Vec<(bool, Option<String>)>>,
    settled: Arc<Mutex<Vec<ActualWork>>>,
    released: Arc<Mutex<usize>>,
}

struct Note(Arc<Mutex<Vec<ActualWork>>>, Arc<Mutex<usize>>);

impl ChargeHandle for Note {
    fn settle(self: Box<Self>, done: ActualWork) {
        self.0.lock().unwrap().push(done);
    }

    fn release(self: Box<Self>) {
        *self.1.lock().unwrap() += 1;
    }
}

impl ShardQuota for Ledger {
    fn quota_count(&self) -> u64 {
        1
    }

    fn charge(
        &self,
        charge: &ShardCharge<'_>,
        _now: Instant,
    ) -> Result<Box<dyn ChargeHandle>, QuotaExceeded> {
        if charge.caller == "greedy" {
            return Err(QuotaExceeded {
                policy: "ceiling".to_owned(),
                retry_after: Duration::from_millis(70),
                observed: 1_500_000,
            });
        }
        let user = charge
            .attributes
            .and_then(|attributes| attributes[Attribute::User].as_deref());
        self.parts
            .lock()
            .unwrap()
            .push((charge.is_continued, user.map(str::to_owned)));
        let asked = (charge.operation, vec![charge.share]);
        self.charged.lock().unwrap().push(asked);
        let (settled, released) = (Arc::clone(&self.settled), Arc::clone(&self.released));
        Ok(Box::new(Note(settled, released)))
    }
}

#[tokio::test]
async fn who_has_spent_the_quota_of_a_shard_is_told_so() {
    let node = Started::new();
    node.node.keep_quota(Arc::new(Ledger::default()));
    let mut peer = node.peer().await;
    for ask in [get(&key_of(1, 0)), put(&key_of(1, 0), "x")] {
        let mut request = peer.request(ask);
        request.caller = Bytes::from_static(b"greedy");
        peer.send_requests(vec![request]).await;
        let answer = peer.answer().await;
        let expected = StoreError::QuotaExceeded {
            shard: ShardId(1),
            policy: "ceiling".to_owned(),
            retry_after: Duration::from_millis(70),
            observed: Some(1_500_000),
        };
        let Outcome::Failed(NodeError::Store(error)) = answer.outcome else {
            panic!("not refused")
        };
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn what_was_done_is_charged_by_shard_and_umbos_own_work_is_not() {
    let node = Started::new();
    let ledger = Arc::new(Ledger::default());
    node.node.keep_quota(ledger.clone());
    let mut peer = node.peer().await;
    let keys = [key_of(0, 0), key_of(0, 1), key_of(0, 2)];
    let rows = keys.iter().map(|key| mutation(key, vec![1; 100]));
    peer.ask(Ask::Write(write_of(rows.collect()))).await;
    peer.ask(Ask::MultiGet(NS, keys.to_vec())).await;
    peer.ask(get(&key_of(1, 9))).await;
    let mut own = peer.request(get(&keys[0]));
    own.caller = Bytes::new();
    peer.send_requests(vec![own]).await;
    peer.answer().await;
    let all = vec![(ShardId(0), 3)];
    let expected = [
        (Operation::BatchWrite, all.clone()),
        (Operation::MultiGet, all),
        (Operation::Get, vec![(ShardId(1), 1)]),
    ];
    assert_eq!(*ledger.charged.lock().unwrap(), expected);
    let settled = ledger.settled.lock().unwrap();
    let rows: Vec<_> = settled
        .iter()
        .map(|done| (done.rows, done.bytes > 300))
        .collect();
    assert_eq!(rows, [(3, true), (3, true), (1, false)]);
}

#[tokio::test]
async fn whoever_keeps_the_quota_is_told_what_goes_on_and_for_whom() {
    let node = Started::new();
    let ledger = Arc::new(Ledger::default());
    node.node.keep_quota(ledger.clone());
    let mut peer = node.peer().await;
    for (is_continued, user) in [(false, None), (true, Some("u-1"))] {
        let mut request = peer.request(get(&key_of(0, 0)));
        request.is_continued = is_continued;
        request.attributes = user.map(|user: &str| {
            Arc::new(OwnedAttributes::default().with(Attribute::User, Some(user.into())))
        });
        peer.send_requests(vec![request]).await;
        assert!(matches!(peer.answer().await.outcome, Outcome::Row(None)));
    }
    let expected = [(false, None), (true, Some("u-1".to_owned()))];
    assert_eq!(*ledger.parts.lock().unwrap(), expected);
}

#[tokio::test]
async fn what_the_node_has_no_room_for_costs_nothing() {
    let store = MemoryStore::new(4, Arc::new(WallClock)).unwrap();
    let limits = NodeLimits {
        in_flight_max: 0,
        ..NodeLimits::default()
    };
    let node = Started::with(Arc::new(store), limits);
    let ledger = Arc::new(Ledger::default());
    node.node.keep_quota(ledger.clone());
    let mut peer = node.peer().await;
    let answer = peer.ask(put(&key_of(0, 0), "x")).await;
    let busy = NodeError::Store(StoreError::NodeBusy { shard: ShardId(0) });
    assert_eq!(answer.outcome, Outcome::Failed(busy));
    assert_eq!(ledger.charged.lock().unwrap().len(), 1);
    assert_eq!(*ledger.released.lock().unwrap(), 1);
    assert!(ledger.settled.lock().unwrap().is_empty());
}
