//! Rows of a multi-get, of one shard at a time: hot ones from the local cache, the others in one call
//! of the store.

use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbo_hotkey::{Lookup, ReadContext, majority};
use umbo_http::RequestError;
use umbo_types::{CallerId, Key, NamespaceId, RequestUnits, Row, ShardId};

use super::cacheable::{CacheableRead, ReadLocation, ReadTime, shared, shared_row};
use crate::deadline_budget::DeadlineBudget;
use crate::dispatcher::Dispatcher;
use crate::hot_keys::HotShield;
use crate::phase::fetch;
use crate::phase::locate::Located;
use crate::store_call::{StoreCall, StoreTime, Timed};

/// Reads the rows of one request.
pub(crate) struct RequestRows {
    dispatcher: Arc<Dispatcher>,
    place: ReadLocation,
    payer: CallerId,
    read_context: ReadContext,
    time: ReadTime,
    call: StoreCall,
    is_bypassed: bool,
}

/// A row and its cost.
#[derive(Debug)]
pub(crate) struct CostedRow {
    pub(crate) row: Result<Option<Row>, RequestError>,
    /// Whether it cost no read of the store.
    pub(crate) is_hit: bool,
    pub(crate) time: StoreTime,
}

impl CostedRow {
    fn hit(row: Result<Option<Row>, RequestError>) -> Self {
        Self {
            row,
            is_hit: true,
            time: StoreTime::default(),
        }
    }
}

impl RequestRows {
    /// Begins to read `keys` rows.
    pub(crate) fn new(located: &Located<'_>, keys: usize) -> Self {
        let mut read_context = located.read_context();
        let price = located.charge.charged().as_micros() / (keys as u64).max(1);
        read_context.price = RequestUnits::from_micros(price);
        Self {
            dispatcher: Arc::clone(located.dispatcher),
            place: ReadLocation::of(located),
            payer: located.charge.payer_id(),
            read_context,
            time: ReadTime::of(located),
            call: located.call(),
            is_bypassed: located.context().freshness.is_bypassed,
        }
    }

    /// Returns where the rows are read.
    pub(crate) const fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// Returns the namespace of the rows.
    pub(crate) const fn namespace(&self) -> NamespaceId {
        self.place.namespace
    }

    /// Returns the instant after which rows that have not come are given up. It is the deadline of the
    /// request if this is its only read, and somewhat earlier otherwise.
    pub(crate) fn until(&mut self, is_only: bool) -> Instant {
        if is_only {
            return self.call.entry.deadline.instant();
        }
        let now = self.dispatcher.clock.monotonic();
        let budget = DeadlineBudget::until(self.call.entry.deadline, now);
        self.call.entry.deadline = budget.work;
        budget.wait
    }

    /// Returns the time that was given for the request.
    pub(crate) const fn timeout(&self) -> Duration {
        self.call.timeout
    }

    /// Reads rows of one shard, in the order of their keys.
    pub(crate) async fn read(&self, shard: ShardId, keys: &[&Key]) -> Vec<CostedRow> {
        let shield = self.dispatcher.hot_keys.shield();
        let mut rows: Vec<Option<CostedRow>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for &key in keys {
            let row = match shield {
                Some(shield) => self.lookup(shield, shard, key).await,
                None => None,
            };
            if row.is_none() {
                missing.push(key.clone());
            }
            rows.push(row);
        }
        if !missing.is_empty() {
            let fetched = self.fetch(shard, &missing).await;
            let places = rows.iter_mut().filter(|row| row.is_none());
            for (place, row) in places.zip(fetched) {
                *place = Some(row);
            }
        }
        let lost = || RequestError::Internal("a row of a multi-get was not answered".to_owned());
        let rows = rows.into_iter();
        rows.map(|row| row.unwrap_or_else(|| CostedRow::hit(Err(lost()))))
            .collect()
    }

    /// Returns the row of a key that is cached or blocked, or that is hot and read once for all requests.
    /// Returns `None` for other keys, which are read in one call.
    async fn lookup(&self, shield: &HotShield, shard: ShardId, key: &Key) -> Option<CostedRow> {
        let named = shield.seed().row(self.place.namespace, key);
        shield.count(&named);
        let blocked = || CostedRow::hit(Err(RequestError::KeyBlocked));
        if self.is_bypassed {
            return shield.is_blocked(&named, self.payer.as_str()).then(blocked);
        }
        let cacheable = CacheableRead::Row(self.place, key);
        let fetch = || cacheable.lead(&self.dispatcher, shard, self.time, self.call.clone());
        match shield.lookup(&named, &self.read_context, self.payer.as_str()) {
            // Another version was activated since it was cached.
            Lookup::Hit { served, .. } if served.value.answer.dataset() != self.place.dataset => {
                drop(shield.begin_write([cacheable.scope()]));
                None
            }
            Lookup::Hit {
                served,
                is_refresh_due,
            } => {
                if is_refresh_due {
                    shield.refresh(&named, &self.read_context, fetch);
                }
                Some(CostedRow::hit(shared_row(served.value.answer)))
            }
            Lookup::Miss => {
                let place = (shield, &named);
                let served = shared(&self.dispatcher, place, &self.read_context, fetch);
                let (row, time) = match served.await {
                    Ok(served) => {
                        // Two leaders failed, or the leader reads another version.
                        let Timed { answer, time } = served?.value;
                        if answer.dataset() != self.place.dataset {
                            return None;
                        }
                        (shared_row(answer), time)
                    }
                    Err(failure) => (Err(failure), StoreTime::default()),
                };
                Some(CostedRow {
                    row,
                    is_hit: false,
                    time,
                })
            }
            Lookup::Blocked => Some(blocked()),
            Lookup::Cold => None,
        }
    }

    /// Asks a shard for rows in one call.
    async fn fetch(&self, shard: ShardId, keys: &[Key]) -> Vec<CostedRow> {
        let partition = || majority(keys.iter().map(|key| &key.partition));
        let source = || self.call.source(self.place.namespace, partition());
        let wanted = (self.place.dataset, keys);
        let fetching = fetch::rows(&self.dispatcher, shard, &self.call, wanted, source);
        let timed = match fetching.await {
            Ok(timed) => timed,
            Err(failure) => {
                let failed = keys.iter().map(|_| CostedRow {
                    row: Err(failure.clone()),
                    is_hit: false,
                    time: StoreTime::default(),
                });
                return failed.collect();
            }
        };
        // The time belongs to all rows; it is recorded with the first.
        let mut time = timed.time;
        let rows = timed.answer.into_iter().map(Some);
        // A shard stops reading when the rows have as many bytes as the whole answer may have. The rows
        // after that are missing.
        rows.chain(iter::repeat(None))
            .take(keys.len())
            .map(|row| CostedRow {
                row: row.map_or(Err(RequestError::AnswerFull), |row| Ok(row?)),
                is_hit: false,
                time: std::mem::take(&mut time),
            })
            .collect()
    }
}
