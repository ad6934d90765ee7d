//! How long calls of each shard took in the last seconds, as their dispatcher sees it: the work of the store and the way
//! to it, without the queue of the dispatcher.
//!
//! Hot path: a call costs one atomic addition. Once a second the counts are copied, so that quantiles are of the last
//! five seconds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use umbo_types::ShardId;

use super::buckets::{self, BUCKETS};

/// Seconds whose calls count.
const SECONDS: usize = 5;

type Counts<T> = Box<[[T; BUCKETS]]>;

/// Quantiles of the calls of some shards, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallLatency {
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Number of calls and 99th percentile of each second, oldest first; seconds without calls are left out.
    pub seconds: Vec<(f64, f64)>,
}

/// The calls of all shards.
#[derive(Debug)]
pub struct ShardLatencies {
    /// Since the start, by shard and bucket.
    counts: Counts<AtomicU64>,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// The counts at the end of the newest second.
    before: Counts<u64>,
    /// By second, oldest first.
    seconds: VecDeque<Counts<u64>>,
}

impl ShardLatencies {
    /// Begins with `shards` shards without calls.
    pub fn new(shards: usize) -> Self {
        let zeros = |_| std::array::from_fn(|_| AtomicU64::default());
        Self {
            counts: (0..shards).map(zeros).collect(),
            past: Mutex::new(Past {
                before: (0..shards).map(|_| [0; BUCKETS]).collect(),
                seconds: VecDeque::new(),
            }),
        }
    }

    /// Records a call.
    #[inline]
    pub fn record(&self, shard: ShardId, elapsed: Duration) {
        if let Some(counts) = self.counts.get(usize::from(shard.0)) {
            counts[buckets::bucket(buckets::nanos(elapsed))].fetch_add(1, Relaxed);
        }
    }

    /// Ends a second.
    pub fn end_second(&self) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        if past.seconds.len() == SECONDS {
            past.seconds.pop_front();
        }
        let grown = self.counts.iter().zip(&mut past.before);
        let grown = grown.map(|(now, before)| {
            std::array::from_fn(|bucket| {
                let now = now[bucket].load(Relaxed);
                now.wrapping_sub(std::mem::replace(&mut before[bucket], now))
            })
        });
        let grown = grown.collect();
        past.seconds.push_back(grown);
    }

    /// Returns the latency of some shards together, or `None` without calls in the last seconds.
    pub fn of(&self, shards: &[ShardId]) -> Option<CallLatency> {
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = [0.0; BUCKETS];
        let mut seconds = Vec::new();
        for second in &past.seconds {
            let mut own = [0.0; BUCKETS];
            for counts in (shards.iter()).filter_map(|shard| second.get(usize::from(shard.0))) {
                for ((own, all), count) in own.iter_mut().zip(&mut all).zip(counts) {
                    *own += buckets::as_f64(*count);
                    *all += buckets::as_f64(*count);
                }
            }
            let p99 = buckets::quantile(&own, 0.99);
            seconds.extend(p99.map(|nanos| (own.iter().sum(), nanos / 1e6)));
        }
        let millis = |part| Some(buckets::quantile(&all, part)? / 1e6);
        Some(CallLatency {
            p50_ms: millis(0.5)?,
            p99_ms: millis(0.99)?,
            seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_last_seconds_and_of_the_shards_asked_for() {
        let latencies = ShardLatencies::new(2);
        let (one, other) = (ShardId(0), ShardId(1));
        let slow = Duration::from_millis(200);
        for _ in 0..100 {
            latencies.record(one, Duration::from_millis(1));
            latencies.record(other, slow);
        }
        latencies.record(ShardId(7), slow);
        assert_eq!(
            latencies.of(&[one, other]),
            None,
            "the second has not ended"
        );
        latencies.end_second();
        let fast = latencies.of(&[one]).unwrap();
        assert!((0.5..2.0).contains(&fast.p50_ms), "{fast:?}");
        let both = latencies.of(&[one, other]).unwrap();
        assert!((100.0..300.0).contains(&both.p99_ms), "{both:?}");
        assert_eq!(both.seconds.len(), 1);
        assert!((both.seconds[0].0 - 200.0).abs() < 1e-9);
        assert_eq!(latencies.of(&[ShardId(7)]), None);
        for _ in 0..SECONDS {
            assert!(latencies.of(&[other]).is_some());
            latencies.end_second();
        }
        assert_eq!(latencies.of(&[one, other]), None);
    }
}
