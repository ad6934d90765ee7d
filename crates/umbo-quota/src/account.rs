//! What is kept of a caller in a namespace: what it used, what its requests cost on average, and the
//! policies and buckets that concern it, found once and not for every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use smallvec::SmallVec;
use umbo_types::{NamespaceId, Operation, ShardId};

use crate::bounded_map::Kept;
use crate::bucket::Bucket;
use crate::cell::Cell;
use crate::policy::{Limit, Policy};
use crate::pricing::Pricing;
use crate::schedule::Schedule;
use crate::subject::Subject;
use crate::unit::Unit;

/// Operations that are charged: those of the data plane come first in the list.
pub(crate) const CHARGED: usize = 8;

/// A caller in a namespace, bound to the policies of one generation.
///
/// In this order: the counts of an `Arc`, two words, and all up to the first binding fill a cache
/// line, and a request that meets one policy needs no other.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Account {
    /// Of the policies that the bindings belong to.
    generation: u32,
    was_used: AtomicBool,
    has_more: bool,
    is_counted_by_shard: bool,
    pub(crate) record: Arc<Record>,
    first: Option<Binding>,
    /// All bindings but the first.
    more: SmallVec<[Binding; 1]>,
    pub(crate) space: Arc<Space>,
}

/// An account, and what else an admission needs: three pointers side by side in the map, so that all
/// they point to comes from memory at once.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) account: Arc<Account>,
    /// That of the account.
    record: Arc<Record>,
    /// That of its first binding.
    bucket: Option<Arc<Bucket>>,
}

impl Seat {
    /// Finds a seat for an account.
    pub(crate) fn new(account: Arc<Account>) -> Self {
        let first = account.first.as_ref().and_then(Binding::bucket);
        Self {
            record: Arc::clone(&account.record),
            bucket: first.map(Arc::clone),
            account,
        }
    }

    /// Returns the account, after it has loaded a word of each cache line that an admission needs.
    #[inline]
    pub(crate) fn account(&self, operation: Operation) -> Arc<Account> {
        self.record.cell(operation).touch();
        if let Some(bucket) = &self.bucket {
            bucket.touch();
        }
        Arc::clone(&self.account)
    }

    /// Says whether nobody counts in the record but by this account. A reservation of an older
    /// generation may.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.record) == 2
    }
}

impl Kept for Seat {
    fn was_used(&self) -> &AtomicBool {
        &self.account.was_used
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.account) > 1
    }
}

impl Account {
    /// Makes the account of those whose use is counted in `record`.
    pub(crate) fn new(
        generation: u32,
        bindings: impl IntoIterator<Item = Binding>,
        record: Arc<Record>,
        space: Arc<Space>,
    ) -> Self {
        let mut bindings = bindings.into_iter();
        let first = bindings.next();
        let more: SmallVec<[Binding; 1]> = bindings.collect();
        let is_counted_by_shard = first.iter().chain(&more).any(|binding| binding.by_shard);
        Self {
            generation,
            was_used: AtomicBool::new(true),
            has_more: !more.is_empty(),
            is_counted_by_shard,
            record,
            first,
            more,
            space,
        }
    }

    /// Says whether the bindings are those of the policies in effect.
    #[inline]
    pub(crate) const fn is_of(&self, generation: u32) -> bool {
        self.generation == generation
    }

    /// Says whether any of its policies has a bucket for each shard.
    #[inline]
    pub(crate) const fn is_counted_by_shard(&self) -> bool {
        self.is_counted_by_shard
    }

    /// Returns the policies that may concern the account.
    #[inline]
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Binding> {
        let (first, more) = self.first_and_more();
        first.into_iter().chain(more)
    }

    /// Returns the first of the policies, and all others.
    #[inline]
    pub(crate) fn first_and_more(&self) -> (Option<&Binding>, &[Binding]) {
        let more: &[Binding] = if self.has_more { &self.more } else { &[] };
        (self.first.as_ref(), more)
    }

    /// Returns the binding at a place among them.
    #[inline]
    pub(crate) fn binding(&self, at: u8) -> &Binding {
        let binding = match at.checked_sub(1) {
            None => self.first.as_ref(),
            Some(at) => self.more.get(usize::from(at)),
        };
        binding.expect("a debit names a binding of its own account")
    }

