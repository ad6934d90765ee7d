//! Runs that end at any call of their dispatcher, before it or after it has had its effect, and those that continue.

mod fake_host;
mod inflated;
mod keys;
mod long_values;
mod reports;

use std::sync::atomic::Ordering;

use tokio::time::timeout;
use umbo_api::loads::LoadMode;

use self::fake_host::*;
use self::keys::*;
use super::*;

/// Never.
const NONE: u64 = u64::MAX;

#[tokio::test]
async fn the_bytes_of_applied_parts_are_removed() {
    let host = FakeHost::with_load(NONE).await;
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Live);
    assert_eq!(host.rows().await, expected());
    host.assert_no_content().await;
}

#[tokio::test]
async fn a_load_ends_alike_wherever_its_runs_end() {
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        // Some requests are refused, and some are taken in half.
        let host = FakeHost::with_load(random.u64(9..14)).await;
        let mut runs = 0;
        while host.state() != LoadState::Live {
            runs += 1;
            assert!(runs < 200, "{:?}", host.load.lock().unwrap());
            assert_ne!(host.state(), LoadState::Failed);
            // Later runs have more calls, so that one comes to the end.
            host.run(random.i64(1..40 + 20 * runs), random.u64(1..))
                .await;
            host.forgive().await;
        }
        assert!(runs > 1, "no run has ended early");
        assert_eq!(host.rows().await, expected(), "seed {seed}");
        let journal = host.journal().await;
        assert_counts(&journal, seed);
    }
}

/// Holds the counts of a load that has ended against what its parts have.
fn assert_counts(journal: &RunRecord, seed: u64) {
    let rows = u64::from(PARTS) * u64::from(PART_ROWS);
    let rejected = u64::from(PARTS) * u64::from(BAD_LINES);
    let found = (journal.rows, journal.applied, journal.rejected);
    assert_eq!(found, (rows + rejected, rows, rejected), "seed {seed}");
    assert_eq!(journal.shards.values().sum::<u64>(), rows);
}

#[tokio::test]
async fn a_version_is_built_alike_wherever_its_runs_end() {
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        let refused_each = random.u64(9..14);
        let host = FakeHost::with_load_of(refused_each, LoadMode::Replace, 0.1).await;
        let mut runs = 0;
        while host.state() != LoadState::Ready {
            runs += 1;
            assert!(runs < 200, "{:?}", host.load.lock().unwrap());
            assert_ne!(host.state(), LoadState::Failed);
            host.run(random.i64(1..40 + 20 * runs), random.u64(1..))
                .await;
            host.forgive().await;
        }
        assert!(runs > 1, "no run has ended early");
        assert_eq!(host.rows_of(BUILT).await, expected(), "seed {seed}");
        assert_counts(&host.journal().await, seed);
        for part in 0..PARTS {
            let progress = host.progress(part).await;
            let rows = u64::from(PART_ROWS + BAD_LINES);
            let found = (progress.rows, progress.rejected);
            assert_eq!(found, (rows, u64::from(BAD_LINES)), "part {part}");
        }
        assert_eq!(
            host.rejects().await,
            u64::from(PARTS) * u64::from(BAD_LINES)
        );
    }
}

#[tokio::test]
async fn rows_out_of_order_are_sorted_first_and_no_bytes_of_them_are_left() {
    let host = FakeHost::with_load_of(NONE, LoadMode::Replace, 0.1).await;
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Ready);
    assert_eq!(host.rows_of(BUILT).await, expected());
    // More runs than are merged at a time, so each shard has had its rows in order a few times.
    let keys = host.applied_keys.lock().unwrap().clone();
    for shard in 0..SHARDS {
        let of_shard: Vec<_> = keys.iter().filter(|(of, _)| of.0 == shard).collect();
        let descents = of_shard.windows(2).filter(|two| two[0].1 > two[1].1);
        let descents = descents.count();
        assert!((1..4).contains(&descents), "shard {shard}: {descents}");
    }
    host.assert_no_content().await;
}

