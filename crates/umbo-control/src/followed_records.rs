//! Umbo's own records as a dispatcher has them: the set in effect, the time of its last confirmation,
//! and the copy handed to the store.
//!
//! Owns the state and its locks. How the records are learned of, put into effect and changed is the
//! business of `follow`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use umbo_store::{IdRange, RecordsRevision, Store};
use umbo_types::{Clock, ShardId};

use crate::error::ControlError;
use crate::first_records::first_set;
use crate::records::RecordSet;
use crate::records::home::Home;

/// How often a copy is handed over again while a shard has not confirmed it.
const HAND_OVER_AGAIN: Duration = Duration::from_secs(1);
/// How often it is handed over again although all have: a node may have been put back to an older state.
const HAND_OVER_REPEAT: Duration = Duration::from_secs(30);

/// The records as a dispatcher knows them.
#[derive(Debug)]
pub(crate) struct FollowedRecords {
    pub(crate) home: Home,
    pub(crate) current: ArcSwap<RecordSet>,
    begun: Instant,
    /// When the revision was last found to be the one at home, in milliseconds since `begun`.
    confirmed_ms: AtomicU64,
    /// Age without confirmation above which requests are refused.
    stale_max: Duration,
    /// Held while a set takes effect, so that the revision only grows.
    pub(crate) taking_up: Mutex<()>,
    /// Held while the home is looked at for requests and the loop, so that they share one look.
    pub(crate) looking: tokio::sync::Mutex<()>,
    /// Held while records are changed here; other dispatchers are met by compare-and-set.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// When the home was last asked for a name that is not known here.
    pub(crate) asked_anew: tokio::sync::Mutex<Option<Instant>>,
    handed: Mutex<Option<HandedOver>>,
    /// Held while the store keeps a copy: one at a time, because a node that hangs makes it last.
    handing_over: tokio::sync::Mutex<()>,
    problem: Mutex<Option<RecordsProblem>>,
}

/// Why the newest records are not in effect.
#[derive(Debug, Clone)]
struct RecordsProblem {
    text: String,
    is_unreadable: bool,
}

/// The report on the records for operators.
#[derive(Debug, Clone)]
pub struct RecordsReport {
    /// The revision in effect.
    pub revision: RecordsRevision,
    /// Time since the revision was last found to be the one at home.
    pub age: Duration,
    /// Namespaces that are being removed.
    pub removals: usize,
    /// Whether records of a newer revision cannot be read.
    pub is_unreadable: bool,
    /// The reason why the newest records cannot be followed.
    pub problem: Option<String>,
    /// Whether requests are refused because of their age.
    pub is_stale: bool,
}

impl FollowedRecords {
    /// Reads the records of a store for the first time: at home, or, while the home is away, from the
    /// newest copy of any node. Makes them if the store has none yet.
    pub(crate) async fn begin(
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
        stale_max: Duration,
    ) -> Result<(Self, Arc<RecordSet>), ControlError> {
        let home = Home::new(Arc::clone(store), Arc::clone(clock));
        let first = first_set(&**store, &home).await?;
        let begun = clock.monotonic();
        let followed = Self {
            home,
            current: ArcSwap::default(),
            begun,
            confirmed_ms: AtomicU64::new(0),
            stale_max,
            taking_up: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            asked_anew: tokio::sync::Mutex::default(),
            handed: Mutex::default(),
            handing_over: tokio::sync::Mutex::default(),
            problem: Mutex::default(),
        };
        Ok((followed, first))
    }

    /// Returns an error if the revision has not been confirmed for too long.
    #[inline]
    pub(crate) fn check_fresh(&self, now: Instant) -> Result<(), ControlError> {
        let age = self.age(now);
        if age <= self.stale_max {
            return Ok(());
        }
        let max = self.stale_max;
        Err(ControlError::RecordsStale { age, max })
    }

    /// Returns the report for operators; `removals` namespaces are being removed.
    pub(crate) fn report(&self, now: Instant, removals: usize) -> RecordsReport {
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        RecordsReport {
            revision: self.current.load().revision,
            age: self.age(now),
            removals,
            is_unreadable: problem
                .as_ref()
                .is_some_and(|problem| problem.is_unreadable),
            problem: problem.as_ref().map(|problem| problem.text.clone()),
            is_stale: self.check_fresh(now).is_err(),
        }
    }

