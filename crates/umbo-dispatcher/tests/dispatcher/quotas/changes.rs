//! Storing, changing and removing policies, one by one and at the same moment.

use serde_json::{Value, json};

use crate::quotas::support::{BUILT_IN, Site, names, policy};

#[tokio::test]
async fn a_policy_is_stored_changed_and_removed() {
    let site = Site::new();
    let pod = site.pod().await;
    assert_eq!(pod.names().await, names(&[BUILT_IN]));

    let created = pod.put(&policy("reads", 1_000)).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.body["before"], Value::Null);
    assert_eq!(created.body["after"]["rate"], 1_000);
    assert_eq!(created.body["dry_run"], false);
    assert_eq!(
        pod.limiter.policies().get("reads").unwrap().limit.rate,
        1_000_000_000
    );

    let shown = pod.get("reads").await;
    assert_eq!(shown.status, 200);
    assert_eq!(shown.tag(), created.tag());
    assert_eq!(shown.tag(), format!("\"{}\"", shown.body["version"]));
    assert_eq!(shown.body["source"], "stored");
    // Everything is written out, also what was left to its default.
    let written_out = json!({
        "name": "reads", "per": ["caller"], "unit": "ru", "rate": 1_000, "burst": 1_000,
        "refill": "50ms", "scope": "pod", "mode": "enforce", "status": 429,
    });
    assert_eq!(shown.body["policy"], written_out);
    assert_eq!(created.body["after"], written_out);

    // What is shown can be put, and says the same.
    let same = pod.put(&written_out).await;
    assert_eq!((same.status, same.tag()), (200, created.tag()), "{same:?}");

    let changed = pod.put(&policy("reads", 2_000)).await;
    assert_eq!(changed.status, 200);
    assert_eq!(
        (
            &changed.body["before"]["rate"],
            &changed.body["after"]["rate"]
        ),
        (&json!(1_000), &json!(2_000))
    );
    assert_ne!(changed.tag(), created.tag());
    assert_eq!(pod.names().await, names(&[BUILT_IN, ("reads", "stored")]));

    let removed = pod.remove("reads", &[]).await;
    assert_eq!(removed.status, 200, "{removed:?}");
    assert_eq!(removed.body["before"]["rate"], 2_000);
    assert_eq!(removed.body["after"], Value::Null);
    pod.get("reads").await.refused(404, "quota-not-found");
    pod.remove("reads", &[])
        .await
        .refused(404, "quota-not-found");
    assert_eq!(pod.names().await, names(&[BUILT_IN]));
}

#[tokio::test]
async fn conditions_are_about_the_stored_policy() {
    let site = Site::new();
    let pod = site.pod().await;
    let first = policy("reads", 1);
    for nothing_there in [("if-match", "*"), ("if-match", "\"1\"")] {
        let refused = pod.put_if(&first, &[nothing_there]).await;
        let detail = refused.refused(412, "precondition-failed");
        assert!(detail.contains("nothing is stored there"), "{detail}");
        assert!(refused.headers.get("etag").is_none());
    }
    let created = pod.put_if(&first, &[("if-none-match", "*")]).await;
    assert_eq!(created.status, 201);
    let tag = created.tag();

    let second = policy("reads", 2);
    let again = pod.put_if(&second, &[("if-none-match", "*")]).await;
    again.refused(412, "precondition-failed");
    assert_eq!(again.tag(), tag, "the tag that would do is told");
    let stale = pod.put_if(&second, &[("if-match", "\"1\", W/\"2\"")]).await;
    stale.refused(412, "precondition-failed");
    let weak = format!("W/{tag}");
    let weak = pod.put_if(&second, &[("if-match", &weak)]).await;
    weak.refused(412, "precondition-failed");
    let list = format!("\"1\", {tag}");
    let changed = pod.put_if(&second, &[("if-match", &list)]).await;
    assert_eq!(changed.status, 200);

    pod.remove("reads", &[("if-match", &tag)])
        .await
        .refused(412, "precondition-failed");
    let both = [("if-match", "*"), ("if-none-match", "*")];
    pod.put_if(&second, &both)
        .await
        .refused(400, "invalid-query");
    for wrong in ["reads", "\"1"] {
        let refused = pod.put_if(&second, &[("if-match", wrong)]).await;
        refused.refused(400, "invalid-header");
    }
    assert_eq!(pod.get("reads").await.tag(), changed.tag());
    let removed = pod.remove("reads", &[("if-match", &changed.tag())]).await;
    assert_eq!(removed.status, 200);

    // The same policy made anew is the same again; another one is not.
    let anew = pod.put(&second).await;
    assert_eq!((anew.status, anew.tag()), (201, changed.tag()));
}

#[tokio::test]
async fn without_a_condition_a_stored_policy_stays() {
    let site = Site::new();
    let pod = site.pod().await;
    let made = pod.put_if(&policy("reads", 1), &[]).await;
    assert_eq!(made.status, 201);
    let before = site.records().await;
    let same = pod.put_if(&policy("reads", 1), &[]).await;
    assert_eq!((same.status, same.tag()), (200, made.tag()));
    let other = pod.put_if(&policy("reads", 2), &[]).await;
    let detail = other.refused(409, "quota-exists");
    assert!(detail.contains("If-Match"), "{detail}");
    assert!(site.records().await == before, "a refusal wrote something");
    assert_eq!(pod.get("reads").await.tag(), made.tag());
    let replaced = pod.put_if(&policy("reads", 2), &[("if-match", "*")]).await;
    assert_eq!(replaced.status, 200);
}

