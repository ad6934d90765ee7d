//! What is kept of a caller in a namespace: what it used, what its requests cost on average, and the
//! policies and buckets that concern it, found once and not for every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use smallvec::SmallVec;
use umbo_types::{NamespaceId, Operation, RequestUnits, ShardId};

use crate::bounded_map::Kept;
use crate::breakdown::breakdown;
use crate::bucket::Bucket;
use crate::cost::{Charge, Known, Weights, Work};
use crate::latency::Medians;
use crate::policy::{Limit, Policy};
use crate::report::{Breakdown, Tally};
use crate::residual::Residuals;
use crate::schedule::{Moment, Schedule};
use crate::unit::Unit;

/// Operations that are charged: those of the data plane come first in the list.
pub(crate) const CHARGED: usize = 8;
/// One new price counts this part of the average.
const SMOOTHING: u64 = 32;
/// One request in so many feeds the medians of service times.
const SAMPLE: u64 = 8;

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
    pub(crate) record: Arc<Record>,
    first: Option<Binding>,
    /// All bindings but the first.
    more: SmallVec<[Binding; 1]>,
    pub(crate) space: Arc<Space>,
}

impl Kept for Account {
    fn was_used(&self) -> &AtomicBool {
        &self.was_used
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
        Self {
            generation,
            was_used: AtomicBool::new(true),
            has_more: !more.is_empty(),
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

    /// Returns the policies that may concern the account.
    #[inline]
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Binding> {
        let more: &[Binding] = if self.has_more { &self.more } else { &[] };
        self.first.iter().chain(more)
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

    /// Loads a word of each cache line that an admission is about to need.
    #[inline]
    pub(crate) fn touch(&self, operation: Operation) {
        self.record.cell(operation).samples.load(Relaxed);
        for binding in self.bindings() {
            if let Some(bound) = &binding.bound {
                bound.bucket.touch();
            }
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

/// How requests are priced.
#[derive(Debug)]
pub(crate) struct Pricing {
    /// When the limiter began.
    pub(crate) origin: Instant,
    pub(crate) weights: Weights,
    pub(crate) medians: Medians,
    pub(crate) residuals: Residuals,
}

impl Pricing {
    /// Returns an instant as the buckets count it; those before the beginning are the beginning.
    pub(crate) fn moment(&self, now: Instant) -> Moment {
        let elapsed = now.saturating_duration_since(self.origin).as_millis();
        Moment(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
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

/// What a caller used with one operation. Fills a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Cell {
    requests: AtomicU64,
    charged: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    rejected: AtomicU64,
    /// Moving average of what is not known beforehand, in micro-RU. Of writes it is what they cost
    /// beyond what their length says, and negative where a body is longer than what is written.
    average: AtomicI64,
    /// Requests that the average has learned from.
    samples: AtomicU64,
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
        &self.cells[(operation as usize).min(CHARGED - 1)]
    }

    /// Adds what another record counted.
    pub(crate) fn absorb(&self, other: &Self) {
        for (own, other) in self.cells.iter().zip(&other.cells) {
            for (own, other) in [
                (&own.requests, &other.requests),
                (&own.charged, &other.charged),
                (&own.rows, &other.rows),
                (&own.bytes, &other.bytes),
                (&own.rejected, &other.rejected),
            ] {
                own.fetch_add(other.load(Relaxed), Relaxed);
            }
        }
    }
}

impl Cell {
    pub(crate) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    /// Returns what a request will probably cost. Writes are known by their length but for their
    /// rows and time; reads by what they cost before, within what they may touch.
    pub(crate) fn estimate(
        &self,
        weights: &Weights,
        operation: Operation,
        known: &Known,
    ) -> Charge {
        let certain = certain(operation, known.body_len.unwrap_or(0));
        let mut price = if operation.is_write() {
            let exact = weights.price(operation, &certain).as_micros();
            let least = weights.price(operation, &Work::default()).as_micros();
            let average = self.average.load(Relaxed);
            exact.saturating_add_signed(average).max(least)
        } else if self.samples.load(Relaxed) > 0 {
            self.average.load(Relaxed).max(0).cast_unsigned()
        } else {
            weights
                .price(operation, &first_guess(operation))
                .as_micros()
        };
        let bytes_max = self.bytes_max(known);
        if let (Some(rows), Some(read_bytes)) = (known.rows_max, bytes_max) {
            let most = Work {
                rows,
                read_bytes,
                ..certain
            };
            price = price.min(weights.price(operation, &most).as_micros());
        }
        let mut work = certain;
        if matches!(operation, Operation::Put | Operation::Delete) {
            return Charge::of(RequestUnits::from_micros(price), &work);
        }
        let requests = self.requests.load(Relaxed).max(1);
        match operation {
            Operation::MultiGet => work.reads = (self.rows.load(Relaxed) / requests).max(1),
            Operation::BatchWrite | Operation::DeleteRange => {
                work.writes = (self.rows.load(Relaxed) / requests).max(1);
            }
            _ => {}
        }
        if !operation.is_write() {
            let average = self.bytes.load(Relaxed) / requests;
            work.read_bytes = average.min(bytes_max.unwrap_or(u64::MAX));
        }
        Charge::of(RequestUnits::from_micros(price), &work)
    }

    /// Returns the most bytes that a read can be expected to return: as many as it allows, or as
    /// the rows it allows if they are as large as those before.
    fn bytes_max(&self, known: &Known) -> Option<u64> {
        let (bytes_max, rows_max) = (known.bytes_max?, known.rows_max);
        let seen = self.rows.load(Relaxed);
        let Some(rows) = rows_max.filter(|_| seen > 0) else {
            return Some(bytes_max);
        };
        let each = self.bytes.load(Relaxed).div_ceil(seen);
        Some(bytes_max.min(each.saturating_mul(rows)))
    }

    /// Returns what an estimate is made of.
    pub(crate) fn breakdown(
        &self,
        weights: &Weights,
        operation: Operation,
        known: &Known,
        estimate: RequestUnits,
    ) -> Breakdown {
        let mut like = self.tally(operation);
        if like.requests == 0 {
            let first = if operation.is_write() {
                certain(operation, known.body_len.unwrap_or(0))
            } else {
                first_guess(operation)
            };
            (like.rows, like.read_bytes) = (first.rows, first.read_bytes);
        }
        breakdown(weights, operation, estimate, known, &like)
    }

    /// Returns the number of requests that the estimate has learned from.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Relaxed)
    }

    /// Counts a request that was served, and learns from what it cost.
    pub(crate) fn count_served(&self, pricing: &Pricing, served: &Served<'_>) {
        let Served {
            operation,
            body_len,
            work,
            ..
        } = *served;
        let price = served.price.as_micros();
        self.requests.fetch_add(1, Relaxed);
        self.charged.fetch_add(price, Relaxed);
        self.rows.fetch_add(work.rows, Relaxed);
        self.bytes
            .fetch_add(work.read_bytes + work.write_bytes, Relaxed);
        if !served.is_whole {
            return;
        }
        let unknown = if operation.is_write() {
            let exact = pricing
                .weights
                .price(operation, &certain(operation, body_len));
            signed(price).saturating_sub(signed(exact.as_micros()))
        } else {
            signed(price)
        };
        // Threads that collide lose an update; the average does not mind.
        let samples = self.samples.load(Relaxed);
        let average = self.average.load(Relaxed);
        let part = (samples + 1).min(SMOOTHING).cast_signed();
        let step = unknown.saturating_sub(average);
        // Rounded down, so that an average reaches what is always the same.
        self.average.store(average + step.div_euclid(part), Relaxed);
        self.samples.store(samples + 1, Relaxed);
        if samples.is_multiple_of(SAMPLE) {
            pricing.medians.note(operation, work.service_time);
            pricing.residuals.note(operation, served.estimate, price);
        }
    }

    /// Returns what was counted.
    pub(crate) fn tally(&self, operation: Operation) -> Tally {
        let bytes = self.bytes.load(Relaxed);
        let (read_bytes, write_bytes) = if operation.is_write() {
            (0, bytes)
        } else {
            (bytes, 0)
        };
        Tally {
            requests: self.requests.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            charged: RequestUnits::from_micros(self.charged.load(Relaxed)),
            rows: self.rows.load(Relaxed),
            read_bytes,
            write_bytes,
        }
    }
}

/// A request that was served.
pub(crate) struct Served<'a> {
    pub(crate) operation: Operation,
    /// Length of the body, where it was announced.
    pub(crate) body_len: u64,
    pub(crate) work: &'a Work,
    pub(crate) price: RequestUnits,
    /// In micro-RU.
    pub(crate) estimate: u64,
    /// Whether it was done to its end, so that something can be learned from it.
    pub(crate) is_whole: bool,
}

/// Returns the work that a request certainly asks for.
fn certain(operation: Operation, body_len: u64) -> Work {
    let mut work = Work::default();
    match operation {
        Operation::Put => (work.rows, work.writes) = (1, 1),
        Operation::Delete | Operation::DeleteRange | Operation::BatchWrite => work.writes = 1,
        _ => work.reads = 1,
    }
    if operation.is_write() {
        work.write_bytes = body_len;
    }
    work
}

/// Prices are far below what a signed number holds; one that is not is as good as the highest.
fn signed(price: u64) -> i64 {
    i64::try_from(price).unwrap_or(i64::MAX)
}

/// Returns what a read is taken for before there was one like it.
fn first_guess(operation: Operation) -> Work {
    let (rows, read_bytes) = match operation {
        Operation::Get => (1, 512),
        Operation::MultiGet => (10, 5 << 10),
        _ => (100, 25 << 10),
    };
    Work {
        rows,
        read_bytes,
        ..Work::default()
    }
}