    fn age(&self, now: Instant) -> Duration {
        let since_begun = now.saturating_duration_since(self.begun);
        let confirmed = Duration::from_millis(self.confirmed_ms.load(Ordering::Relaxed));
        since_begun.saturating_sub(confirmed)
    }

    /// Notes that the revision in effect was the one at home at `at` or later.
    pub(crate) fn confirm(&self, at: Instant) {
        let at = at.saturating_duration_since(self.begun).as_millis();
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        self.confirmed_ms.fetch_max(at, Ordering::Relaxed);
    }

    /// Records the reason why the newest records cannot be followed, and logs it if it has changed.
    pub(crate) fn note(&self, failure: Option<&ControlError>) {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let now = failure.map(|failure| RecordsProblem {
            text: failure.to_string(),
            is_unreadable: matches!(failure, ControlError::RecordsUnreadable(_)),
        });
        let is_same = now.as_ref().map(|now| &now.text) == problem.as_ref().map(|was| &was.text);
        if is_same {
            return;
        }
        match &now {
            Some(RecordsProblem {
                text,
                is_unreadable: true,
            }) => {
                tracing::error!(
                    reason = text,
                    "the newest of Umbo's own records cannot be used"
                );
            }
            Some(RecordsProblem { text, .. }) => {
                tracing::warn!(reason = text, "Umbo's own records are served from a copy");
            }
            None => tracing::info!("Umbo's own records are followed again"),
        }
        *problem = now;
    }
}

/// The result of the last hand-over of a copy to the store.
#[derive(Debug, Clone)]
struct HandedOver {
    revision: RecordsRevision,
    at: Instant,
    unconfirmed: Vec<ShardId>,
    /// Fences that every shard has confirmed, with this copy or an earlier one.
    fenced: Vec<IdRange>,
}

impl FollowedRecords {
    fn handed(&self) -> MutexGuard<'_, Option<HandedOver>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_hand_over_due(&self, now: Instant) -> bool {
        if self.handing_over.try_lock().is_err() {
            return false;
        }
        let revision = self.current.load().revision;
        let handed = self.handed();
        let Some(handed) = handed.as_ref() else {
            return true;
        };
        let wait = if handed.unconfirmed.is_empty() {
            HAND_OVER_REPEAT
        } else {
            HAND_OVER_AGAIN
        };
        let age = now.saturating_duration_since(handed.at);
        handed.revision < revision || age >= wait
    }

    /// Hands the records in effect to the store, and notes which shards have not confirmed them.
    pub(crate) async fn hand_over(&self, store: &dyn Store, clock: &dyn Clock) {
        let _one = self.handing_over.lock().await;
        let at = clock.monotonic();
        let set = self.current.load_full();
        let copy = match set.to_copy() {
            Ok(copy) => Arc::new(copy),
            Err(error) => {
                tracing::error!(%error, "no copy of Umbo's own records can be made");
                return;
            }
        };
        let answers = store.keep_records(Arc::clone(&copy)).await;
        let is_confirmed = |shard: &ShardId| {
            let mut answers = answers.iter();
            answers.any(|(of, answer)| of == shard && answer.is_ok())
        };
        let mut unconfirmed = shards_of(store);
        unconfirmed.retain(|shard| !is_confirmed(shard));
        let mut handed = self.handed();
        let before = handed.take().map(|before| before.fenced);
        let fenced = match &unconfirmed[..] {
            [] => copy.fenced.clone(),
            _ => before.unwrap_or_default(),
        };
        *handed = Some(HandedOver {
            revision: set.revision,
            at,
            unconfirmed,
            fenced,
        });
    }

    /// Returns fences that every shard has confirmed.
    pub(crate) fn confirmed_fences(&self) -> Vec<IdRange> {
        let handed = self.handed();
        handed
            .as_ref()
            .map_or_else(Vec::new, |handed| handed.fenced.clone())
    }

    /// Returns the shards that have not confirmed a revision, or a newer one.
    pub(crate) fn unconfirmed(&self, store: &dyn Store, revision: RecordsRevision) -> Vec<ShardId> {
        let handed = self.handed();
        let handed = handed.as_ref().filter(|handed| handed.revision >= revision);
        handed.map_or_else(|| shards_of(store), |handed| handed.unconfirmed.clone())
    }
}

/// Returns all shards of a store's map.
fn shards_of(store: &dyn Store) -> Vec<ShardId> {
    let map = store.shard_map();
    let mut shards: Vec<_> = map.ranges().iter().map(|range| range.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}
