//! Rows of a multi-get: hot ones from the local cache, the others in one call of the store.

use std::sync::Arc;

use umbo_hotkey::{KeyRef, Look, Stamp, Terms};
use umbo_types::{CallerId, Key, NamespaceId, RequestUnits, Row};

use super::wanted::{Times, Wanted};
use super::{shared_row, unshared};
use crate::classify::Context;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::hot_keys::{HotShield, Shared};
use crate::pod::Dispatcher;

/// Reads the rows of one request.
pub(crate) struct Rows<'a> {
    pod: &'a Arc<Dispatcher>,
    namespace: NamespaceId,
    caller: CallerId,
    terms: Terms,
    times: Times,
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
}

impl ReadRow {
    fn of(row: Result<Option<Row>, Failure>, is_hit: bool) -> Self {
        Self { row, is_hit }
    }
}

/// A key that the store has to be asked for.
struct Missing<'a> {
    at: usize,
    key: &'a Key,
    /// State of the writes before the store was asked.
    stamp: Stamp,
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
            is_bypassed: context.freshness.is_bypassed,
            units: RequestUnits::from_micros(units),
        })
    }

    /// Reads rows, in the order of their keys.
    pub(crate) async fn read(&self, keys: &[Key]) -> Vec<ReadRow> {
        let Some(shield) = self.pod.hot_keys.shield() else {
            let rows = self.pod.store.multi_get(self.namespace, keys).await;
            let rows = rows.into_iter();
            return rows
                .map(|row| ReadRow::of(row.map_err(Failure::from), false))
                .collect();
        };
        let mut rows: Vec<Option<ReadRow>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let named = shield.seed().row(self.namespace, key);
            shield.count(&named, self.units);
            let row = self.look(shield, key, &named).await;
            if row.is_none() {
                let stamp = shield.stamp(&named);
                missing.push(Missing { at, key, stamp });
            }
            rows.push(row);
        }
        if !missing.is_empty() {
            self.fetch(shield, &missing, &mut rows).await;
        }
        let lost = || Failure::Internal("a row of a multi-get was not answered".to_owned());
        let rows = rows.into_iter();
        rows.map(|row| row.unwrap_or_else(|| ReadRow::of(Err(lost()), false)))
            .collect()
    }

    /// Answers what needs no call of the store together with others: what is kept or blocked, and
    /// what is hot and to be read once for all who ask. None for the rest.
    async fn look(&self, shield: &HotShield, key: &Key, named: &KeyRef<'_>) -> Option<ReadRow> {
        let looked = shield.look(named, &self.terms, &self.caller);
        if matches!(looked, Look::Blocked) {
            return Some(ReadRow::of(Err(Failure::KeyBlocked), true));
        }
        if self.is_bypassed {
            return None;
        }
        let wanted = Wanted::Row(self.namespace, key);
        let read = |_| wanted.read(self.pod, self.times);
        match looked {
            Look::Hit {
                served,
                is_refresh_due,
            } => {
                if is_refresh_due {
                    shield.refresh(named, &self.terms, read);
                }
                Some(ReadRow::of(shared_row(served.value), true))
            }
            Look::Miss => {
                let served = shield.share(named, &self.terms, read).await;
                let row = served.map_err(unshared);
                Some(ReadRow::of(
                    row.and_then(|served| shared_row(served.value)),
                    false,
                ))
            }
            Look::Cold | Look::Blocked => None,
        }
    }

    /// Asks the store for what is missing, and keeps what has become hot meanwhile.
    async fn fetch(
        &self,
        shield: &HotShield,
        missing: &[Missing<'_>],
        rows: &mut [Option<ReadRow>],
    ) {
        let keys: Vec<Key> = missing.iter().map(|missing| missing.key.clone()).collect();
        let fetched = self.pod.store.multi_get(self.namespace, &keys).await;
        for (missing, row) in missing.iter().zip(fetched) {
            if let Ok(row) = &row {
                let named = shield.seed().row(self.namespace, missing.key);
                let fill = self.times.fill(Shared::Row(row.clone()));
                shield.keep(&named, missing.stamp, &fill, &self.terms);
            }
            rows[missing.at] = Some(ReadRow::of(row.map_err(Failure::from), false));
        }
    }
}
