//! The ceilings of the shards of a node: policies whose scope is a shard, kept where all dispatchers
//! meet.
//!
//! Each dispatcher keeps them for itself too, so that most of what is too much never gets here. What
//! comes in parts counts once, and is not stopped once it was let in.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use umbo_dispatcher::policies::{FilePolicies, ShardPolicies};
use umbo_quota::{
    Continuation, Known, Limiter, LimiterSettings, PolicySet, Request, Reservation, ShardShare,
    Subject, Work,
};
use umbo_shard::quota::{Charge, Done, Receipt, ShardQuota, Spent};
use umbo_store::Store;
use umbo_types::{Clock, NamespaceId, Operation};

use crate::failure::Failure;
use crate::settings::Settings;

/// How often the limiter ends its windows.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(1);
/// One step of a walk through the odd numbers, by which random numbers are made of a count.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keeps the ceilings.
#[derive(Debug)]
pub(super) struct Ceilings {
    limiter: Limiter,
    /// How many there are.
    count: AtomicU64,
    namespaces: ArcSwap<HashMap<NamespaceId, Arc<str>>>,
    random: AtomicU64,
}

/// Reads again what the ceilings are.
pub(super) struct CeilingsReader {
    pub(super) ceilings: Arc<Ceilings>,
    records: ShardPolicies,
    clock: Arc<dyn Clock>,
    refresh: Duration,
    file: ArcSwap<FilePolicies>,
}

impl CeilingsReader {
    pub(super) fn new(
        settings: &Settings,
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let none = PolicySet::new(Vec::<umbo_quota::Policy>::new()).map_err(Failure::start)?;
        let limiter = LimiterSettings {
            weights: (&settings.cost).into(),
            accounts_max: settings.quota.accounts_max as usize,
            buckets_max: settings.quota.buckets_max as usize,
            shards: u16::try_from(store.shard_map().shards()).unwrap_or(u16::MAX),
            seed: getrandom::u64().map_err(Failure::start)?,
        };
        let ceilings = Ceilings {
            limiter: Limiter::new(limiter, none, clock.monotonic()),
            count: AtomicU64::new(0),
            namespaces: ArcSwap::default(),
            random: AtomicU64::new(getrandom::u64().map_err(Failure::start)?),
        };
        Ok(Self {
            ceilings: Arc::new(ceilings),
            records: ShardPolicies::new(store, clock),
            clock: Arc::clone(clock),
            refresh: settings.quota.refresh.0,
            file: ArcSwap::from_pointee(read_file(settings)?),
        })
    }

    /// Takes up the policy file of other settings.
    pub(super) async fn replace_file(&self, settings: &Settings) -> Result<(), Failure> {
        self.file.store(Arc::new(read_file(settings)?));
        self.read().await
    }

    /// Reads them once.
    async fn read(&self) -> Result<(), Failure> {
        let file = FilePolicies::clone(&self.file.load());
        let found = self.records.load(file).await.map_err(Failure::start)?;
        let ceilings = &self.ceilings;
        ceilings.namespaces.store(Arc::new(found.namespaces));
        let count = found.policies.iter().count() as u64;
        ceilings.limiter.replace(found.policies);
        ceilings.count.store(count, Relaxed);
        Ok(())
    }

    /// Reads them again and again, and looks after the buckets, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        let mut refresh = tokio::time::interval(self.refresh);
        let mut maintain = tokio::time::interval(MAINTAIN_INTERVAL);
        loop {
            tokio::select! {
                _ = refresh.tick() => if let Err(error) = self.read().await {
                    tracing::warn!(%error, "the policies of shards could not be read; trying again");
                },
                _ = maintain.tick() => self.ceilings.limiter.maintain(self.clock.monotonic()),
            }
        }
    }
}

fn read_file(settings: &Settings) -> Result<FilePolicies, Failure> {
    let path = settings.quota.policy_file.as_deref();
    let file = path.map(|path| FilePolicies::read(Path::new(path)));
    Ok(file
        .transpose()
        .map_err(Failure::start)?
        .unwrap_or_default())
}

