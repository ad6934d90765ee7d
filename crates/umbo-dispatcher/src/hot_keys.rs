//! The hot keys of a pod: the shield, what it keeps, and which keys an operator has blocked.
//!
//! Owns the `Shield` and its tasks, the lists that operators keep, and what is told of both. How a
//! read passes the shield is the business of `shield`.

mod error;
mod key_id;
mod lists;
mod report;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;
use umbo_hotkey::{ReadKey, Settings, Shield, TooManyListed};
use umbo_store::Page;
use umbo_types::Row;

pub(crate) use self::error::HotKeyError;
pub(crate) use self::key_id::{KeyHasher, KeyId};
pub(crate) use self::lists::{Entry, HotLists};
pub(crate) use self::report::{HotKeySample, report};
use crate::failure::Failure;
use crate::wait::Timed;

/// An answer that many readers may share.
#[derive(Debug, Clone)]
pub(crate) enum Shared {
    /// Of a get: the row, where it is visible.
    Row(Option<Row>),
    /// Of a range: its first chunk.
    Page(Arc<Page>),
}

/// The shield of a dispatcher.
pub(crate) type HotShield = Shield<Timed<Shared>, Failure>;

/// What a pod knows of hot keys.
pub(crate) struct HotKeys {
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
    pub(crate) fn new(settings: Option<Settings>, tasks: &TaskTracker, now: Instant) -> Self {
        let tasks = tasks.clone();
        let spawner = move |task| drop(tasks.spawn(task));
        Self {
            shield: settings.map(|settings| Shield::new(settings, Box::new(spawner), now)),
            is_any_blocked: AtomicBool::new(false),
        }
    }

    /// Returns the shield; none where it is turned off.
    pub(crate) fn shield(&self) -> Option<&HotShield> {
        self.shield.as_ref()
    }

    /// Replaces the lists of an operator, at once. Without a shield nothing is listed.
    pub(crate) fn list(
        &self,
        pinned: Vec<ReadKey>,
        blocked: Vec<ReadKey>,
    ) -> Result<(), TooManyListed> {
        let Some(shield) = &self.shield else {
            return Ok(());
        };
        let is_any_blocked = !blocked.is_empty();
        shield.list(pinned, blocked)?;
        self.is_any_blocked.store(is_any_blocked, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the shield where any key is blocked. One load for nearly every request.
    #[inline]
    pub(crate) fn blocking(&self) -> Option<&HotShield> {
        if self.is_any_blocked.load(Ordering::Relaxed) {
            self.shield.as_ref()
        } else {
            None
        }
    }

    /// Returns the time that a read has which others may wait for.
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
