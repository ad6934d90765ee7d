//! What a caller is told whose quota is spent.

use std::time::Duration;

use crate::cost::support::{Reply, TestDispatcher, by_caller};

const TARGET: &str = "/v1/ns/listings/kv/p";

/// Asks until a quota says no.
async fn rejected(pod: &TestDispatcher, method: &str) -> Reply {
    for _ in 0..100 {
        let reply = pod.ask(method, TARGET, &[], "").await;
        if reply.status >= 419 {
            return reply;
        }
    }
    panic!("no quota says no");
}

#[tokio::test]
async fn a_rejection_says_which_policy_and_when_to_come_back() {
    let pod = TestDispatcher::open(&[by_caller("search-reads", "10", "20")]).await;
    let reply = rejected(&pod, "GET").await;
    assert_eq!((reply.status, reply.ru()), (429, "0"));
    let problem = reply.problem();
    assert_eq!(problem.code().unwrap().as_str(), "quota-exceeded");
    assert_eq!(problem.status, 429);
    assert_eq!(problem.policy.as_deref(), Some("search-reads"));
    assert_eq!(problem.scope, Some(umbo_api::Scope::Caller));
    let limit = problem.limit.unwrap();
    assert_eq!(
        (limit.rate.as_str(), limit.burst.as_str(), &*limit.unit),
        ("10", "20", "ru")
    );
    assert!(problem.observed.unwrap().as_f64().unwrap() > 0.0);
    assert_eq!(problem.outcome, None);
    assert!(problem.retry.safe);
    let wait_ms = problem.retry.after_ms.unwrap();
    assert!((50..10_000).contains(&wait_ms), "{wait_ms}");
    let wait_text = wait_ms.to_string();
    assert_eq!(reply.header("umbo-retry-after-ms"), Some(&*wait_text));
    let seconds = wait_ms.div_ceil(1_000).to_string();
    assert_eq!(reply.header("retry-after"), Some(&*seconds));
    assert!(
        problem
            .detail
            .starts_with("policy 'search-reads' allows 10 ru/s per caller; "),
        "{}",
        problem.detail
    );
    assert!(
        problem
            .detail
            .ends_with(&format!("; come back in {wait_ms} ms")),
        "{}",
        problem.detail
    );
    assert_eq!(
        reply.header("ratelimit-policy"),
        Some("\"search-reads\";q=20;w=2;qu=\"ru\"")
    );
    let left = reply.header("ratelimit").unwrap();
    assert!(left.starts_with("\"search-reads\";r=0;t="), "{left}");

    // The wait is honest.
    let ticket = reply.header("umbo-retry-ticket").unwrap();
    pod.clock.advance(Duration::from_millis(wait_ms));
    let retry = [("umbo-retry-ticket", ticket)];
    assert_eq!(pod.ask("GET", TARGET, &retry, "").await.status, 404);
}

#[tokio::test]
async fn a_policy_may_say_419() {
    let mut policy = by_caller("mussel", "10", "20");
    policy.status = Some(419);
    let pod = TestDispatcher::open(&[policy]).await;
    let calls = pod.store.calls();
    let mut applied = 0;
    let reply = loop {
        let reply = pod.ask("PUT", TARGET, &[], "value").await;
        if reply.status >= 419 {
            break reply;
        }
        applied += 1;
    };
    let problem = reply.problem();
    assert_eq!((reply.status, problem.status), (419, 419));
    assert_eq!(problem.outcome, Some(umbo_api::Outcome::NotApplied));
    assert_eq!(reply.header("umbo-outcome"), Some("not-applied"));
    assert!(reply.header("retry-after").is_some());
    assert_eq!(
        pod.store.calls() - calls,
        applied,
        "a rejection asks no store"
    );
}

