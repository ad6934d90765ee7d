//! The state of a caller in a namespace: its usage, the average cost of its requests, and the policies and buckets that
//! concern it. Policies and buckets are found once, and not for every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::SmallVec;
use umbo_types::{NamespaceId, Operation, ShardId};
use xxhash_rust::xxh3::xxh3_64;

use crate::bucket::Bucket;
use crate::cost::{CostByUnit, CostHint};
use crate::operation_usage::OperationUsage;
use crate::policy::{Limit, Policy};
use crate::price_memory::PriceKeys;
use crate::pricing::Pricing;
use crate::report::Tally;
use crate::schedule::Schedule;
use crate::subject::Subject;
use crate::unit::Unit;

/// A caller in a namespace, bound to the policies of one generation.
///
/// The order of the fields matters: the two counts of the `Arc` and the fields up to the first matched policy fill one
/// cache line. A request that meets one policy needs no other.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CallerState {
    /// Generation of the matched policies.
    generation: u32,
    has_more: bool,
    is_counted_by_shard: bool,
    pub(crate) record: Arc<CallerNamespaceUsage>,
    first: Option<MatchedPolicy>,
    /// All matched policies but the first.
    more: SmallVec<[MatchedPolicy; 1]>,
    pub(crate) space: Arc<NamespaceUsage>,
}

/// The state of a caller, and pointers to all else that an admission needs. Three pointers are side by side in the map,
/// so that their targets are loaded from memory at the same time.
#[derive(Debug, Clone)]
pub(crate) struct CallerEntry {
    pub(crate) account: Arc<CallerState>,
    /// Usage record of the state.
    record: Arc<CallerNamespaceUsage>,
    /// Bucket of the state's first matched policy.
    bucket: Option<Arc<Bucket>>,
}

impl CallerEntry {
    /// Finds an entry for a state.
    pub(crate) fn new(account: Arc<CallerState>) -> Self {
        let first = account.first.as_ref().and_then(MatchedPolicy::bucket);
        Self {
            record: Arc::clone(&account.record),
            bucket: first.map(Arc::clone),
            account,
        }
    }

    /// Returns the state, after it has loaded a word of each cache line that an admission needs.
    #[inline]
    pub(crate) fn account(&self, operation: Operation) -> Arc<CallerState> {
        self.record.cell(operation).touch();
        if let Some(bucket) = &self.bucket {
            bucket.touch();
        }
        Arc::clone(&self.account)
    }

    /// Returns whether no request holds the state, and no state of an older generation holds its record.
    pub(crate) fn may_go(&self) -> bool {
        Arc::strong_count(&self.account) == 1 && Arc::strong_count(&self.record) == 2
    }
}

impl CallerState {
    /// Makes the state of callers whose use is counted in `record`.
    pub(crate) fn new(
        generation: u32,
        matched_policies: impl IntoIterator<Item = MatchedPolicy>,
        record: Arc<CallerNamespaceUsage>,
        space: Arc<NamespaceUsage>,
    ) -> Self {
        let mut matched_policies = matched_policies.into_iter();
        let first = matched_policies.next();
        let more: SmallVec<[MatchedPolicy; 1]> = matched_policies.collect();
        let is_counted_by_shard = first.iter().chain(&more).any(|matched| matched.by_shard);
        Self {
            generation,
            has_more: !more.is_empty(),
            is_counted_by_shard,
            record,
            first,
            more,
            space,
        }
    }

    /// Returns whether the matched policies belong to a generation.
    #[inline]
    pub(crate) const fn is_of(&self, generation: u32) -> bool {
        self.generation == generation
    }

    /// Returns whether a matched policy has a bucket for each shard.
    #[inline]
    pub(crate) const fn is_counted_by_shard(&self) -> bool {
        self.is_counted_by_shard
    }

    /// Returns the policies that may concern the caller.
    #[inline]
    pub(crate) fn matched_policies(&self) -> impl Iterator<Item = &MatchedPolicy> {
        let (first, more) = self.first_and_more();
        first.into_iter().chain(more)
    }

    /// Returns the first of the policies, and all others.
    #[inline]
    pub(crate) fn first_and_more(&self) -> (Option<&MatchedPolicy>, &[MatchedPolicy]) {
        let more: &[MatchedPolicy] = if self.has_more { &self.more } else { &[] };
        (self.first.as_ref(), more)
    }

