//! What nodes learn of a request in several parts: that it continues, and its caller.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use umbo_shard::quota::{ActualWork, ChargeHandle, QuotaExceeded, ShardCharge, ShardQuota};
use umbo_store::{ByKey as _, CallContext, RangeRequest, ScanRequest, SortRange, Store};
use umbo_store_remote::RemoteSettings;
use umbo_types::{Attribute, CallerId, Key, NamespaceId, Operation, OwnedAttributes, ShardId};

use crate::cluster::Cluster;

const NS: NamespaceId = NamespaceId(3);

/// Operation, whether it is a continuation, and the session.
type Told = (Operation, bool, Option<String>);

/// A quota that admits everything and records the charges.
#[derive(Debug, Default)]
struct Ledger(Mutex<Vec<Told>>);

struct Free;

impl ChargeHandle for Free {
    fn settle(self: Box<Self>, _done: ActualWork) {}

    fn release(self: Box<Self>) {}
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
        let session = charge
            .attributes
            .and_then(|attributes| attributes[Attribute::Session].as_deref());
        let told = (
            charge.operation,
            charge.is_continued,
            session.map(str::to_owned),
        );
        self.0.lock().expect("nobody panicked").push(told);
        Ok(Box::new(Free))
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_one_to_all_nodes_together() {
    let cluster = Cluster::start(3);
    let ledger = Arc::new(Ledger::default());
    for member in &cluster.members {
        let node = member.node.as_ref().unwrap();
        node.keep_quota(ledger.clone());
    }
    let store = cluster.connect(RemoteSettings::default()).await;
    let mut call = CallContext::default();
    call.caller = Some(CallerId::new("tester"));
    call.attributes = Some(Arc::new(
        OwnedAttributes::default().with(Attribute::Session, Some("s-1".into())),
    ));
    let told = || std::mem::take(&mut *ledger.0.lock().unwrap());
    let session = || Some("s-1".to_owned());

    let scan = ScanRequest {
        namespace: NS,
        slots: 0..=4_095,
        after: None,
        rows_max: 100,
        bytes_max: 1 << 20,
        keys_only: false,
    };
    store.scan(&call, ShardId(0), &scan).await.unwrap();
    let later = call.later_part();
    store.scan(&later, ShardId(1), &scan).await.unwrap();
    let scan = |is_continued| (Operation::Scan, is_continued, session());
    assert_eq!(told(), [scan(false), scan(true)]);
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
    store.range_of(&call, &range).await.unwrap();
    store.range_of(&call.later_part(), &range).await.unwrap();
    let range = |is_continued| (Operation::Range, is_continued, session());
    assert_eq!(told(), [range(false), range(true)]);

    // A request without caller names.
    call.attributes = None;
    let key = Key::new("p", "").unwrap();
    store.get_row(&call, NS, &key).await.unwrap();
    store
        .get_row(&CallContext::internal(), NS, &key)
        .await
        .unwrap();
    assert_eq!(told(), [(Operation::Get, false, None)]);
    store.close().await;
}
