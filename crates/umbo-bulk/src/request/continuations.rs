//! Requests that continue a part, one at a time: the newest request ends the one before it, whose client may be gone.
//!
//! Knows the requests of this dispatcher only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};
use umbo_types::NamespaceId;

/// The content of a load, and the number of a part.
type Part = (NamespaceId, u16);

/// The newest request that continues each part.
#[derive(Debug, Default)]
pub(crate) struct Continuations(Mutex<HashMap<Part, Arc<PartTurn>>>);

#[derive(Debug, Default)]
struct PartTurn {
    /// Offset in the part at which the bytes of the request begin.
    offset: u64,
    /// Told when a newer request continues the part.
    overtaken: Notify,
    /// Locked until the request has ended.
    ended: Arc<AsyncMutex<()>>,
}

/// The turn of a request to continue a part, until it is dropped.
#[derive(Debug)]
pub(super) struct PartContinuation<'a> {
    all: &'a Continuations,
    part: Part,
    turn: Arc<PartTurn>,
    _locked: Option<OwnedMutexGuard<()>>,
    /// The request before, while this one waits for it.
    before: Option<Arc<PartTurn>>,
}

impl Continuations {
    /// Tells the request before to end, and waits until it has ended.
    pub(super) async fn begin(&self, part: Part, offset: u64) -> PartContinuation<'_> {
        let turn = Arc::new(PartTurn {
            offset,
            ..PartTurn::default()
        });
        let locked = Arc::clone(&turn.ended).try_lock_owned().ok();
        let before = self.turns().insert(part, Arc::clone(&turn));
        let mut own = PartContinuation {
            all: self,
            part,
            turn,
            _locked: locked,
            before: before.clone(),
        };
        if let Some(before) = before {
            before.overtaken.notify_one();
            drop(before.ended.lock().await);
            own.before = None;
        }
        own
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<Part, Arc<PartTurn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartContinuation<'_> {
    /// Waits until a newer request continues the part.
    pub(super) async fn overtaken(&self) {
        self.turn.overtaken.notified().await;
    }

    /// Returns whether the newest request sends the same bytes again. Then the bytes of this request must not stay.
    pub(super) fn is_sent_again(&self) -> bool {
        let turns = self.all.turns();
        let newest = turns.get(&self.part);
        newest.is_some_and(|newest| newest.offset == self.turn.offset)
    }
}

impl Drop for PartContinuation<'_> {
    fn drop(&mut self) {
        let mut turns = self.all.turns();
        let newest = turns.get(&self.part);
        if !newest.is_some_and(|newest| Arc::ptr_eq(newest, &self.turn)) {
            return;
        }
        // The next request is to wait for the one before, too, if this one was given up.
        match self.before.take() {
            Some(before) => drop(turns.insert(self.part, before)),
            None => drop(turns.remove(&self.part)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const PART: Part = (NamespaceId(1), 0);

    #[tokio::test(start_paused = true)]
    async fn a_newer_request_ends_the_one_before_it() {
        let all = Continuations::default();
        let soon = Duration::from_secs(1);
        let first = all.begin(PART, 7).await;
        assert!(
            timeout(soon, first.overtaken()).await.is_err(),
            "it is alone"
        );
        drop(
            timeout(soon, all.begin((NamespaceId(1), 1), 7))
                .await
                .unwrap(),
        );
        let mut second = Box::pin(all.begin(PART, 7));
        assert!(
            timeout(soon, &mut second).await.is_err(),
            "the first goes on"
        );
        timeout(soon, first.overtaken()).await.unwrap();
        drop(second);
        let mut third = Box::pin(all.begin(PART, 7));
        assert!(
            timeout(soon, &mut third).await.is_err(),
            "the first goes on"
        );
        assert!(first.is_sent_again());
        let mut fourth = Box::pin(all.begin(PART, 8));
        assert!(timeout(soon, &mut fourth).await.is_err());
        assert!(!first.is_sent_again(), "it goes on elsewhere");
        drop(fourth);
        drop(first);
        drop(timeout(soon, third).await.unwrap());
        assert!(all.turns().is_empty());
    }
}