    /// Returns the matched policy at a place among them.
    #[inline]
    pub(crate) fn matched(&self, at: u8) -> &MatchedPolicy {
        let matched = match at.checked_sub(1) {
            None => self.first.as_ref(),
            Some(at) => self.more.get(usize::from(at)),
        };
        matched.expect("a debit names a matched of its own account")
    }

    /// Returns the estimate of a request, and the keys of its price.
    #[inline]
    pub(crate) fn estimate(
        &self,
        pricing: &Pricing,
        operation: Operation,
        hint: &CostHint,
    ) -> (CostByUnit, PriceKeys) {
        let CallerNamespaceUsage {
            hash, namespace_id, ..
        } = *self.record;
        let keys = PriceKeys::of(hash, namespace_id, operation, hint);
        let known = pricing.prices.recall(&keys);
        let cell = self.record.cell(operation);
        (
            cell.estimate(&pricing.weights, operation, hint, known),
            keys,
        )
    }

    /// Returns how requests are priced.
    #[inline]
    pub(crate) fn pricing(&self) -> &Pricing {
        // The active policy is in the cache already; the end of the state rarely is.
        match &self.first {
            Some(matched) => &matched.active.pricing,
            None => &self.space.pricing,
        }
    }
}

/// A policy that may concern the caller.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts about a policy, each asked by itself"
)]
pub(crate) struct MatchedPolicy {
    pub(crate) active: Arc<ActivePolicy>,
    /// Operations that it counts, a bit each.
    pub(crate) operations: u16,
    /// Unit of the policy.
    pub(crate) unit: Unit,
    /// Whether the policy is enforced, and not a shadow.
    pub(crate) is_enforced: bool,
    /// Whether callers are told their remaining budget: the policy is enforced, and an operator configured it.
    pub(crate) is_told: bool,
    /// Whether it has a bucket for each shard.
    pub(crate) by_shard: bool,
    /// Whether its buckets pay the penalty of an overload: they count request units, are enforced,
    /// and belong to one caller on all shards.
    pub(crate) pays_penalty: bool,
    /// The bucket, if caller and namespace alone decide which one it is.
    pub(crate) bound: Option<CallerBucket>,
}

/// A bucket and its schedule, together so that an admission follows one pointer less.
#[derive(Debug, Clone)]
pub(crate) struct CallerBucket {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) schedule: Arc<Schedule>,
}

impl MatchedPolicy {
    /// Returns whether the policy concerns a request.
    #[inline]
    pub(crate) fn is_met(&self, subject: &Subject<'_>) -> bool {
        self.operations >> subject.operation as u32 & 1 == 1
            && (self.bound.is_some() || self.active.policy.applies_to(subject))
    }

    #[inline]
    pub(crate) fn bucket(&self) -> Option<&Arc<Bucket>> {
        self.bound.as_ref().map(|bound| &bound.bucket)
    }
}

/// A policy in effect.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) policy: Arc<Policy>,
    pub(crate) stats: Arc<PolicyStats>,
    /// Pricing of the limiter; here because an admission has the policy at hand.
    pub(crate) pricing: Arc<Pricing>,
    /// Schedules of its buckets: first for the policy's own limit, then for the limits of its overrides.
    schedules: Vec<Arc<Schedule>>,
}

impl ActivePolicy {
    pub(crate) fn new(
        policy: &Arc<Policy>,
        stats: Arc<PolicyStats>,
        pricing: &Arc<Pricing>,
    ) -> Self {
        let limits = std::iter::once(policy.limit)
            .chain(policy.overrides.iter().map(|exception| exception.limit));
        let schedule = |limit| Arc::new(Schedule::begin(limit, policy.refill));
        Self {
            schedules: limits.map(schedule).collect(),
            policy: Arc::clone(policy),
            stats,
            pricing: Arc::clone(pricing),
        }
    }

    /// Returns the schedule of a new bucket with a limit; it is shared, so that it stays in the cache.
    pub(crate) fn schedule(&self, limit: Limit) -> &Arc<Schedule> {
        let found = self
            .schedules
            .iter()
            .find(|schedule| schedule.limit == limit);
        found.unwrap_or(&self.schedules[0])
    }
}