#[tokio::test]
async fn of_changes_at_the_same_moment_one_wins() {
    let site = Site::new();
    let pods = [site.pod().await, site.pod().await];
    for round in 0..20 {
        let tag = pods[0].put(&policy("race", 1_000 + round)).await.tag();
        let pods: &[_; 2] = &pods;
        let attempts = (0..8_u64).map(|attempt| {
            let tag = tag.clone();
            async move {
                let wanted = policy("race", 1 + attempt);
                let pod = &pods[attempt as usize % 2];
                pod.put_if(&wanted, &[("if-match", &tag)]).await
            }
        });
        let answers = futures_util::future::join_all(attempts).await;
        let won: Vec<_> = answers
            .iter()
            .filter(|answer| answer.status == 200)
            .collect();
        assert_eq!(won.len(), 1, "round {round}");
        for lost in answers.iter().filter(|answer| answer.status != 200) {
            lost.refused(412, "precondition-failed");
        }
        for pod in pods {
            pod.refresh().await;
            assert_eq!(pod.get("race").await.tag(), won[0].tag());
        }
    }
}

#[tokio::test]
async fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let site = Site::new();
    let pod = site.pod().await;
    let tag = pod.put(&policy("kept", 5)).await.tag();
    let before = site.records().await;
    let ask = async |method: &str, name: &str, body: Value, headers: &[(&str, &str)]| {
        let path = format!("/admin/v1/quotas/{name}?dry_run=true");
        pod.ask(method, &path, headers, body.to_string()).await
    };

    let new = ask("PUT", "new", policy("new", 9), &[]).await;
    assert_eq!(new.status, 200, "{new:?}");
    assert_eq!(new.body["before"], Value::Null);
    assert_eq!(new.body["after"]["rate"], 9);
    let changed = ask("PUT", "kept", policy("kept", 6), &[("if-match", &tag)]).await;
    assert_eq!(
        (
            &changed.body["before"]["rate"],
            &changed.body["after"]["rate"]
        ),
        (&json!(5), &json!(6))
    );
    let removed = ask("DELETE", "kept", Value::Null, &[("if-match", &tag)]).await;
    assert_eq!(
        (&removed.body["before"]["rate"], &removed.body["after"]),
        (&json!(5), &Value::Null)
    );
    for answer in [&new, &changed, &removed] {
        assert_eq!(
            (answer.status, &answer.body["dry_run"]),
            (200, &json!(true))
        );
        assert_eq!(answer.body["version"], Value::Null);
        assert!(answer.headers.get("etag").is_none());
    }
    // It refuses what the change would be refused for.
    ask("PUT", "kept", policy("kept", 6), &[("if-match", "\"1\"")])
        .await
        .refused(412, "precondition-failed");
    ask("DELETE", "new", Value::Null, &[])
        .await
        .refused(404, "quota-not-found");
    let zero = ask("PUT", "new", policy("new", 0), &[]).await;
    assert!(zero.refused(400, "quota-invalid").contains("'new': rate"));

    assert!(site.records().await == before, "a dry run wrote something");
    assert_eq!(pod.names().await, names(&[BUILT_IN, ("kept", "stored")]));
    assert_eq!(pod.get("kept").await.tag(), tag);
}

