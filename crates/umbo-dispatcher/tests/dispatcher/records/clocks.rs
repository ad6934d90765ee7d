//! Dispatchers whose clocks are wrong: nothing is lost by them that cannot come back, and no load skips a row.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use umbo_store::ManualClock;
use umbo_types::{Clock, Timestamp};

use crate::records::support::{Site, TestDispatcher};
use crate::records::versions::{replace, seal_and_run};

/// What a clock that is ahead must not end: a version that is kept, and a load that takes parts.
async fn is_all_there(pod: &TestDispatcher) -> bool {
    pod.follow().await;
    let versions = pod.ask("GET", "/v1/ns/x/versions", "").await.body;
    let loads = pod.ask("GET", "/v1/ns/x/loads", "").await.body;
    let has = |all: &serde_json::Value, state| {
        all.as_array()
            .unwrap()
            .iter()
            .any(|it| it["state"] == state)
    };
    has(&versions["versions"], "kept") && has(&loads["loads"], "created")
}

async fn site_with_kept_version() -> (Site, TestDispatcher) {
    let site = Site::new();
    let pod = site.pod().await;
    pod.create("x").await;
    replace(&pod, "x", async || {}).await;
    let load = pod.ask("POST", "/v1/ns/x/loads", "{}").await;
    assert_eq!(load.status, 201, "{load:?}");
    (site, pod)
}

const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn one_clock_that_is_ahead_drops_nothing_for_a_minute_or_for_good() {
    let (site, right) = site_with_kept_version().await;
    for ahead in [Duration::from_secs(1), Duration::from_hours(1), 8 * DAY] {
        let clock = Arc::new(ManualClock::new(site.clock.wall()));
        let wrong = site.pod_with_clock(&clock).await;
        clock.set_wall(site.clock.wall().saturating_add(ahead));
        wrong.dispatcher.control.forget_loads().await.unwrap();
        assert!(is_all_there(&right).await);
        // It begins to believe its clock: the home does not.
        clock.advance(Duration::from_mins(10));
        drop(wrong.dispatcher.control.forget_loads().await);
        assert!(is_all_there(&right).await);
        // One that begins with the wrong clock believes it at once.
        let wrong = site.pod_with_clock(&clock).await;
        let refused = wrong.dispatcher.control.forget_loads().await;
        assert_eq!(refused.is_err(), ahead > DAY);
        assert!(is_all_there(&right).await);
    }
    site.clock.advance(8 * DAY);
    right.dispatcher.control.forget_loads().await.unwrap();
    assert!(!is_all_there(&right).await);
}

#[tokio::test]
async fn what_a_dispatcher_stamps_whose_clock_is_behind_is_not_overdue_at_once() {
    let site = Site::new();
    let right = site.pod().await;
    right.create("x").await;
    let behind = 8 * 86_400_000_000;
    let clock = Timestamp(site.clock.wall().0 - behind);
    let clock = Arc::new(ManualClock::new(clock));
    let wrong = site.pod_with_clock(&clock).await;
    let ahead = -i64::try_from(behind).unwrap();
    wrong.store.clock_ahead.store(ahead, Ordering::SeqCst);
    replace(&wrong, "x", async || {}).await;
    let load = wrong.ask("POST", "/v1/ns/x/loads", "{}").await;
    assert_eq!(load.status, 201, "{load:?}");
    right.follow().await;
    right.dispatcher.control.forget_loads().await.unwrap();
    assert!(is_all_there(&right).await);
}

#[tokio::test]
async fn a_jump_of_all_clocks_drops_nothing_unless_it_lasts() {
    let (site, pod) = site_with_kept_version().await;
    let control = &pod.dispatcher.control;
    let begun = site.clock.wall();
    site.clock.set_wall(begun.saturating_add(8 * DAY));
    for _ in 0..2 {
        control.forget_loads().await.unwrap();
        pod.put_row("x", "k", "v").await;
        assert!(is_all_there(&pod).await);
        site.clock.advance(Duration::from_secs(35));
    }
    site.clock
        .set_wall(begun.saturating_add(Duration::from_secs(70)));
    control.forget_loads().await.unwrap();
    pod.put_row("x", "k", "v").await;
    assert!(is_all_there(&pod).await);

    site.clock.set_wall(begun.saturating_add(8 * DAY));
    control.forget_loads().await.unwrap();
    pod.put_row("x", "k", "v").await;
    site.clock.advance(Duration::from_mins(10));
    control.forget_loads().await.unwrap();
    assert!(!is_all_there(&pod).await);
}

#[tokio::test]
async fn a_load_replaces_what_was_there_before_it_and_nothing_later_whatever_the_clocks_say() {
    let site = Site::new();
    let right = site.pod().await;
    right.create("x").await;
    for off in [Duration::from_secs(1), Duration::from_hours(1), 8 * DAY] {
        let clock = Arc::new(ManualClock::new(site.clock.wall()));
        let wrong = site.pod_with_clock(&clock).await;
        clock.set_wall(site.clock.wall().saturating_add(off));
        for (creator, row) in [(&right, "1"), (&wrong, "2")] {
            for pod in [&wrong, &right, &wrong] {
                pod.put_row("x", "before", row).await;
                pod.put_row("x", &format!("beside{row}"), row).await;
            }
            let load = creator.ask("POST", "/v1/ns/x/loads", "{}").await;
            assert_eq!(load.status, 201, "{load:?}");
            let load = format!("/v1/ns/x/loads/{}", load.body["id"].as_str().unwrap());
            right.put_row("x", "after", row).await;
            right.follow().await;
            let lines = ["before", "beside1", "after", "new"]
                .map(|key| format!("{{\"pk\":\"{key}\",\"v\":\"loaded{row}\"}}\n"));
            let path = format!("{load}/parts/0");
            let part = right.upload(&path, &lines.concat()).await;
            assert_eq!(part.status, 201, "{part:?}");
            seal_and_run(&right, &load, 1).await;
            for (key, value) in [
                ("before", format!("loaded{row}")),
                ("beside1", format!("loaded{row}")),
                ("after", row.to_owned()),
                ("new", format!("loaded{row}")),
            ] {
                let got = right.get_row("x", key).await;
                assert_eq!(got.bytes, value, "{key}, {off:?}, load {row}");
            }
        }
    }
}
