//! Which caller may spend how much, at one dispatcher: policies, accounts and buckets put together.
//!
//! A request is priced, and then either admitted by all policies that match it, or refused by one and charged to no
//! bucket. The policies and buckets of a caller are found once per set of policies and kept with its account. A request
//! then costs one look-up and one addition for each policy. Nothing here grows without bound: accounts and buckets that
//! are not in use make room. A bucket makes room only if it is full, so that no caller gets a fresh burst by being
//! forgotten. Callers that find no room share one bucket of each policy.
//!
//! Hot path: [`Limiter::admit`] and the functions it calls allocate nothing for an account that is known.

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use umbo_api::quota::PolicySource;
use umbo_types::{Key, NamespaceId, Operation, ShardId};

use crate::admission::AdmissionAttempt;
use crate::bucket::Bucket;
use crate::caller_state::{
    ActivePolicy, CallerBucket, CallerEntry, CallerNamespaceUsage, CallerState, MatchedPolicy,
    NamespaceUsage, ShardCounts,
};
use crate::cost::{ActualUsage, CostHint, Weights, is_counted};
use crate::dimension::Dimension;
use crate::fleet_counters::FleetCounters;
use crate::history::DemandHistory;
use crate::identity::{Identities, label};
use crate::policy::{Mode, Policy, PolicySet};
use crate::price_memory::PriceMemory;
use crate::pricing::Pricing;
use crate::refusals::Refusals;
use crate::report::{OTHERS, Rejection};
use crate::request::QuotaRequest;
use crate::reservation::{Debit, DebitedPolicies, Foreseen, Reservation, ShardShare, part};
use crate::residual::Residuals;
use crate::schedule::Millis;
use crate::striped_lru::StripedLru;
use crate::subject::Subject;
use crate::unit::Unit;

/// Settings of a limiter.
#[derive(Debug, Clone, Copy)]
pub struct LimiterSettings {
    /// The cost model.
    pub weights: Weights,
    /// Accounts (a caller in a namespace) that are kept; about 1 KiB each.
    pub accounts_max: usize,
    /// Buckets that are kept; about 400 bytes each.
    pub buckets_max: usize,
    /// Number of shards.
    pub shards: u16,
    /// Secret; the same seed gives the same decisions.
    pub seed: u64,
}

/// Admission by quotas, for one dispatcher.
#[derive(Debug)]
pub struct Limiter {
    pub(crate) active_policies: ArcSwap<ActivePolicies>,
    /// Generation of the active policies, to be read by one atomic load.
    generation: AtomicU32,
    pub(crate) accounts: StripedLru<CallerEntry>,
    pub(crate) buckets: StripedLru<Arc<Bucket>>,
    /// Buckets of shadow policies: they must not take the room of others.
    pub(crate) shadow_buckets: StripedLru<Arc<Bucket>>,
    /// Buckets made so far.
    buckets_made: AtomicU64,
    pub(crate) pricing: Arc<Pricing>,
    pub(crate) identities: Identities,
    pub(crate) shards: u16,
    pub(crate) spaces: Mutex<HashMap<NamespaceId, Arc<NamespaceUsage>>>,
    /// Usage of accounts that were evicted or found no room, by namespace.
    pub(crate) others: Mutex<HashMap<NamespaceId, Arc<CallerNamespaceUsage>>>,
    pub(crate) history: Mutex<DemandHistory>,
    /// Set once, by the fleet's quotas.
    pub(crate) fleet: OnceLock<FleetCounters>,
}

/// The policies in effect.
#[derive(Debug)]
pub(crate) struct ActivePolicies {
    pub(crate) generation: u32,
    pub(crate) set: Arc<PolicySet>,
    pub(crate) by_name: HashMap<Arc<str>, Arc<ActivePolicy>>,
}

impl Limiter {
    /// Makes a limiter that begins at `now`; earlier instants count as that one.
    pub fn new(settings: LimiterSettings, policies: PolicySet, now: Instant) -> Self {
        let pricing = Arc::new(Pricing {
            origin: now,
            weights: settings.weights,
            residuals: Residuals::default(),
            prices: PriceMemory::default(),
        });
        Self {
            active_policies: ArcSwap::from_pointee(ActivePolicies::new(
                1,
                Arc::new(policies),
                &HashMap::new(),
                &pricing,
            )),
            generation: AtomicU32::new(1),
            accounts: StripedLru::new(settings.accounts_max),
            buckets: StripedLru::new(settings.buckets_max),
            shadow_buckets: StripedLru::new(settings.buckets_max),
            buckets_made: AtomicU64::new(0),
            pricing,
            identities: Identities::new(settings.seed),
            shards: settings.shards,
            spaces: Mutex::default(),
            others: Mutex::default(),
            history: Mutex::default(),
            fleet: OnceLock::new(),
        }
    }