/// Changes to a good policy that make it a bad one, with what the refusal has to say.
fn bad_fields() -> Vec<(&'static str, Value, &'static [&'static str])> {
    vec![
        ("rate", json!(0), &["rate", "0"]),
        ("rate", json!(-5), &["rate", "-5"]),
        ("rate", json!(1e300), &["rate", "too large"]),
        ("rate", json!("0.0000001"), &["rate", "0.0000001"]),
        ("rate", json!("many"), &["rate", "many"]),
        ("burst", json!(1), &["burst", "burst 1 ", "1000", "50"]),
        ("unit", json!("tokens"), &["unit", "tokens"]),
        ("per", json!(["caller", "galaxy"]), &["per[1]", "galaxy"]),
        ("status", json!(500), &["status", "500"]),
        ("mode", json!("maybe"), &["mode", "maybe"]),
        ("refill", json!("1us"), &["refill", "1us"]),
        ("scope", json!("galaxy"), &["scope", "galaxy"]),
        (
            "match",
            json!({"operations": ["fly"]}),
            &["match.operations[0]", "fly"],
        ),
        (
            "overrides",
            json!([{"match": {"user": "x"}, "rate": 1}]),
            &["overrides[0].match.user", "caller"],
        ),
        ("name", json!("other"), &["name", "'other'"]),
        ("name", json!(""), &["name", "''"]),
    ]
}

#[tokio::test]
async fn bad_policies_are_refused_with_the_place_and_the_running_ones_stay() {
    let site = Site::new();
    let pod = site.pod().await;
    pod.put(&policy("kept", 5)).await;
    for (field, value, parts) in bad_fields() {
        let mut body = policy("bad", 1_000);
        body[field] = value;
        let path = "/admin/v1/quotas/bad";
        let answer = pod.ask("PUT", path, &[], body.to_string()).await;
        let detail = answer.refused(400, "quota-invalid");
        assert!(detail.contains("'bad'"), "{detail}");
        for part in parts {
            assert!(detail.contains(part), "{part}: {detail}");
        }
    }
    let extra = r#"{"name":"bad","unit":"ru","rate":1,"rates":1}"#;
    let list = r#"{"name":"bad","unit":"ru","rate":[1]}"#;
    let nameless = r#"{"unit":"ru","rate":1}"#;
    let bodies = [
        "", "{", "[]", "null", "5", "\"bad\"", "\0", extra, list, nameless,
    ];
    for body in bodies {
        let answer = pod.ask("PUT", "/admin/v1/quotas/bad", &[], body).await;
        let detail = answer.refused(400, "invalid-body");
        assert!(
            !body.contains("rates") || detail.ends_with("did you mean `rate`?"),
            "{detail}"
        );
    }
    let huge = vec![b' '; (512 << 10) + 1];
    pod.ask("PUT", "/admin/v1/quotas/bad", &[], huge)
        .await
        .refused(413, "body-too-large");
    assert_eq!(pod.names().await, names(&[BUILT_IN, ("kept", "stored")]));
    assert_eq!(pod.get("kept").await.body["policy"]["rate"], 5);
}

#[tokio::test]
async fn names_and_parameters_that_are_none_are_refused() {
    let site = Site::new();
    let pod = site.pod().await;
    pod.put(&policy("kept", 5)).await;
    let (long, longer) = ("a".repeat(65), "a".repeat(5_000));
    for name in ["Bad", "%20", "%ff", "a%2fb", "-a", &long, &longer] {
        let path = format!("/admin/v1/quotas/{name}");
        let body = json!({"name": name, "unit": "ru", "rate": 1});
        let answer = pod.ask("PUT", &path, &[], body.to_string()).await;
        assert!(matches!(answer.status, 400 | 404), "{name}: {answer:?}");
        for method in ["GET", "DELETE"] {
            let answer = pod.ask(method, &path, &[], "").await;
            assert_eq!(answer.status, 404, "{name}: {answer:?}");
        }
    }
    for (method, path) in [
        ("GET", "/admin/v1/quotas?all"),
        ("GET", "/admin/v1/quotas/kept?dry_run=true"),
        ("DELETE", "/admin/v1/quotas/kept?dry_run=maybe"),
        ("GET", "/admin/v1/quotas/kept/users?limit=0"),
        ("GET", "/admin/v1/quotas/kept/users?limit=10001"),
    ] {
        let answer = pod.ask(method, path, &[], "").await;
        answer.refused(400, "invalid-query");
    }
    let word = pod.ask("PUT", "/admin/v1/quotas/simulate", &[], "{}").await;
    word.refused(405, "method-not-allowed");
    assert_eq!(pod.names().await, names(&[BUILT_IN, ("kept", "stored")]));
}

#[tokio::test]
async fn a_policy_is_global_and_so_is_the_grant_it_needs() {
    let site = Site::new();
    let pod = site.pod().await;
    let mut tokens = Vec::new();
    for grant in ["*:*", "admin:shop", "read,write,scan,delegate:*"] {
        let first: Option<&String> = tokens.first();
        let authorization = first.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = authorization
            .iter()
            .map(|value| ("authorization", &**value))
            .collect();
        let body = json!({"name": "x", "grants": [grant]}).to_string();
        let made = pod.ask("POST", "/admin/v1/tokens", &headers, body).await;
        assert_eq!(made.status, 201, "{made:?}");
        tokens.push(made.body["token"].as_str().unwrap().to_owned());
    }
    let body = policy("a", 5).to_string();
    let simulation = json!({"policy": policy("a", 5)}).to_string();
    let requests = [
        ("PUT", "/admin/v1/quotas/a", &body, 201),
        ("GET", "/admin/v1/quotas", &String::new(), 200),
        ("GET", "/admin/v1/quotas/a", &String::new(), 200),
        ("GET", "/admin/v1/quotas/a/users", &String::new(), 200),
        ("POST", "/admin/v1/quotas/simulate", &simulation, 200),
        ("DELETE", "/admin/v1/quotas/a", &String::new(), 200),
    ];
    for (method, path, body, expected) in requests {
        let ask = async |token: Option<&String>| {
            let authorization = token.map(|token| format!("Bearer {token}"));
            let headers: Vec<_> = authorization
                .iter()
                .map(|value| ("authorization", &**value))
                .collect();
            pod.ask(method, path, &headers, body.clone()).await
        };
        ask(None).await.refused(401, "unauthenticated");
        for token in &tokens[1..] {
            ask(Some(token)).await.refused(403, "forbidden");
        }
        let answer = ask(Some(&tokens[0])).await;
        assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
    }
}
