//! A node as this side sees it: its two connections, and whether it is worth asking.
//!
//! Small requests go over one connection and bulky ones over the other, so that a megabyte does
//! not hold up a get; where one is gone the other serves both. The invariant: calls for a node that
//! is down fail at once, except while it is expected back.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use tokio::time::timeout;
use umbo_routing::ClusterNode;
use umbo_store::ShardStatus;
use umbo_types::Clock;

use crate::budget::Budget;
use crate::connection::Connection;
use crate::counters::Counters;
use crate::settings::RemoteSettings;

/// Which connection a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads and writes of single rows.
    Small,
    /// Everything that may be large.
    Bulky,
}

impl Lane {
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Bulky];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Small => Self::Bulky,
            Self::Bulky => Self::Small,
        }
    }
}

/// What all nodes of a store share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) cluster_id: String,
    pub(crate) settings: RemoteSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) retries: Budget,
    pub(crate) hedges: Budget,
    /// Version of the map that this side goes by.
    pub(crate) map_version: AtomicU64,
    /// Told when a node goes by a newer map.
    pub(crate) newer_map: Notify,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: ClusterNode,
    pub(crate) common: Arc<Common>,
    current: [ArcSwapOption<Connection>; 2],
    condition: Mutex<Condition>,
    /// The condition without its details, for every call to look at.
    standing: AtomicU8,
    changed: Notify,
    /// Told when the node is not used any more.
    retired: Notify,
    is_retired: AtomicBool,
    /// Version of the map that the node goes by; 0 until it has said so.
    map_version: AtomicU64,
    /// When a read of each connection counts as slow, in nanoseconds; 0 for never.
    slow_after: [AtomicU64; 2],
    shards: Mutex<Vec<ShardStatus>>,
    /// Connections that are to be probed, because another one of the node is silent.
    suspects: [AtomicBool; 2],
}

/// Whether a node is worth asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It is connected.
    Up,
    /// It is not, and expected back until an instant.
    Away { until: Instant, reason: String },
    /// It is not.
    Down { reason: String },
}

const UP: u8 = 0;
const AWAY: u8 = 1;
const DOWN: u8 = 2;