impl ShardQuota for Ceilings {
    fn ceilings(&self) -> u64 {
        self.count.load(Relaxed)
    }

    fn charge(&self, charge: &Charge<'_>, now: Instant) -> Result<Box<dyn Receipt>, Spent> {
        let namespaces = self.namespaces.load();
        // One that was made a moment ago has no name here yet, and only what counts all of them.
        let namespace = namespaces.get(&charge.namespace).map_or("", |name| name);
        let names = charge.names;
        let request = Request {
            subject: Subject {
                caller: charge.caller,
                namespace,
                namespace_id: charge.namespace,
                user: names.and_then(|names| names.user.as_deref()),
                session: names.and_then(|names| names.session.as_deref()),
                org: names.and_then(|names| names.org.as_deref()),
                operation: charge.operation,
            },
            known: Known {
                rows_max: charge.rows_max,
                bytes_max: charge.bytes_max,
                body_len: (charge.write_bytes > 0).then_some(charge.write_bytes),
            },
            claimant: 0,
        };
        let shares = charge.shares.iter();
        let shares: Vec<_> = shares
            .map(|&(shard, parts)| ShardShare { shard, parts })
            .collect();
        let kind = Kind::of(charge);
        if charge.is_continued {
            let part = self.limiter.go_on(&request, &shares, now);
            return Ok(Box::new(Part { part, kind }));
        }
        let random = self.random.fetch_add(STEP, Relaxed);
        let admitted = self.limiter.admit(&request, now, random);
        let admitted = admitted.and_then(|mut reservation| {
            let limiter = &self.limiter;
            limiter.admit_shards(&mut reservation, &request, &shares, now, random)?;
            Ok(reservation)
        });
        let mut reservation = admitted.map_err(|rejection| Spent {
            policy: rejection.policy.name.to_string(),
            retry_after: rejection.wait,
            observed: rejection.observed,
        })?;
        reservation.sent();
        Ok(Box::new(Whole { reservation, kind }))
    }
}

/// A request that was charged by estimate.
struct Whole {
    reservation: Reservation,
    kind: Kind,
}

/// A part of a request, which is charged once it is known what it did.
struct Part {
    part: Continuation,
    kind: Kind,
}

/// What tells what work was.
#[derive(Debug, Clone, Copy)]
struct Kind {
    operation: Operation,
    /// Reads that it counts as.
    reads: u64,
}

impl Receipt for Whole {
    fn settle(mut self: Box<Self>, done: Done) {
        self.reservation.settle(&self.kind.work(done));
    }

    fn release(mut self: Box<Self>) {
        self.reservation.release();
    }
}

impl Receipt for Part {
    fn settle(self: Box<Self>, done: Done) {
        self.part.settle(&self.kind.work(done));
    }

    fn release(self: Box<Self>) {
        // Nothing was taken yet.
    }
}

impl Kind {
    fn of(charge: &Charge<'_>) -> Self {
        let operation = charge.operation;
        let keys = charge.shares.iter().map(|&(_, parts)| u64::from(parts));
        let reads = match operation {
            // With its first part, whatever more there is of it.
            Operation::Range | Operation::Scan => u64::from(!charge.is_continued),
            _ => keys.sum(),
        };
        Self { operation, reads }
    }

    fn work(self, done: Done) -> Work {
        let (rows, service_time) = (done.rows, done.service_time);
        let work = Work {
            rows,
            service_time,
            ..Work::default()
        };
        match self.operation {
            // A removal writes no bytes.
            Operation::Delete | Operation::DeleteRange => Work {
                writes: rows,
                ..work
            },
            operation if operation.is_write() => Work {
                writes: rows,
                write_bytes: done.bytes,
                ..work
            },
            _ => Work {
                reads: self.reads,
                read_bytes: done.bytes,
                ..work
            },
        }
    }
}
