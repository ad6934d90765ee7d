//! The detection of a pod: what counts, and what is hot.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use umbo_hotkey::{KeyKind, KeyRef, KeySeed, ReadKey, Shield, ShieldSettings, Standing};
use umbo_types::NamespaceId;

/// Between two merges.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Threads that serve requests.
pub(super) const THREADS: usize = 4;

/// A pod's detection.
pub(super) struct SimulatedDispatcher {
    pub(super) shield: Shield<()>,
    threads: usize,
    pub(super) now: Instant,
}

impl SimulatedDispatcher {
    pub(super) fn new(seed: u64, threads: usize) -> Self {
        let now = Instant::now();
        let settings = ShieldSettings::new(threads, KeySeed::new(seed));
        Self {
            shield: Shield::new(settings, Box::new(drop), Box::new(|| 0), now),
            threads,
            now,
        }
    }

    fn with_key<T>(&self, number: u64, use_key: impl FnOnce(&KeyRef<'_>) -> T) -> T {
        let partition = number.to_be_bytes();
        let seed = self.shield.seed();
        use_key(&seed.key(NamespaceId(1), KeyKind::Row, &partition, b""))
    }

    /// Counts reads on all threads, which live at the same time.
    pub(super) fn count(&self, reads: &[u64]) {
        let part = reads.len().div_ceil(self.threads).max(1);
        let parts = reads.chunks(part);
        let all = &Barrier::new(parts.len());
        thread::scope(|scope| {
            let threads = parts.map(|reads| {
                scope.spawn(move || {
                    for &number in reads {
                        self.with_key(number, |key| self.shield.count(key));
                    }
                    all.wait();
                })
            });
            // Joined, they have given their sketches back, so that the next ones take these and no others.
            for thread in threads.collect::<Vec<_>>() {
                thread.join().expect("counting does not panic");
            }
        });
    }

    pub(super) fn tick(&mut self) {
        self.now += TICK;
        self.shield.tick(self.now);
    }

    pub(super) fn is_hot(&self, number: u64) -> bool {
        self.with_key(number, |key| self.shield.standing(key)) == Some(Standing::Hot)
    }
}

/// Returns the number of a key.
pub(super) fn number_of(key: &ReadKey) -> u64 {
    let bytes = key.borrow().partition().try_into();
    u64::from_be_bytes(bytes.expect("keys of this check have eight bytes"))
}
