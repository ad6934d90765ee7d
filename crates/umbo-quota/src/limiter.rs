//! Who may spend how much, for one pod: policies, accounts and buckets put together.
//!
//! A request is priced and admitted by all policies that match it, or refused by one and charged to
//! none. What concerns a caller is found once per set of policies and kept with its account; a
//! request then costs one look-up and one addition for each policy. Nothing here grows without
//! bound: accounts and buckets that may go make room, buckets only where they are full, so that
//! nobody gets a fresh burst by being forgotten. Those for whom there is no room share one bucket of
//! each policy.
//!
//! Hot path: [`Limiter::admit`] and what it calls allocate nothing for an account that is known.

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use umbo_types::{NamespaceId, Operation, ShardId};

use crate::account::{Account, Binding, Bound, Record, Rule, Seat, ShardCell, Space};
use crate::admission::Admission;
use crate::bounded_map::BoundedMap;
use crate::bucket::Bucket;
use crate::cost::{Known, Weights, is_counted};
use crate::dimension::Dimension;
use crate::history::History;
use crate::identity::{Identities, label};
use crate::latency::Medians;
use crate::policy::{Mode, Policy, PolicySet, Source};
use crate::pricing::Pricing;
use crate::refusals::{PromisesByMode, Refusals};
use crate::report::{OTHERS, Rejection};
use crate::reservation::{Debit, Places, Reservation, ShardShare, part};
use crate::residual::Residuals;
use crate::schedule::Moment;
use crate::subject::Subject;

/// What a limiter is made with.
#[derive(Debug, Clone, Copy)]
pub struct LimiterSettings {
    /// The cost model.
    pub weights: Weights,
    /// Accounts (a caller in a namespace) that are kept; about 1 KiB each.
    pub accounts_max: usize,
    /// Buckets that are kept; about 300 bytes each.
    pub buckets_max: usize,
    /// Number of shards.
    pub shards: u16,
    /// Secret; the same seed gives the same decisions.
    pub seed: u64,
}

/// A request as the limiter sees it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Who asks for what. The operation is one of the data plane.
    pub subject: Subject<'a>,
    /// What is known of it beforehand.
    pub known: Known,
    /// Who will come back if it is rejected. The lower half is a hash of the client's own request
    /// id, or of what is asked; the upper half one of the connection, or 0 where the lower half is
    /// enough. A client that waited is known again by either: its connection may have served others
    /// meanwhile, and what it asks may be asked by others.
    pub claimant: u64,
}

/// Admission by quotas, for one pod.
#[derive(Debug)]
pub struct Limiter {
    pub(crate) rules: ArcSwap<Rules>,
    /// That of the rules, where it can be read at the price of a load.
    generation: AtomicU32,
    pub(crate) accounts: BoundedMap<Seat>,
    pub(crate) buckets: BoundedMap<Arc<Bucket>>,
    /// Buckets of shadow policies: they must not take the room of others.
    pub(crate) shadow_buckets: BoundedMap<Arc<Bucket>>,
    promises: PromisesByMode,
    pub(crate) pricing: Arc<Pricing>,
    pub(crate) identities: Identities,
    pub(crate) shards: u16,
    pub(crate) spaces: Mutex<HashMap<NamespaceId, Arc<Space>>>,
    /// What was used by accounts that are gone, by namespace.
    pub(crate) others: Mutex<HashMap<NamespaceId, Arc<Record>>>,
    pub(crate) history: Mutex<History>,
}

/// The policies in effect.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) generation: u32,
    pub(crate) set: Arc<PolicySet>,
    pub(crate) by_name: HashMap<Arc<str>, Arc<Rule>>,
    /// Whether a policy that counts by shard looks at whom a caller calls for.
    has_named_ceilings: bool,
}

impl Limiter {
    /// Makes a limiter that begins at `now`; earlier instants count as that one.
    pub fn new(settings: LimiterSettings, policies: PolicySet, now: Instant) -> Self {
        let pricing = Arc::new(Pricing {
            origin: now,
            weights: settings.weights,
            medians: Medians::default(),
            residuals: Residuals::default(),
        });
        Self {
            rules: ArcSwap::from_pointee(Rules::new(
                1,
                Arc::new(policies),
                &HashMap::new(),
                &pricing,
            )),
            generation: AtomicU32::new(1),
            accounts: BoundedMap::new(settings.accounts_max),
            buckets: BoundedMap::new(settings.buckets_max),
            shadow_buckets: BoundedMap::new(settings.buckets_max),
            promises: PromisesByMode::default(),
            pricing,
            identities: Identities::new(settings.seed),
            shards: settings.shards,
            spaces: Mutex::default(),
            others: Mutex::default(),
            history: Mutex::default(),
        }
    }