#[tokio::test]
async fn a_version_with_too_many_rejects_is_never_ready() {
    let host = FakeHost::with_load_of(NONE, LoadMode::Replace, 0.0).await;
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Failed);
    let reason = host.load.lock().unwrap().reason.clone().unwrap();
    assert!(reason.contains("max_reject_ratio"), "{reason}");
    assert!(
        host.rows().await.is_empty(),
        "the live rows are as they were"
    );
}

#[tokio::test]
async fn a_run_that_was_overtaken_fails_no_load() {
    let host = FakeHost::with_load(NONE).await;
    let as_host: Arc<dyn LoadHost> = Arc::<FakeHost>::clone(&host);
    let shared = Host::new(as_host);
    let load = host.load(ID).unwrap();
    let mut old = Journal::take_over(&shared, &load, 1).await.unwrap();
    let mut new = Journal::take_over(&shared, &load, 2).await.unwrap();
    let failed = fail(&shared, ID, &mut old, "bytes are missing").await;
    assert_eq!(failed, Err(Stop::Overtaken));
    assert_eq!(host.state(), LoadState::Sealed);
    let failed = fail(&shared, ID, &mut new, "bytes are missing").await;
    assert_eq!((failed, host.state()), (Ok(()), LoadState::Failed));
}

/// Runs a load to its end while its parts arrive in any order; its runs end anywhere.
async fn feed_and_run(host: &Arc<FakeHost>, random: &mut fastrand::Rng, end: LoadState) {
    let mut runs = 0;
    let mut parts: Vec<u16> = (0..PARTS).collect();
    random.shuffle(&mut parts);
    while host.state() != end {
        if random.bool()
            && let Some(part) = parts.pop()
        {
            host.upload(part).await;
            if parts.is_empty() {
                host.seal();
            }
        }
        runs += 1;
        assert!(runs < 200, "{:?}", host.load.lock().unwrap());
        assert_ne!(host.state(), LoadState::Failed);
        host.run(random.i64(1..40 + 20 * runs), random.u64(1..))
            .await;
        host.forgive().await;
    }
}

#[tokio::test]
async fn a_version_is_built_while_parts_arrive_wherever_its_runs_end() {
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        let key_of = [in_order, in_order_by_part, scattered][seed as usize % 3];
        let refused_each = random.u64(9..14);
        let host = FakeHost::uploading(refused_each, LoadMode::Replace, 0.1, key_of);
        let host = Arc::new(host);
        feed_and_run(&host, &mut random, LoadState::Ready).await;
        assert_eq!(
            host.rows_of(BUILT).await,
            expected_of(key_of),
            "seed {seed}"
        );
        assert_counts(&host.journal().await, seed);
    }
}

/// An import that takes parts.
fn import(refused_each: u64, key_of: fn(u16, u32) -> u32) -> Arc<FakeHost> {
    let host = FakeHost::uploading(refused_each, LoadMode::Merge, 0.0, key_of);
    host.load.lock().unwrap().import = true;
    Arc::new(host)
}

#[tokio::test]
async fn an_import_is_applied_while_parts_arrive_wherever_its_runs_end() {
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let key_of = [in_order, in_order_by_part, scattered][seed as usize % 3];
        let host = import(random.u64(9..14), key_of);
        feed_and_run(&host, &mut random, LoadState::Live).await;
        assert_eq!(host.rows().await, expected_of(key_of), "seed {seed}");
        assert_counts(&host.journal().await, seed);
        assert_eq!(
            host.rejects().await,
            u64::from(PARTS) * u64::from(BAD_LINES)
        );
    }
}

#[tokio::test]
async fn rows_of_an_import_are_visible_before_the_seal_if_they_are_in_order() {
    for (key_of, rows) in [(in_order as fn(_, _) -> _, true), (scattered, false)] {
        let host = import(NONE, key_of);
        host.upload(0).await;
        host.run(i64::MAX, 1).await;
        assert_eq!(host.state(), LoadState::Uploading);
        assert_eq!(host.journal().await.part, u32::from(rows));
        assert_eq!(!host.rows().await.is_empty(), rows);
    }
}

