//! The pause of a shard while its file is compacted: reads wait for its end.

use std::sync::Arc;

use umbo_store::ShardState;

use super::OpenShard;
use crate::snapshot::ShardSnapshot;

impl OpenShard {
    /// Makes reads wait until another state is published. Returns the one before, which readers may still hold.
    pub(crate) fn pause(&self) -> Arc<ShardSnapshot> {
        let paused = self.snapshot.load().paused();
        self.snapshot.swap(Arc::new(paused))
    }

    /// Makes readers see a state again, after a pause that was of no use.
    pub(crate) fn resume(&self, snapshot: Arc<ShardSnapshot>) {
        self.snapshot.store(snapshot);
        self.note_reopened();
    }

    /// Waits until the file is not compacted any more. Returns whether it can be read then.
    pub(crate) async fn outlasts_pause(&self) -> bool {
        // Made before the look, so that the end of the pause is missed by neither.
        let reopened = self.reopened.notified();
        let is_paused = || self.snapshot.load().is_paused();
        let is_away = || matches!(self.current_state(), ShardState::Unavailable(_));
        if is_paused() && !is_away() {
            reopened.await;
        }
        !is_paused() || !is_away()
    }
}
