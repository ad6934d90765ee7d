//! The ceilings of the shards of a node: policies whose scope is a shard, kept where all dispatchers
//! meet.
//!
//! Each dispatcher keeps them for itself too, so that most of what is too much never gets here. A
//! policy that counts by user, session or organisation is left to them: a node is not told of those.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use umbo_dispatcher::policies::{FilePolicies, ShardPolicies};
use umbo_quota::{
    Known, Limiter, LimiterSettings, PolicySet, Request, Reservation, ShardShare, Subject, Work,
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
    is_idle: AtomicBool,
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
            is_idle: AtomicBool::new(true),
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
        let is_idle = found.policies.iter().next().is_none();
        ceilings.limiter.replace(found.policies);
        ceilings.is_idle.store(is_idle, Relaxed);
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
    fn is_idle(&self) -> bool {
        self.is_idle.load(Relaxed)
    }

    fn charge(&self, charge: &Charge<'_>, now: Instant) -> Result<Box<dyn Receipt>, Spent> {
        let namespaces = self.namespaces.load();
        // One that was made a moment ago has no name here yet, and only what counts all of them.
        let namespace = namespaces.get(&charge.namespace).map_or("", |name| name);
        let request = Request {
            subject: Subject {
                caller: charge.caller,
                namespace,
                namespace_id: charge.namespace,
                user: None,
                session: None,
                org: None,
                operation: charge.operation,
            },
            known: Known {
                rows_max: charge.rows_max,
                bytes_max: None,
                body_len: (charge.write_bytes > 0).then_some(charge.write_bytes),
            },
            claimant: 0,
        };
        let random = self.random.fetch_add(STEP, Relaxed);
        let shares = charge.shares.iter();
        let shares: Vec<_> = shares
            .map(|&(shard, parts)| ShardShare { shard, parts })
            .collect();
        let admitted = self.limiter.admit(&request, now, random);
        let admitted = admitted.and_then(|mut reservation| {
            let limiter = &self.limiter;
            limiter.admit_shards(&mut reservation, &request, &shares, now, random)?;
            Ok(reservation)
        });
        let mut reservation = admitted.map_err(|rejection| Spent {
            policy: rejection.policy.name.to_string(),
            retry_after: rejection.wait,
        })?;
        reservation.sent();
        Ok(Box::new(Paid {
            reservation,
            operation: charge.operation,
            keys: shares.iter().map(|share| u64::from(share.parts)).sum(),
        }))
    }
}

/// A request that was charged by estimate.
struct Paid {
    reservation: Reservation,
    operation: Operation,
    keys: u64,
}

impl Receipt for Paid {
    fn settle(mut self: Box<Self>, done: Done) {
        let Done {
            rows,
            bytes,
            service_time,
        } = done;
        let is_write = self.operation.is_write();
        let work = if is_write {
            Work {
                rows,
                write_bytes: bytes,
                writes: rows,
                service_time,
                ..Work::default()
            }
        } else {
            Work {
                rows,
                read_bytes: bytes,
                reads: self.keys,
                service_time,
                ..Work::default()
            }
        };
        self.reservation.settle(&work);
    }
}
