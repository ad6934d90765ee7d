//! Where policies stand: built in, in the file, in the store; and what happens where these meet.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use umbo_control::policies::FilePolicies;

use crate::quotas::support::{BUILT_IN, Site, names, policy};

fn entry(name: &str, rate: u64) -> String {
    format!("[[policy]]\nname = \"{name}\"\nper = [\"caller\"]\nunit = \"ru\"\nrate = {rate}\n")
}

#[tokio::test]
async fn a_policy_of_the_file_is_changed_in_the_file_only() {
    let site = Site::new();
    let pod = site.pod_with_file(&entry("ours", 10)).await;
    assert_eq!(pod.names().await, names(&[BUILT_IN, ("ours", "file")]));
    let shown = pod.get("ours").await;
    assert!(shown.headers.get("etag").is_none() && shown.body["version"].is_null());
    let detail = pod
        .put(&policy("ours", 5))
        .await
        .refused(409, "quota-of-file");
    assert!(detail.contains("'ours'"), "{detail}");
    pod.remove("ours", &[]).await.refused(409, "quota-of-file");
    let dry = pod
        .ask("DELETE", "/admin/v1/quotas/ours?dry_run", &[], "")
        .await;
    dry.refused(409, "quota-of-file");
    assert_eq!(pod.get("ours").await.body["policy"]["rate"], 10);

    let other = site.file(&(entry("ours", 11) + &entry("more", 1)));
    pod.dispatcher.control.replace_policy_file(other).unwrap();
    assert_eq!(
        pod.names().await,
        names(&[BUILT_IN, ("more", "file"), ("ours", "file")])
    );
    assert_eq!(pod.get("ours").await.body["policy"]["rate"], 11);
    // A refresh does not bring the old file back.
    pod.refresh().await;
    assert_eq!(pod.get("ours").await.body["policy"]["rate"], 11);
    let none = site.file("");
    pod.dispatcher.control.replace_policy_file(none).unwrap();
    assert_eq!(pod.put(&policy("ours", 5)).await.status, 201);
}

#[tokio::test]
async fn the_file_counts_before_the_store_and_gives_back_what_it_covered() {
    let site = Site::new();
    let pod = site.pod().await;
    let tag = pod.put(&policy("both", 1)).await.tag();
    pod.dispatcher
        .control
        .replace_policy_file(site.file(&entry("both", 2)))
        .unwrap();
    assert_eq!(pod.names().await, names(&[("both", "file"), BUILT_IN]));
    pod.refresh().await;
    assert_eq!(pod.get("both").await.body["policy"]["rate"], 2);
    // Another pod without the file still has the stored one.
    assert_eq!(site.pod().await.get("both").await.body["policy"]["rate"], 1);
    pod.dispatcher
        .control
        .replace_policy_file(site.file(""))
        .unwrap();
    assert_eq!(pod.get("both").await.tag(), tag);
}

#[tokio::test]
async fn what_is_built_in_gives_way_and_comes_back() {
    let site = Site::new();
    let pod = site.pod().await;
    let built_in = pod.get("default-caller").await;
    assert_eq!(built_in.body["source"], "built-in");
    assert!(built_in.headers.get("etag").is_none());
    let detail = pod
        .remove("default-caller", &[])
        .await
        .refused(404, "quota-not-found");
    assert!(detail.contains("built in"), "{detail}");
    let own = policy("default-caller", 50);
    let stored = pod.put_if(&own, &[("if-none-match", "*")]).await;
    assert_eq!(stored.status, 201, "nothing was stored under the name");
    assert_eq!(stored.body["before"], built_in.body["policy"]);
    assert_eq!(pod.names().await, names(&[("default-caller", "stored")]));
    let removed = pod.remove("default-caller", &[]).await;
    assert_eq!(removed.body["after"], built_in.body["policy"]);
    assert_eq!(pod.names().await, names(&[BUILT_IN]));
    let file = site.file(&entry("default-caller", 7));
    pod.dispatcher.control.replace_policy_file(file).unwrap();
    assert_eq!(pod.names().await, names(&[("default-caller", "file")]));
}