/// No time passes here, as the test is never idle: a runner that only looked now and then would not look again.
#[tokio::test(start_paused = true)]
async fn a_runner_takes_a_load_up_when_it_is_told() {
    let host = import(NONE, in_order);
    host.upload(0).await;
    let runner = tokio::spawn(LoadRunner::new(Arc::<FakeHost>::clone(&host)).run());
    while host.journal().await.part == 0 || host.journal().await.runner != 0 {
        tokio::task::yield_now().await;
    }
    for part in 1..PARTS {
        host.upload(part).await;
    }
    host.seal();
    host.changed.notify_one();
    while host.state() != LoadState::Live {
        tokio::task::yield_now().await;
    }
    runner.abort();
}

#[tokio::test]
async fn rows_in_order_are_applied_before_the_seal_and_others_after_it() {
    for (key_of, parts_before_seal) in [
        (in_order as fn(_, _) -> _, 2),
        (in_order_by_part, 1),
        (scattered, 0),
    ] {
        let host = Arc::new(FakeHost::uploading(NONE, LoadMode::Replace, 0.1, key_of));
        host.upload(1).await;
        host.run(i64::MAX, 1).await;
        assert_eq!(host.journal().await.part, 0, "the first part is not there");
        host.upload(0).await;
        host.run(i64::MAX, 1).await;
        let run = host.journal().await;
        assert_eq!((run.part, run.runner), (parts_before_seal, 0), "{run:?}");
        assert_eq!(host.state(), LoadState::Uploading);
        assert!(run.runs.is_empty(), "{run:?}");
        host.upload(2).await;
        host.seal();
        host.run(i64::MAX, 1).await;
        assert_eq!(host.state(), LoadState::Ready);
        assert_eq!(host.rows_of(BUILT).await, expected_of(key_of));
        assert_counts(&host.journal().await, 0);
        host.assert_no_content().await;
    }
}

#[tokio::test]
async fn a_part_that_comes_while_the_load_is_sealed_without_it_is_in_no_version() {
    let host = Arc::new(FakeHost::uploading(NONE, LoadMode::Replace, 0.1, in_order));
    for part in 0..=PARTS {
        host.upload(part).await;
    }
    // The run ends once it has begun to apply rows of all parts.
    host.run(40, 1).await;
    assert_eq!(host.state(), LoadState::Uploading);
    host.seal();
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Failed);
    let reason = host.load.lock().unwrap().reason.clone().unwrap();
    assert!(reason.starts_with("part 3 was uploaded"), "{reason}");
}

#[tokio::test]
async fn rows_of_mode_merge_are_not_applied_before_the_seal() {
    let host = Arc::new(FakeHost::uploading(NONE, LoadMode::Merge, 0.1, in_order));
    host.upload(0).await;
    host.run(i64::MAX, 1).await;
    assert!(host.rows().await.is_empty());
}

#[tokio::test]
async fn a_run_that_was_paused_writes_no_older_rows() {
    for (mode, passed) in [
        (LoadMode::Merge, 0),
        (LoadMode::Merge, 2),
        (LoadMode::Merge, 4),
        (LoadMode::Replace, 0),
        (LoadMode::Replace, 3),
    ] {
        let host = FakeHost::with_load_of(NONE, mode, 0.1).await;
        host.held.send_replace((1, passed));
        let paused = Arc::clone(&host);
        let mut paused = tokio::spawn(async move { paused.run(i64::MAX, 1).await });
        let mut waiting = host.waiting.subscribe();
        tokio::select! {
            biased;
            waits = waiting.wait_for(|waiting| *waiting > passed) => drop(waits.unwrap()),
            _ = &mut paused => panic!("it was not paused after {passed} requests"),
        }
        host.run(i64::MAX, 2).await;
        let (rows, end) = match mode {
            LoadMode::Merge => (ROWS, LoadState::Live),
            LoadMode::Replace => (BUILT, LoadState::Ready),
        };
        assert_eq!(host.state(), end);
        assert_eq!(host.rows_of(rows).await, expected());
        // It goes on with what it was about to do.
        host.held.send_replace((0, 0));
        paused.await.unwrap();
        let is_same = host.rows_of(rows).await == expected();
        assert!(is_same, "{mode:?}: older rows after {passed} requests");
        assert_eq!((host.state(), host.journal().await.runner), (end, 2));
    }
}

