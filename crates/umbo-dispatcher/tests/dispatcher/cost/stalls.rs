//! Shards that do not answer within the deadline: what the others have answered is told all the same.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use umbo_dispatcher::overload::OverloadSettings;
use umbo_overload::{LimitSettings, QueueSettings};
use umbo_types::{Clock as _, ShardId};

use crate::cost::support::{Reply, SHARDS, TestDispatcher};

/// More than are asked for at once, and more than one piece for each shard.
const KEYS: usize = 300;
const BRIEF: &[(&str, &str)] = &[("umbo-timeout-ms", "200")];
const PATIENT: &[(&str, &str)] = &[("umbo-timeout-ms", "120000")];
const STALLED: ShardId = ShardId(2);

type Fields<'a> = &'a [(&'a str, &'a str)];

/// Timers go by the simulated time of tokio: deadlines are to be as far away for them as they are for the pod.
fn catch_up(pod: &TestDispatcher) {
    let now = Instant::now().into_std();
    let behind = now.saturating_duration_since(pod.clock.monotonic());
    pod.clock.advance(behind);
}

async fn multi_get(pod: &TestDispatcher, fields: Fields<'_>, keys: usize) -> Reply {
    catch_up(pod);
    let keys: Vec<Value> = (0..keys)
        .map(|at| json!({"pk": format!("p-{at}")}))
        .collect();
    let body = json!({"keys": keys}).to_string();
    pod.ask("POST", "/v1/ns/listings/batch/get", fields, body)
        .await
}

