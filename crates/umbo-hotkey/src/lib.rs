//! Hot keys: a stampede on one key never reaches its shard.
//!
//! Owns five things. The **sketch** finds the keys that are read most, in constant space ([`HotRule`]). The **local
//! cache** holds results of hot keys for about three seconds ([`CacheSettings`]). **Single-flight** lets all
//! simultaneous reads of one key share one read of the store ([`FlightSettings`]). **Generations** see to it that a
//! dispatcher reads its own writes ([`WriteGuard`]). [`Shield`] puts these four together. Apart from it, a second
//! sketch names the **sources** of each shard's busy time, also of writes and scans ([`BusySources`]).
//!
//! Deliberately knows nothing of HTTP, stores and engines, and reads no clock: time comes with each
//! call ([`ReadContext`]), so that all of it runs under a simulated one. Tasks are started through the
//! [`Spawner`] that the owner passes in; the crate has no runtime.
//!
//! What always holds:
//! - keys are compared whole, never by hash alone ([`KeyRef`]);
//! - a result that was read before a write through this dispatcher ended is never served after it;
//! - a flight asks the store once; if its leader fails, panics or is ended, each follower is told to read again, and no
//!   follower waits for a read that no task makes;
//! - errors are not cached, and nothing is served beyond its time to live;
//! - every table, queue and buffer has a bound.
//!
//! # In a dispatcher
//!
//! One [`Shield`] a dispatcher; one task calls [`Shield::tick`] every 100 ms. Then, for each read:
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Instant;
//! # use bytes::Bytes;
//! # use umbo_hotkey::{
//! #     Fetched, FlightError, KeySeed, KeyKind, Lookup, ReadContext, ShieldSettings, Shield, Standing,
//! #     StoreRead, WriteScope,
//! # };
//! # use umbo_types::{CallerId, Key, NamespaceId, PartitionKey, RequestUnits};
//! # #[derive(Clone)]
//! # struct Failed;
//! # async fn store_get(_: NamespaceId, _: Key) -> Result<Option<Bytes>, Failed> {
//! #     Ok(Some(Bytes::from_static(b"value")))
//! # }
//! # async fn store_put(_: NamespaceId, _: &Key, _: Bytes) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let now = Instant::now();
//! # let seed = KeySeed::new(1);
//! # let price = RequestUnits::from_micros(1_000_000);
//! # let caller = CallerId::new("shop");
//! # let namespace = NamespaceId(7);
//! # let store_answers_at_once = false;
//! // When the dispatcher opens. The seed is random.
//! let spawner = Box::new(|task| drop(tokio::spawn(task)));
//! let random = Box::new(|| 4); // a random number
//! type Value = Option<Bytes>;
//! let shield = Shield::<Value>::new(ShieldSettings::new(2, seed), spawner, random, now);
//!
//! // A point get. A block is checked before anything is charged, everything else after.
//! let row = Key::new("listing:17", "").unwrap();
//! let key = shield.seed().row(namespace, &row);
//! assert_ne!(shield.standing(&key), Some(Standing::Blocked));
//! shield.count(&key);
//! // Called only to lead. The read lives on when the client leaves, and so owns its data. It ends after
//! // `shield.leader_timeout()`.
//! let fetch = |row: Key| {
//!     move || -> StoreRead<Value, Failed> {
//!         Box::pin(async move {
//!             let value = store_get(namespace, row).await?;
//!             Ok(Fetched {
//!                 bytes: value.as_ref().map_or(0, Bytes::len),
//!                 // That nothing is found is a result too: it is cached for one second.
//!                 is_found: value.is_some(),
//!                 expires_at: None, // of the row, if it expires
//!                 value,
//!             })
//!         })
//!     }
//! };
//! let context = ReadContext { now, price, age_max: None };
//! // `Cache-Control: no-cache` does not come here: it reads the store; `max-age` is `age_max`.
//! let value = match shield.lookup(&key, &context, caller.as_str()) {
//!     Lookup::Hit { served, is_refresh_due } => {
//!         if is_refresh_due {
//!             shield.refresh(&key, &context, fetch(row.clone()));
//!         }
//!         served.value
//!     }
//!     // The read is nearly over: no other read has to be waited for.
//!     Lookup::Cold if store_answers_at_once => store_get(namespace, row.clone()).await.ok().flatten(),
//!     Lookup::Cold | Lookup::Miss => {
//!         match shield.read(&key, &context, fetch(row.clone())).await {
//!             Ok(served) => served.value,
//!             Err(FlightError::LeaderFailed) => store_get(namespace, row.clone()).await.ok().flatten(),
//!             Err(_) => panic!("the store fails, or too many requests wait"),
//!         }
//!     }
//!     Lookup::Blocked => None,
//! };
//! assert_eq!(value.as_deref(), Some(&b"value"[..]));
//!
//! // The first page of a range has every selector that decides the result in its key.
//! let selectors = b"prefix=photo/;reverse=0;limit=100;max_bytes=2097152;keys_only=0";
//! let range = shield.seed().key(namespace, KeyKind::Range, b"listing:17", selectors);
//! shield.count(&range);
//! // ... and as above, with a page for a value.
//!
//! // A multi-get looks up each key; hot ones are read as above, all others in one call of the store.
//!
//! // A write: from before the store is asked until it has answered, on every way out. Where the
//! // store runs an abandoned write to its end, the guard goes with the task that waits for it.
//! let write = shield.begin_write([WriteScope::Row(namespace, &row)]);
//! store_put(namespace, &row, Bytes::from_static(b"new")).await;
//! write.end(); // and only now the client is told
//!
//! // A range of rows, or all that a batch does to one partition.
//! let partition = PartitionKey::new("listing:17").unwrap();
//! drop(shield.begin_write([WriteScope::Partition(namespace, &partition)]));
//! # }
//! ```

mod busy;
mod callers;
mod coalesce;
mod detector;
mod hot_set;
mod key;
mod read_counts;
mod report;
mod shield;
mod sketch;
mod source;

pub use busy::BusySources;
pub use busy::past::{BusyShard, BusySlot, BusySource};
pub use coalesce::fetched::{AnswerSource, Fetched, FlightError, Payload, Served};
pub use coalesce::generation::WriteGuard;
pub use coalesce::in_flight::{FlightSettings, FlightTotals, ReadContext};
pub use coalesce::local_cache::CacheSettings;
pub use coalesce::shared_reads::{RandomSource, Spawner, StoreRead, Task};
pub use detector::{Heat, HotRule};
pub use hot_set::Standing;
pub use key::{KeyHasher, KeyKind, KeyRef, KeySeed, ReadKey};
pub use report::{HotKeyReport, Report};
pub use shield::{LISTED_KEYS_MAX, Lookup, Shield, ShieldSettings, TooManyListed, WriteScope};
pub use source::{CallSource, majority};
