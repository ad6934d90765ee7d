//! The report and the metrics: what they say, and what they never say.

use std::time::Duration;

use umbo_telemetry::metric_names::{ALL, DISK_FREE, DISK_SIZE};

use crate::hot::support::{Site, TestDispatcher};

/// Reads a path so often that its key is hot.
async fn heat(site: &Site, pod: &TestDispatcher, path: &str) {
    for _ in 0..20 {
        for _ in 0..100 {
            pod.get(path).await;
        }
        site.pass(Duration::from_millis(100), &[pod]);
    }
}

#[tokio::test]
async fn a_hot_row_and_a_hot_range_are_reported_with_who_reads_them() {
    let site = Site::new();
    let pod = site.pod(1).await;
    pod.create("shop").await;
    pod.ask("PUT", "/v1/ns/shop/kv/listing/a", "v").await;
    heat(&site, &pod, "/v1/ns/shop/kv/listing/a").await;
    heat(&site, &pod, "/v1/ns/shop/range/listing?limit=3").await;
    let keys = pod.keys().await;
    let kinds: Vec<_> = keys.iter().map(|key| &key["kind"]).collect();
    assert_eq!(kinds.len(), 2, "{keys:?}");
    let row = keys.iter().find(|key| key["kind"] == "row").unwrap();
    let range = keys.iter().find(|key| key["kind"] == "range").unwrap();
    assert_eq!(
        (&row["pk"], &row["sk"], &range["pk"]),
        (&"listing".into(), &"a".into(), &"listing".into())
    );
    assert!(range.get("sk").is_none());
    for key in [row, range] {
        assert_eq!(key["standing"], "hot");
        assert_eq!(key["is_hot"], true);
        assert!(key["rate_now"].as_f64().unwrap() > 200.0, "{key}");
        assert!(key["hits"].as_u64().unwrap() > 500, "{key}");
        assert!(key["hit_ratio"].as_f64().unwrap() > 0.9, "{key}");
        assert_eq!(key["callers"][0]["caller"], "anonymous");
        assert_eq!(key["hash"].as_str().unwrap().len(), 16);
    }
    let report = pod.get("/admin/v1/hot").await.body;
    let totals = &report["pod"];
    assert!(totals["hits"].as_u64().unwrap() > 1_000, "{totals}");
    assert!(totals["saved_share"].as_f64().unwrap() > 0.9, "{totals}");
    assert_eq!(totals["cache_entries"], 2);
    assert!(totals["detection_bytes"].as_u64().unwrap() < 1 << 20);

    // A range is blocked by its id, and nothing else of its partition is.
    let id = format!("id/{}", range["id"].as_str().unwrap());
    assert_eq!(pod.list("blocked", &id, "").await.status, 201);
    let refused = pod.get("/v1/ns/shop/range/listing?limit=3").await;
    refused.refused(429, "abnormal-usage-detected");
    assert_eq!(refused.header("umbo-ru"), "0");
    // Going round the cache is no way round the block.
    let round = [("cache-control", "no-cache")];
    let path = "/v1/ns/shop/range/listing?limit=3";
    let refused = pod.ask_with("GET", path, &round, "").await;
    refused.refused(429, "abnormal-usage-detected");
    assert_eq!(refused.header("umbo-ru"), "0");
    let other = pod.get("/v1/ns/shop/range/listing?limit=4").await;
    assert_eq!(other.status, 200);
    assert_eq!(pod.get("/v1/ns/shop/kv/listing/a").await.status, 200);
}

