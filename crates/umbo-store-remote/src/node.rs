//! A node as this side sees it: its connection, and whether it can be asked.
//!
//! The invariant: calls for a node that is down fail at once, except while it is expected back.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use tokio::time::timeout;
use umbo_protocol::{NodeStamp, StatusOfNode};
use umbo_routing::ClusterNode;
use umbo_store::{RecordsRevision, ShardStatus};
use umbo_types::{CLOCK_OFFSET_MAX, Clock, Timestamp};

use crate::budget::Budget;
use crate::connection::NodeConnection;
use crate::counters::HopCounters;
use crate::seeded_random::SeededRandom;
use crate::settings::RemoteSettings;
use crate::told_time::ToldTime;

/// State that all nodes of a store share.
#[derive(Debug)]
pub(crate) struct StoreContext {
    pub(crate) cluster_id: String,
    pub(crate) settings: RemoteSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<HopCounters>,
    pub(crate) retries: Budget,
    pub(crate) chance: SeededRandom,
    /// Identifies this store towards the nodes; random per store.
    pub(crate) incarnation: u64,
    /// Version of the map in effect on this side.
    pub(crate) map_version: AtomicU64,
    /// Notified when a node uses a newer map.
    pub(crate) newer_map: Notify,
    /// Highest revision of Umbo's own records that a node has reported.
    pub(crate) records: Mutex<RecordsRevision>,
}

impl StoreContext {
    pub(crate) fn records_revision(&self) -> RecordsRevision {
        *self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records_heard(&self, revision: RecordsRevision) {
        let mut highest = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        *highest = revision.max(*highest);
    }
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: ClusterNode,
    pub(crate) common: Arc<StoreContext>,
    current: ArcSwapOption<NodeConnection>,
    condition: Mutex<NodeCondition>,
    /// The kind of `condition`, readable without the lock by every call.
    standing: AtomicU8,
    changed: Notify,
    /// Notified when the node is no longer used.
    retired: Notify,
    is_retired: AtomicBool,
    /// Version of the map that the node uses; 0 until the node has reported it.
    map_version: AtomicU64,
    told: Mutex<ToldStatus>,
    /// The time of day that the node has told last, or `None` until it has.
    time: ArcSwapOption<ToldTime>,
    /// Version of its program, or `None` until the node has told it.
    pub(crate) program_version: ArcSwapOption<String>,
    /// Held while a request hands the records to the node: they are large, and many requests may find them missing.
    pub(crate) handing_records: tokio::sync::Mutex<()>,
}

/// The last status that the node has told.
#[derive(Debug, Default)]
struct ToldStatus {
    shards: Vec<ShardStatus>,
    /// Whether the clocks of the node and of this process were too far apart.
    is_clock_off: bool,
}

/// Whether a node can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeCondition {
    /// The node is connected.
    Up,
    /// The node is disconnected, and expected back until an instant.
    Disconnected { until: Instant, reason: String },
    /// The node is disconnected, and not expected back.
    Down { reason: String },
}

const UP: u8 = 0;
const DISCONNECTED: u8 = 1;
const DOWN: u8 = 2;

