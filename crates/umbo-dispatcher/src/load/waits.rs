//! Why loads wait now: those that run in this dispatcher, and those that have no place in it. Its runner waits here for
//! changes of loads. A run writes its reason beside its progress too, if the disk has room for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use umbo_types::NamespaceId;

/// Reasons by the namespace of the report of a load.
#[derive(Debug, Default)]
pub(crate) struct LoadWaits {
    reasons: Mutex<BTreeMap<NamespaceId, String>>,
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

    /// Records what a run waits for; none where it goes on or has ended.
    pub(super) fn set(&self, report: NamespaceId, reason: Option<String>) {
        match reason {
            Some(reason) => drop(self.reasons().insert(report, reason)),
            None => drop(self.reasons().remove(&report)),
        }
    }

    /// Returns what a run waits for, if it is one of this dispatcher and waits.
    pub(super) fn get(&self, report: NamespaceId) -> Option<String> {
        self.reasons().get(&report).cloned()
    }

    fn reasons(&self) -> MutexGuard<'_, BTreeMap<NamespaceId, String>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
