//! Dispatchers whose clocks are wrong: nothing is lost by them that cannot come back, and no load skips a row.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use umbo_store::ManualClock;
use umbo_types::{Clock, Timestamp};

use crate::records::support::{Site, TestDispatcher, path};
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

/// A dispatcher whose clock is off by so many seconds, with its clock.
async fn wrong_by(site: &Site, seconds: i64) -> (TestDispatcher, Arc<ManualClock>) {
    let off = seconds * 1_000_000;
    let clock = Timestamp(site.clock.wall().0.checked_add_signed(off).unwrap());
    let clock = Arc::new(ManualClock::new(clock));
    let pod = site.pod_with_clock(&clock).await;
    pod.store.clock_ahead.store(off, Ordering::SeqCst);
    (pod, clock)
}

const HOUR: i64 = 3_600;

/// Stores rows that live for a minute, in each way that there is, and returns where they are. The namespace `default`
/// keeps all rows for a minute.
async fn store_for_a_minute(
    pod: &TestDispatcher,
    end: Timestamp,
) -> Vec<(&'static str, &'static str)> {
    let end = end.as_millis().to_string();
    let ttl = ("umbo-ttl", "60");
    let count = ("umbo-increment", "1");
    for (method, row, fields) in [
        ("PUT", "x/kv/ttl", &[ttl][..]),
        ("PUT", "x/kv/end", &[("umbo-expires-at", &end)]),
        ("PUT", "x/kv/touched", &[]),
        ("PATCH", "x/kv/touched", &[ttl]),
        ("PATCH", "x/kv/count", &[ttl, count]),
        ("PUT", "default/kv/put", &[]),
        ("PATCH", "default/kv/count", &[count]),
    ] {
        let path = format!("/v1/ns/{row}");
        let written = pod.ask_with((method, &path), fields, "").await;
        assert!(written.status < 300, "{row}: {written:?}");
    }
    let line = |key: &str, rest: &str| format!("{{\"pk\":\"{key}\",\"v\":\"v\"{rest}}}\n");
    let lines = |key: &str| {
        let end = format!(",\"expires_at\":{end}");
        line(key, ",\"ttl\":60") + &line(&format!("{key}-end"), &end)
    };
    for (namespace, body) in [("x", lines("line")), ("default", line("line", ""))] {
        let path = format!("/v1/ns/{namespace}/batch/write");
        let written = pod.ask("POST", &path, &body).await;
        assert_eq!(written.status, 200, "{written:?}");
    }
    for (namespace, body) in [("x", lines("loaded")), ("default", line("loaded", ""))] {
        let loads = format!("/v1/ns/{namespace}/loads");
        let load = pod.ask("POST", &loads, "{}").await;
        let load = format!("{loads}/{}", load.body["id"].as_str().unwrap());
        let part = pod.upload(&format!("{load}/parts/0"), &body).await;
        assert_eq!(part.status, 201, "{part:?}");
        seal_and_run(pod, &load, 1).await;
    }
    let own = [
        "ttl",
        "end",
        "touched",
        "count",
        "line",
        "line-end",
        "loaded",
        "loaded-end",
    ];
    let by_default = ["put", "count", "line", "loaded"].map(|key| ("default", key));
    own.map(|key| ("x", key))
        .into_iter()
        .chain(by_default)
        .collect()
}

#[tokio::test]
async fn a_row_lives_for_its_time_by_the_clock_of_its_shard_whatever_its_dispatcher_believes() {
    for off in [-HOUR, HOUR] {
        let site = Site::new();
        let right = site.pod().await;
        right.create("x").await;
        let settings = r#"{"default_ttl": 60}"#;
        let made = right.ask("PUT", &path("default"), settings).await;
        assert_eq!(made.status, 201, "{made:?}");
        let (wrong, clock) = wrong_by(&site, off).await;
        let end = site.clock.wall().saturating_add(Duration::from_mins(1));
        let rows = store_for_a_minute(&wrong, end).await;
        for (waited, status) in [(59, 200), (1, 404)] {
            for clock in [&site.clock, &clock] {
                clock.advance(Duration::from_secs(waited));
            }
            for pod in [&right, &wrong] {
                for (namespace, key) in &rows {
                    let got = pod.get_row(namespace, key).await;
                    assert_eq!(got.status, status, "{namespace}/{key}, {off}: {got:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_repetition_is_recognised_for_its_time_through_any_dispatcher() {
    for off in [-HOUR, HOUR] {
        let site = Site::new();
        let right = site.pod().await;
        right.create("x").await;
        let (wrong, clock) = wrong_by(&site, off).await;
        let fields = [
            ("idempotency-key", "k"),
            ("umbo-idempotency-ttl", "60"),
            ("umbo-increment", "1"),
        ];
        let line = "{\"op\":\"inc\",\"pk\":\"b\",\"by\":1}\n";
        let count = async |pod: &TestDispatcher| {
            let one = pod.ask_with(("PATCH", "/v1/ns/x/kv/a"), &fields, "").await;
            let batch = ("POST", "/v1/ns/x/batch/write");
            let batch = pod.ask_with(batch, &fields[..2], line).await;
            assert!(one.status < 300 && batch.status == 200, "{one:?} {batch:?}");
            let numbers = ["a", "b"].map(async |key| right.get_row("x", key).await.bytes);
            futures_util::future::join_all(numbers).await
        };
        assert_eq!(count(&wrong).await, ["1", "1"]);
        for (waited, number) in [(59, "1"), (1, "2")] {
            site.clock.advance(Duration::from_secs(waited));
            clock.advance(Duration::from_secs(waited));
            for pod in [&right, &wrong] {
                assert_eq!(count(pod).await, [number, number], "{off}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_ends_after_its_time_for_all_dispatchers() {
    for off in [-HOUR, HOUR] {
        let site = Site::new();
        let right = site.pod().await;
        let (wrong, clock) = wrong_by(&site, off).await;
        let lasting = r#"{"name": "root", "grants": ["admin:*"]}"#;
        let lasting = wrong.ask("POST", "/admin/v1/tokens", lasting).await;
        let wrong = wrong.with_token(lasting.body["token"].as_str().unwrap());
        let token = r#"{"name": "t", "grants": ["read:*"], "ttl": 60}"#;
        let token = wrong.ask("POST", "/admin/v1/tokens", token).await;
        let token = token.body["token"].as_str().unwrap();
        right.follow().await;
        for (waited, status) in [(59, 404), (1, 401)] {
            site.clock.advance(Duration::from_secs(waited));
            clock.advance(Duration::from_secs(waited));
            for pod in [&right, &wrong] {
                let got = pod.with_token(token).get_row("x", "k").await;
                assert_eq!(got.status, status, "{off}: {got:?}");
            }
        }
    }
}