impl Node {
    pub(crate) fn new(place: ClusterNode, common: Arc<Common>) -> Arc<Self> {
        let until = common.clock.monotonic() + common.settings.grace;
        let reason = "it is being connected to".to_owned();
        Arc::new(Self {
            place,
            common,
            current: Default::default(),
            condition: Mutex::new(Condition::Away { until, reason }),
            standing: AtomicU8::new(AWAY),
            changed: Notify::new(),
            retired: Notify::new(),
            is_retired: AtomicBool::new(false),
            map_version: AtomicU64::new(0),
            slow_after: Default::default(),
            shards: Mutex::default(),
            suspects: Default::default(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.place.name()
    }

    /// Returns the connection for a lane, or that of the other one where it has none.
    pub(crate) fn connection(&self, lane: Lane) -> Option<Arc<Connection>> {
        let of = |lane: Lane| self.current[lane as usize].load_full();
        of(lane).or_else(|| of(lane.other()))
    }

    /// Returns the connection of just this lane.
    pub(crate) fn own_connection(&self, lane: Lane) -> Option<Arc<Connection>> {
        self.current[lane as usize].load_full()
    }

    /// Puts a connection to use.
    pub(crate) fn joined(&self, lane: Lane, connection: Arc<Connection>) {
        let condition = self.lock_condition();
        self.current[lane as usize].store(Some(connection));
        self.turn(condition, Condition::Up);
    }

    /// Takes a connection out of use. `is_expected_back` says whether calls are to wait for the
    /// next one, where there is no other.
    pub(crate) fn parted(&self, lane: Lane, reason: &str, is_expected_back: bool) {
        let condition = self.lock_condition();
        self.current[lane as usize].store(None);
        self.slow_after[lane as usize].store(0, Ordering::Relaxed);
        if self.current[lane.other() as usize].load().is_some() {
            return;
        }
        let reason = reason.to_owned();
        let grace = self.common.settings.grace;
        if is_expected_back && !grace.is_zero() && !self.is_retired() {
            let until = self.common.clock.monotonic() + grace;
            self.turn(condition, Condition::Away { until, reason });
        } else {
            self.turn(condition, Condition::Down { reason });
        }
    }

    /// Notes that the node could not be connected to. One that never was is not waited for.
    pub(crate) fn refused(&self, reason: &str, has_worked: bool) {
        let condition = self.lock_condition();
        let is_waited_for = match &*condition {
            Condition::Up => true,
            Condition::Away { until, .. } => has_worked && self.common.clock.monotonic() < *until,
            Condition::Down { .. } => false,
        };
        if !is_waited_for {
            let reason = reason.to_owned();
            self.turn(condition, Condition::Down { reason });
        }
    }

    fn turn(&self, mut condition: MutexGuard<'_, Condition>, next: Condition) {
        let standing = match next {
            Condition::Up => UP,
            Condition::Away { .. } => AWAY,
            Condition::Down { .. } => DOWN,
        };
        *condition = next;
        self.standing.store(standing, Ordering::Release);
        drop(condition);
        self.changed.notify_waiters();
    }

    /// Says whether it makes sense to ask the node now: not while it is expected back.
    pub(crate) fn is_reachable(&self) -> bool {
        match self.standing.load(Ordering::Acquire) {
            AWAY => self.expected_for().is_none(),
            _ => true,
        }
    }

    /// Waits while the node is expected back.
    pub(crate) async fn reachable(&self) {
        loop {
            let changed = self.changed.notified();
            let Some(left) = self.expected_for() else {
                return;
            };
            if timeout(left, changed).await.is_err() {
                // A clock that stands still must not hold anybody longer.
                return;
            }
        }
    }

    /// Returns for how long the node is still expected back; none where it is not.
    fn expected_for(&self) -> Option<Duration> {
        match &*self.lock_condition() {
            Condition::Away { until, .. } => {
                let now = self.common.clock.monotonic();
                let left = until.saturating_duration_since(now);
                (!left.is_zero()).then_some(left)
            }
            Condition::Up | Condition::Down { .. } => None,
        }
    }

    /// Returns why the node cannot be asked; none where it can.
    pub(crate) fn failure(&self) -> Option<String> {
        match &*self.lock_condition() {
            Condition::Up => None,
            Condition::Away { reason, .. } | Condition::Down { reason } => Some(reason.clone()),
        }
    }

    /// Uses the node no more: what is under way ends, and no connection is made.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        for lane in Lane::ALL {
            if let Some(connection) = self.own_connection(lane) {
                connection.drain();
            }
        }
        self.retired.notify_waiters();
        let reason = "it is not part of the cluster any more".to_owned();
        self.turn(self.lock_condition(), Condition::Down { reason });
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Waits until the node is not used any more, or for this long.
    pub(crate) async fn retired_within(&self, wait: Duration) {
        let retired = self.retired.notified();
        if !self.is_retired() {
            let _ = timeout(wait, retired).await;
        }
    }

    /// Notes by which map the node goes.
    pub(crate) fn goes_by(&self, map_version: u64) {
        self.map_version.store(map_version, Ordering::Release);
        if map_version > self.common.map_version.load(Ordering::Acquire) {
            self.common.newer_map.notify_one();
        }
    }

    pub(crate) fn map_version(&self) -> Option<u64> {
        let version = self.map_version.load(Ordering::Acquire);
        (version > 0).then_some(version)
    }

    /// Notes when reads of a connection count as slow.
    pub(crate) fn set_slow_after(&self, lane: Lane, after: Option<Duration>) {
        let nanos = after.map_or(0, |after| {
            u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)
        });
        self.slow_after[lane as usize].store(nanos, Ordering::Relaxed);
    }

    /// Returns after how long a read of a connection is slow; none where too little is known.
    pub(crate) fn slow_after(&self, lane: Lane) -> Option<Duration> {
        let nanos = self.slow_after[lane as usize].load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Notes that a connection owes an answer and is silent: the other one may be, too.
    pub(crate) fn suspect(&self, silent: Lane) {
        self.suspects[silent.other() as usize].store(true, Ordering::Relaxed);
    }

    /// Says, once, whether a connection is to be probed.
    pub(crate) fn is_suspected(&self, lane: Lane) -> bool {
        let suspect = &self.suspects[lane as usize];
        suspect.load(Ordering::Relaxed) && suspect.swap(false, Ordering::Relaxed)
    }

    /// Keeps what the node says of its shards.
    pub(crate) fn keep_status(&self, shards: Vec<ShardStatus>) {
        *self.shards.lock().unwrap_or_else(PoisonError::into_inner) = shards;
    }

    /// Returns what the node said last of its shards.
    pub(crate) fn status(&self) -> Vec<ShardStatus> {
        let shards = self.shards.lock();
        shards.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how many requests are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        let load = |lane| {
            self.own_connection(lane)
                .map_or(0, |it| it.load().in_flight)
        };
        Lane::ALL.into_iter().map(|lane| load(lane) as u64).sum()
    }

    fn lock_condition(&self) -> MutexGuard<'_, Condition> {
        self.condition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
