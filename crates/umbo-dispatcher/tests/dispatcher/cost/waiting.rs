//! Requests that wait for the only slot of their shard: what becomes of them, and of those who leave.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use umbo_api::Outcome;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_hotkey::{KeySeed, ShieldSettings};
use umbo_overload::{LimitSettings, QueueSettings};
use umbo_store::StoreError;
use umbo_types::ShardId;

use crate::cost::support::{Reply, SHARDS, TestDispatcher};

/// Two rows of one partition: what is asked of one waits for what is asked of the other.
const FIRST: &str = "/v1/ns/listings/kv/p/first";
const SECOND: &str = "/v1/ns/listings/kv/p/second";

/// Gates of one slot.
fn narrow() -> QueueSettings {
    let limit = LimitSettings {
        min: 1,
        max: 1,
        initial: 1,
    };
    QueueSettings {
        limit,
        ..QueueSettings::default()
    }
}

async fn narrow_pod() -> TestDispatcher {
    pod_with(narrow()).await
}

async fn pod_with(gate: QueueSettings) -> TestDispatcher {
    let overload = OverloadSettings {
        queue: gate,
        ..OverloadSettings::default()
    };
    TestDispatcher::open_with(&[], Some(overload)).await
}

/// Asserts that an answer says that nothing was written before the deadline.
fn assert_late(reply: &Reply) {
    let problem = reply.problem();
    assert_eq!(reply.status, 504, "{reply:?}");
    assert_eq!(problem.type_uri, "/v1/errors/deadline-before-store");
    assert_eq!(problem.outcome, Some(Outcome::NotApplied));
    assert_eq!(reply.ru(), "0");
}

#[tokio::test]
async fn a_write_whose_client_leaves_the_queue_writes_nothing() {
    for (method, target, body) in [
        ("PUT", SECOND, "late"),
        ("DELETE", FIRST, ""),
        ("DELETE", "/v1/ns/listings/range/p?all=true", ""),
        (
            "POST",
            "/v1/ns/listings/batch/write",
            r#"{"op":"put","pk":"p","sk":"second","v":"late"}"#,
        ),
    ] {
        let pod = narrow_pod().await;
        pod.store.set_held(true);
        let mut first = pin!(pod.ask("PUT", FIRST, &[], "kept"));
        assert!(poll!(&mut first).is_pending());
        {
            let mut second = pin!(pod.ask(method, target, &[], body));
            assert!(poll!(&mut second).is_pending(), "{method} {target}");
            assert_eq!(pod.store.calls(), 1, "{method} {target} was let in");
        }
        pod.store.set_held(false);
        assert_eq!(first.await.status, 201);
        // Whatever goes on without its client would end before the pod does.
        pod.dispatcher.finish().await;
        assert_eq!(pod.store.calls(), 1, "{method} {target}");
        assert_eq!(pod.ask("GET", FIRST, &[], "").await.body, "kept");
        assert_eq!(pod.ask("GET", SECOND, &[], "").await.status, 404);
    }
}

