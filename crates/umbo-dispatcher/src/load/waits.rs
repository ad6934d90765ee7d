//! What the loads that run in this dispatcher wait for now. A run writes it beside its progress too, but not where the
//! disk that it waits for is the one that would take it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use umbo_types::NamespaceId;

/// Reasons of runs that wait, by the namespace of their reports: at most one for each run of this dispatcher.
#[derive(Debug, Default)]
pub(crate) struct LoadWaits(Mutex<BTreeMap<NamespaceId, String>>);

impl LoadWaits {
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
