//! Hot keys: a stampede on one key never reaches its shard.
//!
//! Owns four things. The **sketch** finds which keys are read most, in constant space
//! ([`HotRule`]). The **local cache** keeps answers of hot keys for about three seconds
//! ([`CacheSettings`]). **Flights** let all who want the same at the same time share one read of
//! the store, hot or not ([`FlightSettings`]). **Generations** see to it that a pod reads its own
//! writes ([`WriteGuard`]). [`Shield`] is all of them together.
//!
//! Deliberately knows nothing of HTTP, stores and engines, reads no clock and makes no random
//! numbers: both come with each call ([`Terms`]), so that all of it runs under a simulated clock.
//! Tasks are started through the [`Spawner`] that the owner passes in; the crate has no runtime.
//!
//! What always holds:
//! - keys are compared whole, never by hash alone ([`KeyRef`]);
//! - an answer that was read before a write through this pod ended is never served after it;
//! - a flight asks the store once for each leader; a leader that fails, panics or is ended is
//!   replaced once, by one follower, and nobody waits for nothing;
//! - errors are not kept, and nothing is served beyond its time to live;
//! - every table, queue and buffer has a bound.
//!
//! # In a dispatcher
//!
//! One [`Shield`] a pod; one task calls [`Shield::tick`] every 100 ms. Then, in the verb *shield*:
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Instant;
//! # use bytes::Bytes;
//! # use umbo_hotkey::{
//! #     Fill, KeySeed, Kind, Lead, Look, Polarity, Reading, Settings, Shield, Standing, Terms,
//! #     Touched,
//! # };
//! # use umbo_types::{CallerId, Criticality, Key, NamespaceId, PartitionKey, RequestUnits};
//! # #[derive(Clone)]
//! # struct Failed;
//! # async fn store_get(_: NamespaceId, _: Key) -> Result<Option<Bytes>, Failed> {
//! #     Ok(Some(Bytes::from_static(b"value")))
//! # }
//! # async fn store_put(_: NamespaceId, _: &Key, _: Bytes) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let now = Instant::now();
//! # let (seed, random) = (KeySeed::new(1), 2);
//! # let price = RequestUnits::from_micros(1_000_000);
//! # let caller = CallerId::new("shop");
//! # let namespace = NamespaceId(7);
//! // When the pod opens. The seed is random; tasks are tracked by whoever owns the runtime.
//! let spawner = |task| drop(tokio::spawn(task));
//! let shield = Shield::<Option<Bytes>, Failed>::new(Settings::new(2, seed), Box::new(spawner), now);
//!
//! // A point get. A block is looked at before anything is charged, everything else after.
//! let row = Key::new("listing:17", "").unwrap();
//! let key = shield.seed().row(namespace, &row);
//! assert_ne!(shield.standing(&key), Some(Standing::Blocked));
//! shield.count(&key, price);
//! let terms = Terms { now, criticality: Criticality::Critical, age_max: None, random };
//! // Called only to lead. It lives on when the client leaves, and so owns what it needs; it waits
//! // for its slot with `shield.criticality(&lead)`, and ends after `shield.leader_timeout()`.
//! let read = |row: Key| {
//!     move |_lead: Lead| -> Reading<Option<Bytes>, Failed> {
//!         Box::pin(async move {
//!             let value = store_get(namespace, row).await?;
//!             Ok(Fill {
//!                 bytes: value.as_ref().map_or(0, Bytes::len),
//!                 // That the key is absent is an answer too: it is kept for one second.
//!                 polarity: if value.is_some() { Polarity::Present } else { Polarity::Absent },
//!                 expires_at: None, // of the row, where it has one
//!                 value,
//!             })
//!         })
//!     }
//! };
//! // The caller bounds the waiting with the request's own deadline. `Cache-Control: no-cache` does
//! // not come here: it reads the store; `max-age` is `age_max`.
//! let served = shield.read(&key, &terms, &caller, read(row.clone())).await;
//! let served = served.ok().expect("the store answers");
//! assert_eq!(served.value.as_deref(), Some(&b"value"[..]));
//!
//! // The first page of a range. The detail is every selector that decides the answer, spelt out.
//! let selectors = b"prefix=photo/;reverse=0;limit=100;max_bytes=2097152;keys_only=0";
//! let range = shield.seed().key(namespace, Kind::Range, b"listing:17", selectors);
//! shield.count(&range, price);
//! // ... and `shield.read(&range, ...)` as above, with a page for a value.
//!
//! // A multi-get: hot keys from the cache, the others in one call of the store.
//! let rows = [row.clone(), Key::new("listing:18", "").unwrap()];
//! let mut missing = Vec::new();
//! for row in &rows {
//!     let key = shield.seed().row(namespace, row);
//!     shield.count(&key, price);
//!     match shield.look(&key, &terms, &caller) {
//!         Look::Hit { served, is_refresh_due } => {
//!             if is_refresh_due {
//!                 shield.refresh(&key, &terms, read(row.clone()));
//!             }
//!             drop(served); // into the answer
//!         }
//!         // The stamp is taken before the store is asked.
//!         Look::Cold | Look::Miss => missing.push((key, row, shield.stamp(&key))),
//!         Look::Blocked => {}
//!     }
//! }
//! for (key, row, stamp) in missing {
//!     let value = store_get(namespace, row.clone()).await.ok().flatten();
//!     let polarity = if value.is_some() { Polarity::Present } else { Polarity::Absent };
//!     let bytes = value.as_ref().map_or(0, Bytes::len);
//!     // Kept where the key is hot and nothing has been written meanwhile.
//!     shield.keep(&key, stamp, &Fill { value, bytes, polarity, expires_at: None }, &terms);
//! }
//!
//! // A write: from before the store is asked until it has answered, on every way out. Where the
//! // store runs an abandoned write to its end, the guard goes with the task that waits for it.
//! let write = shield.begin_write([Touched::Row(namespace, &row)]);
//! store_put(namespace, &row, Bytes::from_static(b"new")).await;
//! write.end(); // and only now the client is told
//!
//! // A range of rows, or all that a batch does to one partition.
//! let partition = PartitionKey::new("listing:17").unwrap();
//! drop(shield.begin_write([Touched::Partition(namespace, &partition)]));
//! # }
//! ```

mod callers;
mod coalesce;
mod decay;
mod detector;
mod hot_set;
mod key;
mod report;
mod ring;
mod shield;
mod sketch;
mod thread_slot;
mod workers;

pub use coalesce::board::{BoardTotals, FlightSettings};
pub use coalesce::cache::CacheSettings;
pub use coalesce::fill::{Fill, Payload, Polarity, Served, ShareError, Source};
pub use coalesce::flight::Lead;
pub use coalesce::generation::{Stamp, WriteGuard};
pub use coalesce::reads::{Reading, Solo, Spawner, Task, Terms};
pub use detector::{Heat, HotRule};
pub use hot_set::Standing;
pub use key::{KeyRef, KeySeed, Kind, ReadKey};
pub use report::{HotKeyReport, Report};
pub use shield::{LISTED_KEYS_MAX, Look, Settings, Shield, TooManyListed, Touched};
