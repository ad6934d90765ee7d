//! Detection under simulated time, against exact decayed counts of every key.

use std::collections::{BTreeSet, HashMap};
use std::sync::Barrier;

use umbo_types::RequestUnits;

use super::*;

const TICK: Duration = Duration::from_millis(100);
const KEYS: u64 = 1_000_000;

/// A sequence of random numbers (`SplitMix64`: Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Keys by popularity.
struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    fn new(exponent: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=KEYS).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        let mut cumulative: Vec<f64> = weights.collect();
        for share in &mut cumulative {
            *share /= sum;
        }
        Self { cumulative }
    }

    fn key(&self, random: &mut Random) -> u64 {
        let share = random.share();
        self.cumulative.partition_point(|&at| at <= share) as u64
    }

    fn share(&self, key: u64) -> f64 {
        let before = key
            .checked_sub(1)
            .map_or(0.0, |k| self.cumulative[k as usize]);
        self.cumulative
            .get(key as usize)
            .map_or(0.0, |at| at - before)
    }
}

fn hash(key: u64) -> u64 {
    Random(key ^ 0xABCD).next().max(1)
}

/// The detection of a dispatcher of two threads, with its exact twin if a test needs it.
struct TestDispatcher {
    counts: ReadCounts,
    /// Reads that the threads have still to count.
    waiting: [Vec<u64>; 2],
    detector: Detector,
    now: Instant,
    random: Random,
    /// Whether the reads of every key are followed exactly, which costs most of the time of a test.
    has_twin: bool,
    /// Decayed reads of every key, and seconds, in units of a read counted now.
    exact: HashMap<u64, f64>,
    interval: HashMap<u64, f64>,
    seconds: f64,
}

impl TestDispatcher {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            counts: ReadCounts::new(2),
            waiting: [Vec::new(), Vec::new()],
            detector: Detector::new(HotRule::default(), now),
            now,
            random: Random(5),
            has_twin: true,
            exact: HashMap::new(),
            interval: HashMap::new(),
            seconds: 0.0,
        }
    }

    fn read(&mut self, key: u64) {
        let thread = (self.random.next() % 2) as usize;
        self.waiting[thread].push(hash(key));
        if self.has_twin {
            *self.interval.entry(key).or_default() += 1.0;
        }
    }

    /// Counts the waiting reads, on two threads that live at the same time.
    fn count(&mut self) {
        let (counts, both) = (&self.counts, Barrier::new(2));
        std::thread::scope(|scope| {
            for reads in &mut self.waiting {
                let both = &both;
                scope.spawn(move || {
                    reads.drain(..).for_each(|hash| counts.count(hash));
                    both.wait();
                });
            }
        });
    }

    fn run(&mut self) -> Option<Vec<Arc<HotKey>>> {
        self.count();
        let known = HotSet::default();
        self.detector.run(&self.counts, &known, self.now)
    }

    fn tick(&mut self) {
        let share = self.detector.rule.decay(TICK);
        self.exact.values_mut().for_each(|reads| *reads *= share);
        self.exact.retain(|_, reads| *reads > 1e-3);
        for (key, reads) in self.interval.drain() {
            *self.exact.entry(key).or_default() += reads;
        }
        self.seconds = self.seconds * share + TICK.as_secs_f64();
        self.now += TICK;
        self.run().unwrap();
    }

    fn is_hot(&self, key: u64) -> bool {
        let mut hot = self.detector.hot.iter();
        hot.any(|tracked| tracked.key.hash == hash(key))
    }

    /// Keys whose exact decayed rate is at or above the threshold.
    fn exactly_hot(&self) -> BTreeSet<u64> {
        let total: f64 = self.exact.values().sum();
        let threshold = 200_f64.max(0.01 * total / self.seconds);
        let rates = self
            .exact
            .iter()
            .map(|(key, reads)| (key, reads / self.seconds));
        let hot = rates.filter(|(_, rate)| *rate >= threshold);
        hot.map(|(key, _)| hash(*key)).collect()
    }

    /// Keys that the detector finds at or above the threshold.
    fn found_hot(&self) -> BTreeSet<u64> {
        let (_, threshold) = self.detector.rates();
        let above = self
            .detector
            .hot
            .iter()
            .filter(|t| t.heat.rate >= threshold);
        above.map(|tracked| tracked.key.hash).collect()
    }
}