/// Counters of a policy. They are kept while a policy of this name is in effect.
#[derive(Debug, Default)]
pub(crate) struct PolicyStats {
    pub(crate) rejected: AtomicU64,
    pub(crate) shadow_rejected: AtomicU64,
    /// Debt written off, in atoms.
    pub(crate) forgiven: AtomicU64,
    /// Bucket shared by callers for whom there is no room.
    pub(crate) overflow: std::sync::OnceLock<Arc<Bucket>>,
}

/// Usage of a namespace by shard.
#[derive(Debug)]
pub(crate) struct NamespaceUsage {
    pub(crate) namespace: Arc<str>,
    pub(crate) namespace_id: NamespaceId,
    pub(crate) shards: Box<[ShardCounts]>,
    /// Pricing of the limiter.
    pub(crate) pricing: Arc<Pricing>,
}

#[derive(Debug, Default)]
pub(crate) struct ShardCounts {
    pub(crate) requests: AtomicU64,
    pub(crate) charged: AtomicU64,
}

impl NamespaceUsage {
    /// Counts a part of a request.
    pub(crate) fn count(&self, shard: ShardId, charged: u64) {
        if let Some(cell) = self.shards.get(usize::from(shard.0)) {
            cell.requests.fetch_add(1, Relaxed);
            cell.charged.fetch_add(charged, Relaxed);
        }
    }
}

/// Usage of a namespace by a caller.
#[derive(Debug)]
pub(crate) struct CallerNamespaceUsage {
    pub(crate) caller: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) namespace_id: NamespaceId,
    /// Hash of the name of the caller.
    pub(crate) hash: u64,
    pub(crate) cells: [OperationUsage; Operation::PRICED.len()],
    /// What [`Self::visit_new`] has shown; no request takes this lock. In a box, so that the fields that an admission
    /// needs stay in one cache line.
    shown: Mutex<Option<Box<ShownUsage>>>,
}

/// Tallies of the operations that have been used.
#[derive(Debug, Default)]
struct ShownUsage(Vec<(Operation, Tally)>);

impl ShownUsage {
    fn tally(&mut self, operation: Operation) -> &mut Tally {
        let found = self.0.iter().position(|(of, _)| *of == operation);
        let at = found.unwrap_or_else(|| {
            self.0.reserve_exact(1);
            self.0.push((operation, Tally::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl CallerNamespaceUsage {
    pub(crate) fn new(caller: Arc<str>, namespace: Arc<str>, namespace_id: NamespaceId) -> Self {
        Self {
            hash: xxh3_64(caller.as_bytes()),
            caller,
            namespace,
            namespace_id,
            cells: Default::default(),
            shown: Mutex::default(),
        }
    }

    /// Returns the usage of an operation that has a price.
    #[inline]
    pub(crate) fn cell(&self, operation: Operation) -> &OperationUsage {
        let index = operation.price_index();
        &self.cells[index.expect("a limiter is asked about operations that have a price")]
    }

    /// Returns the usage of all operations together.
    pub(crate) fn sum(&self) -> Tally {
        let tallies = Operation::PRICED.map(|operation| self.cell(operation).tally(operation));
        tallies
            .iter()
            .fold(Tally::default(), |sum, one| sum.plus(one))
    }

    /// Shows the usage since the last call, by operation, and returns the sum of all operations since the start. Every
    /// request is shown once, by this record or by the record that absorbs it.
    pub(crate) fn visit_new(&self, mut see: impl FnMut(Operation, &Tally)) -> Tally {
        let mut shown = self.shown.lock();
        let mut sum = Tally::default();
        for operation in Operation::PRICED {
            let tally = self.cell(operation).tally(operation);
            if tally == Tally::default() {
                continue;
            }
            sum = sum.plus(&tally);
            let before = shown.get_or_insert_default().tally(operation);
            if tally != *before {
                see(operation, &tally.minus(before));
                *before = tally;
            }
        }
        sum
    }

    /// Adds the counts of another record.
    pub(crate) fn absorb(&self, other: &Self) {
        // Counts and shown counts change together for `visit_new`.
        let mut shown = self.shown.lock();
        for (own, other) in self.cells.iter().zip(&other.cells) {
            own.absorb(other);
        }
        for (operation, tally) in other.shown.lock().iter().flat_map(|shown| &shown.0) {
            let own = shown.get_or_insert_default().tally(*operation);
            *own = own.plus(tally);
        }
    }
}
