//! Stampedes in simulated time: how many reads get through to the store.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use super::lab::{Lab, NAMESPACE, key, read};
use umbo_hotkey::{Source, Terms};
use umbo_types::RequestUnits;

/// Reads ten keys at `rate` reads a second for so long, and returns the reads of the store.
async fn attack(lab: &mut Lab, rate: u64, millis: u64) -> u64 {
    let before = lab.reads();
    let rows: Vec<_> = (0..10).map(|n| key(&format!("listing:{n}"))).collect();
    let start = lab.now;
    let reads = rate * millis / 1_000;
    let mut tick_at = 100;
    for at in 0..reads {
        lab.now = start + std::time::Duration::from_micros(at * 1_000_000 / rate);
        if at * 1_000 / rate >= tick_at {
            lab.shield.tick(lab.now);
            tick_at += 100;
            // Refreshes have tasks of their own.
            tokio::task::yield_now().await;
        }
        let row = &rows[(at % 10) as usize];
        let name = lab.shield.seed().row(NAMESPACE, row);
        lab.shield.count(&name, RequestUnits::ZERO);
        let read = read(&lab.shield, &lab.store, row.clone());
        let terms = Terms {
            random: at << 32,
            ..lab.terms()
        };
        lab.shield
            .read(&name, &terms, &lab.caller, read)
            .await
            .unwrap();
    }
    lab.now = start + std::time::Duration::from_millis(millis);
    lab.reads() - before
}

fn lab() -> Lab {
    let lab = Lab::new();
    for n in 0..10 {
        lab.put(&format!("listing:{n}"), "x");
    }
    lab
}

#[tokio::test]
async fn a_stampede_lets_through_one_read_a_key_and_refresh() {
    let mut lab = lab();
    // The worst store to shield: it answers before anybody can join.
    let cold = attack(&mut lab, 20_000, 10_000).await;
    // Refreshed at 2, 4, 6, 8 s; the first two reads find nothing to share.
    assert!(cold <= 10 * (2 + 4), "{cold}");
    let warm = attack(&mut lab, 20_000, 10_000).await;
    assert!(warm <= 10 * 5, "{warm}");
}

#[tokio::test]
async fn a_pod_that_starts_in_the_middle_of_a_stampede_lets_through_one_more_a_key() {
    let mut warm = lab();
    attack(&mut warm, 20_000, 4_000).await;
    let warm = attack(&mut warm, 20_000, 4_000).await;
    let cold = attack(&mut lab(), 20_000, 4_000).await;
    assert!(cold <= warm + 10, "cold {cold}, warm {warm}");
}

#[tokio::test]
async fn an_answer_glows_while_the_sketch_makes_up_its_mind_and_no_longer() {
    let mut lab = lab();
    let sources = async |lab: &mut Lab, step_ms| {
        let mut sources = Vec::new();
        for _ in 0..4 {
            sources.push(lab.get("listing:0").await.unwrap().source);
            lab.pass(step_ms);
        }
        sources
    };
    let quick = sources(&mut lab, 1).await;
    assert_eq!(quick[..2], [Source::Leader; 2]);
    assert_eq!(quick[2..], [Source::Afterglow; 2]);
    lab.pass(300);
    assert_eq!(sources(&mut lab, 50).await, [Source::Leader; 4]);
}
