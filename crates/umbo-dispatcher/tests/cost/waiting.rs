//! Requests that wait for the only slot of their shard: what becomes of them, and of those who leave.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use umbo_api::Outcome;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_shed::{GateSettings, LimitSettings};

use crate::support::{Reply, TestPod};

/// Two rows of one partition: what is asked of one waits for what is asked of the other.
const FIRST: &str = "/v1/ns/listings/kv/p/first";
const SECOND: &str = "/v1/ns/listings/kv/p/second";

/// Opens a pod whose shards have one slot each.
async fn narrow_pod() -> TestPod {
    let limit = LimitSettings {
        min: 1,
        max: 1,
        initial: 1,
    };
    let gate = GateSettings {
        limit,
        ..GateSettings::default()
    };
    let overload = OverloadSettings {
        gate,
        ..OverloadSettings::default()
    };
    TestPod::open_with(&[], Some(overload)).await
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

#[tokio::test]
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
    pod.clock.advance(Duration::from_secs(60));
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
