//! Why loads wait now: loads that run in this dispatcher, and loads that have no place in it. Its runner waits here for
//! changes of loads. A run also writes its reason to its progress row, if the disk has room for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use umbo_types::NamespaceId;

/// A load that has waited for this time without progress is stuck.
const STUCK_AFTER: Duration = Duration::from_mins(10);
/// If a load waits again within this time after its run gave its place back, it has waited all the time. A runner
/// leaves it alone for half a minute at most.
const WAIT_KEPT: Duration = Duration::from_mins(2);

/// Waits by the namespace of the report of a load.
#[derive(Debug, Default)]
pub(crate) struct LoadWaits {
    waits: Mutex<BTreeMap<NamespaceId, Wait>>,
    changed: Notify,
}

impl LoadWaits {
    /// Tells the runner that a part is whole or a load was sealed.
    pub(super) fn note_change(&self) {
        self.changed.notify_one();
    }

    /// Waits until a part is whole or a load was sealed since this was called last.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Records why a run waits; `None` once it goes on, has ended, or gives its place back.
    pub(super) fn set(&self, report: NamespaceId, reason: Option<String>, now: Instant) {
        let mut waits = self.waits();
        waits.retain(|_, wait| wait.lasts(now));
        if reason.is_some() || waits.contains_key(&report) {
            let wait = waits.entry(report).or_insert_with(|| Wait::since(now));
            (wait.reason, wait.told) = (reason, now);
        }
    }

    /// Records that a run has made progress: its wait begins anew.
    pub(super) fn got_on(&self, report: NamespaceId, now: Instant) {
        if let Some(wait) = self.waits().get_mut(&report) {
            wait.since = now;
        }
    }

    /// Returns why a run waits, if it runs in this dispatcher and waits.
    pub(super) fn get(&self, report: NamespaceId) -> Option<String> {
        self.waits().get(&report)?.reason.clone()
    }

    /// Returns how many loads have waited here for more than [`STUCK_AFTER`].
    pub(crate) fn stuck(&self, now: Instant) -> u64 {
        let is_stuck = |wait: &&Wait| {
            wait.lasts(now) && now.saturating_duration_since(wait.since) > STUCK_AFTER
        };
        self.waits().values().filter(is_stuck).count() as u64
    }

    fn waits(&self) -> MutexGuard<'_, BTreeMap<NamespaceId, Wait>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wait of a load.
#[derive(Debug)]
struct Wait {
    /// Why the run waits; `None` while there is no run, or it does not wait.
    reason: Option<String>,
    /// When the load last made progress, or began to wait.
    since: Instant,
    /// When the reason was told last.
    told: Instant,
}

impl Wait {
    const fn since(now: Instant) -> Self {
        Self {
            reason: None,
            since: now,
            told: now,
        }
    }

    fn lasts(&self, now: Instant) -> bool {
        self.reason.is_some() || now.saturating_duration_since(self.told) <= WAIT_KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: NamespaceId = NamespaceId(7);

    fn waits_at(waits: &LoadWaits, begin: Instant, minutes: u64) -> Instant {
        let now = begin + Duration::from_mins(minutes);
        waits.set(REPORT, Some("a shard is away".to_owned()), now);
        now
    }

    #[test]
    fn a_load_that_gives_its_place_back_and_waits_again_is_stuck_after_ten_minutes() {
        let (waits, begin) = (LoadWaits::default(), Instant::now());
        for minutes in 0..=10 {
            let now = waits_at(&waits, begin, minutes);
            assert_eq!(waits.stuck(now), 0, "{minutes}");
            assert!(waits.get(REPORT).is_some());
            waits.set(REPORT, None, now);
            assert_eq!(waits.get(REPORT), None);
        }
        let now = waits_at(&waits, begin, 11);
        assert_eq!(waits.stuck(now), 1);
        waits.set(REPORT, None, now);
        assert_eq!(waits.stuck(now + WAIT_KEPT), 1);
        let later = now + WAIT_KEPT + Duration::from_secs(1);
        assert_eq!(
            waits.stuck(later),
            0,
            "another dispatcher has it, or it has ended"
        );
        waits.set(NamespaceId(8), None, later);
        assert!(waits.waits().is_empty(), "nothing of it is kept");
    }

    #[test]
    fn a_load_that_gets_on_now_and_then_is_not_stuck() {
        let (waits, begin) = (LoadWaits::default(), Instant::now());
        for minutes in 0..60 {
            let now = waits_at(&waits, begin, minutes);
            assert_eq!(waits.stuck(now), 0, "{minutes}");
            if minutes % 9 == 0 {
                waits.got_on(REPORT, now);
            }
        }
        let now = begin + Duration::from_mins(54 + 11);
        assert_eq!(waits.stuck(now), 1, "it waits since it got on last");
    }
}
