//! The phase *shield*: how a read gets its result without asking its shard.
//!
//! Hot path. The steps are blocked, cache, join or lead, direct: a hot key is answered from the local
//! cache. A read without a cached answer joins the read of the same key in flight, or leads a new one. If
//! the store answers at once, only reads of hot keys join or lead; all others are plain reads that wait for
//! no other. A write is announced to the shield before the store is asked and until it has answered.

mod cacheable;
mod rows;

use std::pin::pin;
use std::sync::Arc;

use umbo_hotkey::{AnswerSource, KeyRef, Lookup, Served, StoreRead};
use umbo_http::{CacheStatus, RequestError};
use umbo_store::{Page, RangeRequest, RowSink};
use umbo_telemetry::trace::Phase;
use umbo_types::{Key, NamespaceId, Operation, Row, ShardId};

use self::cacheable::{CacheableRead, ReadLocation, ReadTime, mixed_up, shared, shared_row};
pub(crate) use self::rows::{CostedRow, RequestRows};
use crate::dispatcher::Dispatcher;
use crate::hot_keys::{HotShield, SharedRead};
use crate::phase::fetch;
use crate::phase::locate::Located;
use crate::phase::queue;
use crate::phase::reach;
use crate::store_call::{StoreCall, Timed};

/// Refuses a request for a key that an operator has blocked, before it costs anything. A refused request is
/// counted, so that operators see whether such requests continue, and which caller pays for them.
pub fn check_blocked(
    dispatcher: &Dispatcher,
    namespace: NamespaceId,
    key: &Key,
    payer: &str,
) -> Result<(), RequestError> {
    let Some(shield) = dispatcher.hot_keys.blocking() else {
        return Ok(());
    };
    refuse_blocked(shield, &shield.seed().row(namespace, key), payer)
}

fn refuse_blocked(shield: &HotShield, key: &KeyRef<'_>, payer: &str) -> Result<(), RequestError> {
    if shield.is_blocked(key, payer) {
        shield.count(key);
        return Err(RequestError::KeyBlocked);
    }
    Ok(())
}

/// What the shield has for a read.
enum Shielded {
    /// A result that other requests share.
    Shared(SharedRead),
    /// Nothing: the request asks its shard itself. Once the shard has answered, this status is recorded.
    Ask(Option<CacheStatus>),
}

/// Reads a row.
pub(crate) async fn row(located: &mut Located<'_>, key: &Key) -> Result<Option<Row>, RequestError> {
    let dispatcher = located.dispatcher;
    let place = ReadLocation::of(located);
    let map = &dispatcher.shard_map;
    let locate = || map.locate(place.namespace, &key.partition);
    let shard = located.shard().unwrap_or_else(locate);
    let cacheable = CacheableRead::Row(place, key);
    let status = match shielded(located, &cacheable, shard).await? {
        Shielded::Shared(result) => return shared_row(result),
        Shielded::Ask(status) => status,
    };
    let call = call_alone(located, shard)?;
    let work = fetch::row(dispatcher, place.at(shard), &call, place.dataset, key);
    let row = queue::ask(located, pin!(work)).await??;
    if let Some(status) = status {
        located.served_by(status);
    }
    Ok(row)
}

/// Reads the first chunk of a range, whose rows go to `rows`, also if they come from a shared page.
pub(crate) async fn page(
    located: &mut Located<'_>,
    request: &RangeRequest,
    rows: &mut dyn RowSink,
) -> Result<Arc<Page>, RequestError> {
    let (dispatcher, namespace) = (located.dispatcher, located.namespace_id());
    let map = &dispatcher.shard_map;
    let shard = map.locate(request.namespace, &request.partition);
    let cacheable = CacheableRead::range(namespace, request);
    let status = match shielded(located, &cacheable, shard).await? {
        Shielded::Shared(SharedRead::Page(_, page)) => {
            rows.append(&page.rows);
            return Ok(page);
        }
        Shielded::Shared(SharedRead::Row(..)) => return Err(mixed_up()),
        Shielded::Ask(status) => status,
    };
    let call = call_alone(located, shard)?;
    let work = fetch::range_into(dispatcher, (shard, namespace), &call, request, rows);
    let page = queue::ask(located, pin!(work)).await??;
    if let Some(status) = status {
        located.served_by(status);
    }
    Ok(Arc::new(page))
}

/// Begins the call of a read for this request alone.
fn call_alone(located: &mut Located<'_>, shard: ShardId) -> Result<StoreCall, RequestError> {
    located.debit()?;
    queue::turn_away(located, shard)?;
    Ok(located.call())
}