async fn write(pod: &TestDispatcher, fields: Fields<'_>, rows: usize) -> Reply {
    catch_up(pod);
    let mut body = String::new();
    for at in 0..rows {
        writeln!(body, r#"{{"pk":"p-{at}","v":"v"}}"#).unwrap();
    }
    pod.ask("POST", "/v1/ns/listings/batch/write", fields, body)
        .await
}

/// Shards of the rows, as an explanation of each says.
async fn shards(pod: &TestDispatcher, rows: usize) -> Vec<ShardId> {
    let mut shards = Vec::new();
    for at in 0..rows {
        let question = json!({"operation": "get", "pk": format!("p-{at}")}).to_string();
        let told = pod.ask("POST", "/v1/ns/listings/explain", &[], question);
        let shard = told.await.json()["shards"][0]["shard"].as_u64().unwrap();
        shards.push(ShardId(shard as u16));
    }
    shards
}

fn lines(reply: &Reply) -> Vec<Value> {
    let text = std::str::from_utf8(&reply.body).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Checks that just the rows of the shard are late, with what their lines say.
fn assert_only_its_rows_are_late(reply: &Reply, shards: &[ShardId], status: u64) -> usize {
    assert_eq!(reply.status, 207, "{reply:?}");
    let mut lines = lines(reply);
    let end = lines.pop().unwrap();
    assert_eq!(lines.len(), shards.len());
    let mut late = 0;
    for (at, (line, shard)) in lines.iter().zip(shards).enumerate() {
        assert_eq!(line["i"], at);
        if *shard == STALLED {
            late += 1;
            assert_eq!(
                (&line["status"], &line["error"]["shard"]),
                (&json!(504), &json!(2))
            );
        } else {
            assert_eq!(line["status"], status, "{line}");
        }
    }
    assert_eq!(end["end"]["failed"], late);
    assert!(late > 0 && late < shards.len());
    late
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_stalls_costs_a_multi_get_its_own_rows() {
    let pod = TestDispatcher::open(&[]).await;
    assert_eq!(write(&pod, PATIENT, KEYS).await.status, 200);
    let shards = shards(&pod, KEYS).await;
    pod.store.set_stalled(&[STALLED]);
    let reply = multi_get(&pod, BRIEF, KEYS).await;
    let late = assert_only_its_rows_are_late(&reply, &shards, 200);
    // A piece of them was asked for; the rest was not, and costs nothing.
    let count = |code: &str| {
        let is = |line: &&Value| line["error"]["type"] == format!("/v1/errors/{code}");
        lines(&reply).iter().filter(is).count()
    };
    let (asked, unasked) = (count("deadline-in-store"), count("deadline-before-store"));
    assert!(asked > 0 && unasked > 0 && asked + unasked == late);
    // What is in one piece is there at once.
    let few = multi_get(&pod, BRIEF, 30).await;
    assert_only_its_rows_are_late(&few, &shards[..30], 200);
    // All others are charged what they cost without it: a read of each, with its row.
    pod.store.set_stalled(&[]);
    let whole = multi_get(&pod, PATIENT, KEYS).await;
    assert_eq!(whole.status, 200);
    assert!(reply.units() < whole.units(), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_stalls_leaves_its_own_writes_unknown() {
    let pod = TestDispatcher::open(&[]).await;
    let shards = shards(&pod, KEYS).await;
    pod.store.set_stalled(&[STALLED]);
    let reply = write(&pod, BRIEF, KEYS).await;
    assert_only_its_rows_are_late(&reply, &shards, 201);
    for line in lines(&reply) {
        if line["status"] == 504 {
            assert_eq!(line["error"]["type"], "/v1/errors/deadline-in-store");
            assert_eq!(line["error"]["outcome"], "unknown");
            assert_eq!(line["error"]["retry"]["safe"], false);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_still_wait_for_a_slot_are_not_applied() {
    let limit = LimitSettings {
        min: 1,
        max: 1,
        initial: 1,
    };
    let gate = QueueSettings {
        limit,
        ..QueueSettings::default()
    };
    let overload = OverloadSettings {
        queue: gate,
        ..OverloadSettings::default()
    };
    let pod = TestDispatcher::open_with(&[], Some(overload)).await;
    let shards = shards(&pod, 40).await;
    pod.store.set_stalled(&[STALLED]);
    // The first one has the slot, for as long as the store takes.
    let (first, second) = tokio::join!(write(&pod, BRIEF, 40), write(&pod, BRIEF, 40));
    let outcomes = [
        ("deadline-in-store", "unknown"),
        ("deadline-before-store", "not-applied"),
    ];
    for (reply, (code, outcome)) in [first, second].iter().zip(outcomes) {
        assert_eq!(reply.status, 207, "{reply:?}");
        for (line, shard) in lines(reply).iter().zip(&shards) {
            if *shard == STALLED {
                assert_eq!(line["error"]["type"], format!("/v1/errors/{code}"));
                assert_eq!(line["error"]["outcome"], outcome);
            } else {
                assert!(line["error"].is_null(), "{line}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_late_altogether_is_one_answer() {
    let pod = TestDispatcher::open(&[]).await;
    let all: Vec<ShardId> = (0..SHARDS).map(ShardId).collect();
    pod.store.set_stalled(&all);
    let read = multi_get(&pod, BRIEF, KEYS).await;
    assert_eq!(read.status, 504);
    assert_eq!(read.problem().type_uri, "/v1/errors/deadline-in-store");
    let written = write(&pod, BRIEF, KEYS).await.problem();
    assert_eq!(written.status, 504);
    assert_eq!(written.outcome, Some(umbo_api::Outcome::Unknown));
    assert!(!written.retry.safe);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_back_in_time_is_told_to_be_away() {
    let pod = TestDispatcher::open(&[]).await;
    let shards = shards(&pod, 40).await;
    let at = shards.iter().position(|shard| *shard == STALLED).unwrap();
    pod.store.set_away(&[STALLED]);
    let row = format!("/v1/ns/listings/kv/p-{at}");
    let range = format!("/v1/ns/listings/range/p-{at}");
    let calls = pod.store.calls();
    for (method, target) in [("GET", &row), ("PUT", &row), ("GET", &range)] {
        catch_up(&pod);
        let reply = pod.ask(method, target, BRIEF, "").await;
        let problem = reply.problem();
        assert_eq!(problem.type_uri, "/v1/errors/shard-unavailable", "{method}");
        assert_eq!((problem.status, problem.shard), (503, Some(STALLED.0)));
        assert!(problem.retry.safe);
        assert_eq!(reply.ru(), "0");
    }
    assert_eq!(pod.store.calls(), calls);
    for (reply, status) in [
        (write(&pod, BRIEF, 40).await, 201),
        (multi_get(&pod, BRIEF, 40).await, 200),
    ] {
        assert_eq!(reply.status, 207);
        for (line, shard) in lines(&reply).iter().zip(&shards) {
            let expected = if *shard == STALLED { 503 } else { status };
            assert_eq!(line["status"], expected, "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_busy_all_the_time_is_stopped_in_time() {
    let pod = TestDispatcher::open(&[]).await;
    assert_eq!(write(&pod, PATIENT, KEYS).await.status, 200);
    // More than the deadline for all pieces together, and for none of them.
    pod.store.set_time(Duration::from_millis(30));
    let reply = multi_get(&pod, BRIEF, KEYS).await;
    assert_eq!(reply.status, 207, "{reply:?}");
    let lines = lines(&reply);
    let with = |status: u64| lines.iter().filter(|line| line["status"] == status).count();
    assert!(with(200) >= 64 && with(504) >= 64, "{reply:?}");
    assert_eq!(with(200) + with(504), KEYS);
}

#[tokio::test(start_paused = true)]
async fn a_scan_without_a_named_time_goes_on_though_its_first_chunks_are_empty() {
    let pod = TestDispatcher::open(&[]).await;
    let put = pod.ask("PUT", "/v1/ns/listings/kv/p", &[], "v").await;
    assert_eq!(put.status, 201);
    // Longer in all than the deadline of a request that names none.
    pod.store.set_time(Duration::from_secs(4));
    pod.store.set_empty_chunks(5);
    let scan = pod.ask("POST", "/v1/ns/listings/scan", &[], "").await;
    assert_eq!(scan.last_line()["end"]["rows"], 1);
    // The same as one array, which begins once.
    pod.store.set_empty_chunks(2);
    let accept = [("accept", "application/json")];
    let scan = pod.ask("POST", "/v1/ns/listings/scan", &accept, "").await;
    assert_eq!(scan.json().as_array().unwrap().len(), 2);
}