    /// Returns the policies in effect.
    pub fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.active_policies.load().set)
    }

    /// Returns the weights of the cost model.
    pub fn weights(&self) -> Weights {
        self.pricing.weights
    }

    /// Records the length of a written row, in bytes of sort key and value. The estimate of the next get of the row
    /// uses it.
    pub fn note_row(&self, namespace: NamespaceId, key: &Key, bytes: u64) {
        let work = ActualUsage {
            rows: 1,
            read_bytes: bytes,
            ..ActualUsage::default()
        };
        let price = self.pricing.weights.price(Operation::Get, &work);
        let place = CostHint::place_of(key);
        let prices = &self.pricing.prices;
        prices.learn_of_write(namespace, place, price.as_micros());
    }

    /// Puts other policies into effect. A policy that keeps its name keeps its counters and its buckets. A balance
    /// changes only if a lower burst cuts it.
    pub fn replace(&self, policies: PolicySet) {
        let policies = Arc::new(policies);
        self.active_policies.rcu(|active_policies| {
            let generation = active_policies.generation + 1;
            ActivePolicies::new(
                generation,
                Arc::clone(&policies),
                &active_policies.by_name,
                &self.pricing,
            )
        });
        // A thread that sees the new generation also sees the new policies.
        let generation = self.active_policies.load().generation;
        self.generation.fetch_max(generation, Release);
    }

    /// Admits a request, or says why not. Policies that count by shard are left to [`Self::admit_shards`].
    pub fn admit(
        &self,
        request: &QuotaRequest<'_>,
        now: Instant,
        random: u64,
    ) -> Result<Reservation, Box<Rejection>> {
        let now = self.pricing.millis(now);
        let (subject, hint) = (&request.subject, &request.hint);
        let account = self.account(subject, now);
        let (charge, keys) = account.estimate(&self.pricing, subject.operation, hint);
        let mut admission = AdmissionAttempt {
            subject,
            charge: &charge,
            refusals: Refusals::new(request, now),
            whole: DebitedPolicies::default(),
            debits: None,
        };
        admission.ask_all(&account, &|matched| {
            self.find_bucket(&matched.active, subject, None, now)
        });
        let whole = admission.whole;
        let operation = subject.operation;
        let foreseen = Foreseen { hint: *hint, keys };
        let is_plain = request.price_multiplier.is_none();
        if admission.debits.is_none() && admission.refusals.longest.is_none() && is_plain {
            // Most requests end here. The reservation is made in place, so that nothing is moved.
            return Ok(Reservation::new(
                account, operation, foreseen, charge, whole,
            ));
        }
        let mut reservation = Reservation::new(account, operation, foreseen, charge, whole);
        reservation.debits = admission.debits;
        let mut refusals = admission.refusals;
        if refusals.longest.is_none() {
            reservation.take_penalty(request.price_multiplier, &mut refusals);
        }
        match refusals.end(random) {
            None => Ok(reservation),
            Some(rejection) => {
                reservation.reject();
                Err(rejection)
            }
        }
    }

    /// Admits a request on its shards, or says why not; a refused reservation has nothing left to settle. Does little
    /// if no policy counts by shard and no shard is overloaded. The price multiplier of `request` replaces the
    /// multiplier that the request was admitted with.
    pub fn admit_shards(
        &self,
        reservation: &mut Reservation,
        request: &QuotaRequest<'_>,
        shares: &[ShardShare],
        now: Instant,
        random: u64,
    ) -> Result<(), Box<Rejection>> {
        match shares {
            [share] => reservation.shares.push(*share),
            _ => reservation.shares.extend_from_slice(shares),
        }
        if !reservation.account.is_counted_by_shard() && request.price_multiplier.is_none() {
            return Ok(());
        }
        let account = Arc::clone(&reservation.account);
        let now = self.pricing.millis(now);
        let all = shares.iter().map(|share| share.parts).sum::<u32>().max(1);
        let mut refusals = Refusals::new(request, now);
        for (at, matched) in account.matched_policies().enumerate() {
            if refusals.longest.is_some() && !matched.is_enforced {
                break;
            }
            if !matched.by_shard || !matched.is_met(&request.subject) {
                continue;
            }
            for share in shares {
                let shard = Some(share.shard);
                refusals.shard = shard;
                let bucket = self.find_bucket(&matched.active, &request.subject, shard, now);
                let parts = (share.parts, all);
                let price = part(reservation.reserved.in_unit(matched.unit), parts);
                if refusals.debit_apart(matched, &bucket, &bucket.schedule(), price) {
                    reservation.debits.get_or_insert_default().push(Debit {
                        bucket,
                        matched: at as u8,
                        parts,
                    });
                }
            }
        }
        refusals.shard = None;
        if refusals.longest.is_none() {
            reservation.take_penalty(request.price_multiplier, &mut refusals);
        }
        if let Some(rejection) = refusals.end(random) {
            reservation.reject();
            return Err(rejection);
        }
        Ok(())
    }

    /// Returns the bucket of a policy, or `None` if the account alone decides the bucket.
    pub(crate) fn own_bucket(
        &self,
        matched: &MatchedPolicy,
        subject: &Subject<'_>,
        shard: Option<ShardId>,
        now: Millis,
    ) -> Option<Arc<Bucket>> {
        if matched.bound.is_some() {
            return None;
        }
        Some(self.find_bucket(&matched.active, subject, shard, now))
    }

    /// Returns the account of a caller, bound to the policies in effect.
    pub(crate) fn account(&self, subject: &Subject<'_>, now: Millis) -> Arc<CallerState> {
        let key = self.identities.account(subject);
        let operation = subject.operation;
        match self
            .accounts
            .get_with(key, |entry| entry.account(operation))
        {
            Some(account) if account.is_of(self.generation.load(Acquire)) => account,
            found => self.bind(key, found.as_deref(), subject, now),
        }
    }

    /// Finds the policies and buckets of an account.
    #[cold]
    fn bind(
        &self,
        key: u128,
        known: Option<&CallerState>,
        subject: &Subject<'_>,
        now: Millis,
    ) -> Arc<CallerState> {
        let active_policies = self.active_policies.load();
        let matching = active_policies.set.bind(subject.caller, subject.namespace);
        let (record, space) = if let Some(known) = known {
            (Arc::clone(&known.record), Arc::clone(&known.space))
        } else {
            let space = self.space(subject);
            let name = Arc::clone(&space.namespace);
            let record =
                CallerNamespaceUsage::new(subject.caller.into(), name, subject.namespace_id);
            (Arc::new(record), space)
        };
        let mut matched_policies: SmallVec<[MatchedPolicy; 2]> = matching
            .map(|policy| self.matched(policy, &active_policies, subject, now))
            .collect();
        // Shadow policies are asked last, and only by requests that are let in.
        matched_policies.sort_by_key(|matched| !matched.is_enforced);
        let generation = active_policies.generation;
        let account = Arc::new(CallerState::new(
            generation,
            matched_policies,
            record,
            space,
        ));
        if known.is_some() {
            self.accounts
                .replace(key, CallerEntry::new(Arc::clone(&account)));
            return account;
        }
        let entry = CallerEntry::new(account);
        let gone = |CallerEntry { account, .. }: &CallerEntry| {
            let others = self.others(&account.space);
            others.absorb(&account.record);
        };
        if let Some(entry) = self.accounts.insert(key, &entry, CallerEntry::may_go, gone) {
            return entry.account;
        }
        let account = entry.account;
        // There is no room for the account: the caller is served all the same, and counted with the others.
        let others = self.others(&account.space);
        let space = Arc::clone(&account.space);
        let matched_policies = account.matched_policies().cloned();
        Arc::new(CallerState::new(
            generation,
            matched_policies,
            others,
            space,
        ))
    }

    fn matched(
        &self,
        policy: &Arc<Policy>,
        active_policies: &ActivePolicies,
        subject: &Subject<'_>,
        now: Millis,
    ) -> MatchedPolicy {
        let active = active_policies.by_name.get(&policy.name).map(Arc::clone);
        let active = active
            .unwrap_or_else(|| Arc::new(ActivePolicy::new(policy, Arc::default(), &self.pricing)));
        let bound = policy.is_settled_by_account().then(|| {
            let bucket = self.find_bucket(&active, subject, None, now);
            let schedule = bucket.schedule();
            CallerBucket { bucket, schedule }
        });
        MatchedPolicy {
            by_shard: policy.per.contains(Dimension::Shard),
            pays_penalty: policy.unit == Unit::Ru
                && policy.mode == Mode::Enforce
                && policy.per.contains(Dimension::Caller)
                && !policy.per.contains(Dimension::Shard),
            operations: counted(policy),
            unit: policy.unit,
            is_enforced: policy.mode == Mode::Enforce,
            is_told: policy.mode == Mode::Enforce && policy.source != PolicySource::BuiltIn,
            active,
            bound,
        }
    }

    /// Returns the bucket that counts a request under a policy. A new bucket is full. If there is no room for another
    /// bucket, returns the overflow bucket of the policy, which all callers without room share.
    pub(crate) fn find_bucket(
        &self,
        active: &ActivePolicy,
        subject: &Subject<'_>,
        shard: Option<ShardId>,
        now: Millis,
    ) -> Arc<Bucket> {
        let policy = &active.policy;
        let key = self.identities.bucket(policy, subject, shard);
        let limit = policy.limit_for(subject);
        let buckets = match policy.mode {
            Mode::Enforce => &self.buckets,
            Mode::Shadow => &self.shadow_buckets,
        };
        if let Some(bucket) = buckets.get(key) {
            bucket.set_limit(limit, policy.refill, now);
            return bucket;
        }
        let make = |label: Box<str>| {
            let hash = (key >> 96) as u64;
            let id = self.buckets_made.fetch_add(1, Relaxed);
            let bucket = Bucket::new(id, hash, policy, label, active.schedule(limit), now);
            let fleet = self.fleet.get();
            let fleet = fleet.filter(|_| policy.scope.is_shared());
            Arc::new(match fleet {
                Some(fleet) => fleet.join(bucket, key, policy, subject, shard),
                None => bucket,
            })
        };
        let bucket = make(label(policy, subject, shard));
        let may_go = |bucket: &Arc<Bucket>| Arc::strong_count(bucket) == 1 && bucket.is_full(now);
        buckets
            .insert(key, &bucket, may_go, |_| {})
            .unwrap_or_else(|| {
                let overflow = || make(OTHERS.into());
                let bucket = Arc::clone(active.stats.overflow.get_or_init(overflow));
                bucket.set_limit(policy.limit, policy.refill, now);
                bucket
            })
    }

    fn space(&self, subject: &Subject<'_>) -> Arc<NamespaceUsage> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let space = spaces.entry(subject.namespace_id).or_insert_with(|| {
            Arc::new(NamespaceUsage {
                namespace: subject.namespace.into(),
                namespace_id: subject.namespace_id,
                shards: (0..self.shards).map(|_| ShardCounts::default()).collect(),
                pricing: Arc::clone(&self.pricing),
            })
        });
        Arc::clone(space)
    }

    fn others(&self, space: &NamespaceUsage) -> Arc<CallerNamespaceUsage> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let record = others.entry(space.namespace_id).or_insert_with(|| {
            let name = Arc::clone(&space.namespace);
            Arc::new(CallerNamespaceUsage::new(
                OTHERS.into(),
                name,
                space.namespace_id,
            ))
        });
        Arc::clone(record)
    }
}

impl ActivePolicies {
    fn new(
        generation: u32,
        set: Arc<PolicySet>,
        before: &HashMap<Arc<str>, Arc<ActivePolicy>>,
        pricing: &Arc<Pricing>,
    ) -> Self {
        let active = |policy: &Arc<Policy>| {
            let stats = before
                .get(&policy.name)
                .map(|active| Arc::clone(&active.stats));
            let active = ActivePolicy::new(policy, stats.unwrap_or_default(), pricing);
            (Arc::clone(&policy.name), Arc::new(active))
        };
        Self {
            generation,
            by_name: set.iter().map(active).collect(),
            set,
        }
    }
}

/// Returns the operations that a policy counts, a bit each.
fn counted(policy: &Policy) -> u16 {
    let counts = |operation: &Operation| {
        is_counted(policy.unit, *operation) && policy.matches.operations.contains(*operation)
    };
    let counted = Operation::ALL.into_iter().filter(counts);
    counted.fold(0, |bits, operation| bits | 1 << operation as u32)
}
