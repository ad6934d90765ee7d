//! A node as this side sees it: its connection, and whether it can be asked.
//!
//! The invariant: calls for a node that is down fail at once, except while it is expected back.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, SetOnce};
use tokio::time::timeout;
use umbo_protocol::{NodeStamp, StatusOfNode};
use umbo_routing::ClusterNode;
use umbo_store::{RecordsRevision, ShardStatus};
use umbo_types::{CLOCK_OFFSET_MAX, Clock, Timestamp};

use crate::budget::Budget;
use crate::connection::NodeConnection;
use crate::counters::HopCounters;
use crate::membership::Membership;
use crate::seeded_random::SeededRandom;
use crate::settings::RemoteSettings;

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
    /// What this dispatcher is in the fleet, once it has joined.
    pub(crate) membership: SetOnce<Membership>,
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
    /// Notified when questions of other dispatchers wait at the node.
    pub(crate) has_mail: Notify,
    /// Version of the map that the node uses; 0 until the node has reported it.
    map_version: AtomicU64,
    told: Mutex<ToldStatus>,
    /// Held while a request hands the records to the node: they are large, and many requests may find them missing.
    pub(crate) handing_records: tokio::sync::Mutex<()>,
}

/// What the node has told last.
#[derive(Debug, Default)]
struct ToldStatus {
    shards: Vec<ShardStatus>,
    /// The last two times of day of the node, and when they came.
    times: [Option<(Timestamp, Instant)>; 2],
    /// Whether the clocks were too far apart then.
    is_off: bool,
}

impl ToldStatus {
    /// Returns how far the time of day `own` of this process is ahead of that of the node, in microseconds; negative if it
    /// is behind. What the node has told is carried on by the monotonic clock, so that a jump of this process's time of day
    /// shows at once; of two times the later one counts, because a status may have been read late.
    fn clock_ahead(&self, own: Timestamp, now: Instant) -> Option<i64> {
        let carried_on = |(wall, at): &(Timestamp, Instant)| {
            wall.saturating_add(now.saturating_duration_since(*at))
        };
        let times = self.times.iter().flatten();
        Some(signed_micros(own, times.map(carried_on).max()?))
    }
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
            has_mail: Notify::new(),
            map_version: AtomicU64::new(0),
            told: Mutex::default(),
            handing_records: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.place.name()
    }

    /// Returns the connection; none where there is none.
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

    /// Returns whether the node can be asked now, or its failure is known; false while it is expected back.
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

    /// Returns for how long the node is still expected back; none if it is not.
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

    /// Returns why the node cannot be asked; none if it can.
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

    /// Stores the status of the node.
    pub(crate) fn keep_status(&self, status: StatusOfNode) {
        let (own, now) = (self.common.clock.wall(), self.common.clock.monotonic());
        let mut told = self.lock_told();
        let was_off = told.is_off;
        told.shards = status.shards;
        told.times = [status.wall.map(|wall| (wall, now)), told.times[0]];
        let clock_ahead = told.clock_ahead(own, now);
        told.is_off = is_off(clock_ahead);
        if told.is_off && !was_off {
            tracing::warn!(
                node = self.name(),
                ahead_seconds = clock_ahead.unwrap_or_default() / 1_000_000,
                "the clocks of this machine and of a shard node are too far apart: check what sets them (NTP)"
            );
        }
    }

    /// Returns the last status of the node's shards.
    pub(crate) fn status(&self) -> Vec<ShardStatus> {
        self.lock_told().shards.clone()
    }

    /// Returns how far the clock of this process is ahead of that of the node now; none before the node has told its own.
    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        let (own, now) = (self.common.clock.wall(), self.common.clock.monotonic());
        self.lock_told().clock_ahead(own, now)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_own_clock_shows_at_once_and_a_status_that_was_read_late_does_not() {
        let (begun, day) = (Instant::now(), Timestamp::from_millis(1_790_000_000_000));
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut told = ToldStatus::default();
        assert_eq!(told.clock_ahead(day, begun), None);
        told.times = [Some((day, begun)), None];
        let later = day.saturating_add(Duration::from_secs(5));
        assert_eq!(told.clock_ahead(later, at(5)), Some(0));
        assert_eq!(told.clock_ahead(day, at(5)), Some(-5_000_000));
        let jumped = later.saturating_add(Duration::from_hours(24));
        assert_eq!(told.clock_ahead(jumped, at(5)), Some(86_400_000_000));
        // The node told it at once, and it was read three seconds later.
        told.times = [Some((day, at(3))), told.times[0]];
        assert_eq!(told.clock_ahead(later, at(5)), Some(0));
    }
}
