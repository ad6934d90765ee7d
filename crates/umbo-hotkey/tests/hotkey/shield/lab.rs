//! A shield under simulated time, over a store that does as it is told.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use umbo_hotkey::{
    Fetched, FlightError, KeyKind, KeyRef, KeySeed, Lookup, ReadContext, Served, Shield,
    ShieldSettings, StoreRead,
};
use umbo_types::{CallerId, Key, NamespaceId, RequestUnits};

pub(crate) const NAMESPACE: NamespaceId = NamespaceId(1);

pub(crate) type Fault = &'static str;
pub(crate) type Answer = Result<Served<Option<Bytes>>, FlightError<Fault>>;

/// What the store does with a read.
#[derive(Debug, Clone, Default)]
pub(crate) enum Mood {
    /// Answers at once.
    #[default]
    Ready,
    /// Answers once a permit is there.
    Waiting(Arc<Semaphore>),
    /// Fails once a permit is there.
    Failing(Arc<Semaphore>),
    /// Panics once a permit is there.
    Panicking(Arc<Semaphore>),
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) rows: Mutex<HashMap<Key, Bytes>>,
    pub(crate) reads: AtomicU64,
    /// For the reads to come, in order; those beyond are answered at once.
    pub(crate) moods: Mutex<Vec<Mood>>,
    /// When all rows expire.
    pub(crate) expires_at: Mutex<Option<Instant>>,
}

pub(crate) struct Lab {
    pub(crate) shield: Arc<Shield<Option<Bytes>>>,
    pub(crate) store: Arc<Store>,
    pub(crate) now: Instant,
    pub(crate) caller: CallerId,
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name.to_owned(), "").unwrap()
}

pub(crate) fn settings() -> ShieldSettings {
    ShieldSettings::new(2, KeySeed::new(42))
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(settings())
    }

    pub(crate) fn with(settings: ShieldSettings) -> Self {
        Self::with_random(settings, 1 << 63)
    }

    /// Makes a lab in which every random number is this one.
    pub(crate) fn with_random(settings: ShieldSettings, random: u64) -> Self {
        let now = Instant::now();
        let spawner = |task| drop(tokio::spawn(task));
        Self {
            shield: Arc::new(Shield::new(
                settings,
                Box::new(spawner),
                Box::new(move || random),
                now,
            )),
            store: Arc::default(),
            now,
            caller: CallerId::new("shop"),
        }
    }

    pub(crate) fn put(&self, name: &str, value: impl Into<Bytes>) {
        let mut rows = self.store.rows.lock().unwrap();
        rows.insert(key(name), value.into());
    }

    pub(crate) fn reads(&self) -> u64 {
        self.store.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    /// Says what the store does with the reads to come; returns what lets them go on.
    pub(crate) fn moods(&self, moods: &[fn(Arc<Semaphore>) -> Mood]) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        let moods = moods.iter().map(|mood| mood(Arc::clone(&gate)));
        *self.store.moods.lock().unwrap() = moods.collect();
        gate
    }

    pub(crate) fn context(&self) -> ReadContext {
        ReadContext {
            now: self.now,
            price: RequestUnits::from_micros(1_000_000),
            age_max: None,
        }
    }

    /// Makes keys hot: counts reads of them and brings the hot set up to date.
    pub(crate) fn heat(&mut self, names: &[&str]) {
        for name in names {
            let row = key(name);
            let key = self.shield.seed().row(NAMESPACE, &row);
            for _ in 0..1_000 {
                self.shield.count(&key);
            }
        }
        self.pass(100);
        self.shield.tick(self.now);
    }

    pub(crate) fn lookup(&self, name: &str) -> Lookup<Option<Bytes>> {
        let row = key(name);
        let key = self.shield.seed().row(NAMESPACE, &row);
        self.shield
            .lookup(&key, &self.context(), self.caller.as_str())
    }

    /// Reads as a point get does.
    pub(crate) async fn get(&self, name: &str) -> Answer {
        self.get_on(name, self.context()).await
    }

    pub(crate) async fn get_on(&self, name: &str, context: ReadContext) -> Answer {
        let row = key(name);
        let key = self.shield.seed().row(NAMESPACE, &row);
        self.shield.count(&key);
        let read = read(&self.store, row.clone());
        read_through(&self.shield, &key, &context, &self.caller, read).await
    }

    /// Reads in a task of its own, and lets it get as far as it does.
    pub(crate) async fn client(&self, name: &str) -> tokio::task::JoinHandle<Answer> {
        self.client_on(name, self.context()).await
    }

    pub(crate) async fn client_on(
        &self,
        name: &str,
        context: ReadContext,
    ) -> tokio::task::JoinHandle<Answer> {
        let row = key(name);
        let (shield, caller) = (Arc::clone(&self.shield), self.caller.clone());
        let read = read(&self.store, row.clone());
        let client = tokio::spawn(async move {
            let key = shield.seed().row(NAMESPACE, &row);
            read_through(&shield, &key, &context, &caller, read).await
        });
        settle().await;
        client
    }

    /// Reads a range of one partition.
    pub(crate) async fn range(&self, name: &str, selectors: &[u8]) -> Answer {
        let row = key(name);
        let partition = row.partition.as_bytes();
        let key = self.range_key(partition, selectors);
        let read = read(&self.store, row.clone());
        read_through(&self.shield, &key, &self.context(), &self.caller, read).await
    }

    pub(crate) fn range_key<'a>(&self, partition: &'a [u8], selectors: &'a [u8]) -> KeyRef<'a> {
        let seed = self.shield.seed();
        seed.key(NAMESPACE, KeyKind::Range, partition, selectors)
    }
}

/// Reads as a dispatcher before a store that does not answer at once.
pub(crate) async fn read_through(
    shield: &Shield<Option<Bytes>>,
    key: &KeyRef<'_>,
    context: &ReadContext,
    caller: &CallerId,
    fetch: impl FnOnce() -> StoreRead<Option<Bytes>, Fault>,
) -> Answer {
    if let Lookup::Hit {
        served,
        is_refresh_due,
    } = shield.lookup(key, context, caller.as_str())
    {
        if is_refresh_due {
            shield.refresh(key, context, fetch);
        }
        return Ok(served);
    }
    shield.read(key, context, fetch).await
}

/// Lets all tasks get as far as they do.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Returns what reads the row from the store.
pub(crate) fn read(
    store: &Arc<Store>,
    row: Key,
) -> impl FnOnce() -> StoreRead<Option<Bytes>, Fault> + Send + 'static {
    let store = Arc::clone(store);
    move || {
        Box::pin(async move {
            store.reads.fetch_add(1, Ordering::Relaxed);
            let mood = {
                let mut moods = store.moods.lock().unwrap();
                if moods.is_empty() {
                    Mood::Ready
                } else {
                    moods.remove(0)
                }
            };
            let value = store.rows.lock().unwrap().get(&row).cloned();
            if let Mood::Waiting(gate) | Mood::Failing(gate) | Mood::Panicking(gate) = &mood {
                gate.acquire().await.unwrap().forget();
            }
            match mood {
                Mood::Failing(_) => return Err("the store failed"),
                Mood::Panicking(_) => panic!("on purpose"),
                Mood::Ready | Mood::Waiting(_) => {}
            }
            Ok(Fetched {
                bytes: value.as_ref().map_or(0, Bytes::len),
                is_found: value.is_some(),
                value,
                expires_at: *store.expires_at.lock().unwrap(),
            })
        })
    }
}
