//! The limit against stores with a known knee, simulated: `workers` serve, the others wait for them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// A store, and a queue in which a request always waits.
struct Store {
    limit: ConcurrencyLimit,
    workers: u32,
    /// How much slower than usual it is.
    slowness: f64,
    draw: Draw,
    random: u64,
    begun: Instant,
    now_ns: u64,
    /// Ends of those that are worked on, with when they were issued a permit.
    busy: BinaryHeap<Reverse<(u64, u64)>>,
    /// When those who wait for a worker were issued a permit.
    crowd: VecDeque<u64>,
    served: u64,
    operation: Operation,
}

fn unit(random: &mut u64) -> f64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// All in milliseconds, about one on average.
fn even(_: &mut u64) -> f64 {
    1.0
}
fn uniform(random: &mut u64) -> f64 {
    0.5 + unit(random)
}
fn exponential(random: &mut u64) -> f64 {
    -(1.0 - unit(random)).ln()
}
fn bimodal(random: &mut u64) -> f64 {
    if unit(random) < 0.02 { 25.0 } else { 0.5 }
}
fn heavy(random: &mut u64) -> f64 {
    (0.4 * (1.0 - unit(random)).powf(-1.0 / 1.6)).min(100.0)
}

impl Store {
    fn new(workers: u32, initial: u32, draw: Draw) -> Self {
        let settings = LimitSettings {
            initial,
            ..LimitSettings::default()
        };
        Self {
            limit: ConcurrencyLimit::new(settings),
            workers,
            slowness: 1.0,
            draw,
            random: 7,
            begun: Instant::now(),
            now_ns: 0,
            busy: BinaryHeap::new(),
            crowd: VecDeque::new(),
            served: 0,
            operation: Operation::Get,
        }
    }

    fn service_ns(&mut self) -> u64 {
        ((self.draw)(&mut self.random) * self.slowness * 1e6) as u64
    }

    /// Serves without a crowd, so that the limit learns what is usual.
    fn warm(mut self) -> Self {
        for _ in 0..2_000 {
            let service = Duration::from_nanos(self.service_ns());
            self.limit.calm(self.operation, service);
        }
        self
    }

    fn fill(&mut self) {
        while ((self.busy.len() + self.crowd.len()) as u32) < self.limit.permits() {
            self.crowd.push_back(self.now_ns);
        }
        while (self.busy.len() as u32) < self.workers
            && let Some(granted_ns) = self.crowd.pop_front()
        {
            let end_ns = self.now_ns + self.service_ns();
            self.busy.push(Reverse((end_ns, granted_ns)));
        }
    }

    /// Runs for a time; returns the mean of the permits and requests a second.
    fn run(&mut self, seconds: f64) -> (f64, f64) {
        let (from_ns, served) = (self.now_ns, self.served);
        let end_ns = from_ns + (seconds * 1e9) as u64;
        let mut permits = 0.0;
        while self.now_ns < end_ns {
            self.fill();
            let Reverse((at_ns, granted_ns)) = self.busy.pop().unwrap();
            permits += f64::from(self.limit.permits()) * (at_ns - self.now_ns) as f64;
            self.now_ns = at_ns;
            self.served += 1;
            let took = Duration::from_nanos(at_ns - granted_ns);
            let now = self.begun + Duration::from_nanos(at_ns);
            self.limit.full(self.operation, took, now);
        }
        let elapsed = (self.now_ns - from_ns) as f64;
        (
            permits / elapsed,
            (self.served - served) as f64 / elapsed * 1e9,
        )
    }

    /// Returns what it serves with all workers busy, in requests a second.
    fn rate_max(&self) -> f64 {
        let mut random = 99;
        let drawn: f64 = (0..200_000).map(|_| (self.draw)(&mut random)).sum();
        f64::from(self.workers) * 1e3 / (drawn / 200_000.0 * self.slowness)
    }

    /// The store does nothing for a while, and then serves what it was about to.
    fn sleep(&mut self, seconds: f64) {
        self.fill();
        let pause_ns = (seconds * 1e9) as u64;
        let busy = std::mem::take(&mut self.busy).into_vec();
        let later = busy
            .into_iter()
            .map(|Reverse((end_ns, granted_ns))| Reverse((end_ns + pause_ns, granted_ns)));
        self.busy = later.collect();
        self.now_ns += pause_ns;
    }
}

type Draw = fn(&mut u64) -> f64;

const DRAWS: [(&str, Draw); 5] = [
    ("even", even),
    ("uniform", uniform),
    ("exponential", exponential),
    ("bimodal", bimodal),
    ("heavy", heavy),
];