#[tokio::test]
async fn the_place_of_one_who_left_goes_to_the_next() {
    let pod = narrow_pod().await;
    pod.store.set_held(true);
    let mut first = pin!(pod.ask("PUT", FIRST, &[], "a"));
    assert!(poll!(&mut first).is_pending());
    let mut left = Box::pin(pod.ask("PUT", SECOND, &[], "b"));
    assert!(poll!(&mut left).is_pending());
    let mut last = pin!(pod.ask("PUT", SECOND, &[], "c"));
    assert!(poll!(&mut last).is_pending());
    pod.store.set_held(false);
    assert_eq!(first.await.status, 201);
    // The slot is on its way to it already.
    drop(left);
    assert_eq!(last.await.status, 201);
    assert_eq!(pod.ask("GET", SECOND, &[], "").await.body, "c");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_in_the_queue_is_told_as_not_applied() {
    let pod = narrow_pod().await;
    pod.store.set_held(true);
    let patient: &[_] = &[("umbo-timeout-ms", "120000")];
    let mut first = pin!(pod.ask("PUT", FIRST, patient, "kept"));
    assert!(poll!(&mut first).is_pending());
    // Told in time, while the slot is still taken.
    let soon: &[_] = &[("umbo-timeout-ms", "20")];
    assert_late(&pod.ask("PUT", SECOND, soon, "late").await);
    // Told at once, where it has passed when the slot is free.
    let mut second = pin!(pod.ask("DELETE", FIRST, &[("umbo-timeout-ms", "60000")], ""));
    assert!(poll!(&mut second).is_pending());
    pod.clock.advance(Duration::from_mins(1));
    pod.store.set_held(false);
    assert_eq!(first.await.status, 201);
    assert_late(&second.await);
    assert_eq!(pod.store.calls(), 1);
    assert_eq!(pod.ask("GET", FIRST, &[], "").await.body, "kept");
    assert_eq!(pod.ask("GET", SECOND, &[], "").await.status, 404);
}

#[tokio::test]
async fn a_higher_tier_goes_first_however_late_it_came() {
    let pod = narrow_pod().await;
    pod.store.set_held(true);
    let mut first = pin!(pod.ask("PUT", FIRST, &[], "a"));
    assert!(poll!(&mut first).is_pending());
    let tier = |name| [("umbo-criticality", name)];
    let (low, high) = (tier("sheddable"), tier("critical"));
    let mut early = pin!(pod.ask("PUT", SECOND, &low, "early"));
    assert!(poll!(&mut early).is_pending());
    let mut late = pin!(pod.ask("PUT", SECOND, &high, "late"));
    assert!(poll!(&mut late).is_pending());
    pod.store.set_held(false);
    assert_eq!(first.await.status, 201);
    assert_eq!(late.await.status, 201);
    assert_eq!(early.await.status, 204);
    assert_eq!(pod.ask("GET", SECOND, &[], "").await.body, "early");
}

/// Opens a pod whose reads share, and makes the row at `FIRST`.
async fn sharing_pod(gate: QueueSettings) -> TestDispatcher {
    let overload = OverloadSettings {
        queue: gate,
        ..OverloadSettings::default()
    };
    let hot_keys = ShieldSettings::new(2, KeySeed::new(1));
    let pod = TestDispatcher::open_all(&[], Some(overload), Some(hot_keys)).await;
    assert_eq!(pod.ask("PUT", FIRST, &[], "kept").await.status, 201);
    pod
}

fn unavailable() -> StoreError {
    StoreError::Unavailable {
        shard: ShardId(0),
        reason: "on purpose".to_owned(),
        outcome: umbo_store::Outcome::NotApplied,
    }
}

/// Lets the leader of some requests fail, and after it as many others that lead as are to. Returns the answers of the
/// rest, and the calls of the store for all of them.
async fn after_failed_leaders(pod: &TestDispatcher, failures: usize) -> (Vec<Reply>, u64) {
    let before = pod.store.calls();
    pod.store.set_held(true);
    let requests = std::iter::repeat_with(|| Box::pin(pod.ask("GET", FIRST, &[], "")));
    let mut requests: Vec<_> = requests.take(5).collect();
    for failure in 0..failures {
        for request in &mut requests {
            assert!(poll!(request).is_pending());
        }
        assert_eq!(pod.store.calls() - before, failure as u64 + 1, "one leads");
        pod.store.set_error(Some(unavailable()));
        pod.store.set_held(false);
        assert_eq!(requests.remove(0).await.status, 503);
        pod.store.set_error(None);
        pod.store.set_held(true);
    }
    for request in &mut requests {
        assert!(poll!(request).is_pending());
    }
    pod.store.set_held(false);
    let replies = futures_util::future::join_all(requests).await;
    (replies, pod.store.calls() - before)
}

#[tokio::test]
async fn one_follower_of_a_failed_leader_leads_once_more() {
    let pod = sharing_pod(QueueSettings::default()).await;
    let price = pod.ask("GET", FIRST, &[], "").await.units();
    let (replies, calls) = after_failed_leaders(&pod, 1).await;
    assert_eq!(calls, 2, "no stampede follows a failure");
    for (at, reply) in replies.iter().enumerate() {
        assert_eq!((reply.status, &reply.body[..]), (200, &b"kept"[..]));
        let status = if at == 0 {
            "umbo; fwd=miss"
        } else {
            "umbo; fwd=miss; collapsed"
        };
        assert_eq!(reply.header("cache-status"), Some(status));
    }
    assert_eq!(replies[0].units(), price);
}

#[tokio::test]
async fn each_follower_of_two_failed_leaders_asks_once_and_pays_for_it() {
    let pod = sharing_pod(QueueSettings::default()).await;
    let price = pod.ask("GET", FIRST, &[], "").await.units();
    let (replies, calls) = after_failed_leaders(&pod, 2).await;
    assert_eq!(calls, 5);
    for reply in replies {
        assert_eq!((reply.status, &reply.body[..]), (200, &b"kept"[..]));
        assert_eq!(reply.header("cache-status"), Some("umbo; fwd=miss"));
        assert_eq!(reply.units(), price);
    }
}

#[tokio::test]
async fn followers_of_two_failed_leaders_wait_in_the_queue_until_their_own_deadline() {
    let pod = sharing_pod(narrow()).await;
    pod.store.set_held(true);
    let before = pod.store.calls();
    let mut leader = pin!(pod.ask("GET", FIRST, &[], ""));
    assert!(poll!(&mut leader).is_pending());
    let mut second = pin!(pod.ask("GET", FIRST, &[], ""));
    assert!(poll!(&mut second).is_pending());
    let mut patient = pin!(pod.ask("GET", FIRST, &[("umbo-timeout-ms", "60000")], ""));
    assert!(poll!(&mut patient).is_pending());
    let mut hasty = pin!(pod.ask("GET", FIRST, &[("umbo-timeout-ms", "1000")], ""));
    assert!(poll!(&mut hasty).is_pending());
    // The leaders fail while the store answers no other request.
    pod.store.set_error(Some(unavailable()));
    pod.store.set_held(false);
    assert_eq!(leader.await.status, 503);
    pod.store.set_held(true);
    pod.store.set_error(None);
    assert!(poll!(&mut second).is_pending());
    assert!(poll!(&mut patient).is_pending());
    assert!(poll!(&mut hasty).is_pending());
    assert_eq!(pod.store.calls() - before, 2, "one leads");
    pod.store.set_error(Some(unavailable()));
    pod.store.set_held(false);
    assert_eq!(second.await.status, 503);
    pod.store.set_error(None);
    pod.store.set_held(true);
    assert!(poll!(&mut patient).is_pending());
    assert!(poll!(&mut hasty).is_pending());
    // One has the only slot, the other waits for it.
    assert_eq!(pod.store.calls() - before, 3);
    pod.clock.advance(Duration::from_secs(1));
    pod.store.set_held(false);
    assert_eq!(patient.await.body, "kept");
    let late = hasty.await;
    assert_eq!(late.status, 504, "{late:?}");
    let refused = late.problem();
    assert_eq!(refused.type_uri, "/v1/errors/deadline-before-store");
    assert_eq!(pod.store.calls() - before, 3);
}

#[tokio::test]
async fn a_multi_get_asks_for_a_hot_row_whose_leader_failed() {
    let pod = sharing_pod(QueueSettings::default()).await;
    for _ in 0..1_000 {
        assert_eq!(pod.ask("GET", FIRST, &[], "").await.status, 200);
    }
    pod.clock.advance(Duration::from_millis(100));
    pod.dispatcher.tick();
    // Ends what is cached.
    assert_eq!(pod.ask("PUT", FIRST, &[], "kept").await.status, 204);
    let before = pod.store.calls();
    pod.store.set_held(true);
    let mut leader = pin!(pod.ask("GET", FIRST, &[], ""));
    assert!(poll!(&mut leader).is_pending());
    let body = r#"{"keys":[{"pk":"p","sk":"first"}]}"#;
    let mut batch = pin!(pod.ask("POST", "/v1/ns/listings/batch/get", &[], body));
    assert!(poll!(&mut batch).is_pending());
    assert_eq!(pod.store.calls() - before, 1);
    pod.store.set_error(Some(unavailable()));
    pod.store.set_held(false);
    assert_eq!(leader.await.status, 503);
    pod.store.set_error(None);
    let reply = batch.await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(
        String::from_utf8_lossy(&reply.body).contains("kept"),
        "{reply:?}"
    );
    assert_eq!(pod.store.calls() - before, 2);
}

#[tokio::test]
async fn a_scrape_tells_who_waits_for_which_shard_and_what_became_of_them() {
    let pod = narrow_pod().await;
    pod.store.set_held(true);
    let mut first = pin!(pod.ask("PUT", FIRST, &[], "a"));
    assert!(poll!(&mut first).is_pending());
    let mut second = pin!(pod.ask("PUT", SECOND, &[("umbo-criticality", "critical")], "b"));
    assert!(poll!(&mut second).is_pending());
    let soon = [("umbo-timeout-ms", "20"), ("umbo-criticality", "sheddable")];
    assert_late(&pod.ask("DELETE", SECOND, &soon, "").await);
    pod.clock.advance(Duration::from_millis(250));
    let held = pod.scrape().await;
    let lines = |text: &str, name: &str| -> Vec<String> {
        let own = text.lines().filter(|line| line.starts_with(name));
        own.filter(|line| !line.ends_with(" 0"))
            .map(str::to_owned)
            .collect()
    };
    let slots = lines(&held, "umbo_shard_limit{");
    assert_eq!(slots.len(), usize::from(SHARDS), "{slots:?}");
    // One for reads and one for writes.
    assert!(slots.iter().all(|line| line.ends_with(" 2")), "{slots:?}");
    let [in_flight] = &lines(&held, "umbo_shard_in_flight{")[..] else {
        panic!("{held}");
    };
    let shard = in_flight
        .strip_prefix("umbo_shard_in_flight{shard=")
        .and_then(|line| line.strip_suffix("} 1"))
        .unwrap();
    let [waiting] = &lines(&held, "umbo_shard_waiting{")[..] else {
        panic!("{held}");
    };
    let expected = format!("umbo_shard_waiting{{shard={shard},tier=\"critical\"}} 1");
    assert_eq!(*waiting, expected);
    let oldest = format!("umbo_shard_oldest_waiting_seconds{{shard={shard}}} 0.25");
    assert_eq!(lines(&held, "umbo_shard_oldest_waiting"), [oldest]);
    assert_eq!(lines(&held, "umbo_shard_waiting_request_units{").len(), 1);
    let queued = |tier| format!("umbo_queued_total{{tier=\"{tier}\"}} 1");
    let queued = [queued("sheddable"), queued("critical")];
    assert_eq!(lines(&held, "umbo_queued_total"), queued);

    pod.store.set_held(false);
    assert_eq!((first.await.status, second.await.status), (201, 201));
    let after = pod.scrape().await;
    for name in ["umbo_shard_in_flight{", "umbo_shard_waiting{"] {
        assert!(lines(&after, name).is_empty(), "{after}");
    }
    assert_eq!(lines(&after, "umbo_queued_total"), queued);
    // Nothing of a layer that is off.
    let off = TestDispatcher::open(&[]).await.scrape().await;
    assert!(!off.contains("umbo_shard_limit") && !off.contains("umbo_shed_total"));
}

#[tokio::test]
async fn a_scrape_counts_who_was_shed_by_tier_and_signal() {
    let gate = QueueSettings {
        waiting_max: 1,
        ..narrow()
    };
    let pod = pod_with(gate).await;
    pod.store.set_held(true);
    let mut first = pin!(pod.ask("PUT", FIRST, &[], "a"));
    assert!(poll!(&mut first).is_pending());
    let tier = |name| [("umbo-criticality", name)];
    let (low, high) = (tier("sheddable"), tier("critical"));
    let mut displaced = pin!(pod.ask("PUT", SECOND, &low, "b"));
    assert!(poll!(&mut displaced).is_pending());
    let mut second = pin!(pod.ask("PUT", SECOND, &high, "c"));
    assert!(poll!(&mut second).is_pending());
    let displaced = displaced.await.problem();
    assert_eq!(displaced.signal.as_deref(), Some("queue-displaced"));
    let turned_away = pod.ask("PUT", SECOND, &low, "d").await.problem();
    assert_eq!(turned_away.signal.as_deref(), Some("queue-length"));
    let text = pod.scrape().await;
    let count = |tier: &str, signal: &str| {
        let series = format!("umbo_shed_total{{tier=\"{tier}\",signal=\"{signal}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("{series} is missing"))
            .to_owned()
    };
    assert_eq!(count("sheddable", "queue-displaced"), "1");
    assert_eq!(count("sheddable", "queue-length"), "1");
    for signal in ["queue-delay", "queue-work"] {
        assert_eq!(count("sheddable", signal), "0");
    }
    assert_eq!(count("critical", "queue-length"), "0");
    pod.store.set_held(false);
    assert_eq!((first.await.status, second.await.status), (201, 201));
}
