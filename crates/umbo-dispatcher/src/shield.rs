//! The sixth verb, *shield*: how a read comes by its answer without asking its shard.
//!
//! Hot path. A read of a hot key is answered from the local cache; any other one joins the read of
//! the same key that is under way, or makes it. Owns what a client is told of that, and what it is
//! charged. A write tells the shield before the store is asked and after it has answered.

mod rows;
mod wanted;
mod write;

use std::pin::pin;
use std::sync::Arc;

use umbo_hotkey::{KeyRef, Lead, Look, Reading, Served, ShareError, Solo, Source};
use umbo_store::{Page, RangeRequest};
use umbo_telemetry::trace::Verb;
use umbo_types::{Key, NamespaceId, Operation, RequestUnits, Row, ShardId};

pub(crate) use self::rows::{ReadRow, Rows};
use self::wanted::{Times, Wanted};
pub(crate) use self::write::write;
use crate::classify::Context;
use crate::decode::Ask;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::hot_keys::{HotShield, Shared};
use crate::operation::ask_store;
use crate::pod::Dispatcher;
use crate::reach;
use crate::wait::{self, Timed, in_slot};

/// Charged for an answer that cost no read of the store of its own.
pub(crate) const HIT_PRICE: RequestUnits = RequestUnits::from_micros(100_000);

/// How an answer came by, as `Cache-Status` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// From the local cache.
    Hit {
        /// Whole seconds for which the answer is still kept.
        ttl: u64,
        /// Whole seconds since the store was asked.
        age: u64,
    },
    /// From the read of another one, a moment ago.
    Glow,
    /// From the read of another one.
    Collapsed,
    /// From the store.
    Miss,
    /// From the store, because the client wanted it so.
    Request,
}

impl Passage {
    /// Says whether the answer has the price of a shared one. What glows has not: no key is cheaper
    /// than others before it is hot, so that a few reads in a row cost what each of them would.
    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Hit { .. } | Self::Collapsed)
    }

    /// Says whether it was there before the request.
    pub(crate) const fn is_kept(self) -> bool {
        matches!(self, Self::Hit { .. } | Self::Glow)
    }

    /// Says whether the store was asked for it.
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Miss | Self::Request)
    }
}

/// Refuses a request for a key that an operator has blocked, before it costs anything.
pub(crate) fn check_blocked(
    pod: &Dispatcher,
    namespace: NamespaceId,
    ask: &Ask,
    exchange: &Exchange,
) -> Result<(), Failure> {
    let Some(shield) = pod.hot_keys.blocking() else {
        return Ok(());
    };
    let key = match ask {
        Ask::Get(ask) => &ask.key,
        Ask::Write(ask) => &ask.key,
        // Rows of a batch are looked at one by one; ranges once their first chunk is known.
        _ => return Ok(()),
    };
    refuse_blocked(shield, &shield.seed().row(namespace, key), exchange)
}

/// Refuses a row of a batch that an operator has blocked.
pub(crate) fn check_row(
    pod: &Dispatcher,
    namespace: NamespaceId,
    key: &Key,
    exchange: &Exchange,
) -> Result<(), Failure> {
    match pod.hot_keys.blocking() {
        Some(shield) => refuse_blocked(shield, &shield.seed().row(namespace, key), exchange),
        None => Ok(()),
    }
}

/// A refused request is counted, so that operators see whether it goes on, and by whom.
fn refuse_blocked(
    shield: &HotShield,
    key: &KeyRef<'_>,
    exchange: &Exchange,
) -> Result<(), Failure> {
    if shield.refuses(key, exchange.caller_id()?) {
        shield.count(key, RequestUnits::ZERO);
        return Err(Failure::KeyBlocked);
    }
    Ok(())
}

