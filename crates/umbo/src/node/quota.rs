//! The per-shard quotas of a node: policies with the scope `shard`, enforced where the requests of all
//! dispatchers arrive.
//!
//! Each dispatcher enforces them too, so that most excess requests never reach the node. A request in several
//! parts counts once, and is not stopped after it was admitted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use umbo_control::policies::{FilePolicies, ShardPolicies};
use umbo_quota::{
    ActualUsage, Continuation, CostHint, Limiter, PolicySet, QuotaRequest, Reservation, ShardShare,
    Subject,
};
use umbo_shard::quota::{ActualWork, ChargeHandle, QuotaExceeded, ShardCharge, ShardQuota};
use umbo_store::{RecordsRevision, Store};
use umbo_types::{Attributes, Clock, NamespaceId, Operation, OwnedAttributes, PriceMultiplier};

use crate::cli_error::CliError;
use crate::parts;
use crate::settings::Settings;

/// How often the node checks for a new revision of the records; cheap.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How often the limiter ends its windows.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(1);
/// Odd constant (2^64 divided by the golden ratio) that spreads the values of a counter for use as random
/// numbers.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The per-shard quotas.
#[derive(Debug)]
pub(super) struct ShardQuotas {
    limiter: Limiter,
    /// Number of the policies.
    count: AtomicU64,
    namespaces: ArcSwap<HashMap<NamespaceId, Arc<str>>>,
    random: AtomicU64,
}

/// Reloads the per-shard quotas.
pub(super) struct ShardQuotaReloader {
    pub(super) shard_quotas: Arc<ShardQuotas>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    file: ArcSwap<FilePolicies>,
}