#[tokio::test]
async fn a_load_that_ends_its_runners_fails() {
    let host = FakeHost::with_load(NONE).await;
    // Each dispatcher is gone once it has taken the load over.
    for runner in 1..=u64::from(FRUITLESS_RUNS_MAX) {
        host.run(4, runner).await;
        assert_eq!(host.state(), LoadState::Sealed);
    }
    assert_eq!(host.journal().await.fruitless, FRUITLESS_RUNS_MAX - 1);
    host.run(i64::MAX, 9).await;
    assert_eq!(host.state(), LoadState::Failed);
    let reason = host.load.lock().unwrap().reason.clone().unwrap();
    assert!(reason.starts_with("5 runs in a row"), "{reason}");
}

/// Returns how many runs there are until the load ends, or until an hour of processes, one after the other, is over. Each
/// lives for so many seconds, or until it has the load; only the last of the runs that may be reads rows.
async fn runs_of(host: &Arc<FakeHost>, lives: usize) -> u32 {
    let (mut runs, mut hour) = (0, 0..60 * 60);
    while host.state() == LoadState::Sealed && !hour.is_empty() {
        let mut runner = LoadRunner::new(Arc::<FakeHost>::clone(host));
        for _ in hour.by_ref().take(lives) {
            let load = host.load(ID).unwrap();
            if runner.may_run(ID, &load).await {
                let calls = if runs < FRUITLESS_RUNS_MAX {
                    4
                } else {
                    i64::MAX
                };
                runs += 1;
                host.run(calls, runs.into()).await;
                break;
            }
            host.clock.advance(Duration::from_secs(1));
        }
    }
    runs
}

#[tokio::test]
async fn a_load_fails_by_what_ends_its_runners_and_not_by_what_ends_their_processes_anyway() {
    for is_alone in [false, true] {
        for (lives, end) in [
            (4, LoadState::Sealed),
            (30, LoadState::Sealed),
            (300, LoadState::Failed),
        ] {
            let host = FakeHost::with_load(NONE).await;
            host.is_alone.store(is_alone, Ordering::SeqCst);
            let runs = runs_of(&host, lives).await;
            assert_eq!(host.state(), end, "{runs} of processes that live {lives} s");
            assert!(runs <= FRUITLESS_RUNS_MAX + 1, "{runs}");
        }
    }
}

#[tokio::test]
async fn a_dispatcher_that_is_about_to_end_lets_its_loads_go() {
    let host = FakeHost::with_load(NONE).await;
    host.is_ending.store(true, Ordering::SeqCst);
    host.run(i64::MAX, 1).await;
    let run = host.journal().await;
    assert_eq!((run.runner, run.fruitless), (0, 0));
    assert_eq!(host.state(), LoadState::Sealed);
    LoadRunner::new(Arc::<FakeHost>::clone(&host)).run().await;
    assert_eq!(host.journal().await, run, "it takes no load over");
}

#[tokio::test]
async fn runs_that_get_on_or_let_go_fail_no_load() {
    let host = FakeHost::with_load(NONE).await;
    for runner in 1..=u64::from(FRUITLESS_RUNS_MAX) {
        host.run(4, runner).await;
    }
    let fruitless = host.journal().await.fruitless;
    // The same runner goes on with what it had.
    host.run(4, FRUITLESS_RUNS_MAX.into()).await;
    assert_eq!(host.journal().await.fruitless, fruitless);
    let load = host.load(ID).unwrap();
    let shared = Host::new(Arc::<FakeHost>::clone(&host));
    let mut journal = Journal::take_over(&shared, &load, FRUITLESS_RUNS_MAX.into())
        .await
        .unwrap();
    journal.run.checked += 1;
    journal.write().await.unwrap();
    assert_eq!(host.journal().await.fruitless, 0, "a part is checked");
    let mut journal = Journal::take_over(&shared, &load, 8).await.unwrap();
    assert_eq!(journal.run.fruitless, 1);
    journal.waits_for(Some("there is no room".to_owned()));
    journal.write().await.unwrap();
    assert_eq!(host.journal().await.fruitless, 0, "it waits for others");
}