impl Node {
    pub(crate) fn new(place: ClusterNode, common: Arc<StoreContext>) -> Arc<Self> {
        let until = common.clock.monotonic() + common.settings.grace;
        let reason = "the connection is being made".to_owned();
        Arc::new(Self {
            place,
            common,
            current: ArcSwapOption::empty(),
            condition: Mutex::new(NodeCondition::Disconnected { until, reason }),
            standing: AtomicU8::new(DISCONNECTED),
            changed: Notify::new(),
            retired: Notify::new(),
            is_retired: AtomicBool::new(false),
            map_version: AtomicU64::new(0),
            told: Mutex::default(),
            time: ArcSwapOption::empty(),
            program_version: ArcSwapOption::empty(),
            handing_records: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.place.name()
    }

    /// Returns the connection, or `None` while the node is not connected.
    pub(crate) fn connection(&self) -> Option<Arc<NodeConnection>> {
        self.current.load_full()
    }

    /// Sets the connection.
    pub(crate) fn joined(&self, connection: Arc<NodeConnection>) {
        let condition = self.lock_condition();
        self.current.store(Some(connection));
        self.turn(condition, NodeCondition::Up);
    }

    /// Removes the connection. `is_expected_back` tells whether calls wait for the next one.
    pub(crate) fn parted(&self, reason: &str, is_expected_back: bool) {
        let condition = self.lock_condition();
        self.current.store(None);
        let reason = reason.to_owned();
        let grace = self.common.settings.grace;
        if is_expected_back && !grace.is_zero() && !self.is_retired() {
            let until = self.common.clock.monotonic() + grace;
            self.turn(condition, NodeCondition::Disconnected { until, reason });
        } else {
            self.turn(condition, NodeCondition::Down { reason });
        }
    }

    /// Records that the node is shutting down and accepts no more requests on its connection.
    pub(crate) fn is_leaving(&self) {
        self.parted("it is restarting", true);
    }

    /// Records that the node could not be connected to. Calls wait only for a node that was connected before.
    pub(crate) fn refused(&self, reason: &str, has_worked: bool) {
        let condition = self.lock_condition();
        let is_waited_for = match &*condition {
            NodeCondition::Up => true,
            NodeCondition::Disconnected { until, .. } => {
                has_worked && self.common.clock.monotonic() < *until
            }
            NodeCondition::Down { .. } => false,
        };
        if !is_waited_for {
            let reason = reason.to_owned();
            self.turn(condition, NodeCondition::Down { reason });
        }
    }

    fn turn(&self, mut condition: MutexGuard<'_, NodeCondition>, next: NodeCondition) {
        let standing = match next {
            NodeCondition::Up => UP,
            NodeCondition::Disconnected { .. } => DISCONNECTED,
            NodeCondition::Down { .. } => DOWN,
        };
        *condition = next;
        self.standing.store(standing, Ordering::Release);
        drop(condition);
        self.changed.notify_waiters();
    }

    /// Returns whether the node can be asked now, or its failure is known. False while the node is expected back.
    pub(crate) fn is_reachable(&self) -> bool {
        match self.standing.load(Ordering::Acquire) {
            DISCONNECTED => self.expected_for().is_none(),
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
                // A clock that stands still must not extend the wait.
                return;
            }
        }
    }

    /// Returns for how long the node is still expected back, or `None` if it is not expected.
    fn expected_for(&self) -> Option<Duration> {
        match &*self.lock_condition() {
            NodeCondition::Disconnected { until, .. } => {
                let now = self.common.clock.monotonic();
                let left = until.saturating_duration_since(now);
                (!left.is_zero()).then_some(left)
            }
            NodeCondition::Up | NodeCondition::Down { .. } => None,
        }
    }

    /// Returns why the node cannot be asked, or `None` if it can.
    pub(crate) fn failure(&self) -> Option<String> {
        match &*self.lock_condition() {
            NodeCondition::Up => None,
            NodeCondition::Disconnected { reason, .. } | NodeCondition::Down { reason } => {
                Some(reason.clone())
            }
        }
    }

    /// Ends the use of the node: pending requests end, and no connection is made any more.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        if let Some(connection) = self.connection() {
            connection.drain();
        }
        self.retired.notify_waiters();
        let reason = "it is no longer part of the cluster".to_owned();
        self.turn(self.lock_condition(), NodeCondition::Down { reason });
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Waits until the node is no longer used, or for this long.
    pub(crate) async fn retired_within(&self, wait: Duration) {
        let retired = self.retired.notified();
        if !self.is_retired() {
            let _ = timeout(wait, retired).await;
        }
    }

    /// Records the state of the node in a frame.
    pub(crate) fn heard(&self, stamp: &NodeStamp) {
        self.goes_by(stamp.map_version);
        self.common.records_heard(stamp.records);
    }

    /// Records the version of the map that the node uses.
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

    /// Keeps the time of day that the node has told. It was asked for at `asked` and came at `answered`.
    pub(crate) fn keep_time(&self, wall: Option<Timestamp>, asked: Instant, answered: Instant) {
        let told = wall.map(|wall| Arc::new(ToldTime::new(wall, asked, answered)));
        self.time.store(told);
    }

    /// Returns the time of day of the node when the time of this process is `own`.
    pub(crate) fn time_at(&self, own: Timestamp) -> Timestamp {
        self.told_time(own).unwrap_or(own)
    }

    /// Returns the time of day of the node if the node has told it.
    pub(crate) fn told_time(&self, own: Timestamp) -> Option<Timestamp> {
        let told = self.time.load();
        let now = self.common.clock.monotonic();
        Some(told.as_ref()?.at(own, now))
    }

    /// Stores the status of the node, which was asked for at `asked`.
    pub(crate) fn keep_status(&self, status: StatusOfNode, asked: Instant) {
        self.keep_time(status.wall, asked, self.common.clock.monotonic());
        let clock_ahead = self.clock_ahead();
        let is_clock_off = is_off(clock_ahead);
        let mut told = self.lock_told();
        if is_clock_off && !told.is_clock_off {
            tracing::warn!(
                node = self.name(),
                ahead_seconds = clock_ahead.unwrap_or_default() / 1_000_000,
                "the clocks of this machine and of a shard node are too far apart: check what sets them (NTP)"
            );
        }
        *told = ToldStatus {
            shards: status.shards,
            is_clock_off,
        };
    }

    /// Returns the last status of the node's shards.
    pub(crate) fn status(&self) -> Vec<ShardStatus> {
        self.lock_told().shards.clone()
    }

    /// Returns by how much, at least, the clock of this process is ahead of the clock of the node, in microseconds;
    /// negative if it is behind. `None` if the node has not told its time.
    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        let own = self.common.clock.wall();
        Some(signed_micros(own, self.told_time(own)?))
    }

    fn lock_told(&self) -> MutexGuard<'_, ToldStatus> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many requests are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        let load = self.connection().map(|connection| connection.load());
        load.map_or(0, |load| load.in_flight as u64)
    }

    fn lock_condition(&self) -> MutexGuard<'_, NodeCondition> {
        self.condition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long `one` is after `other`, in microseconds.
fn signed_micros(one: Timestamp, other: Timestamp) -> i64 {
    let apart = i64::try_from(one.0.abs_diff(other.0)).unwrap_or(i64::MAX);
    if one < other { -apart } else { apart }
}

fn is_off(clock_ahead: Option<i64>) -> bool {
    let apart = clock_ahead.map_or(0, i64::unsigned_abs);
    u128::from(apart) > CLOCK_OFFSET_MAX.as_micros()
}