impl ShardQuotaReloader {
    pub(super) fn new(
        settings: &Settings,
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, CliError> {
        let none = PolicySet::new(Vec::<umbo_quota::Policy>::new()).map_err(CliError::start)?;
        let shard_quotas = ShardQuotas {
            limiter: parts::limiter(settings, none, &**store, &**clock)?,
            count: AtomicU64::new(0),
            namespaces: ArcSwap::default(),
            random: AtomicU64::new(getrandom::u64().map_err(CliError::start)?),
        };
        Ok(Self {
            shard_quotas: Arc::new(shard_quotas),
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            file: ArcSwap::from_pointee(parts::read_policies(settings).map_err(CliError::start)?),
        })
    }

    /// Loads the policy file of changed settings.
    pub(super) async fn replace_file(&self, settings: &Settings) -> Result<(), CliError> {
        let file = parts::read_policies(settings).map_err(CliError::start)?;
        self.file.store(Arc::new(file));
        self.read().await
    }

    /// Reads the policies once, from the copy of Umbo's own records that this node keeps. A copy that cannot be read
    /// changes nothing.
    async fn read(&self) -> Result<(), CliError> {
        let file = FilePolicies::clone(&self.file.load());
        let copy = self.store.kept_records().await.map_err(CliError::start)?;
        let found = ShardPolicies::read(copy.as_deref(), file).map_err(CliError::start)?;
        let shard_quotas = &self.shard_quotas;
        shard_quotas.namespaces.store(Arc::new(found.namespaces));
        let count = found.policies.iter().count() as u64;
        shard_quotas.limiter.replace(found.policies);
        shard_quotas.count.store(count, Relaxed);
        Ok(())
    }

    /// Reads the policies at each new revision of the records, and maintains the buckets, in an endless loop.
    pub(super) async fn run(self: Arc<Self>) {
        let mut read: Option<RecordsRevision> = None;
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let mut maintain = tokio::time::interval(MAINTAIN_INTERVAL);
        loop {
            tokio::select! {
                biased;
                _ = look.tick() => {
                    let revision = self.store.records_revision();
                    if read == Some(revision) {
                        continue;
                    }
                    if let Err(error) = self.read().await {
                        tracing::warn!(%error, "the policies of shards could not be read; the old ones stay");
                    }
                    // A revision that cannot be read is not tried again: the next one may be readable.
                    read = Some(revision);
                },
                _ = maintain.tick() => self.shard_quotas.limiter.maintain(self.clock.monotonic()),
            }
        }
    }
}

impl ShardQuota for ShardQuotas {
    fn quota_count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    fn charge(
        &self,
        charge: &ShardCharge<'_>,
        now: Instant,
    ) -> Result<Box<dyn ChargeHandle>, QuotaExceeded> {
        let namespaces = self.namespaces.load();
        // A namespace that was just created has no name here yet; only policies for all namespaces apply to
        // it.
        let namespace = namespaces.get(&charge.namespace).map_or("", |name| name);
        let attributes = charge.attributes;
        let request = QuotaRequest {
            subject: Subject {
                caller: charge.caller,
                namespace,
                namespace_id: charge.namespace,
                attributes: attributes.map_or(Attributes::NONE, OwnedAttributes::as_deref),
                operation: charge.operation,
            },
            hint: CostHint {
                rows_max: charge.rows_max,
                bytes_max: charge.bytes_max,
                body_len: (charge.write_bytes > 0).then_some(charge.write_bytes),
                ..CostHint::default()
            },
            ticket: None,
            price_multiplier: PriceMultiplier::NONE,
        };
        let (shard, parts) = charge.share;
        let shares = [ShardShare { shard, parts }];
        let kind = WorkKind::of(charge);
        if charge.is_continued {
            let charge = self.limiter.go_on(&request, &shares, now);
            return Ok(Box::new(NodeCharge { charge, kind }));
        }
        let random = self.random.fetch_add(STEP, Relaxed);
        let admitted = self.limiter.admit(&request, now, random);
        let admitted = admitted.and_then(|mut reservation| {
            let limiter = &self.limiter;
            limiter.admit_shards(&mut reservation, &request, &shares, now, random)?;
            Ok(reservation)
        });
        let mut charge = admitted.map_err(|rejection| QuotaExceeded {
            policy: rejection.policy.name.to_string(),
            retry_after: rejection.wait,
            observed: rejection.observed,
        })?;
        charge.sent();
        Ok(Box::new(NodeCharge { charge, kind }))
    }
}

/// A charge: of a whole request by an estimate, or of a part, which is charged by its actual work afterwards.
struct NodeCharge<C> {
    charge: C,
    kind: WorkKind,
}

/// The facts that determine the work of a request.
#[derive(Debug, Clone, Copy)]
struct WorkKind {
    operation: Operation,
    /// Number of reads that the request counts as.
    reads: u64,
}

impl ChargeHandle for NodeCharge<Reservation> {
    fn settle(mut self: Box<Self>, done: ActualWork) {
        self.charge.settle(&self.kind.work(done));
    }

    fn release(mut self: Box<Self>) {
        self.charge.release();
    }
}

impl ChargeHandle for NodeCharge<Continuation> {
    fn settle(self: Box<Self>, done: ActualWork) {
        self.charge.settle(&self.kind.work(done));
    }

    fn release(self: Box<Self>) {
        // Nothing was charged yet.
    }
}

impl WorkKind {
    fn of(charge: &ShardCharge<'_>) -> Self {
        let operation = charge.operation;
        let reads = match operation {
            // All reads of a request count with its first part.
            Operation::Range | Operation::Scan => u64::from(!charge.is_continued),
            _ => charge.share.1.into(),
        };
        Self { operation, reads }
    }

    fn work(self, done: ActualWork) -> ActualUsage {
        let (rows, service_time) = (done.rows, done.service_time);
        let work = ActualUsage {
            rows,
            service_time,
            ..ActualUsage::default()
        };
        match self.operation {
            // A removal writes no bytes.
            Operation::Delete | Operation::DeleteRange => ActualUsage {
                writes: rows,
                ..work
            },
            operation if operation.is_write() => ActualUsage {
                writes: rows,
                write_bytes: done.bytes,
                ..work
            },
            _ => ActualUsage {
                reads: self.reads,
                read_bytes: done.bytes,
                ..work
            },
        }
    }
}
