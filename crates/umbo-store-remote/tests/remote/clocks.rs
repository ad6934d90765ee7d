//! Clocks that are wrong: rows expire by those of their nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::advance;
use umbo_store::{ByKey as _, CallContext, Change, Store, StoreReport as _};
use umbo_store_remote::RemoteStore;
use umbo_types::{Clock, ShardId, Timestamp};

use crate::cluster::{Cluster, impatient, key_in};
use crate::rows::{key, put, read, write_of};
use crate::time::{TokioClock, until};

const HOUR: i64 = 3_600;
const MINUTE: Duration = Duration::from_mins(1);

/// A node, and a store of it with another clock.
struct Case {
    at_node: Arc<TokioClock>,
    here: Arc<TokioClock>,
    store: Arc<RemoteStore>,
    _cluster: Cluster,
}

impl Case {
    async fn with_node_ahead(seconds: i64) -> Self {
        let (at_node, here) = (Arc::new(TokioClock::new()), Arc::new(TokioClock::new()));
        at_node.set_ahead(seconds);
        let cluster = Cluster::start_by(1, Arc::clone(&at_node) as _);
        let store = cluster.dial_by(impatient(), Arc::clone(&here) as _);
        until(|| store.stats().connections == 1).await;
        Self {
            at_node,
            here,
            store,
            _cluster: cluster,
        }
    }

    /// Returns the time of the node as the store knows it.
    fn time(&self) -> Timestamp {
        self.store.time_at(ShardId(0), self.here.wall())
    }

    /// Returns by how much the store is wrong about it.
    fn error(&self) -> Duration {
        Duration::from_micros(self.time().0.abs_diff(self.at_node.wall().0))
    }

    fn clock_ahead(&self) -> Option<i64> {
        self.store.nodes()[0].clock_ahead
    }
}

/// Longer than the way to a node and back.
const WAY: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn a_row_lives_for_its_time_by_the_clock_of_its_node() {
    for ahead in [-HOUR, HOUR] {
        let case = Case::with_node_ahead(ahead).await;
        let (key, store) = (key("k"), &*case.store);
        let mut row = put(&key, b"v");
        if let Change::Put { expires_at, .. } = &mut row.change {
            *expires_at = Some(case.time().saturating_add(MINUTE));
        }
        let call = CallContext::internal();
        let written = store.write_rows(&call, write_of(vec![row])).await.remove(0);
        written.expect("it is stored");
        advance(MINUTE.saturating_sub(2 * WAY)).await;
        assert!(read(store, &key).await.expect("an answer").is_some());
        advance(4 * WAY).await;
        assert_eq!(read(store, &key).await.expect("an answer"), None);
    }
}

/// A row that is stored while the clock of its node is wrong, in a fleet whose other clocks are right, lives for its time
/// at least, also once that clock is set right; and it does not outlive its time where its node was right.
#[tokio::test(start_paused = true)]
async fn no_row_expires_early_because_the_clock_of_its_node_was_wrong() {
    for (ahead, here) in [(-HOUR, 0), (HOUR, 0), (0, -HOUR), (0, HOUR)] {
        let clocks = [(); 4].map(|()| Arc::new(TokioClock::new()));
        let [wrong, .., own] = &clocks;
        wrong.set_ahead(ahead);
        own.set_ahead(here);
        let of_nodes = clocks[..3].iter().map(|clock| Arc::clone(clock) as _);
        let cluster = Cluster::start_each_by(&of_nodes.collect::<Vec<_>>());
        let store = cluster.dial_by(impatient(), Arc::clone(own) as _);
        until(|| store.stats().connections == 3).await;
        let store = &*store;
        let keys = [0, 1].map(|node| key_in(store, cluster.shard_of(node)));
        for (node, key) in keys.iter().enumerate() {
            let mut row = put(key, b"v");
            if let Change::Put { expires_at, .. } = &mut row.change {
                let from = store.lives_from(cluster.shard_of(node), own.wall());
                *expires_at = Some(from.saturating_add(MINUTE));
            }
            let call = CallContext::internal();
            let written = store.write_rows(&call, write_of(vec![row])).await.remove(0);
            written.expect("it is stored");
        }
        wrong.set_ahead(0);
        let is_there = async |node: usize| {
            let row = read(store, &keys[node]).await;
            row.expect("an answer").is_some()
        };
        advance(MINUTE.saturating_sub(2 * WAY)).await;
        assert!(is_there(0).await && is_there(1).await, "{ahead} {here}");
        advance(4 * WAY).await;
        assert!(!is_there(1).await, "{ahead} {here}");
        // It was stored for a minute by a clock that was ahead.
        assert_eq!(is_there(0).await, ahead == HOUR, "{ahead} {here}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_node_is_known_with_its_welcome_and_whenever_a_clock_is_set() {
    let case = Case::with_node_ahead(HOUR).await;
    assert!(case.error() < WAY);
    // The clock here is set, and the node is not asked anew.
    for ahead in [HOUR, -HOUR, 0] {
        case.here.set_ahead(ahead);
        assert!(case.error() < WAY);
    }
    case.at_node.set_ahead(-HOUR);
    until(|| case.error() < WAY).await;
    advance(MINUTE).await;
    assert!(case.error() < WAY);
    let off = case
        .clock_ahead()
        .expect("it is known")
        .abs_diff(HOUR * 1_000_000);
    assert!(u128::from(off) < WAY.as_micros());
    assert!(case.store.nodes()[0].clock_problem().is_some());
    // A clock that is right counts as it is.
    case.at_node.set_ahead(0);
    until(|| case.clock_ahead() == Some(0)).await;
    assert_eq!(case.time(), case.here.wall());
}
