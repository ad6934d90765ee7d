//! Handing copies of the records to the store, and finishing the removals that all shards have confirmed.
//!
//! A removal is over when every shard of the map has answered for a copy that fences the namespace. Shards
//! that an operator abandoned are not waited for. Any dispatcher can finish a removal.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use umbo_types::buggify;

use crate::control_plane::ControlPlane;
use crate::namespaces::{self, Removing};
use crate::records::RecordSet;

/// Time for shards to confirm a copy before a change is answered without them.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);

impl ControlPlane {
    /// Hands the records in effect to the store, and waits until the shards have confirmed them, for
    /// [`HAND_OVER_TIMEOUT`] at most. Later confirmations still count.
    pub(crate) async fn hand_over(&self) {
        let (records, store) = (Arc::clone(&self.records), Arc::clone(&self.store));
        let clock = Arc::clone(&self.clock);
        let hand_over = async move { records.hand_over(&*store, &*clock).await };
        let work = self.tasks.spawn(hand_over);
        // Late confirmations are noted when they come.
        drop(timeout(HAND_OVER_TIMEOUT, work).await);
    }

    /// Has the shards confirm the records, and finishes the removals that all have confirmed.
    pub(crate) async fn settle_removals(&self) {
        if self.records.is_hand_over_due(self.clock.monotonic()) {
            self.hand_over().await;
        }
        self.end_removals().await;
    }

    /// Finishes the removals that no longer wait for a shard. Safe to be run on all dispatchers.
    pub(crate) async fn end_removals(&self) {
        for (removing, waiting_for) in self.removals() {
            if !waiting_for.is_empty() || buggify!("records-removal-late") {
                continue;
            }
            let end = |set: &RecordSet| Ok((namespaces::end_removal(set, &removing)?, ()));
            match self.change_records(end).await {
                Ok(()) => tracing::info!(
                    namespace = removing.name,
                    namespace_id = removing.id.0,
                    "a removed namespace is gone"
                ),
                // The removal is tried again with the next step.
                Err(error) => tracing::warn!(
                    namespace = removing.name,
                    %error,
                    "the removal of a namespace could not be finished; trying again"
                ),
            }
        }
    }

    /// Returns the namespaces that are being removed, each with the shards that it waits for.
    pub(crate) fn removals(&self) -> Vec<(Removing, Vec<u16>)> {
        let (revision, removing) = self.namespaces.removing();
        if removing.is_empty() {
            return Vec::new();
        }
        let unconfirmed = self.records.unconfirmed(&*self.store, revision);
        let removing = removing.into_iter();
        removing
            .map(|it| {
                let waiting_for = it.waiting_for(&unconfirmed);
                (it, waiting_for)
            })
            .collect()
    }
}