#[tokio::test]
async fn a_hot_key_that_is_pinned_is_one_key() {
    let site = Site::new();
    let pod = site.pod(1).await;
    pod.create("shop").await;
    let path = "/v1/ns/shop/kv/a";
    heat(&site, &pod, path).await;
    let before = pod.keys().await[0].clone();
    pod.list("pinned", "ns/shop/kv/a", r#"{"reason":"front page"}"#)
        .await;
    heat(&site, &pod, path).await;
    let keys = pod.keys().await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    let key = &keys[0];
    assert_eq!(
        (&key["standing"], &key["is_hot"]),
        (&"pinned".into(), &true.into())
    );
    assert_eq!(key["pinned"]["reason"], "front page");
    assert_eq!(key["id"], before["id"]);
    // What was counted before it was pinned is still there.
    assert!(key["reads"].as_u64() > before["reads"].as_u64());
    assert_eq!(key["callers"][0]["caller"], "anonymous");
}

#[tokio::test]
async fn metrics_count_what_the_layer_does_and_never_tell_a_key() {
    let site = Site::new();
    let pod = site.pod(1).await;
    pod.create("shop").await;
    heat(&site, &pod, "/v1/ns/shop/kv/secret-key/secret-sort").await;
    pod.list("blocked", "ns/shop/kv/secret-blocked", "").await;
    let scrape = pod.get("/admin/v1/metrics").await;
    assert_eq!(scrape.status, 200);
    let text = String::from_utf8(scrape.bytes.to_vec()).unwrap();
    assert!(!text.contains("secret"), "{text}");
    for metric in ALL {
        let head = format!("# TYPE {} {}\n", metric.name, metric.kind.as_str());
        // The rows of this store are in memory, and this dispatcher has no fleet.
        let is_of_disk = [DISK_SIZE, DISK_FREE].contains(metric);
        let is_of_fleet = metric.name.starts_with("umbo_fleet_quota_");
        assert_eq!(text.contains(&head), !is_of_disk && !is_of_fleet, "{head}");
    }
    let value = |series: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(series));
        let line = line.unwrap_or_else(|| panic!("no {series} in\n{text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let keys = pod.keys().await;
    let hot = keys.iter().find(|key| key["is_hot"] == true).unwrap();
    let hash = hot["hash"].as_str().unwrap();
    let series = format!("umbo_hotkey_key_reads_per_second{{namespace=\"shop\",key=\"{hash}\"}}");
    assert!(value(&series) > 200.0);
    assert!(value("umbo_hotkey_hits_total ") > 500.0);
    assert!(value("umbo_hotkey_negative_hits_total ") > 500.0);
    assert!(value("umbo_hotkey_leaders_total ") >= 1.0);
    assert!((value("umbo_hotkey_keys{standing=\"hot\"} ") - 1.0).abs() < 1e-9);
    assert!((value("umbo_hotkey_keys{standing=\"blocked\"} ") - 1.0).abs() < 1e-9);
    assert!(value("umbo_hotkey_reads_per_second ") > 200.0);
    let shards: f64 = (0..3)
        .map(|shard| value(&format!("umbo_shard_requests_total{{shard=\"{shard}\"}} ")))
        .sum();
    assert!(shards >= 1.0, "{shards}");
}

#[tokio::test]
async fn with_the_layer_off_all_says_so() {
    let site = Site::new();
    let pod = site.pod_with(None).await;
    pod.create("shop").await;
    let off = pod.get("/admin/v1/hot").await;
    let detail = off.refused(409, "hot-keys-disabled");
    assert_eq!(
        detail,
        "hotkey.enabled is false in the settings of this server"
    );
    assert_eq!(off.body["scope"], "pod");
    for list in ["pinned", "blocked"] {
        let key = "ns/shop/kv/a";
        pod.list(list, key, "")
            .await
            .refused(409, "hot-keys-disabled");
        pod.unlist(list, key)
            .await
            .refused(409, "hot-keys-disabled");
    }
    let scrape = pod.get("/admin/v1/metrics").await;
    assert!(!String::from_utf8_lossy(&scrape.bytes).contains("umbo_hotkey"));
    // What another pod has listed waits for the layer to be on.
    let other = site.pod(1).await;
    other.list("blocked", "ns/shop/kv/a", "").await;
    pod.refresh().await;
    assert_eq!(pod.get("/v1/ns/shop/kv/a").await.status, 404);
}
