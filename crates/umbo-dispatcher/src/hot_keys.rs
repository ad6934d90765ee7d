//! The hot keys of a dispatcher: the shield, its results, and whether any key is blocked.
//!
//! Owns the `Shield` and its tasks, and puts the lists of operators into effect. How a read uses the
//! shield is in `phase/read_through`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;
use umbo_control::hot_lists::{KeyId, ListedKeys};
use umbo_hotkey::{ReadKey, Report, Shield, ShieldSettings};
use umbo_store::Page;
use umbo_types::{NamespaceId, Row};

use crate::store_call::Timed;

/// A result that many requests may share.
#[derive(Debug, Clone)]
pub(crate) enum SharedRead {
    /// Of a get: the dataset that was read, and the row, if it is visible.
    Row(NamespaceId, Option<Row>),
    /// Of a range: the dataset that was read, and its first chunk.
    Page(NamespaceId, Arc<Page>),
}

impl SharedRead {
    /// Returns the dataset that was read. Keys belong to the namespace and stay the same for all of its
    /// datasets.
    pub(crate) const fn dataset(&self) -> NamespaceId {
        match self {
            Self::Row(dataset, _) | Self::Page(dataset, _) => *dataset,
        }
    }
}

/// The shield of a dispatcher.
pub(crate) type HotShield = Shield<Timed<SharedRead>>;

/// The hot keys of a dispatcher.
pub struct HotKeys {
    shield: Option<HotShield>,
    is_any_blocked: AtomicBool,
}

impl fmt::Debug for HotKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotKeys").finish_non_exhaustive()
    }
}

impl HotKeys {
    /// Makes the shield, unless it is turned off. Reads that outlive their requests are `tasks`.
    pub(crate) fn new(settings: Option<ShieldSettings>, tasks: &TaskTracker, now: Instant) -> Self {
        let tasks = tasks.clone();
        let spawner = move |task| drop(tasks.spawn(task));
        Self {
            shield: settings.map(|settings| {
                let random = Box::new(|| fastrand::u64(..));
                Shield::new(settings, Box::new(spawner), random, now)
            }),
            is_any_blocked: AtomicBool::new(false),
        }
    }

    /// Returns whether keys are watched at all.
    pub const fn is_enabled(&self) -> bool {
        self.shield.is_some()
    }

    /// Returns the report of hot keys, or `None` if they are not watched.
    pub fn report(&self, now: Instant) -> Option<Report> {
        self.shield.as_ref().map(|shield| shield.report(now))
    }

    /// Returns the shield, or `None` if it is turned off.
    pub(crate) fn shield(&self) -> Option<&HotShield> {
        self.shield.as_ref()
    }

    /// Returns the shield if any key is blocked. One load for nearly every request.
    #[inline]
    pub(crate) fn blocking(&self) -> Option<&HotShield> {
        if self.is_any_blocked.load(Ordering::Relaxed) {
            self.shield.as_ref()
        } else {
            None
        }
    }

    /// Returns the time limit of a read that other requests may wait for.
    pub(crate) fn leader_timeout(&self) -> Duration {
        let shield = self.shield.as_ref();
        shield.map_or(Duration::MAX, Shield::leader_timeout)
    }

    /// Brings detection up to date. To be called every 100 ms.
    pub(crate) fn tick(&self, now: Instant) {
        if let Some(shield) = &self.shield {
            shield.tick(now);
        }
    }
}

impl ListedKeys for HotKeys {
    /// Without a shield nothing is listed.
    fn replace(&self, pinned: &[KeyId], blocked: &[KeyId]) {
        let Some(shield) = &self.shield else {
            return;
        };
        let seed = shield.seed();
        let keys = |ids: &[KeyId]| -> Vec<ReadKey> {
            let ids = ids.iter();
            ids.map(|id| id.read_key(seed)).collect()
        };
        if let Err(error) = shield.list(keys(pinned), keys(blocked)) {
            tracing::error!(%error, "the lists of hot keys could not be put into effect");
            return;
        }
        let is_any_blocked = !blocked.is_empty();
        self.is_any_blocked.store(is_any_blocked, Ordering::Relaxed);
    }
}
