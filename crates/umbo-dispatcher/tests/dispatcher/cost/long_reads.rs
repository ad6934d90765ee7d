//! Requests for many rows: they are read on threads of lower priority, and cost and tell the same.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cost::support::{Reply, TestDispatcher};

/// More than one piece of a multi-get.
const MANY: usize = 300;
const FEW: usize = 64;

async fn multi_get(pod: &TestDispatcher, keys: usize) -> Reply {
    let keys: Vec<Value> = (0..keys)
        .map(|at| json!({"pk": format!("p-{at}")}))
        .collect();
    let body = json!({"keys": keys}).to_string();
    pod.ask("POST", "/v1/ns/listings/batch/get", &[], body)
        .await
}

#[tokio::test]
async fn a_long_multi_get_leaves_the_threads_of_short_requests() {
    let pods = [
        TestDispatcher::open(&[]).await,
        TestDispatcher::open_with_threads().await,
    ];
    let mut rows = String::new();
    for at in 0..MANY {
        writeln!(rows, r#"{{"pk":"p-{at}","v":"{at}"}}"#).unwrap();
    }
    let mut answers = Vec::new();
    for pod in &pods {
        let target = "/v1/ns/listings/batch/write";
        let written = pod.ask("POST", target, &[], rows.clone()).await;
        assert_eq!(written.status, 200, "{written:?}");
        let few = multi_get(pod, FEW).await;
        assert!(!pod.store.take_readers().contains("long-reads"));
        let many = multi_get(pod, MANY).await;
        let readers = pod.store.take_readers();
        answers.push((few.body, many.ru().to_owned(), many.body, readers));
    }
    let [(few, ru, many, here), (same_few, same_ru, same_many, apart)] =
        answers.try_into().unwrap();
    assert_eq!(apart, BTreeSet::from(["long-reads".to_owned()]));
    assert!(!here.contains("long-reads"));
    assert_eq!((few.len(), many.len()), (same_few.len(), same_many.len()));
    assert_eq!(ru, same_ru);
    let lines = std::str::from_utf8(&many).unwrap().lines();
    assert_eq!(lines.count(), MANY + 1);
}
