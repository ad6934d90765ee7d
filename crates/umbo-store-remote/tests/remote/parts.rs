//! What nodes are told of a request that comes in parts: that it goes on, and whom it is for.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use umbo_shard::quota::{Charge, Done, Receipt, ShardQuota, Spent};
use umbo_store::{CallContext, RangeRequest, ScanRequest, SortRange, Store};
use umbo_store_remote::RemoteSettings;
use umbo_types::{CallerId, Key, Names, NamespaceId, Operation};

use crate::cluster::{Cluster, RealClock};
use crate::hedges::practised;

const NS: NamespaceId = NamespaceId(3);

/// What was asked, whether it goes on, and for which session.
type Told = (Operation, bool, Option<String>);

/// Lets everything through, and notes what it is told.
#[derive(Debug, Default)]
struct Ledger(Mutex<Vec<Told>>);

struct Free;

impl Receipt for Free {
    fn settle(self: Box<Self>, _done: Done) {}

    fn release(self: Box<Self>) {}
}

impl ShardQuota for Ledger {
    fn ceilings(&self) -> u64 {
        1
    }

    fn charge(&self, charge: &Charge<'_>, _now: Instant) -> Result<Box<dyn Receipt>, Spent> {
        let session = charge.names.and_then(|names| names.session.as_deref());
        let told = (
            charge.operation,
            charge.is_continued,
            session.map(str::to_owned),
        );
        self.0.lock().expect("nobody panicked").push(told);
        Ok(Box::new(Free))
    }
}

#[tokio::test]
async fn a_request_is_one_to_all_nodes_together() {
    let cluster = Cluster::start(3, Arc::new(RealClock)).await;
    let ledger = Arc::new(Ledger::default());
    for member in &cluster.members {
        let node = member.node.as_ref().unwrap();
        node.keep_quota(ledger.clone());
    }
    let store = cluster.connect(RemoteSettings::default()).await;
    let mut call = CallContext::default();
    call.caller = Some(CallerId::new("tester"));
    call.names = Some(Arc::new(Names {
        session: Some("s-1".into()),
        ..Names::default()
    }));
    let told = || std::mem::take(&mut *ledger.0.lock().unwrap());
    let session = || Some("s-1".to_owned());

    let scan = ScanRequest {
        namespace: NS,
        slots: 0..=4_095,
        shard: None,
        after: None,
        rows_max: 100,
        bytes_max: 1 << 20,
        keys_only: false,
    };
    store.scan(&call, &scan).await.unwrap();
    let first = (Operation::Scan, false, session());
    let later = (Operation::Scan, true, session());
    let mut expected = vec![later; usize::from(crate::cluster::SHARDS)];
    expected[0] = first;
    assert_eq!(told(), expected);
    assert!(call.service_time().is_some());

    let range = RangeRequest {
        namespace: NS,
        partition: Key::new("p", "").unwrap().partition,
        range: SortRange::default(),
        reverse: false,
        rows_max: 10,
        bytes_max: 1 << 10,
        keys_only: false,
    };
    store.range(&call, &range).await.unwrap();
    store.range(&call.later_part(), &range).await.unwrap();
    let range = |is_continued| (Operation::Range, is_continued, session());
    assert_eq!(told(), [range(false), range(true)]);

    // Whoever names nobody is told of as before.
    call.names = None;
    let key = Key::new("p", "").unwrap();
    store.get(&call, NS, &key).await.unwrap();
    store.get(&CallContext::internal(), NS, &key).await.unwrap();
    assert_eq!(told(), [(Operation::Get, false, None)]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_is_sent_twice_is_one_request() {
    let cluster = Cluster::start(1, Arc::new(RealClock)).await;
    let store = practised(&cluster, RemoteSettings::default()).await;
    let member = &cluster.members[0];
    let ledger = Arc::new(Ledger::default());
    member.node.as_ref().unwrap().keep_quota(ledger.clone());
    let mut call = CallContext::default();
    call.caller = Some(CallerId::new("tester"));
    let before = store.stats().hedges_won;
    member.store.hold(1);
    let key = Key::new("p", "").unwrap();
    store.get(&call, NS, &key).await.unwrap();
    assert_eq!(store.stats().hedges_won, before + 1);
    let told = ledger.0.lock().unwrap();
    let get = |is_continued| (Operation::Get, is_continued, None);
    assert_eq!(*told, [get(false), get(true)]);
}
