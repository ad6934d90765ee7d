//! What the limiter has seen, as operators are shown it: users, counters, simulations.

use std::time::Duration;

use serde_json::{Value, json};
use umbo_quota::{ActualUsage, CostHint, QuotaRequest, Subject};
use umbo_types::{Attributes, NamespaceId, Operation, PriceMultiplier};

use crate::quotas::support::{Site, TestDispatcher, policy};

/// Asks for a get of a caller; says whether it was let in. One that is costs 1.05 units.
fn get(site: &Site, pod: &TestDispatcher, caller: &str) -> bool {
    let now = umbo_types::Clock::monotonic(&*site.clock);
    let request = QuotaRequest {
        subject: Subject {
            caller,
            namespace: "shop",
            namespace_id: NamespaceId(1),
            attributes: Attributes::NONE,
            operation: Operation::Get,
        },
        hint: CostHint::default(),
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    };
    let Ok(mut reservation) = pod.limiter.admit(&request, now, 0) else {
        return false;
    };
    reservation.sent();
    reservation.settle(&ActualUsage {
        rows: 1,
        reads: 1,
        ..ActualUsage::default()
    });
    true
}

async fn users(pod: &TestDispatcher, query: &str) -> Value {
    let path = format!("/admin/v1/quotas/reads/users{query}");
    let answer = pod.ask("GET", &path, &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

#[tokio::test]
async fn users_and_counters_tell_who_meets_a_policy() {
    let site = Site::new();
    let pod = site.pod().await;
    pod.put(&policy("reads", 5)).await;
    assert_eq!(users(&pod, "").await["total"], 0);
    for _ in 0..20 {
        get(&site, &pod, "busy");
    }
    assert!(get(&site, &pod, "idle"));
    site.clock.advance(Duration::from_secs(1));
    pod.dispatcher.maintain();

    let found = users(&pod, "").await;
    assert_eq!(
        (&found["policy"], &found["total"]),
        (&json!("reads"), &json!(2))
    );
    let [busy, idle] = found["users"].as_array().unwrap().as_slice() else {
        panic!("{found}");
    };
    assert_eq!(busy["label"], "caller=busy");
    assert_eq!(busy["limit"], json!({"rate": 5, "burst": 5, "unit": "ru"}));
    assert_eq!(busy["rejected"], 15, "{busy}");
    assert!(
        busy["observed"].as_f64() > idle["observed"].as_f64(),
        "{found}"
    );
    assert!(idle["balance"].as_f64().unwrap() > 3.9, "{idle}");
    let first = users(&pod, "?limit=1").await;
    assert_eq!((&first["users"][0], &first["total"]), (busy, &json!(2)));
    assert_eq!(first["users"].as_array().unwrap().len(), 1);

    let counters = pod.get("reads").await.body["counters"].clone();
    assert_eq!(
        (&counters["rejected"], &counters["buckets"]),
        (&json!(15), &json!(2))
    );
    assert_eq!(counters["shadow_rejected"], 0);
    assert!(counters["utilisation"].as_f64() > Some(1.0), "{counters}");

    // A change of the limit forgets nobody.
    pod.put(&policy("reads", 50)).await;
    assert!(get(&site, &pod, "busy"));
    assert_eq!(users(&pod, "").await["users"][0]["limit"]["rate"], 50);
    assert_eq!(pod.get("reads").await.body["counters"]["rejected"], 15);
    let absent = pod.ask("GET", "/admin/v1/quotas/none/users", &[], "").await;
    absent.refused(404, "quota-not-found");
}

#[tokio::test]
async fn a_simulation_says_what_would_have_been_rejected_and_changes_nothing() {
    let site = Site::new();
    let pod = site.pod().await;
    for _ in 0..60 {
        for _ in 0..10 {
            assert!(get(&site, &pod, "busy"));
        }
        assert!(get(&site, &pod, "idle"));
        site.clock.advance(Duration::from_secs(1));
        pod.dispatcher.maintain();
    }
    let before = (site.records().await, pod.names().await);
    let simulate = async |body: Value| {
        let path = "/admin/v1/quotas/simulate";
        pod.ask("POST", path, &[], body.to_string()).await
    };
    let answer = simulate(json!({"policy": policy("tried", 5)})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let found = answer.body;
    assert_eq!(found["policy"]["burst"], 5, "written out");
    assert!(found["seconds"].as_f64() > Some(50.0), "{found}");
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows[0]["label"], "caller=busy", "{found}");
    let (requests, rejected) = (&rows[0]["requests"], &rows[0]["rejected"]);
    // It asked for 10.5 units a second and would have been let have 5.
    let share = rejected.as_f64().unwrap() / requests.as_f64().unwrap();
    assert!((0.45..0.60).contains(&share), "{found}");
    assert_eq!(rows[1]["rejected"], 0, "{found}");
    assert_eq!(&found["rejected"], rejected);

    let last = simulate(json!({"policy": policy("tried", 5), "last_seconds": 10})).await;
    assert!(
        last.body["requests"].as_u64() < found["requests"].as_u64(),
        "{last:?}"
    );
    let generous = simulate(json!({"policy": policy("tried", 500)})).await;
    assert_eq!(generous.body["rejected"], 0, "{generous:?}");
    let elsewhere = json!({"name": "a", "match": {"namespace": "games"}, "unit": "ru", "rate": 1});
    let elsewhere = simulate(json!({"policy": elsewhere})).await;
    assert_eq!(elsewhere.body["requests"], 0, "{elsewhere:?}");

    let by_user = json!({"name": "a", "per": ["user", "shard"], "unit": "ru", "rate": 1});
    let by_user = simulate(json!({"policy": by_user})).await.body;
    assert_eq!(by_user["requests"], 0);
    assert!(
        by_user["notes"][0].as_str().unwrap().contains("no user"),
        "{by_user}"
    );
    assert!(
        by_user["notes"][1].as_str().unwrap().contains("shards"),
        "{by_user}"
    );
    assert!(found.get("notes").is_none(), "{found}");

    let zero = simulate(json!({"policy": policy("tried", 0)})).await;
    zero.refused(400, "quota-invalid");
    for body in [
        json!({}),
        json!({"policy": policy("tried", 5), "last_seconds": 0}),
        json!({"policy": policy("tried", 5), "last_seconds": -1}),
        json!({"policy": policy("tried", 5), "since": 1}),
    ] {
        simulate(body).await.refused(400, "invalid-body");
    }
    assert!(
        (site.records().await, pod.names().await) == before,
        "it changed something"
    );
}