    /// Returns the policies in effect.
    pub fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.rules.load().set)
    }

    /// Says whether a policy that counts by shard looks at the user, session or organisation of a
    /// request: then the keepers of shards have to be told of them.
    pub fn has_named_ceilings(&self) -> bool {
        self.rules.load().has_named_ceilings
    }

    /// Returns the weights of the cost model.
    pub fn weights(&self) -> Weights {
        self.pricing.weights
    }

    /// Puts other policies into effect. A policy that keeps its name keeps its counters and its
    /// buckets, and no balance moves but for what a lower burst cuts.
    pub fn replace(&self, policies: PolicySet) {
        let policies = Arc::new(policies);
        self.rules.rcu(|rules| {
            let generation = rules.generation + 1;
            Rules::new(
                generation,
                Arc::clone(&policies),
                &rules.by_name,
                &self.pricing,
            )
        });
        // Whoever sees the new generation also sees the new rules.
        let generation = self.rules.load().generation;
        self.generation.fetch_max(generation, Release);
    }

    /// Admits a request, or says why not. What depends on its shards is left to
    /// [`Self::admit_shards`].
    pub fn admit(
        &self,
        request: &Request<'_>,
        now: Instant,
        random: u64,
    ) -> Result<Reservation, Box<Rejection>> {
        let now = self.pricing.moment(now);
        let (subject, known) = (&request.subject, &request.known);
        let account = self.account(subject, now);
        let cell = account.record.cell(subject.operation);
        let charge = cell.estimate(&self.pricing.weights, subject.operation, known);
        let mut admission = Admission {
            subject,
            charge: &charge,
            refusals: self.refusals(request, now),
            whole: Places::default(),
            debits: None,
        };
        admission.ask_all(&account, &|binding| {
            self.find_bucket(&binding.rule, subject, None, now)
        });
        let whole = admission.whole;
        let (operation, body_len) = (subject.operation, known.body_len.unwrap_or(0));
        if admission.debits.is_none() && admission.refusals.longest.is_none() {
            // Most are this one, made where it is returned: nothing is moved.
            return Ok(Reservation::new(
                account, operation, body_len, charge, whole,
            ));
        }
        let mut reservation = Reservation::new(account, operation, body_len, charge, whole);
        reservation.debits = admission.debits;
        match admission.refusals.end(random) {
            None => Ok(reservation),
            Some(rejection) => {
                reservation.reject();
                Err(rejection)
            }
        }
    }

    /// Admits a request on the shards it concerns, or says why not; the reservation then has
    /// nothing left to settle. Does little where no policy counts by shard.
    pub fn admit_shards(
        &self,
        reservation: &mut Reservation,
        request: &Request<'_>,
        shares: &[ShardShare],
        now: Instant,
        random: u64,
    ) -> Result<(), Box<Rejection>> {
        match shares {
            [share] => reservation.shares.push(*share),
            _ => reservation.shares.extend_from_slice(shares),
        }
        if !reservation.account.is_counted_by_shard() {
            return Ok(());
        }
        let account = Arc::clone(&reservation.account);
        let now = self.pricing.moment(now);
        let all = shares.iter().map(|share| share.parts).sum::<u32>().max(1);
        let mut refusals = self.refusals(request, now);
        for (at, binding) in account.bindings().enumerate() {
            if refusals.longest.is_some() && !binding.is_enforced {
                break;
            }
            if !binding.by_shard || !binding.is_met(&request.subject) {
                continue;
            }
            for share in shares {
                let shard = Some(share.shard);
                let bucket = self.find_bucket(&binding.rule, &request.subject, shard, now);
                let parts = (share.parts, all);
                let price = part(reservation.reserved.in_unit(binding.unit), parts);
                if refusals.debit_apart(binding, &bucket, &bucket.schedule(), price) {
                    reservation.debits.get_or_insert_default().push(Debit {
                        bucket,
                        binding: at as u8,
                        parts,
                    });
                }
            }
        }
        if let Some(rejection) = refusals.end(random) {
            reservation.reject();
            return Err(rejection);
        }
        Ok(())
    }

    #[inline]
    fn refusals(&self, request: &Request<'_>, now: Moment) -> Refusals<'_> {
        Refusals {
            identities: self.identities,
            promises: &self.promises,
            claimant: request.claimant,
            now,
            longest: None,
        }
    }

    /// Returns the bucket of a policy that the account alone does not decide.
    pub(crate) fn own_bucket(
        &self,
        binding: &Binding,
        subject: &Subject<'_>,
        shard: Option<ShardId>,
        now: Moment,
    ) -> Option<Arc<Bucket>> {
        if binding.bound.is_some() {
            return None;
        }
        Some(self.find_bucket(&binding.rule, subject, shard, now))
    }

    /// Returns the account of a caller, bound to the policies in effect.
    pub(crate) fn account(&self, subject: &Subject<'_>, now: Moment) -> Arc<Account> {
        let key = self.identities.account(subject);
        let operation = subject.operation;
        match self.accounts.get_with(key, |seat| seat.account(operation)) {
            Some(account) if account.is_of(self.generation.load(Acquire)) => account,
            found => self.bind(key, found.as_deref(), subject, now),
        }
    }

    /// Finds the policies and buckets of an account.
    #[cold]
    fn bind(
        &self,
        key: u128,
        known: Option<&Account>,
        subject: &Subject<'_>,
        now: Moment,
    ) -> Arc<Account> {
        let rules = self.rules.load();
        let matching = rules.set.bind(subject.caller, subject.namespace);
        let (record, space) = if let Some(known) = known {
            (Arc::clone(&known.record), Arc::clone(&known.space))
        } else {
            let space = self.space(subject);
            let name = Arc::clone(&space.namespace);
            let record = Record::new(subject.caller.into(), name, subject.namespace_id);
            (Arc::new(record), space)
        };
        let mut bindings: SmallVec<[Binding; 2]> = matching
            .map(|policy| self.binding(policy, &rules, subject, now))
            .collect();
        // Shadow policies are asked last, and only by requests that are let in.
        bindings.sort_by_key(|binding| !binding.is_enforced);
        let generation = rules.generation;
        let account = Arc::new(Account::new(generation, bindings, record, space));
        if known.is_some() {
            self.accounts.replace(key, Seat::new(Arc::clone(&account)));
            return account;
        }
        let seat = Seat::new(account);
        let gone = |Seat { account, .. }: &Seat| {
            let others = self.others(&account.space);
            others.absorb(&account.record);
        };
        if let Some(seat) = self.accounts.insert(key, &seat, Seat::is_alone, gone) {
            return seat.account;
        }
        let account = seat.account;
        // No room: it is served all the same, and counted with the others.
        let others = self.others(&account.space);
        let space = Arc::clone(&account.space);
        let bindings = account.bindings().cloned();
        Arc::new(Account::new(generation, bindings, others, space))
    }

    fn binding(
        &self,
        policy: &Arc<Policy>,
        rules: &Rules,
        subject: &Subject<'_>,
        now: Moment,
    ) -> Binding {
        let rule = rules.by_name.get(&policy.name).map(Arc::clone);
        let rule =
            rule.unwrap_or_else(|| Arc::new(Rule::new(policy, Arc::default(), &self.pricing)));
        let bound = policy.is_settled_by_account().then(|| {
            let bucket = self.find_bucket(&rule, subject, None, now);
            let schedule = bucket.schedule();
            Bound { bucket, schedule }
        });
        Binding {
            by_shard: policy.per.contains(Dimension::Shard),
            operations: counted(policy),
            unit: policy.unit,
            is_enforced: policy.mode == Mode::Enforce,
            is_told: policy.mode == Mode::Enforce && policy.source != Source::BuiltIn,
            rule,
            bound,
        }
    }

    /// Returns the bucket of a policy, full where it is new. Where there is no room for another it is
    /// the one that all strangers share.
    pub(crate) fn find_bucket(
        &self,
        rule: &Rule,
        subject: &Subject<'_>,
        shard: Option<ShardId>,
        now: Moment,
    ) -> Arc<Bucket> {
        let policy = &rule.policy;
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
        let make = |key: u128, label: Box<str>| {
            let id = (key >> 64) as u64 ^ key as u64;
            let kind = Arc::clone(&policy.name);
            Arc::new(Bucket::new(id, kind, label, rule.schedule(limit), now))
        };
        let bucket = make(key, label(policy, subject, shard));
        let may_go = |bucket: &Arc<Bucket>| bucket.is_full(now);
        buckets
            .insert(key, &bucket, may_go, |_| {})
            .unwrap_or_else(|| {
                let overflow = || make(!key, OTHERS.into());
                let bucket = Arc::clone(rule.stats.overflow.get_or_init(overflow));
                bucket.set_limit(policy.limit, policy.refill, now);
                bucket
            })
    }

    fn space(&self, subject: &Subject<'_>) -> Arc<Space> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let space = spaces.entry(subject.namespace_id).or_insert_with(|| {
            Arc::new(Space {
                namespace: subject.namespace.into(),
                namespace_id: subject.namespace_id,
                shards: (0..self.shards).map(|_| ShardCell::default()).collect(),
                pricing: Arc::clone(&self.pricing),
            })
        });
        Arc::clone(space)
    }

    fn others(&self, space: &Space) -> Arc<Record> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let record = others.entry(space.namespace_id).or_insert_with(|| {
            let name = Arc::clone(&space.namespace);
            Arc::new(Record::new(OTHERS.into(), name, space.namespace_id))
        });
        Arc::clone(record)
    }
}

impl Rules {
    fn new(
        generation: u32,
        set: Arc<PolicySet>,
        before: &HashMap<Arc<str>, Arc<Rule>>,
        pricing: &Arc<Pricing>,
    ) -> Self {
        let rule = |policy: &Arc<Policy>| {
            let stats = before.get(&policy.name).map(|rule| Arc::clone(&rule.stats));
            let rule = Rule::new(policy, stats.unwrap_or_default(), pricing);
            (Arc::clone(&policy.name), Arc::new(rule))
        };
        let is_named_ceiling =
            |policy: &Arc<Policy>| policy.per.contains(Dimension::Shard) && policy.is_by_name();
        let has_named_ceilings = set.iter().any(is_named_ceiling);
        Self {
            generation,
            by_name: set.iter().map(rule).collect(),
            has_named_ceilings,
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
