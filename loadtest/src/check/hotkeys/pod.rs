//! A pod in simulated time: the shield before a store that notes who reads it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use umbo_hotkey::{
    Fetched, KeyKind, KeyRef, KeySeed, Lookup, ReadContext, Shield, ShieldSettings, StoreRead,
};
use umbo_types::{CallerId, NamespaceId, RequestUnits};

use super::runner::{Agenda, Runner};
use crate::random::Random;

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;
/// Between two merges of the sketches.
const TICK_NS: u64 = SECOND_NS / 10;
/// Length of a value, in bytes.
const VALUE_LEN: usize = 256;

/// What a pod is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stampede {
    pub(super) seed: u64,
    pub(super) seconds: u64,
    /// Keys of the stampede.
    pub(super) keys: u64,
    /// Reads a second, of all keys.
    pub(super) rate: u64,
    /// Reads that come at one instant.
    pub(super) burst: u64,
    /// Share of reads that are of other keys, and how many of those there are.
    pub(super) cold: f64,
    pub(super) cold_keys: u64,
    /// Mean time of the store, exponential; at 0 it answers at once, as one in the same process.
    pub(super) store_ns: u64,
    /// Whether the keys of the stampede are absent.
    pub(super) are_absent: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Reads of the keys of the stampede.
    pub(super) wanted: u64,
    /// Of those, the reads of the store once the key was hot.
    pub(super) store_reads: u64,
    /// The reads of the store before that.
    pub(super) undetected: u64,
    /// Reads that were not answered, or with what is not under their key.
    pub(super) errors: u64,
    /// Reads that still wait long after the last one.
    pub(super) stuck: u64,
}

/// What a read needs.
struct SimulatedDispatcher {
    shield: Shield<u64>,
    agenda: Agenda,
    caller: CallerId,
    origin: Instant,
    stampede: Stampede,
    store_reads: AtomicU64,
    undetected: AtomicU64,
    errors: AtomicU64,
}

impl Stampede {
    /// Lets it happen.
    pub(super) fn run(self) -> Outcome {
        let mut random = Random::seeded(self.seed);
        let mut runner = Runner::new();
        let pod = Arc::new(SimulatedDispatcher::open(
            self,
            random.next(),
            runner.agenda(),
        ));
        let mut wanted = 0;
        let mut ticked_ns = 0;
        let bursts = self.seconds * self.rate / self.burst;
        for burst in 0..bursts {
            let now_ns = burst * self.burst * SECOND_NS / self.rate;
            while ticked_ns + TICK_NS <= now_ns {
                ticked_ns += TICK_NS;
                runner.advance(ticked_ns);
                pod.shield.tick(pod.instant(ticked_ns));
            }
            runner.advance(now_ns);
            for _ in 0..self.burst {
                let is_cold = random.unit() < self.cold;
                let key = if is_cold {
                    self.keys + random.below(self.cold_keys)
                } else {
                    random.below(self.keys)
                };
                wanted += u64::from(!is_cold);
                let (pod, random) = (Arc::clone(&pod), random.next());
                runner.run(Box::pin(
                    async move { pod.serve(key, now_ns, random).await },
                ));
            }
        }
        runner.advance((self.seconds + 60) * SECOND_NS);
        Outcome {
            wanted,
            store_reads: pod.store_reads.load(Relaxed),
            undetected: pod.undetected.load(Relaxed),
            errors: pod.errors.load(Relaxed),
            stuck: runner.waiting() as u64,
        }
    }

    /// Returns what the store may be asked at most in so many seconds: a read a key and time to live,
    /// and a twentieth.
    pub(super) fn reads_max(&self, seconds: u64) -> f64 {
        let ttl_s = if self.are_absent { 1 } else { 3 };
        self.keys as f64 * seconds.div_ceil(ttl_s) as f64 * 1.05
    }
}

impl SimulatedDispatcher {
    fn open(stampede: Stampede, seed: u64, agenda: Agenda) -> Self {
        let origin = Instant::now();
        let tasks = agenda.clone();
        let spawner = Box::new(move |task| tasks.start(task));
        let settings = ShieldSettings::new(64, KeySeed::new(seed));
        let random = Mutex::new(Random::seeded(seed));
        let jitter = Box::new(move || random.lock().expect("nothing panics").next());
        Self {
            shield: Shield::new(settings, spawner, jitter, origin),
            agenda,
            caller: CallerId::new("everybody"),
            origin,
            stampede,
            store_reads: AtomicU64::new(0),
            undetected: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }

    fn instant(&self, at_ns: u64) -> Instant {
        self.origin + Duration::from_nanos(at_ns)
    }

    fn key<'a>(&self, partition: &'a [u8]) -> KeyRef<'a> {
        let seed = self.shield.seed();
        seed.key(NamespaceId(1), KeyKind::Row, partition, b"")
    }

    /// Serves a read as a dispatcher does.
    async fn serve(self: Arc<Self>, number: u64, now_ns: u64, random: u64) {
        let partition = number.to_be_bytes();
        let key = self.key(&partition);
        self.shield.count(&key);
        let context = ReadContext {
            now: self.instant(now_ns),
            price: RequestUnits::from_micros(1_000_000),
            age_max: None,
        };
        let pod = Arc::clone(&self);
        let fetch = move || -> StoreRead<u64, ()> {
            Box::pin(async move { Ok(pod.fetch(number, random).await) })
        };
        let answers_at_once = self.stampede.store_ns == 0;
        let value = match self.shield.lookup(&key, &context, self.caller.as_str()) {
            Lookup::Hit {
                served,
                is_refresh_due,
            } => {
                if is_refresh_due {
                    self.shield.refresh(&key, &context, fetch);
                }
                Some(served.value)
            }
            Lookup::Cold if answers_at_once => Some(self.fetch(number, random).await.value),
            Lookup::Cold | Lookup::Miss => {
                let served = self.shield.read(&key, &context, fetch).await;
                served.ok().map(|served| served.value)
            }
            Lookup::Blocked => None,
        };
        if value != Some(number) {
            self.errors.fetch_add(1, Relaxed);
        }
    }

    /// The store.
    async fn fetch(&self, number: u64, random: u64) -> Fetched<u64> {
        let is_wanted = number < self.stampede.keys;
        let partition = number.to_be_bytes();
        let key = self.key(&partition);
        if is_wanted && self.shield.standing(&key).is_none() {
            self.undetected.fetch_add(1, Relaxed);
        } else if is_wanted {
            self.store_reads.fetch_add(1, Relaxed);
        }
        if self.stampede.store_ns > 0 {
            let share = Random::seeded(random).exponential();
            let length_ns = self.stampede.store_ns as f64 * share;
            self.agenda.sleep(length_ns as u64).await;
        }
        Fetched {
            value: number,
            bytes: VALUE_LEN,
            is_found: !(is_wanted && self.stampede.are_absent),
            expires_at: None,
        }
    }
}