#[tokio::test]
async fn other_pods_follow_at_their_refresh_and_a_restart_keeps_all() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    let tag = one.put(&policy("reads", 10)).await.tag();
    assert_eq!(other.names().await, names(&[BUILT_IN]));
    other.refresh().await;
    assert_eq!(other.get("reads").await.tag(), tag);
    assert_eq!(
        other.limiter.policies().get("reads").unwrap().limit.rate,
        10_000_000
    );

    // A change is made of what is stored now, whatever this pod has seen of it.
    let newer = one.put(&policy("reads", 20)).await.tag();
    let stale = other
        .put_if(&policy("reads", 30), &[("if-match", &tag)])
        .await;
    stale.refused(412, "precondition-failed");
    assert_eq!(stale.tag(), newer);
    let seen = other.put(&policy("more", 1)).await;
    assert_eq!(seen.status, 201);
    assert_eq!(
        other.get("reads").await.tag(),
        newer,
        "the change brought the rest along"
    );

    one.remove("reads", &[]).await;
    one.refresh().await;
    other.refresh().await;
    for pod in [&one, &other, &site.pod().await] {
        assert_eq!(pod.names().await, names(&[BUILT_IN, ("more", "stored")]));
    }
}

#[tokio::test]
async fn a_namespace_that_another_pod_has_just_made_is_found_at_once() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    let data = other.on_data_port();
    let get = async || data.ask("GET", "/v1/ns/fresh/kv/a", &[], "").await;
    get().await.refused(404, "namespace-not-found");
    let made = one
        .ask("PUT", "/admin/v1/namespaces/fresh", &[], "{}")
        .await;
    assert_eq!(made.status, 201);
    // The store has been looked into within this second.
    get().await.refused(404, "namespace-not-found");
    site.clock.advance(Duration::from_secs(1));
    get().await.refused(404, "key-not-found");
}

