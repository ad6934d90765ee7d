//! Rows of a multi-get, of one shard at a time: hot ones from the local cache, the others in one call
//! of the store.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbo_hotkey::{Look, Stamp, Terms};
use umbo_types::{CallerId, Key, NamespaceId, RequestUnits, Row, ShardId};

use super::wanted::{Times, Wanted};
use super::{shared_row, unshared};
use crate::classify::Context;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::hot_keys::{HotShield, Shared};
use crate::patience::Patience;
use crate::pod::Dispatcher;
use crate::wait::{Answered, Call, Timed, in_slot};

/// Reads the rows of one request.
pub(crate) struct Rows<'a> {
    pod: &'a Arc<Dispatcher>,
    namespace: NamespaceId,
    caller: CallerId,
    terms: Terms,
    times: Times,
    call: Call,
    is_bypassed: bool,
    /// What each key counts for, beside others.
    units: RequestUnits,
}

/// A row as it was come by.
#[derive(Debug)]
pub(crate) struct ReadRow {
    pub(crate) row: Result<Option<Row>, Failure>,
    /// Whether it cost no read of the store.
    pub(crate) is_hit: bool,
    pub(crate) service_time: Duration,
}

impl ReadRow {
    fn hit(row: Result<Option<Row>, Failure>) -> Self {
        Self {
            row,
            is_hit: true,
            service_time: Duration::ZERO,
        }
    }
}

/// A key that the store has to be asked for.
struct Missing<'a> {
    at: usize,
    key: &'a Key,
    /// State of the writes before the store was asked; none where nothing is kept.
    stamp: Option<Stamp>,
}

impl<'a> Rows<'a> {
    /// Begins to read `keys` rows.
    pub(crate) fn new(
        pod: &'a Arc<Dispatcher>,
        namespace: NamespaceId,
        keys: usize,
        context: &Context,
        exchange: &Exchange,
    ) -> Result<Self, Failure> {
        let units = exchange.charged().as_micros() / (keys as u64).max(1);
        Ok(Self {
            pod,
            namespace,
            caller: exchange.caller_id()?.clone(),
            terms: exchange.terms(context),
            times: Times {
                monotonic: exchange.started(),
                wall: context.now,
            },
            call: exchange.call(context),
            is_bypassed: context.freshness.is_bypassed,
            units: RequestUnits::from_micros(units),
        })
    }

    /// Returns when there is no more time for rows that have not come: before the deadline of the
    /// request, unless what is read is all of it.
    pub(crate) fn until(&mut self, is_only: bool) -> Instant {
        if is_only {
            return self.call.entry.deadline.instant();
        }
        let now = self.pod.clock.monotonic();
        let patience = Patience::until(self.call.entry.deadline, now);
        self.call.entry.deadline = patience.work;
        patience.wait
    }

    /// Returns the time that was given for the request.
    pub(crate) const fn timeout(&self) -> Duration {
        self.call.timeout
    }

    /// Reads rows of one shard, in the order of their keys. The shard may have been asked for others
    /// of the same request.
    pub(crate) async fn read(
        &self,
        (shard, is_continued): (ShardId, bool),
        keys: &[&Key],
    ) -> Vec<ReadRow> {
        let shield = self.pod.hot_keys.shield();
        let mut rows: Vec<Option<ReadRow>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (at, &key) in keys.iter().enumerate() {
            let row = match shield {
                Some(shield) => self.look(shield, shard, key).await,
                None => None,
            };
            if row.is_none() {
                let stamp = shield.map(|shield| {
                    let named = shield.seed().row(self.namespace, key);
                    shield.stamp(&named)
                });
                missing.push(Missing { at, key, stamp });
            }
            rows.push(row);
        }
        if !missing.is_empty() {
            let fetched = self.fetch(shard, is_continued, &missing).await;
            for (missing, row) in missing.iter().zip(fetched) {
                rows[missing.at] = Some(row);
            }
        }
        let lost = || Failure::Internal("a row of a multi-get was not answered".to_owned());
        let rows = rows.into_iter();
        rows.map(|row| row.unwrap_or_else(|| ReadRow::hit(Err(lost()))))
            .collect()
    }

    /// Answers what needs no call of the store together with others: what is kept or blocked, and
    /// what is hot and to be read once for all who ask. None for the rest.
    async fn look(&self, shield: &HotShield, shard: ShardId, key: &Key) -> Option<ReadRow> {
        let named = shield.seed().row(self.namespace, key);
        shield.count(&named, self.units);
        let looked = shield.look(&named, &self.terms, &self.caller);
        if matches!(looked, Look::Blocked) {
            return Some(ReadRow::hit(Err(Failure::KeyBlocked)));
        }
        if self.is_bypassed {
            return None;
        }
        let wanted = Wanted::Row(self.namespace, key);
        let read = |_| wanted.read(self.pod, shard, self.times, self.call.clone());
        match looked {
            Look::Hit {
                served,
                is_refresh_due,
            } => {
                if is_refresh_due {
                    shield.refresh(&named, &self.terms, read);
                }
                Some(ReadRow::hit(shared_row(served.value.answer)))
            }
            Look::Miss => {
                let served = shield.share(&named, &self.terms, read).await;
                let served = served.map_err(unshared).map(|served| served.value);
                let time = served.as_ref().ok().map(|timed| timed.service_time);
                Some(ReadRow {
                    row: served.and_then(|timed| shared_row(timed.answer)),
                    is_hit: false,
                    service_time: time.unwrap_or_default(),
                })
            }
            Look::Cold | Look::Blocked => None,
        }
    }

    /// Asks a shard for what is missing, and keeps what has become hot meanwhile.
    async fn fetch(
        &self,
        shard: ShardId,
        is_continued: bool,
        missing: &[Missing<'_>],
    ) -> Vec<ReadRow> {
        let keys: Vec<Key> = missing.iter().map(|missing| missing.key.clone()).collect();
        let mut context = self.call.context();
        context.is_continued = is_continued;
        let work = async {
            let rows = self.pod.store.multi_get(&context, self.namespace, &keys);
            Answered::new(&context, rows.await)
        };
        let timed = match in_slot(self.pod, shard, &self.call, pin!(work)).await {
            Ok(timed) => timed,
            Err(failure) => {
                let failed = missing.iter().map(|_| ReadRow {
                    row: Err(failure.clone()),
                    is_hit: false,
                    service_time: Duration::ZERO,
                });
                return failed.collect();
            }
        };
        // The time belongs to all of them; the first one bears it.
        let mut service_time = timed.service_time;
        let rows = missing.iter().zip(timed.answer);
        rows.map(|(missing, row)| {
            if let (Ok(row), Some(stamp), Some(shield)) =
                (&row, missing.stamp, self.pod.hot_keys.shield())
            {
                let named = shield.seed().row(self.namespace, missing.key);
                let fill = self.times.fill(Timed::untimed(Shared::Row(row.clone())));
                shield.keep(&named, stamp, &fill, &self.terms);
            }
            ReadRow {
                row: row.map_err(Failure::from),
                is_hit: false,
                service_time: std::mem::take(&mut service_time),
            }
        })
        .collect()
    }
}
