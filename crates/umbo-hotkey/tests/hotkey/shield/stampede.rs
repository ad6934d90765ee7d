//! Stampedes in simulated time: how many reads get through to the store.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use super::lab::{Lab, NAMESPACE, key, read};
use umbo_hotkey::Lookup;

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