/// Keys under attack are numbered from here, and those of a flood.
const ATTACKED: u64 = 2 * KEYS;
const FLOOD: u64 = 3 * KEYS;

/// Reads for `seconds`. Keys under `attack` have these shares of all reads; of the others a share of `flood` is of keys
/// never read before or after. Returns (hot and found, hot, found), summed over the ticks after the first second.
fn agree(exponent: f64, flood: f64, attack: &[f64], seconds: u64) -> (usize, usize, usize) {
    let zipf = Zipf::new(exponent);
    let mut pod = TestDispatcher::new();
    let mut random = Random(9);
    let mut fresh = FLOOD;
    let (mut both, mut hot, mut found) = (0, 0, 0);
    for tick in 0..seconds * 10 {
        for _ in 0..5_000 {
            let mut share = random.share();
            let attacked = (ATTACKED..).zip(attack).find(|(_, part)| {
                share -= **part;
                share < 0.0
            });
            let key = if let Some((key, _)) = attacked {
                key
            } else if random.share() < flood {
                fresh += 1;
                fresh
            } else {
                zipf.key(&mut random)
            };
            pod.read(key);
        }
        pod.tick();
        if tick < 11 {
            continue;
        }
        let (exactly, as_found) = (pod.exactly_hot(), pod.found_hot());
        both += exactly.intersection(&as_found).count();
        hot += exactly.len();
        found += as_found.len();
        // Whatever is kept hot by its past is not far from it.
        for key in 0..2_000 {
            let share = zipf.share(key) * (1.0 - flood);
            assert!(!pod.is_hot(key) || share > 0.004, "{key} has {share}");
        }
    }
    (both, hot, found)
}

#[test]
fn what_is_hot_is_found_and_nothing_else_among_a_million_keys() {
    // Just above and just below one in a hundred, and far above.
    let attack: &[f64] = &[0.008, 0.009, 0.011, 0.012, 0.015, 0.05, 0.1];
    for (exponent, flood, attack, has_hot) in [
        (0.6, 0.0, &[][..], false),
        (0.6, 0.9, attack, true),
        (0.8, 0.0, &[], true),
        (0.8, 0.5, attack, true),
        (1.0, 0.0, &[], true),
        (1.0, 0.0, attack, true),
        (1.0, 0.5, &[], true),
        (1.2, 0.0, &[], true),
        (1.2, 0.5, &[], true),
        (1.2, 0.9, attack, true),
    ] {
        let (both, hot, found) = agree(exponent, flood, attack, 3);
        let what = format!("zipf {exponent}, flood {flood}: {both} of {hot}, found {found}");
        assert_eq!(both, hot, "recall: {what}");
        assert!(both as f64 >= 0.99 * found as f64, "precision: {what}");
        assert_eq!(hot > 0, has_hot, "{what}");
    }
}

/// Reads `base` keys a second of a wide space, and one key at `rate` from `from` to `to`
/// milliseconds; returns when it became hot and when it cooled, in milliseconds from those.
fn hot_and_cool(base: u64, rate: f64, from: u64, to: u64) -> (u64, u64) {
    const HOT: u64 = 1;
    let mut pod = TestDispatcher::new();
    pod.has_twin = false;
    let mut random = Random(31);
    let (mut owed, mut hot_at, mut cool_at) = (0.0, None, None);
    for millis in 1..=to + 6_000 {
        for _ in 0..base / 1_000 {
            let key = 2 + random.next() % KEYS;
            pod.read(key);
        }
        if (from..to).contains(&millis) {
            // As irregular as arrivals are.
            owed += rate / 1_000.0 * 2.0 * random.share();
            while owed >= 1.0 {
                owed -= 1.0;
                pod.read(HOT);
            }
        }
        if millis % 100 == 0 {
            pod.tick();
            if pod.is_hot(HOT) {
                hot_at = hot_at.or(Some(millis));
                assert!(cool_at.is_none(), "hot again");
            } else if hot_at.is_some() {
                cool_at = cool_at.or(Some(millis));
            }
        }
    }
    (hot_at.unwrap() - from, cool_at.unwrap() - to)
}