/// Reads a row.
pub(crate) async fn row(
    pod: &Arc<Dispatcher>,
    namespace: NamespaceId,
    key: &Key,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Option<Row>, Failure> {
    let shard = pod.shard_map.locate(namespace, &key.partition);
    let wanted = Wanted::Row(namespace, key);
    shared_row(read(pod, &wanted, shard, context, exchange).await?)
}

/// Reads the first chunk of a range.
pub(crate) async fn page(
    pod: &Arc<Dispatcher>,
    request: &RangeRequest,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Arc<Page>, Failure> {
    let shard = pod.shard_map.locate(request.namespace, &request.partition);
    match read(pod, &Wanted::range(request), shard, context, exchange).await? {
        Shared::Page(page) => Ok(page),
        Shared::Row(_) => Err(mixed_up()),
    }
}

fn shared_row(shared: Shared) -> Result<Option<Row>, Failure> {
    match shared {
        Shared::Row(row) => Ok(row),
        Shared::Page(_) => Err(mixed_up()),
    }
}

/// Kinds are part of what names a read.
fn mixed_up() -> Failure {
    Failure::Internal("a read was answered with one of another kind".to_owned())
}

async fn read(
    pod: &Arc<Dispatcher>,
    wanted: &Wanted<'_>,
    shard: ShardId,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Shared, Failure> {
    let Some(shield) = pod.hot_keys.shield() else {
        exchange.located(shard)?;
        return alone(pod, wanted, shard, context, exchange).await;
    };
    exchange.verb(Verb::Shield);
    let key = wanted.key(shield.seed());
    // Rows were looked at before anything was charged. A block holds for those who want to go round
    // the cache, too.
    if pod.hot_keys.blocking().is_some() {
        refuse_blocked(shield, &key, exchange)?;
    }
    shield.count(&key, exchange.charged());
    if context.freshness.is_bypassed {
        exchange.passed(Passage::Request);
        exchange.located(shard)?;
        return alone(pod, wanted, shard, context, exchange).await;
    }
    let times = Times {
        monotonic: exchange.started(),
        wall: context.now,
    };
    let terms = exchange.terms(context);
    let looked = shield.look(&key, &terms, exchange.caller_id()?);
    match looked {
        Look::Hit {
            served,
            is_refresh_due,
        } => {
            if is_refresh_due {
                let operation = exchange.operation();
                let call = exchange.call(context);
                let read = |_: Lead| timed(pod, operation, wanted.read(pod, shard, times, call));
                shield.refresh(&key, &terms, read);
            }
            exchange.passed(passage(pod, &served));
            return Ok(served.value.answer);
        }
        Look::Blocked => return Err(Failure::KeyBlocked),
        Look::Cold if is_over_at_once(pod, shard) => match shield.solo(&key, &terms) {
            Solo::Served(served) => {
                exchange.passed(Passage::Glow);
                return Ok(served.value.answer);
            }
            Solo::Read(stamp) => {
                exchange.located(shard)?;
                let answer = alone(pod, wanted, shard, context, exchange).await?;
                let fill = times.fill(Timed::untimed(answer));
                shield.land(&key, stamp, &fill, &terms);
                exchange.passed(Passage::Miss);
                return Ok(fill.value.answer);
            }
            Solo::Join => {}
        },
        Look::Cold | Look::Miss => {}
    }
    // Only now, so that a ceiling of the shard does not count what never reaches it.
    exchange.located(shard)?;
    if wait::is_crowded(pod, shard, exchange.operation()) && !shield.has_company(&key) {
        exchange.turn_away(shard, context)?;
    }
    let call = exchange.call(context);
    let sharing = async {
        // Here the deadline of this request counts, not that of the one that reads for all.
        reach::reachable(pod, shard, call.entry.deadline).await?;
        let read = |lead| {
            let mut call = call.clone();
            call.entry.criticality = shield.criticality(&lead);
            wanted.read(pod, shard, times, call)
        };
        let served = shield.share(&key, &terms, read).await.map_err(unshared)?;
        Ok(Timed {
            service_time: served.value.service_time,
            answer: served,
        })
    };
    let served = ask_store(context, exchange, pin!(sharing)).await?;
    exchange.passed(passage(pod, &served));
    Ok(served.value.answer)
}

/// Reads for this request and nobody else.
async fn alone(
    pod: &Dispatcher,
    wanted: &Wanted<'_>,
    shard: ShardId,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Shared, Failure> {
    let call = exchange.call(context);
    let asking = pin!(wanted.ask(pod, &call));
    let work = pin!(in_slot(pod, shard, &call, asking));
    ask_store(context, exchange, work).await?
}

/// Says whether a read is over as soon as it is begun, so that there is nothing to join.
fn is_over_at_once(pod: &Dispatcher, shard: ShardId) -> bool {
    pod.store.answers_at_once() && wait::has_room(pod, shard)
}

/// Notes how long a read took that belongs to no request.
fn timed(
    pod: &Arc<Dispatcher>,
    operation: Operation,
    reading: Reading<Timed<Shared>, Failure>,
) -> Reading<Timed<Shared>, Failure> {
    let pod = Arc::clone(pod);
    Box::pin(async move {
        let answer = reading.await?;
        pod.metrics
            .record_store(operation, answer.value.service_time);
        Ok(answer)
    })
}

fn unshared(error: ShareError<Failure>) -> Failure {
    match error {
        ShareError::Failed(failure) => failure,
        ShareError::Lost => Failure::Internal("a shared read was abandoned".to_owned()),
        ShareError::Crowded => Failure::TooManyReaders,
    }
}

fn passage(pod: &Dispatcher, served: &Served<Timed<Shared>>) -> Passage {
    match served.source {
        Source::Leader => Passage::Miss,
        Source::Follower => Passage::Collapsed,
        Source::Afterglow => Passage::Glow,
        Source::Cache => {
            let now = pod.clock.monotonic();
            let ttl = served
                .fresh_until
                .map(|until| until.saturating_duration_since(now).as_secs());
            let age = now.saturating_duration_since(served.read_at).as_secs();
            Passage::Hit {
                ttl: ttl.unwrap_or(0),
                age,
            }
        }
    }
}