#[tokio::test]
async fn a_dispatcher_that_is_alone_goes_on_at_once_with_what_the_process_before_it_did() {
    for is_alone in [false, true] {
        let host = FakeHost::with_load(NONE).await;
        host.is_alone.store(is_alone, Ordering::SeqCst);
        host.run(4, 1).await;
        let load = host.load(ID).unwrap();
        let mut runner = LoadRunner::new(Arc::<FakeHost>::clone(&host));
        assert_eq!(runner.may_run(ID, &load).await, is_alone);
        host.clock.advance(LEASE);
        assert!(runner.may_run(ID, &load).await);
        // Such a run counts as one that has ended by itself.
        let shared = Host::new(Arc::<FakeHost>::clone(&host));
        let journal = Journal::take_over(&shared, &load, 2).await.unwrap();
        assert_eq!(journal.run.fruitless, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_beat_that_takes_long_leaves_the_run_time_for_its_work() {
    let host = FakeHost::with_load(NONE).await;
    let load = host.load(ID).unwrap();
    let host = Host::new(host);
    let mut journal = Journal::take_over(&host, &load, 1).await.unwrap();
    let mut beats = work::Beats::begin();
    beats.next().await;
    // The write of the first beat takes until two further ones would be due.
    tokio::time::advance(2 * BEAT).await;
    beats.write(&host, ID, &mut journal).await.unwrap();
    let next = timeout(BEAT / 2, beats.next()).await;
    assert!(next.is_err(), "the next beat comes at once");
    timeout(BEAT, beats.next()).await.unwrap();
}

/// Rows a second of a quota that is far below what the shards take.
const ROWS_A_SECOND: u32 = 1_000;

#[tokio::test(start_paused = true)]
async fn a_load_uses_what_its_quota_allows() {
    for mode in [LoadMode::Merge, LoadMode::Replace] {
        let host = FakeHost::with_load_of(NONE, mode, 0.1).await;
        let begun = tokio::time::Instant::now();
        *host.quota.lock().unwrap() = Some((ROWS_A_SECOND, begun));
        host.run(i64::MAX, 1).await;
        assert!(matches!(host.state(), LoadState::Live | LoadState::Ready));
        let rows = u32::from(PARTS) * (PART_ROWS - BAD_LINES);
        let least = Duration::from_secs(rows.into()) / ROWS_A_SECOND;
        let taken = tokio::time::Instant::now().duration_since(begun);
        assert!(
            taken < least * 5 / 4,
            "{mode:?}: {taken:?} instead of {least:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_goes_on_soon_after_its_quota_was_lifted() {
    let host = FakeHost::with_load(NONE).await;
    let begun = tokio::time::Instant::now();
    let next_day = begun + Duration::from_hours(24);
    *host.quota.lock().unwrap() = Some((ROWS_A_SECOND, next_day));
    let running = Arc::clone(&host);
    let mut running = tokio::spawn(async move { running.run(i64::MAX, 1).await });
    let waits = timeout(Duration::from_secs(10), &mut running).await;
    assert!(waits.is_err(), "the quota is used up for a day");
    *host.quota.lock().unwrap() = None;
    running.await.unwrap();
    assert_eq!(host.state(), LoadState::Live);
    let taken = tokio::time::Instant::now().duration_since(begun);
    assert!(taken < Duration::from_mins(1), "{taken:?}");
}

#[test]
fn rows_of_versions_without_numbers_of_runs_are_read() {
    let row = r#"{"runner":7,"beat":2,"checked":1,"rows":3,"rejected":0,"part":0,"row":0,"applied":0,"skipped":0}"#;
    let run: RunRecord = serde_json::from_str(row).unwrap();
    assert_eq!((run.runner, run.fruitless), (7, 0));
}
