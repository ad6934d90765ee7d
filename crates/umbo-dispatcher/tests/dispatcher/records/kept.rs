//! Rows that outlive a dispatcher: records of requests and usage, while the home is away and after it.

use std::time::Duration;

use umbo_admin::{RecordWriter, UsageWriter};
use umbo_types::Timestamp;

use crate::records::store::Fault;
use crate::records::support::{Site, TestDispatcher};

/// Is refused, and returns the id of the request.
async fn refused(pod: &TestDispatcher) -> String {
    let answer = pod.ask("GET", "/v1/ns/nowhere/kv/a", "").await;
    answer.refused(404, "namespace-not-found");
    answer.body["request_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn records_wait_while_the_home_is_away_and_another_dispatcher_explains_them() {
    let site = Site::new();
    let one = site.pod().await;
    let mut writer = RecordWriter::new(&one.dispatcher, "one");
    let mut ids = vec![refused(&one).await];
    one.store.cut_home();
    for _ in 0..4 {
        writer.write().await;
        site.clock.advance(Duration::from_secs(10));
        ids.push(refused(&one).await);
    }
    one.store.heal();
    // Rows that wait come first; then what waits in memory. One that fails holds up no other.
    one.store.fail(1, Fault::Refused);
    writer.write().await;
    one.store.heal();
    writer.write().await;
    let calls = one.store.calls();
    writer.write().await;
    assert_eq!(one.store.calls(), calls, "nothing is written without news");

    let other = site.pod().await;
    for id in &ids {
        let found = other.ask("GET", &format!("/admin/v1/why/{id}"), "").await;
        assert_eq!(found.status, 200, "{found:?}");
        assert_eq!(found.body["kept"]["server"], "one");
        assert_eq!(found.body["code"], "namespace-not-found");
    }
    let counts = async |pod: &TestDispatcher| {
        let path = "/admin/v1/why?caller=anonymous&last=1h";
        pod.ask("GET", path, "").await.body
    };
    let found = counts(&other).await;
    assert_eq!(
        (&found["reasons"][0]["count"], &found["kept"]),
        (&5.into(), &5.into())
    );
    assert_eq!(found["reasons"][0]["example"], ids[4]);
    // Its own rows are in its memory.
    let own = counts(&one).await;
    assert_eq!(
        (&own["reasons"][0]["count"], &own["kept"]),
        (&5.into(), &0.into())
    );
    let found = one
        .ask("GET", &format!("/admin/v1/why/{}", ids[0]), "")
        .await;
    assert!(found.body["kept"].is_null(), "{found:?}");
    site.clock.advance(Duration::from_hours(25));
    let gone = (site.pod().await)
        .ask("GET", &format!("/admin/v1/why/{}", ids[0]), "")
        .await;
    gone.refused(404, "record-not-found");
}

#[tokio::test]
async fn a_stop_after_an_outage_of_the_home_writes_the_last_records_too() {
    let site = Site::new();
    let one = site.pod().await;
    let mut writer = RecordWriter::new(&one.dispatcher, "one");
    let mut ids = Vec::new();
    one.store.cut_home();
    // More than the rows that may wait.
    for _ in 0..4 {
        ids.push(refused(&one).await);
        writer.write().await;
        site.clock.advance(Duration::from_secs(10));
    }
    one.store.heal();
    writer.end().await;
    let other = site.pod().await;
    for id in &ids {
        let found = other.ask("GET", &format!("/admin/v1/why/{id}"), "").await;
        assert_eq!(found.status, 200, "{found:?}");
    }
}

#[tokio::test]
async fn a_step_of_usage_that_cannot_be_written_holds_up_no_later_one() {
    let site = Site::new();
    let one = site.pod().await;
    one.create("x").await;
    let begin: Timestamp = one.dispatcher.home_time();
    for (key, later) in [("a", 0), ("b", 600)] {
        assert_eq!(one.put_row("x", key, "v").await.status, 201);
        let mut steps = one.dispatcher.usage_steps.lock().unwrap();
        let second = begin.as_millis() / 1_000 - 600 + later;
        one.dispatcher
            .quota
            .sample_usage(&mut steps, (second, 1), |_, _| {});
    }
    let writer = UsageWriter::new(&one.dispatcher);
    one.store.fail(1, Fault::Refused);
    writer.write().await;
    assert!(one.store.heal());
    let puts = async |pod: &TestDispatcher| {
        let path = "/admin/v1/usage?by=operation&namespace=x";
        pod.ask("GET", path, "").await.body["rows"][0]["requests"].clone()
    };
    let other = site.pod().await;
    assert_eq!(puts(&other).await, 1, "the later step is written");
    writer.write().await;
    assert_eq!(puts(&other).await, 2);
}