#[tokio::test]
async fn records_that_cannot_be_read_are_not_taken_up_and_the_last_good_ones_stay() {
    let site = Site::new();
    let pod = site.pod().await;
    pod.put(&policy("good", 1)).await;
    let expected = names(&[BUILT_IN, ("good", "stored")]);
    for (name, content) in [
        (
            "newer",
            &br#"{"name":"newer","unit":"joules","rate":1}"#[..],
        ),
        ("garbage", b"\xff{{"),
        ("empty", b""),
        ("alias", br#"{"name":"good","unit":"ru","rate":1}"#),
        ("good", b"{"),
    ] {
        site.spoil(name, Some(content)).await;
        let why = pod
            .dispatcher
            .control
            .refresh()
            .await
            .unwrap_err()
            .to_string();
        assert!(why.contains(&format!("quota/{name}")), "{why}");
        assert_eq!(pod.names().await, expected);
        let ready = pod.ask("GET", "/readyz", &[], "").await;
        assert_eq!(
            (ready.status, &ready.body["status"]),
            (200, &json!("degraded"))
        );
        // Nothing can be changed of what is not known.
        let refused = pod.put(&policy("more", 1)).await;
        refused.refused(503, "records-unreadable");
        assert_eq!(refused.body["outcome"], "not-applied");
        assert_eq!(refused.body["retry"]["safe"], true);
        let started = site.try_pod_with(FilePolicies::default()).await;
        let why = started
            .err()
            .expect("it cannot know who may do what")
            .to_string();
        assert!(why.contains(&format!("quota/{name}")), "{why}");
        site.spoil(name, None).await;
        pod.refresh().await;
        let ready = pod.ask("GET", "/readyz", &[], "").await;
        assert_eq!(ready.body["status"], "ok");
    }
    assert_eq!(
        pod.names().await,
        names(&[BUILT_IN]),
        "the last one is gone"
    );
    assert_eq!(pod.put(&policy("more", 1)).await.status, 201);
}

#[tokio::test]
async fn nothing_new_pushes_out_what_is_in_effect() {
    let site = Site::new();
    let text = (0..253).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{}", entry(&format!("f{number:03}"), 1));
        text
    });
    // With the one built in, there is room for two more.
    let (pod, roomy) = (site.pod_with_file(&text).await, site.pod().await);
    assert_eq!(pod.put(&policy("s1", 1)).await.status, 201);
    assert_eq!(pod.put(&policy("s2", 1)).await.status, 201);
    for name in ["a", "z"] {
        let detail = pod
            .put(&policy(name, 1))
            .await
            .refused(400, "quota-invalid");
        assert!(detail.contains(&format!("'{name}'")), "{detail}");
        assert!(detail.contains("257") && detail.contains("256"), "{detail}");
    }
    assert_eq!(
        pod.put(&policy("s2", 2)).await.status,
        200,
        "a change needs no room"
    );

    let larger = site.file(&(text.clone() + &entry("g", 1)));
    let refused = pod
        .dispatcher
        .control
        .replace_policy_file(larger.clone())
        .unwrap_err();
    assert!(refused.to_string().contains("'s2'"), "{refused}");
    assert_eq!(pod.names().await.len(), 256);
    pod.get("g").await.refused(404, "quota-not-found");

    // Where other pods leave no choice, the first by name stay, here and after a start.
    roomy.refresh().await;
    assert_eq!(roomy.put(&policy("s0", 1)).await.status, 201);
    pod.refresh().await;
    for pod in [&pod, &site.pod_with_file(&text).await] {
        assert_eq!(pod.names().await.len(), 256);
        assert_eq!(pod.get("s0").await.status, 200);
        assert_eq!(pod.get("s1").await.status, 200);
        pod.get("s2").await.refused(404, "quota-not-found");
    }
    // What was left out can still be removed, and comes back once there is room.
    assert_eq!(pod.remove("s0", &[]).await.status, 200);
    assert_eq!(pod.get("s2").await.status, 200);
    // A start with too large a file serves with it.
    let started = site.pod_with(larger).await;
    assert_eq!(started.names().await.len(), 256);
    assert_eq!(started.get("g").await.body["source"], "file");
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let site = Site::new();
    let good = entry("good", 10);
    let bad =
        |from: &str, to: &str| format!("# ours\n{good}\n{}", entry("bad", 1_000).replace(from, to));
    for (text, parts) in [
        (
            bad("rate = 1000", "rate = 0"),
            &["'bad': rate", "line 12"][..],
        ),
        (
            bad("rate = 1000", "rate = -1"),
            &["'bad': rate", "-1", "line 12"],
        ),
        (
            bad("rate = 1000", "rate = 1000\nburst = 1"),
            &["'bad': burst", "1000", "50"],
        ),
        (bad("\"ru\"", "\"tokens\""), &["'bad': unit", "tokens"]),
        (bad("unit", "units"), &["line 11", "unknown field `units`"]),
        (bad("rate = 1000", ""), &["missing field `rate`"]),
        (bad("rate = 1000", "rate = 1e400"), &["line 12"]),
        (bad("\"bad\"", "\"good\""), &["'good'", "line 8", "line 2"]),
        (
            bad("[[policy]]", "[[polices]]"),
            &["line 8", "unknown field `polices`"],
        ),
        (bad("[[policy]]", "[policy]"), &["line 8"]),
        ("policy = 5".to_owned(), &["line 1"]),
        ("\u{feff}[[policy".to_owned(), &["line 1"]),
    ] {
        let words = site.file_refusal(&text);
        assert!(words.contains("quotas.toml"), "{words}");
        for part in parts {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
    for empty in ["", "# nothing\n", "policy = []\n"] {
        assert!(site.file(empty).is_empty());
    }
    assert_eq!(site.file(&good).len(), 1);
}

#[tokio::test]
async fn exact_amounts_survive_file_store_and_restart() {
    let site = Site::new();
    let pod = site.pod().await;
    for (at, (unit, rate, burst, expected)) in [
        ("ru", json!(1e-6), json!(1), 1),
        (
            "ru",
            json!("999999999.999999"),
            json!("49999999999.999999"),
            999_999_999_999_999,
        ),
        ("requests", json!(0.1), json!(3), 100_000),
        ("bytes", json!("64KiB"), json!("1MiB"), 65_536),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("p{at}");
        let body = json!({"name": name, "unit": unit, "rate": rate, "burst": burst});
        let answer = pod.put(&body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let shown = pod.get(&name).await;
        let again = pod.put(&shown.body["policy"]).await;
        assert_eq!(
            (again.status, again.tag()),
            (200, answer.tag()),
            "{shown:?}"
        );
        for pod in [&pod, &site.pod().await] {
            assert_eq!(
                pod.limiter.policies().get(&name).unwrap().limit.rate,
                expected
            );
        }
    }
}
