//! Stampedes in simulated time: how many reads get through to the store.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use super::lab::{Lab, Mood, NAMESPACE, fill, key, read};
use umbo_hotkey::{Solo, Source, Terms, Touched};
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
    let cold = attack(&mut lab, 40_000, 10_000).await;
    // Read at the beginning and refreshed after 3, 6 and 9 s.
    assert_eq!(cold, 10 * 4);
    let warm = attack(&mut lab, 40_000, 10_000).await;
    assert!(warm <= 10 * 4, "{warm}");
}

#[tokio::test]
async fn a_pod_that_starts_in_the_middle_of_a_stampede_lets_through_no_more_reads() {
    let mut lab = lab();
    let cold = attack(&mut lab, 40_000, 9_000).await;
    let warm = attack(&mut lab, 40_000, 9_000).await;
    // Once in each time to live, from the first read on.
    assert_eq!((cold, warm), (10 * 3, 10 * 3));
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
    lab.pass(500);
    assert_eq!(sources(&mut lab, 50).await, [Source::Leader; 4]);
}

#[tokio::test]
async fn a_reader_that_comes_at_once_joins_the_read_before_it() {
    for (micros, second) in [(499, Source::Afterglow), (500, Source::Leader)] {
        let mut lab = lab();
        assert_eq!(lab.get("listing:0").await.unwrap().source, Source::Leader);
        lab.now += std::time::Duration::from_micros(micros);
        assert_eq!(lab.get("listing:0").await.unwrap().source, second);
    }
    // Not beyond a write of this pod, and not where the client wants it newer.
    let mut lab = lab();
    lab.get("listing:0").await.unwrap();
    let row = key("listing:0");
    let write = lab.shield.begin_write([Touched::Row(NAMESPACE, &row)]);
    lab.put("listing:0", "y");
    write.end();
    let served = lab.get("listing:0").await.unwrap();
    assert_eq!(served.value.as_deref(), Some(&b"y"[..]));
    lab.now += std::time::Duration::from_micros(1);
    let fresh = Terms {
        age_max: Some(std::time::Duration::ZERO),
        ..lab.terms()
    };
    let served = lab.get_on("listing:0", fresh).await.unwrap();
    assert_eq!(served.source, Source::Leader);
}

#[tokio::test]
async fn reads_that_are_over_at_once_are_made_alone_and_shared_all_the_same() {
    let mut lab = lab();
    let row = key("listing:0");
    let named = lab.shield.seed().row(NAMESPACE, &row);
    let fill = fill(Some("x".into()));
    let Solo::Read(stamp) = lab.shield.solo(&named, &lab.terms()) else {
        panic!("nobody has read it");
    };
    lab.shield.land(&named, stamp, &fill, &lab.terms());
    lab.now += std::time::Duration::from_micros(499);
    for _ in 0..3 {
        // The first of them has made it glow.
        let Solo::Served(served) = lab.shield.solo(&named, &lab.terms()) else {
            panic!("it was read just now");
        };
        assert_eq!(
            (served.source, &served.value),
            (Source::Afterglow, &fill.value)
        );
        lab.pass(60);
    }
    // A write ends it, and what was read before the write is not kept.
    let write = lab.shield.begin_write([Touched::Row(NAMESPACE, &row)]);
    let Solo::Read(early) = lab.shield.solo(&named, &lab.terms()) else {
        panic!("a write came between");
    };
    write.end();
    lab.shield.land(&named, early, &fill, &lab.terms());
    assert!(matches!(
        lab.shield.solo(&named, &lab.terms()),
        Solo::Read(_)
    ));
    // Whoever reads for others is joined.
    let gate = lab.moods(&[Mood::Waiting]);
    let leader = lab.client("listing:0").await;
    assert_eq!(lab.shield.solo(&named, &lab.terms()), Solo::Join);
    gate.add_permits(1);
    leader.await.unwrap().unwrap();
}