#[test]
fn the_limit_finds_the_workers_there_are() {
    for (name, draw) in DRAWS {
        for workers in [8, 24] {
            for initial in [4, 200] {
                let mut store = Store::new(workers, initial, draw).warm();
                store.run(6.0);
                let (permits, rate) = store.run(6.0);
                let share = permits / f64::from(workers);
                assert!(
                    (0.75..2.0).contains(&share),
                    "{name} {workers} {initial}: {share}"
                );
                let share = rate / store.rate_max();
                assert!(share > 0.75, "{name} {workers} {initial}: {share}");
            }
        }
    }
}

#[test]
fn far_too_many_permits_are_gone_within_a_few_hundred_requests() {
    for (name, draw) in DRAWS {
        let mut store = Store::new(4, 32, draw).warm();
        while store.limit.permits() > 8 {
            store.run(0.01);
            assert!(
                store.served < 1_200,
                "{name}: {} permits",
                store.limit.permits()
            );
        }
    }
}

/// A slow disk: what is slow is no crowd, and costs no permits. When it is fast again, nothing has to
/// be found again.
#[test]
fn a_slow_store_keeps_its_permits() {
    for (name, draw) in DRAWS {
        let mut store = Store::new(16, 16, draw).warm();
        store.run(5.0);
        store.slowness = 8.0;
        store.run(5.0);
        let (_, rate) = store.run(20.0);
        let share = rate / store.rate_max();
        assert!(share > 0.8, "{name}: {share} while slow");
        store.slowness = 1.0;
        store.run(0.1);
        let (_, rate) = store.run(1.0);
        let share = rate / store.rate_max();
        assert!(share > 0.75, "{name}: {share} once fast again");
    }
}

#[test]
fn a_store_that_slept_wakes_to_the_limit_that_it_had() {
    for (name, draw) in DRAWS {
        let mut store = Store::new(16, 20, draw).warm();
        store.run(5.0);
        for _ in 0..5 {
            // The mean, because a probe halves the limit for a moment.
            let (before, _) = store.run(1.0);
            store.sleep(3.0);
            let (after, _) = store.run(0.5);
            assert!(
                after >= before.min(16.0) * 0.6,
                "{name}: {before}, then {after}"
            );
            store.run(1.0);
        }
    }
}

#[test]
fn workers_that_come_and_go_are_noticed() {
    let mut store = Store::new(16, 16, uniform).warm();
    store.run(5.0);
    store.workers = 4;
    store.run(2.0);
    assert!(
        store.limit.permits() <= 8,
        "{} permits for 4",
        store.limit.permits()
    );
    store.workers = 32;
    store.run(10.0);
    let (_, rate) = store.run(3.0);
    assert!(rate > 0.85 * store.rate_max(), "{rate}");
}

/// The limit is learned from only while it binds: what comes now and then moves nothing.
#[test]
fn little_traffic_moves_nothing() {
    let begun = Instant::now();
    let mut limit = ConcurrencyLimit::new(LimitSettings::default());
    let mut random = 3;
    for second in 0..100_000 {
        let took = Duration::from_secs_f64(bimodal(&mut random) / 1e3);
        limit.calm(Operation::Get, took);
        // Two happen to meet at a queue with one permit left, every ten minutes.
        if second % 600 == 0 {
            limit.full(
                Operation::Get,
                took * 5,
                begun + Duration::from_secs(second),
            );
        }
    }
    assert_eq!(limit.permits(), LimitSettings::default().initial);
}

#[test]
fn another_mix_of_operations_is_no_crowd() {
    let mut store = Store::new(16, 16, uniform).warm();
    store.operation = Operation::Scan;
    store.slowness = 40.0;
    let mut store = store.warm();
    store.run(20.0);
    assert!(
        store.limit.permits() >= 12,
        "{} permits",
        store.limit.permits()
    );
    store.operation = Operation::Get;
    store.slowness = 1.0;
    store.run(1.0);
    assert!(
        store.limit.permits() >= 12,
        "{} permits",
        store.limit.permits()
    );
}

#[test]
fn the_bounds_hold() {
    let settings = LimitSettings {
        min: 0,
        max: 0,
        initial: 9,
    };
    assert_eq!(ConcurrencyLimit::new(settings).permits(), 1);
    let mut store = Store::new(64, 3, even).warm();
    store.limit.settings.max = 24;
    store.run(5.0);
    assert_eq!(store.limit.permits(), 24);
    let mut store = Store::new(1, 64, even).warm();
    store.limit.settings.min = 5;
    store.run(5.0);
    assert!((5..=9).contains(&store.limit.permits()));
}
