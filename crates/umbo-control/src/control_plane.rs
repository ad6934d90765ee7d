//! Umbo's own records in effect: namespaces, tokens, quota policies and lists of hot keys, all of one
//! revision.
//!
//! Owns the records in effect and their first reading. `follow` learns of newer revisions, and `changes` makes the
//! changes of the admin API.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;
use umbo_quota::Limiter;
use umbo_store::Store;
use umbo_types::{BelievedClock, Clock, Timestamp};

use crate::auth::TokenRegistry;
use crate::error::ControlError;
use crate::events::Events;
use crate::first_records::secret;
use crate::followed_records::{FollowedRecords, RecordsReport};
use crate::home_clock::HomeClock;
use crate::hot_lists::{HotLists, KeyIdHasher, ListedKeys};
use crate::loads::Loads;
use crate::namespaces::Namespaces;
use crate::policies::{FilePolicies, Policies, PolicyFileError};

/// The parts of the control plane of a dispatcher.
#[derive(Debug)]
pub struct ControlParts {
    /// The store of the records.
    pub store: Arc<dyn Store>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// The tokens of the token file.
    pub tokens: Arc<TokenRegistry>,
    /// The quotas that policies are put into effect for.
    pub quota: Arc<Limiter>,
    /// The policies of the policy file.
    pub policies: FilePolicies,
    /// Puts listed keys into effect.
    pub listed_keys: Arc<dyn ListedKeys>,
    /// How long requests are served by a copy of the records that could not be confirmed with their home.
    pub records_stale_max: Duration,
    /// Tasks that run to their end although the request that began them has ended.
    pub tasks: TaskTracker,
}

/// The control plane of a dispatcher.
#[derive(Debug)]
pub struct ControlPlane {
    pub(crate) store: Arc<dyn Store>,
    /// The clock of the home.
    pub(crate) clock: Arc<dyn Clock>,
    own_clock: Arc<dyn Clock>,
    /// The believed time of day, for dropping records.
    believed_clock: Mutex<BelievedClock>,
    pub(crate) records: Arc<FollowedRecords>,
    pub(crate) tasks: TaskTracker,
    /// The namespaces in effect.
    pub namespaces: Namespaces,
    /// The tokens in effect.
    pub tokens: Arc<TokenRegistry>,
    /// The quota policies in effect.
    pub policies: Policies,
    /// The lists of hot keys in effect.
    pub hot_lists: HotLists,
    /// The loads in effect.
    pub loads: Loads,
    /// Changes by operators, and happenings.
    pub events: Events,
    /// Makes the hashes of keys that metrics and logs show.
    pub key_hasher: KeyIdHasher,
    secret: [u8; 32],
}

impl ControlPlane {
    /// Reads Umbo's own records, at home or from a copy. Makes them if the store has none yet. Fails if they cannot be
    /// read.
    pub async fn open(parts: ControlParts) -> Result<Self, ControlError> {
        let ControlParts {
            store,
            clock,
            tokens,
            quota,
            policies,
            listed_keys,
            records_stale_max,
            tasks,
        } = parts;
        let (records, first) = FollowedRecords::begin(&store, &clock, records_stale_max).await?;
        let secret = secret(&first)?;
        let believed_clock = BelievedClock::new(clock.wall(), clock.monotonic());
        let own_clock = clock;
        let clock: Arc<dyn Clock> = Arc::new(HomeClock {
            store: Arc::clone(&store),
            own: Arc::clone(&own_clock),
        });
        let control = Self {
            believed_clock: Mutex::new(believed_clock),
            records: Arc::new(records),
            tasks,
            namespaces: Namespaces::default(),
            tokens,
            policies: Policies::new(quota, Arc::clone(&clock), policies),
            hot_lists: HotLists::new(Arc::clone(&clock), listed_keys),
            loads: Loads::default(),
            events: Events::default(),
            key_hasher: KeyIdHasher::new(&secret),
            secret,
            store,
            clock,
            own_clock,
        };
        control.take_up(&first)?;
        control.hand_over().await;
        Ok(control)
    }

    /// Returns the time of day of the home, which decides when records begin and end, at the time `own` of this
    /// process.
    pub fn time_at(&self, own: Timestamp) -> Timestamp {
        self.store.time_at(self.store.home().shard, own)
    }

    /// Returns the believed time of day, for dropping records: a dropped record cannot come back. It follows the clock
    /// of this process, because the home checks it by its own clock.
    pub(crate) fn believed_time(&self) -> Timestamp {
        let (wall, now) = (self.own_clock.wall(), self.own_clock.monotonic());
        let believed = self.believed_clock.lock();
        let mut believed = believed.unwrap_or_else(PoisonError::into_inner);
        if believed.observe(wall, now) {
            tracing::warn!(
                "the clock has jumped ahead: versions and loads are not dropped for ten minutes, or until it \
                 goes back"
            );
        }
        believed.time(wall, now)
    }

    /// Returns the time of day at which the keep time of a record begins: the later time of the home and of this
    /// process. Either clock may be behind, and a record that is dropped too early cannot come back.
    pub(crate) fn kept_from(&self) -> Timestamp {
        self.clock.wall().max(self.own_clock.wall())
    }

    /// Returns the secret that all dispatchers of a store share.
    pub const fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Returns an error if the records in effect have not been confirmed for too long.
    #[inline]
    pub fn check_fresh(&self, now: Instant) -> Result<(), ControlError> {
        self.records.check_fresh(now)
    }

    /// Takes up another policy file. Refuses a file that leaves no room for stored policies.
    pub fn replace_policy_file(&self, policies: FilePolicies) -> Result<(), PolicyFileError> {
        self.policies.replace_file(policies)
    }

    /// Ends entries of the lists of hot keys that have run out. To be called once a second.
    pub fn maintain(&self) {
        self.hot_lists.maintain();
    }

    /// Returns the report on the records for operators.
    pub fn records_report(&self) -> RecordsReport {
        let removals = self.namespaces.removing().1.len();
        self.records.report(self.clock.monotonic(), removals)
    }

    /// Runs a change to its end, also when the client that asked for it leaves.
    pub async fn run_to_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, ControlError>> + Send + 'static,
    ) -> Result<T, ControlError> {
        let outcome = self.tasks.spawn(change).await;
        outcome.unwrap_or_else(|error| Err(ControlError::Internal(error.to_string())))
    }
}