#[test]
fn a_key_is_hot_within_200_ms_and_cool_within_5_s() {
    for (base, rate) in [
        (1_000, 700.0),
        (1_000, 50_000.0),
        (20_000, 700.0),
        (50_000, 1_500.0),
        (50_000, 50_000.0),
    ] {
        // In the middle of an interval, at its end and at its beginning.
        for from in [5_050, 5_099, 5_001] {
            let (hot_after, cool_after) = hot_and_cool(base, rate, from, from + 3_000);
            let what = format!("{rate}/s among {base}/s from {from} ms");
            assert!(hot_after <= 200, "{what}: hot after {hot_after} ms");
            assert!(cool_after <= 5_000, "{what}: cool after {cool_after} ms");
        }
    }
}

#[test]
fn a_fresh_pod_finds_a_stampede_at_its_first_tick() {
    let mut pod = TestDispatcher::new();
    for read in 0..10_000 {
        pod.read(read % 10);
    }
    pod.tick();
    assert!((0..10).all(|key| pod.is_hot(key)));
}

#[test]
fn a_key_below_the_absolute_rate_stays_cold_however_large_its_share() {
    let mut pod = TestDispatcher::new();
    for _ in 0..100 {
        for read in 0..15 {
            pod.read(read % 2);
        }
        pod.tick();
    }
    // 75 reads a second each, half of all.
    assert!(pod.detector.hot.is_empty(), "{:?}", pod.detector.hot);
}

#[test]
fn heat_is_told_with_its_bounds() {
    let mut pod = TestDispatcher::new();
    for _ in 0..100 {
        for read in 0..200 {
            pod.read(read % 4);
        }
        for tracked in &pod.detector.hot {
            // As 50 reads that cost 20 request units.
            let price = RequestUnits::from_micros(20_000_000);
            tracked.key.record_read("shop", price);
        }
        pod.tick();
    }
    assert_eq!(pod.detector.hot.len(), 4);
    for tracked in &pod.detector.hot {
        let Heat {
            rate,
            rate_error,
            rate_now,
            units_rate,
        } = tracked.heat;
        assert!((rate - 500.0).abs() < 1.0, "{rate}");
        assert!((rate_now - 500.0).abs() < 1.0, "{rate_now}");
        assert!(rate_error < 1.0, "{rate_error}");
        assert!((units_rate - 200.0).abs() < 1.0, "{units_rate}");
    }
    let (reads_rate, threshold) = pod.detector.rates();
    assert!((reads_rate - 2_000.0).abs() < 5.0, "{reads_rate}");
    assert!((threshold - 200.0).abs() < 1e-9);
}

#[test]
fn there_are_never_more_hot_keys_than_may_be_and_the_hottest_stay() {
    let mut pod = TestDispatcher::new();
    pod.detector.rule.keys_max = 10;
    for round in 0..50_u64 {
        // The attack moves on all the time, but for one key.
        for read in 0..5_000 {
            pod.read(if read % 5 == 0 {
                0
            } else {
                1 + (round * 40 + read % 40)
            });
        }
        pod.tick();
        assert!(pod.detector.hot.len() <= 10);
        assert!(pod.is_hot(0));
    }
}

#[test]
fn no_reads_are_a_rate_of_zero_and_not_of_its_negative() {
    let now = Instant::now();
    let mut detector = Detector::new(HotRule::default(), now);
    // No thread has counted anything.
    detector.run(&ReadCounts::new(2), &HotSet::default(), now + TICK);
    assert_eq!(detector.rates().0.to_string(), "0");
}

#[test]
fn a_detector_that_was_not_run_for_long_goes_on() {
    let mut pod = TestDispatcher::new();
    for _ in 0..1_000 {
        pod.read(1);
    }
    pod.tick();
    assert!(pod.is_hot(1));
    pod.now += Duration::from_hours(24);
    pod.run().unwrap();
    assert!(!pod.is_hot(1));
    for _ in 0..1_000 {
        pod.read(2);
    }
    pod.tick();
    assert!(pod.is_hot(2));
    assert!(pod.run().is_none());
}
