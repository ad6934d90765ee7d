//! What a dispatcher holds: the store, the snapshots the path reads, and the bounds.
//!
//! Nothing here outlives the pod or matters to another one: kill it and the next one carries on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use umbo_quota::Limiter;
use umbo_routing::ShardMap;
use umbo_store::{ShardState, Store};
use umbo_telemetry::metrics::RequestMetrics;
use umbo_telemetry::trace::Tracer;
use umbo_types::Clock;

use crate::auth::TokenRegistry;
use crate::cursor::CursorKey;
use crate::failure::Failure;
use crate::hot_keys::{HotKeys, HotLists, KeyHasher};
use crate::namespaces::Namespaces;
use crate::overload::{Overload, OverloadSettings};
use crate::policies::{FilePolicies, Policies, PolicyFileError};
use crate::request_id::RequestIds;
use crate::system::SystemRecords;
use crate::tokens::StoredTokens;

/// Bounds of a pod.
#[derive(Debug, Clone)]
pub struct PodLimits {
    /// Requests in flight beyond which new ones are shed.
    pub requests_in_flight_max: usize,
    /// Memory that request bodies over 64 KiB may hold together, in bytes.
    pub body_memory_max: usize,
    /// Time in which a request body must have arrived.
    pub body_timeout: Duration,
    /// Deadline of requests that name none; streamed pages have none then.
    pub default_timeout: Duration,
}

/// A dispatcher.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shard_map: Arc<ShardMap>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) namespaces: Namespaces,
    pub(crate) tokens: Arc<TokenRegistry>,
    pub(crate) stored_tokens: StoredTokens,
    pub(crate) cursor_key: CursorKey,
    pub(crate) quota: Arc<Limiter>,
    pub(crate) policies: Policies,
    pub(crate) hot_keys: HotKeys,
    pub(crate) hot_lists: HotLists,
    pub(crate) key_hasher: KeyHasher,
    /// None where nothing is shed because of a shard.
    pub(crate) overload: Option<Overload>,
    pub(crate) metrics: Arc<RequestMetrics>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) limits: PodLimits,
    pub(crate) in_flight: AtomicUsize,
    /// Permits are KiB.
    pub(crate) body_memory: Semaphore,
    pub(crate) request_ids: RequestIds,
    pub(crate) config_text: String,
    /// What goes on when the request it came from has ended: changes of Umbo's own records, writes
    /// that were abandoned, and reads that others may wait for.
    changes: TaskTracker,
    is_draining: AtomicBool,
}

/// What a dispatcher is made of.
#[derive(Debug)]
pub struct Parts {
    /// Where the rows are.
    pub store: Arc<dyn Store>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// The tokens of the token file.
    pub tokens: Arc<TokenRegistry>,
    /// The quotas of callers.
    pub quota: Arc<Limiter>,
    /// The policies of the policy file.
    pub policies: FilePolicies,
    /// When a key is hot, and what is kept of it; none turns the layer off.
    pub hot_keys: Option<umbo_hotkey::Settings>,
    /// How shards are kept from overload; none sheds nothing because of a shard.
    pub overload: Option<OverloadSettings>,
    /// Where requests are counted.
    pub metrics: Arc<RequestMetrics>,
    /// Where spans go.
    pub tracer: Arc<Tracer>,
    /// Bounds.
    pub limits: PodLimits,
    /// The settings in effect, as `/admin/v1/config` shows them.
    pub config_text: String,
}

impl Dispatcher {
    /// Opens a dispatcher: loads namespaces, tokens and policies, and the key of cursors, which is
    /// made where there is none yet.
    pub async fn open(parts: Parts) -> Result<Arc<Self>, Failure> {
        let Parts {
            store,
            clock,
            tokens,
            quota,
            policies,
            hot_keys,
            overload,
            metrics,
            tracer,
            limits,
            config_text,
        } = parts;
        let system = Arc::new(SystemRecords::new(Arc::clone(&store), Arc::clone(&clock)));
        let secret = shared_secret(&system).await?;
        let (cursor_key, key_hasher) = (CursorKey::new(secret), KeyHasher::new(&secret));
        let stored_tokens =
            StoredTokens::new(Arc::clone(&system), Arc::clone(&tokens), Arc::clone(&clock));
        let policies = Policies::new(
            Arc::clone(&system),
            Arc::clone(&quota),
            Arc::clone(&clock),
            policies,
        );
        let hot_lists = HotLists::new(Arc::clone(&system), Arc::clone(&clock));
        let namespaces = Namespaces::new(system, Arc::clone(&clock));
        let changes = TaskTracker::new();
        let shards = store.shard_map().shards();
        let begun = clock.monotonic();
        let overload = overload.map(|settings| Overload::new(settings, shards, begun));
        let hot_keys = HotKeys::new(hot_keys, &changes, clock.monotonic());
        let pod = Self {
            stored_tokens,
            shard_map: store.shard_map(),
            body_memory: Semaphore::new(limits.body_memory_max / 1_024),
            in_flight: AtomicUsize::new(0),
            request_ids: RequestIds::new()?,
            changes,
            is_draining: AtomicBool::new(false),
            namespaces,
            store,
            clock,
            tokens,
            cursor_key,
            quota,
            policies,
            hot_keys,
            hot_lists,
            key_hasher,
            overload,
            metrics,
            tracer,
            limits,
            config_text,
        };
        pod.refresh().await?;
        Ok(Arc::new(pod))
    }

