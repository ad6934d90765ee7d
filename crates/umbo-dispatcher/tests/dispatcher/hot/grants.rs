//! Who sees which keys, and who may list them.

use serde_json::json;

use crate::hot::support::{Site, TestDispatcher};

/// Makes a token of these grants; `admin` has made the first.
async fn token(admin: &TestDispatcher, name: &str, grant: &str) -> TestDispatcher {
    let body = json!({"name": name, "grants": [grant]}).to_string();
    let created = admin.ask("POST", "/admin/v1/tokens", body).await;
    assert_eq!(created.status, 201, "{created:?}");
    admin.with_token(created.body["token"].as_str().unwrap())
}

#[tokio::test]
async fn keys_are_shown_to_the_admin_of_their_namespace_alone() {
    let site = Site::new();
    let open = site.pod(1).await;
    open.create("shop").await;
    open.create("maps").await;
    open.list("pinned", "ns/shop/kv/a", "").await;
    let maps = open.list("pinned", "ns/maps/kv/b", "").await;
    let maps_id = format!("id/{}", maps.body["id"].as_str().unwrap());

    let all = token(&open, "all", "*:*").await;
    let shop = token(&all, "shop-ops", "admin:shop").await;
    let reader = token(&all, "reader", "read,write,scan:*").await;

    assert_eq!(all.keys().await.len(), 2);
    let seen = shop.keys().await;
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (&seen[0]["namespace"], &seen[0]["pk"]),
        (&"shop".into(), &"a".into())
    );
    reader.get("/admin/v1/hot").await.refused(403, "forbidden");
    open.get("/admin/v1/hot")
        .await
        .refused(401, "unauthenticated");

    for (pod, key) in [
        (&reader, "ns/shop/kv/a"),
        (&shop, "ns/maps/kv/b"),
        (&shop, &*maps_id),
        // That there is no such namespace is none of its business either.
        (&shop, "ns/nowhere/kv/a"),
        (&shop, "id/AQAAAAAqAAFh"),
    ] {
        pod.list("blocked", key, "").await.refused(403, "forbidden");
        pod.unlist("pinned", key).await.refused(403, "forbidden");
    }
    let listed = shop.list("blocked", "ns/shop/kv/a", "").await;
    assert_eq!(
        (listed.status, &listed.body["by"]),
        (201, &"shop-ops".into())
    );
    reader
        .get("/v1/ns/shop/kv/a")
        .await
        .refused(429, "abnormal-usage-detected");
    assert_eq!(shop.unlist("blocked", "ns/shop/kv/a").await.status, 204);

    shop.get("/admin/v1/metrics")
        .await
        .refused(403, "forbidden");
    assert_eq!(all.get("/admin/v1/metrics").await.status, 200);
}