    /// Returns how requests are priced.
    #[inline]
    pub(crate) fn pricing(&self) -> &Pricing {
        // A rule is in the cache of whoever asks; the end of an account rarely is.
        match &self.first {
            Some(binding) => &binding.rule.pricing,
            None => &self.space.pricing,
        }
    }
}

/// A policy that may concern the account.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) rule: Arc<Rule>,
    /// Operations that it counts, a bit each.
    pub(crate) operations: u16,
    /// What its policy counts.
    pub(crate) unit: Unit,
    /// Whether its policy is more than a shadow.
    pub(crate) is_enforced: bool,
    /// Whether callers are told what is left to them: it is enforced, and somebody configured it.
    pub(crate) is_told: bool,
    /// Whether it has a bucket for each shard.
    pub(crate) by_shard: bool,
    /// There where the account alone decides about it.
    pub(crate) bound: Option<Bound>,
}

/// A bucket and how it refills, together so that an admission follows one pointer less.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) schedule: Arc<Schedule>,
}

impl Binding {
    /// Says whether the policy concerns a request.
    #[inline]
    pub(crate) fn is_met(&self, subject: &Subject<'_>) -> bool {
        self.operations >> subject.operation as u32 & 1 == 1
            && (self.bound.is_some() || self.rule.policy.applies_to(subject))
    }

    #[inline]
    pub(crate) fn bucket(&self) -> Option<&Arc<Bucket>> {
        self.bound.as_ref().map(|bound| &bound.bucket)
    }
}

/// A policy in effect.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) policy: Arc<Policy>,
    pub(crate) stats: Arc<PolicyStats>,
    /// That of the limiter; here because whoever admits has the rule at hand.
    pub(crate) pricing: Arc<Pricing>,
    /// How its buckets refill, those of its overrides after the others.
    schedules: Vec<Arc<Schedule>>,
}

impl Rule {
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

    /// Returns how a new bucket of a limit refills; shared, so that it stays in the cache.
    pub(crate) fn schedule(&self, limit: Limit) -> &Arc<Schedule> {
        let found = self
            .schedules
            .iter()
            .find(|schedule| schedule.limit == limit);
        found.unwrap_or(&self.schedules[0])
    }
}

/// What is counted of a policy, for as long as there is one of its name.
#[derive(Debug, Default)]
pub(crate) struct PolicyStats {
    pub(crate) rejected: AtomicU64,
    pub(crate) shadow_rejected: AtomicU64,
    /// Shared by those for whom there is no room.
    pub(crate) overflow: std::sync::OnceLock<Arc<Bucket>>,
}

/// What each shard did for a namespace.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) namespace: Arc<str>,
    pub(crate) namespace_id: NamespaceId,
    pub(crate) shards: Box<[ShardCell]>,
    /// That of the limiter.
    pub(crate) pricing: Arc<Pricing>,
}

#[derive(Debug, Default)]
pub(crate) struct ShardCell {
    pub(crate) requests: AtomicU64,
    pub(crate) charged: AtomicU64,
}

impl Space {
    /// Counts a part of a request.
    pub(crate) fn count(&self, shard: ShardId, charged: u64) {
        if let Some(cell) = self.shards.get(usize::from(shard.0)) {
            cell.requests.fetch_add(1, Relaxed);
            cell.charged.fetch_add(charged, Relaxed);
        }
    }
}

/// What a caller used of a namespace.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) caller: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) namespace_id: NamespaceId,
    pub(crate) cells: [Cell; CHARGED],
}

impl Record {
    pub(crate) fn new(caller: Arc<str>, namespace: Arc<str>, namespace_id: NamespaceId) -> Self {
        Self {
            caller,
            namespace,
            namespace_id,
            cells: Default::default(),
        }
    }

    pub(crate) fn cell(&self, operation: Operation) -> &Cell {
        // Only those that are charged come here; the remainder is no more than a bound.
        &self.cells[operation as usize % CHARGED]
    }

    /// Adds what another record counted.
    pub(crate) fn absorb(&self, other: &Self) {
        for (own, other) in self.cells.iter().zip(&other.cells) {
            own.absorb(other);
        }
    }
}
