//! Each change, with each of its calls of the store failing in each way: the answer agrees with what a
//! dispatcher sees that starts afterwards.

use std::time::Duration;

use serde_json::Value;

use crate::records::store::Fault;
use crate::records::support::{Answer, Site, TestDispatcher, path};

const FAULTS: [Fault; 4] = [
    Fault::Refused,
    Fault::AnswerLost,
    Fault::Vanished,
    Fault::AllRefused,
];
const ROWS: u32 = 24;

/// A change, and how to tell whether it is in effect.
#[derive(Debug, Clone, Copy)]
enum Change {
    Create,
    SetTtl,
    Remove,
    FirstToken,
    Policy,
    RemovePolicy,
}

const CHANGES: [Change; 6] = [
    Change::Create,
    Change::SetTtl,
    Change::Remove,
    Change::FirstToken,
    Change::Policy,
    Change::RemovePolicy,
];

impl Change {
    async fn ask(self, pod: &TestDispatcher) -> Answer {
        match self {
            Self::Create => pod.ask("PUT", &path("new"), "").await,
            Self::SetTtl => {
                pod.ask("PATCH", &path("kept"), r#"{"default_ttl":60}"#)
                    .await
            }
            Self::Remove => pod.remove("kept").await,
            Self::FirstToken => {
                let body = r#"{"name":"root","grants":["*:*"]}"#;
                pod.ask("POST", "/admin/v1/tokens", body).await
            }
            Self::Policy => {
                let body = r#"{"name":"slow","per":["caller"],"unit":"ru","rate":1000}"#;
                pod.ask("PUT", "/admin/v1/quotas/slow", body).await
            }
            Self::RemovePolicy => pod.ask("DELETE", "/admin/v1/quotas/old", "").await,
        }
    }

    /// Returns whether it is in effect, as a dispatcher sees it.
    async fn is_seen(self, pod: &TestDispatcher) -> bool {
        match self {
            Self::Create => pod.listed("new").await.is_some(),
            Self::SetTtl => pod.listed("kept").await.unwrap()["default_ttl"] == 60,
            Self::Remove => {
                let listed = pod.listed("kept").await;
                listed.is_none_or(|info| info["state"] == "removing")
            }
            Self::FirstToken => pod.ask("GET", "/admin/v1/tokens", "").await.status == 401,
            Self::Policy => pod.ask("GET", "/admin/v1/quotas/slow", "").await.status == 200,
            Self::RemovePolicy => pod.ask("GET", "/admin/v1/quotas/old", "").await.status == 404,
        }
    }
}

/// Makes the change with one failing call. Returns whether it had as many calls.
async fn fails_at(change: Change, nth: u64, fault: Fault) -> bool {
    let context = format!("{change:?}, call {nth} {fault:?}");
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    one.create("kept").await;
    let old = r#"{"name":"old","per":["caller"],"unit":"ru","rate":1000}"#;
    assert_eq!(
        one.ask("PUT", "/admin/v1/quotas/old", old).await.status,
        201
    );
    for row in 0..ROWS {
        let put = one.put_row("kept", &format!("k{row}"), "v").await;
        assert_eq!(put.status, 201, "{put:?}");
    }
    one.store.fail(nth, fault);
    let answer = change.ask(&one).await;
    let has_come = one.store.heal();

    let fresh = site.pod().await;
    let is_seen = change.is_seen(&fresh).await;
    if answer.status < 300 {
        assert!(is_seen, "{context}: {answer:?}");
    } else {
        match answer.body["outcome"].as_str() {
            Some("not-applied") => {
                assert!(!is_seen, "{context}: {answer:?}");
                assert_eq!(
                    answer.body["retry"]["safe"].as_bool(),
                    Some(true),
                    "{context}"
                );
            }
            Some("unknown") => {
                assert_eq!(
                    answer.body["retry"]["safe"].as_bool(),
                    Some(false),
                    "{context}"
                );
                let token = answer.body["token"].as_str();
                assert_eq!(token.is_some(), matches!(change, Change::FirstToken));
                if let Some(token) = token
                    && is_seen
                {
                    let own = fresh.with_token(token);
                    let listed = own.ask("GET", "/admin/v1/tokens", "").await;
                    assert_eq!(listed.status, 200, "nobody is kept out");
                }
            }
            other => panic!("{context}: outcome {other:?} of {answer:?}"),
        }
    }
    // All dispatchers come to see the same, and no row of a live namespace is gone.
    site.clock.advance(Duration::from_secs(2));
    for pod in [&one, &other, &fresh] {
        pod.follow().await;
        assert_eq!(change.is_seen(pod).await, is_seen, "{context}");
    }
    if !matches!(change, Change::FirstToken) || !is_seen {
        check_rows(&fresh, &context).await;
    }
    has_come
}

async fn check_rows(fresh: &TestDispatcher, context: &str) {
    let listed: Option<Value> = fresh.listed("kept").await;
    let is_live = listed.as_ref().is_some_and(|info| info["state"] == "live");
    if is_live {
        for row in 0..ROWS {
            let got = fresh.get_row("kept", &format!("k{row}")).await;
            assert_eq!(got.status, 200, "{context}: row {row} is gone: {got:?}");
        }
        return;
    }
    assert!(
        listed.is_none(),
        "{context}: every shard can confirm by now: {listed:?}"
    );
    fresh.create("kept").await;
    for row in 0..ROWS {
        let got = fresh.get_row("kept", &format!("k{row}")).await;
        got.refused(404, "key-not-found");
    }
}

#[tokio::test]
async fn the_outcome_that_is_answered_is_the_one_that_is_seen() {
    for change in CHANGES {
        for fault in FAULTS {
            let mut nth = 1;
            while fails_at(change, nth, fault).await {
                nth += 1;
            }
            assert!(nth > 2, "{change:?} asks the store at least twice");
        }
    }
}

#[tokio::test]
async fn a_first_token_that_is_refused_keeps_nobody_out() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    one.create("kept").await;
    one.store.fill(0);
    let refused = Change::FirstToken.ask(&one).await;
    refused.refused(507, "storage-full");
    refused.not_applied();
    let ttl = Change::SetTtl.ask(&one).await;
    ttl.refused(507, "storage-full");
    ttl.not_applied();
    one.store.heal();
    site.clock.advance(Duration::from_mins(1));
    for pod in [&one, &other, &site.pod().await] {
        pod.follow().await;
        assert_eq!(pod.ask("GET", "/admin/v1/tokens", "").await.status, 200);
        assert!(pod.listed("kept").await.unwrap()["default_ttl"].is_null());
    }
    assert_eq!(Change::FirstToken.ask(&one).await.status, 201);
}