/// Looks a read up, and shares it with other requests if that saves reads of the store.
async fn shielded(
    located: &mut Located<'_>,
    cacheable: &CacheableRead<'_>,
    shard: ShardId,
) -> Result<Shielded, RequestError> {
    let dispatcher = located.dispatcher;
    let Some(shield) = dispatcher.hot_keys.shield() else {
        return Ok(Shielded::Ask(None));
    };
    located.log.phase(Phase::Shield);
    let key = cacheable.key(shield.seed());
    // Rows were checked before anything was charged. A block holds for `no-cache` too.
    if dispatcher.hot_keys.blocking().is_some() {
        refuse_blocked(shield, &key, located.payer_name())?;
    }
    shield.count(&key);
    if located.context().freshness.is_bypassed {
        located.served_by(CacheStatus::Bypass);
        return Ok(Shielded::Ask(None));
    }
    let read_context = located.read_context();
    match shield.lookup(&key, &read_context, located.payer_name()) {
        Lookup::Blocked => Err(RequestError::KeyBlocked),
        // Another version was activated since the row was cached, or the request continues in an earlier
        // one.
        Lookup::Hit { served, .. } if served.value.answer.dataset() != cacheable.dataset() => {
            drop(shield.begin_write([cacheable.scope()]));
            Ok(Shielded::Ask(Some(CacheStatus::Miss)))
        }
        Lookup::Hit {
            served,
            is_refresh_due,
        } => {
            if is_refresh_due {
                let (operation, call) = (located.log.operation(), located.call());
                let time = ReadTime::of(located);
                let fetch = || {
                    timed(
                        dispatcher,
                        operation,
                        cacheable.lead(dispatcher, shard, time, call),
                    )
                };
                shield.refresh(&key, &read_context, fetch);
            }
            located.served_by(cache_status(dispatcher, &served));
            Ok(Shielded::Shared(served.value.answer))
        }
        Lookup::Cold if dispatcher.store.capabilities().answers_at_once => {
            Ok(Shielded::Ask(Some(CacheStatus::Miss)))
        }
        Lookup::Cold | Lookup::Miss => {
            join_or_lead((shield, &key), located, cacheable, shard).await
        }
    }
}

/// Reads with all requests that want the same, within the deadline of this one.
async fn join_or_lead(
    (shield, key): (&HotShield, &KeyRef<'_>),
    located: &mut Located<'_>,
    cacheable: &CacheableRead<'_>,
    shard: ShardId,
) -> Result<Shielded, RequestError> {
    let dispatcher = located.dispatcher;
    // Only now, so that a quota of the shard does not count requests that never reach it.
    located.debit()?;
    let operation = located.log.operation();
    if queue::is_crowded(dispatcher, shard, operation) && !shield.is_in_flight(key) {
        queue::turn_away(located, shard)?;
    }
    let (call, time) = (located.call(), ReadTime::of(located));
    let read_context = located.read_context();
    let sharing = async {
        // The deadline of this request counts here; a leader has a separate one.
        reach::wait_until_reachable(dispatcher, shard, call.entry.deadline).await?;
        let lead = || cacheable.lead(dispatcher, shard, time, call.clone());
        let served = shared(dispatcher, (shield, key), &read_context, lead);
        let Some(served) = served.await? else {
            return Ok(Timed::untimed(None));
        };
        let status = cache_status(dispatcher, &served);
        Ok(served.value.map(|result| Some((result, status))))
    };
    let answer = queue::ask(located, pin!(sharing)).await?;
    match answer {
        Some((result, status)) if result.dataset() == cacheable.dataset() => {
            located.served_by(status);
            return Ok(Shielded::Shared(result));
        }
        // The leader reads another version.
        Some(_) => {}
        None => located.log.not_stored(),
    }
    Ok(Shielded::Ask(Some(CacheStatus::Miss)))
}

/// Records the service time of a read that belongs to no request.
fn timed(
    dispatcher: &Arc<Dispatcher>,
    operation: Operation,
    read: StoreRead<Timed<SharedRead>, RequestError>,
) -> StoreRead<Timed<SharedRead>, RequestError> {
    let dispatcher = Arc::clone(dispatcher);
    Box::pin(async move {
        let fetched = read.await?;
        dispatcher
            .metrics
            .record_store(operation, fetched.value.time.taken);
        Ok(fetched)
    })
}

fn cache_status(dispatcher: &Dispatcher, served: &Served<Timed<SharedRead>>) -> CacheStatus {
    match served.source {
        AnswerSource::Leader => CacheStatus::Miss,
        AnswerSource::Follower => CacheStatus::Collapsed,
        AnswerSource::Cache => {
            let now = dispatcher.clock.monotonic();
            let ttl = served
                .fresh_until
                .map(|until| until.saturating_duration_since(now).as_secs());
            let age = now.saturating_duration_since(served.read_at).as_secs();
            CacheStatus::Hit {
                ttl: ttl.unwrap_or(0),
                age,
            }
        }
    }
}
