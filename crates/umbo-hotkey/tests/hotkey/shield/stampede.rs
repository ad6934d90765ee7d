//! Stampedes in simulated time: how many reads get through to the store.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Barrier;

use super::lab::{Lab, Mood, NAMESPACE, key, read, settings, settle};
use umbo_hotkey::{Lookup, ShieldSettings};

/// Reads ten keys at `rate` reads a second for so long, before a store that answers at once or does
/// not; returns the reads of the store before the first hit of each key, and those after it.
async fn attack(lab: &mut Lab, is_direct: bool, rate: u64, millis: u64) -> (u64, u64) {
    let rows: Vec<_> = (0..10).map(|n| key(&format!("listing:{n}"))).collect();
    let start = lab.now;
    let mut tick_at = 100;
    let (mut before, mut after) = (0, 0);
    for at in 0..rate * millis / 1_000 {
        lab.now = start + std::time::Duration::from_micros(at * 1_000_000 / rate);
        if at * 1_000 / rate >= tick_at {
            lab.shield.tick(lab.now);
            tick_at += 100;
            // Refreshes have tasks of their own.
            tokio::task::yield_now().await;
        }
        let row = &rows[(at % 10) as usize];
        let name = lab.shield.seed().row(NAMESPACE, row);
        lab.shield.count(&name);
        let (reads, context) = (lab.reads(), lab.context());
        let fetch = read(&lab.store, row.clone());
        match lab.shield.lookup(&name, &context, lab.caller.as_str()) {
            Lookup::Hit { is_refresh_due, .. } => {
                if is_refresh_due {
                    lab.shield.refresh(&name, &context, fetch);
                }
            }
            Lookup::Cold if is_direct => before += 1,
            _ => drop(lab.shield.read(&name, &context, fetch).await.unwrap()),
        }
        after += lab.reads() - reads;
    }
    lab.now = start + std::time::Duration::from_millis(millis);
    (before, after)
}

fn lab() -> Lab {
    let lab = Lab::new();
    for n in 0..10 {
        lab.put(&format!("listing:{n}"), "x");
    }
    lab
}

#[tokio::test]
async fn a_stampede_lets_through_one_read_a_key_and_refresh_once_its_keys_are_hot() {
    let mut lab = lab();
    // Not joined: the store answers before a second reader comes. Hot at the first tick.
    let (cold, hot) = attack(&mut lab, true, 40_000, 10_000).await;
    assert_eq!(cold, 4_000);
    // Refreshes are made between the reads, and are not among these.
    assert_eq!(hot, 10);
    assert_eq!(lab.reads(), 10 * 4);
    let before = lab.reads();
    assert_eq!(attack(&mut lab, true, 40_000, 10_000).await, (0, 0));
    assert!(lab.reads() - before <= 10 * 4, "{}", lab.reads() - before);
}

/// Reads ten keys 5,000 times a second for 8 s. A read of the store takes 20 ms, in which a hundred come at one instant.
/// Returns the reads of the store in the first 0.3 s, in which the keys are detected, and since then.
async fn slow_attack(lab: &mut Lab) -> (u64, u64) {
    let gate = lab.moods(&[Mood::Waiting as fn(_) -> _; 200]);
    let mut clients = Vec::new();
    let (mut answered, mut before) = (0, 0);
    for step in 1..=400 {
        for number in 0..100 {
            let name = format!("listing:{}", number % 10);
            lab.shield
                .count(&lab.shield.seed().row(NAMESPACE, &key(&name)));
            clients.push(lab.client(&name).await);
        }
        lab.pass(20);
        if step % 5 == 0 {
            lab.shield.tick(lab.now);
        }
        gate.add_permits((lab.reads() - answered) as usize);
        answered = lab.reads();
        settle().await;
        if step == 15 {
            before = lab.reads();
        }
    }
    gate.add_permits(200);
    for client in clients {
        let served = client.await.unwrap().unwrap();
        let rows = lab.store.rows.lock().unwrap();
        assert_eq!(served.value.as_ref(), rows.get(&key("listing:0")));
    }
    (before, lab.reads() - before)
}

#[tokio::test]
async fn a_slow_store_is_read_once_at_a_time_for_each_key_and_then_once_for_each_time_to_live() {
    for (mut lab, ttl_s) in [(lab(), 3), (Lab::new(), 1)] {
        let (before, since) = slow_attack(&mut lab).await;
        assert!(before <= 10 * 15, "{before}");
        // 7.7 s of hot keys, and a twentieth.
        let reads_max = 10 * 8_u64.div_ceil(ttl_s) * 21 / 20;
        assert!(since <= reads_max, "{since}, ttl {ttl_s} s");
    }
}

#[test]
fn the_detection_of_a_dispatcher_fits_into_a_megabyte() {
    for threads in [1, 2, 4, 8, 16, 32] {
        let settings = ShieldSettings::new(threads, settings().seed);
        let mut lab = Lab::with(settings);
        let rows: Vec<_> = (0..95)
            .map(|number| key(&format!("hot:{number}")))
            .collect();
        for _ in 0..10 {
            // All threads live at the same time, so that each has a sketch, and give it back before the next ones begin.
            let all = Barrier::new(threads);
            let count = || {
                for read in 0..30_000 / threads {
                    let row = &rows[read % rows.len()];
                    lab.shield.count(&lab.shield.seed().row(NAMESPACE, row));
                }
                all.wait();
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
                for one in threads {
                    one.join().unwrap();
                }
            });
            lab.pass(100);
            lab.shield.tick(lab.now);
            (0..95).for_each(|number| drop(lab.lookup(&format!("hot:{number}"))));
        }
        let report = lab.shield.report(lab.now);
        assert!(!report.keys.is_empty());
        assert!(
            report.detection_bytes <= 1_000_000,
            "{threads}: {}",
            report.detection_bytes
        );
    }
}
