//! Who pays: names are honoured with the grant `delegate`, and ignored without.

use crate::cost::support::{TestDispatcher, by_caller};

const TARGET: &str = "/v1/ns/listings/kv/p";

/// Returns who has spent anything, and on how many requests.
fn payers(pod: &TestDispatcher) -> Vec<(String, u64)> {
    let rows = pod.quota.usage().rows.into_iter();
    rows.map(|row| (row.caller.to_string(), row.tally.requests))
        .collect()
}

#[tokio::test]
async fn a_delegate_calls_for_others_and_nobody_else_does() {
    let pod = TestDispatcher::open(&[by_caller("tiny", "1", "1")]).await;
    let operator = pod.token("", "operator", &["admin:*"]).await;
    let proxy = pod
        .token(&operator, "proxy", &["read,delegate:listings"])
        .await;
    let plain = pod
        .token(&operator, "plain", &["read:*", "delegate:other"])
        .await;

    let fields = [("authorization", &*proxy), ("umbo-quota-user", "search")];
    let first = pod.ask("GET", TARGET, &fields, "").await;
    assert_eq!(
        (first.status, first.header("umbo-charged-to")),
        (404, Some("search"))
    );
    let fields = [
        ("authorization", &*plain),
        ("umbo-quota-user", "search"),
        ("umbo-org", "o"),
    ];
    let second = pod.ask("GET", TARGET, &fields, "").await;
    assert_eq!(
        (second.status, second.header("umbo-charged-to")),
        (404, Some("plain"))
    );
    let own = pod
        .ask("GET", TARGET, &[("authorization", &proxy)], "")
        .await;
    assert_eq!((own.status, own.header("umbo-charged-to")), (404, None));
    let expected = [("plain", 1), ("proxy", 1), ("search", 1)];
    assert_eq!(payers(&pod), expected.map(|(name, n)| (name.to_owned(), n)));

    // The quota of whom it calls for is spent, not its own.
    let fields = [("authorization", &*proxy), ("umbo-quota-user", "search")];
    let again = pod.ask("GET", TARGET, &fields, "").await;
    assert_eq!(
        (again.status, again.header("umbo-charged-to")),
        (429, Some("search"))
    );
    let other = [("authorization", &*proxy), ("umbo-quota-user", "ranking")];
    assert_eq!(pod.ask("GET", TARGET, &other, "").await.status, 404);
}

#[tokio::test]
async fn users_have_buckets_of_their_own() {
    let mut policy = by_caller("per-user", "1", "1");
    policy.per = vec!["caller".to_owned(), "user".to_owned()];
    let pod = TestDispatcher::open(&[policy]).await;
    for user in ["one", "two", "one"] {
        let fields = [("umbo-user", user), ("umbo-session", "s-1")];
        let reply = pod.ask("GET", TARGET, &fields, "").await;
        let charged_to = format!("anonymous;user=\"{user}\";session=\"s-1\"");
        assert_eq!(reply.header("umbo-charged-to"), Some(&*charged_to));
    }
    // The first user's bucket is spent; without a user the policy counts nothing.
    let spent = pod.ask("GET", TARGET, &[("umbo-user", "one")], "").await;
    assert_eq!(spent.status, 429);
    assert!(spent.problem().detail.contains("per caller and user"));
    assert_eq!(pod.ask("GET", TARGET, &[], "").await.status, 404);
}

#[tokio::test]
async fn names_and_attempts_are_checked() {
    let pod = TestDispatcher::open(&[]).await;
    let long = "x".repeat(129);
    for (name, value) in [
        ("umbo-quota-user", "two words"),
        ("umbo-user", ""),
        ("umbo-session", &*long),
        ("umbo-attempt", "0"),
        ("umbo-attempt", "101"),
        ("umbo-attempt", "+1"),
    ] {
        let reply = pod.ask("GET", TARGET, &[(name, value)], "").await;
        assert_eq!(reply.status, 400, "{name}: {value}");
        assert!(reply.problem().detail.contains(name));
    }
    for attempt in ["1", "2", "100"] {
        let reply = pod
            .ask("GET", TARGET, &[("umbo-attempt", attempt)], "")
            .await;
        assert_eq!(reply.status, 404);
    }
    let scrape = pod.scrape().await;
    assert!(
        scrape.contains("umbo_requests_repeated_total{operation=\"get\"} 2\n"),
        "{scrape}"
    );
}