    /// Loads what other pods may have changed. To be called now and then.
    pub async fn refresh(&self) -> Result<(), Failure> {
        self.namespaces.refresh().await?;
        self.stored_tokens.refresh().await?;
        self.policies.refresh().await?;
        self.hot_lists.refresh(&self.hot_keys).await
    }

    /// Takes up another policy file; refuses one beside which stored policies would find no room.
    pub async fn replace_policy_file(&self, policies: FilePolicies) -> Result<(), PolicyFileError> {
        self.policies.replace_file(policies).await
    }

    /// Looks after the quotas (observed rates, the record of usage) and ends what has run out on the
    /// lists of hot keys. To be called once a second.
    pub fn maintain(&self) {
        self.quota.maintain(self.clock.monotonic());
        self.hot_lists.maintain(&self.hot_keys);
    }

    /// Brings up to date which keys are hot and which shards are overloaded. To be called every
    /// 100 ms.
    pub fn tick(&self) {
        let now = self.clock.monotonic();
        self.hot_keys.tick(now);
        if let Some(overload) = &self.overload {
            overload.tick_signal(now);
        }
    }

    /// Looks after those who wait for a shard. To be called every few milliseconds; `lag` is by how
    /// much the runtime was late to do so.
    pub fn tick_gates(&self, lag: Duration) {
        if let Some(overload) = &self.overload {
            overload.tick_gates(self.clock.monotonic(), lag);
        }
    }

    /// Reclaims the rows of removed namespaces. To be called now and then.
    pub async fn purge(&self) -> Result<(), Failure> {
        self.namespaces.purge(&*self.store).await
    }

    /// Waits until a namespace has been removed on this pod since the last call.
    pub async fn removal(&self) {
        self.namespaces.removal().await;
    }

    /// Runs a change to its end, also when the client that asked for it leaves.
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let outcome = self.changes.spawn(change).await;
        outcome.unwrap_or_else(|error| Err(Failure::Internal(error.to_string())))
    }

    /// Runs work to its end that nobody waits for.
    pub(crate) fn go_on(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime, when the process ends, nothing goes on.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.changes.spawn_on(work, &runtime);
        }
    }

    /// Waits for the changes under way. To be called once no request comes any more.
    pub async fn finish(&self) {
        self.changes.close();
        self.changes.wait().await;
    }

    /// Makes `/readyz` say that no new work should come.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Says whether [`Self::begin_drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Returns what is wrong with the shards, one line each; empty where all serve.
    pub(crate) fn shard_problems(&self) -> (Vec<String>, bool) {
        let shards = self.store.status();
        let mut any_serves = false;
        let mut problems = Vec::new();
        for status in shards {
            match status.state {
                ShardState::Available => any_serves = true,
                ShardState::ReadOnly(reason) => {
                    any_serves = true;
                    problems.push(format!("shard {} is read-only: {reason}", status.shard));
                }
                ShardState::Unavailable(reason) => {
                    problems.push(format!("shard {} is unavailable: {reason}", status.shard));
                }
            }
        }
        (problems, any_serves)
    }
}

/// Returns the secret that all pods of a store share; makes it where there is none.
async fn shared_secret(system: &SystemRecords) -> Result<[u8; 32], Failure> {
    let mut fresh = [0; 32];
    getrandom::fill(&mut fresh).map_err(|error| Failure::Internal(error.to_string()))?;
    let secret = system
        .update("secret", "cursor", |current| {
            Ok(Some(
                current.cloned().unwrap_or_else(|| fresh.to_vec().into()),
            ))
        })
        .await?;
    secret
        .and_then(|bytes| <[u8; 32]>::try_from(&bytes[..]).ok())
        .ok_or_else(|| Failure::Internal("the record secret/cursor is damaged".to_owned()))
}