#[tokio::test]
async fn an_answer_says_what_is_left_of_a_configured_policy_alone() {
    let pod = TestDispatcher::open(&[]).await;
    let reply = pod.ask("GET", TARGET, &[], "").await;
    assert_eq!(
        (reply.header("ratelimit"), reply.header("ratelimit-policy")),
        (None, None)
    );

    let mut shadow = by_caller("shadow", "1", "1");
    shadow.mode = Some("shadow".to_owned());
    let pod = TestDispatcher::open(&[by_caller("own", "10", "25"), shadow]).await;
    let reply = pod.ask("GET", TARGET, &[], "").await;
    assert_eq!(
        reply.header("ratelimit-policy"),
        Some("\"own\";q=25;w=3;qu=\"ru\"")
    );
    assert_eq!(reply.header("ratelimit"), Some("\"own\";r=23;t=1"));
    // What a shadow policy would have rejected is counted, and nothing else.
    for _ in 0..4 {
        assert_eq!(pod.ask("GET", TARGET, &[], "").await.status, 404);
    }
    let scrape = pod.scrape().await;
    let has = |line: &str| assert!(scrape.contains(line), "{line} is not in\n{scrape}");
    has("umbo_policy_rejected_total{policy=\"shadow\"} 0\n");
    assert!(!scrape.contains("umbo_policy_shadow_rejected_total{policy=\"shadow\"} 0\n"));
    has("umbo_policy_buckets{policy=\"own\"} 1\n");
    has("umbo_caller_request_units_total{caller=\"anonymous\"} 5.25\n");
}

#[tokio::test]
async fn rejections_are_counted_apart_from_refusals() {
    let pod = TestDispatcher::open(&[by_caller("tiny", "1", "3")]).await;
    rejected(&pod, "GET").await;
    let scrape = pod.scrape().await;
    let has = |line: &str| assert!(scrape.contains(line), "{line} is not in\n{scrape}");
    has("umbo_refused_total{code=\"quota-exceeded\",kind=\"rejected\"} 1\n");
    has("umbo_requests_rejected_total{operation=\"get\"} 1\n");
    has("umbo_policy_rejected_total{policy=\"tiny\"} 1\n");
    has("umbo_requests_total{operation=\"get\",status=\"429\"} 1\n");
}

#[tokio::test]
async fn a_hot_shard_is_protected_and_the_others_serve() {
    let mut policy = by_caller("per-shard", "10", "10");
    policy.scope = Some("shard".to_owned());
    let pod = TestDispatcher::open(&[policy]).await;
    let reply = rejected(&pod, "GET").await;
    let problem = reply.problem();
    assert_eq!(problem.scope, Some(umbo_api::Scope::Shard));
    assert_eq!(
        (problem.policy.as_deref(), reply.ru()),
        (Some("per-shard"), "0")
    );
    // Rows of other shards are read; rows of the hot one are not, whatever they are asked with.
    let mut statuses = Vec::new();
    for at in 0..40 {
        let target = format!("/v1/ns/listings/kv/p{at}");
        statuses.push(pod.ask("GET", &target, &[], "").await.status);
    }
    assert!(
        statuses.contains(&404) && statuses.contains(&429),
        "{statuses:?}"
    );
    let range = pod.ask("GET", "/v1/ns/listings/range/p", &[], "").await;
    assert_eq!(range.status, 429);
    let scan = pod.ask("POST", "/v1/ns/listings/scan", &[], "").await;
    assert_eq!(scan.status, 429);
    let keys = "{\"keys\":[{\"pk\":\"p\"},{\"pk\":\"q\"}]}";
    let many = pod
        .ask("POST", "/v1/ns/listings/batch/get", &[], keys)
        .await;
    assert_eq!((many.status, many.ru()), (429, "0"));
}

#[tokio::test]
async fn a_batch_is_admitted_or_rejected_as_a_whole() {
    let mut policy = by_caller("writes", "2", "2");
    policy.unit = "writes".to_owned();
    let pod = TestDispatcher::open(&[policy]).await;
    let lines = "{\"pk\":\"p\",\"v\":\"x\"}\n".repeat(10);
    let first = pod
        .ask("POST", "/v1/ns/listings/batch/write", &[], lines.clone())
        .await;
    assert_eq!(first.status, 200);
    let second = pod
        .ask("POST", "/v1/ns/listings/batch/write", &[], lines)
        .await;
    assert_eq!((second.status, second.ru()), (429, "0"));
    assert_eq!(
        second.problem().outcome,
        Some(umbo_api::Outcome::NotApplied)
    );
    // Reads are none of its business.
    assert_eq!(pod.ask("GET", TARGET, &[], "").await.status, 200);
}
