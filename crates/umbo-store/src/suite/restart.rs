//! State that outlives the process: everything acknowledged, unchanged.

use std::sync::Arc;

use bytes::Bytes;
use umbo_types::{Timestamp, Value};

use crate::suite::Restart;
use crate::suite::subject::{
    CALL, NS, START, TestSubject, applied, delete, everything, key, put, put_until, whole,
};
use crate::{
    Atomicity, ByKey as _, Change, Condition, Durability, Mutation, SortRange, StoreError,
    WriteError, WriteRequest,
};

/// Every acknowledged row is there after a restart, whole, and no removed one is.
pub async fn rows_outlive_a_restart<E: Restart>() {
    let mut t = TestSubject::<E>::fresh().await;
    let later = Timestamp::from_millis(START.as_millis() + 50);
    let mut mutations = Vec::new();
    for n in 0..200_u8 {
        let expires_at = (n % 3 == 0).then_some(later);
        mutations.push(put_until(&key([n / 8 + 1], [n]), vec![n; 100], expires_at));
    }
    mutations.extend(
        (0..200)
            .step_by(5)
            .map(|n: u8| delete(&key([n / 8 + 1], [n]))),
    );
    let change = Change::Put {
        value: Value {
            form: umbo_types::StoredForm::Plain,
            bytes: Bytes::from_static(b"\0\xFF"),
            content_type: Bytes::from_static(b"text/plain"),
            content_encoding: Bytes::from_static(b"br"),
        },
        expires_at: Some(later),
    };
    let mutation = put(&key("rich", ""), "");
    mutations.push(Mutation { change, ..mutation });
    t.write(mutations).await.into_iter().for_each(|answer| {
        applied(answer);
    });
    let before = t.scan(&everything(NS)).await;
    assert_eq!(before.len(), 161);
    t = t.restart().await;
    assert_eq!(t.scan(&everything(NS)).await, before);
    t = t.close_and_restart().await;
    assert_eq!(t.scan(&everything(NS)).await, before);
    for row in &before {
        assert!(t.get(&key(&row.partition, &row.sort)).await.is_some());
    }
    t.clock.set_wall(later);
    let kept = before.iter().filter(|row| !row.expires());
    assert_eq!(t.scan(&everything(NS)).await.len(), kept.count());
}

/// Removals of ranges are as durable as writes.
pub async fn removals_outlive_a_restart<E: Restart>() {
    let mut t = TestSubject::<E>::fresh().await;
    let rows = |partition: &str| -> Vec<_> {
        let rows = (0..20_u8).map(|n| put(&key(partition, [n]), "v"));
        rows.collect()
    };
    t.write(rows("p")).await;
    t.write(rows("q")).await;
    let all = t.removal("p", SortRange::default());
    assert_eq!(t.remove(all).await.rows, 20);
    t = t.restart().await;
    assert_eq!(t.walk(&whole("p")).await, []);
    assert_eq!(t.walk(&whole("q")).await.len(), 20);
}

/// Conditions hold against what was written before a restart.
pub async fn conditions_outlive_a_restart<E: Restart>() {
    let t = TestSubject::<E>::fresh().await;
    let (at, removed) = (key("p", "s"), key("p", "removed"));
    let version = t.put(&at, "v").await.version;
    t.put(&removed, "v").await;
    t.delete(&removed).await;
    let t = t.restart().await;
    let refused = t.write_one(put(&at, "w").when(Condition::Absent)).await;
    let current = Some(version);
    assert_eq!(refused, Err(WriteError::ConditionFailed { current }));
    let condition = Condition::VersionIn(vec![version]);
    assert!(applied(t.write_one(put(&at, "w").when(condition)).await).existed);
    assert!(
        applied(
            t.write_one(put(&removed, "w").when(Condition::Absent))
                .await
        )
        .version
            > version
    );
}

/// The instant of the data of a row that a load has put is as durable as the row.
pub async fn as_of_outlives_a_restart<E: Restart>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let instant = |ms: u64| Timestamp::from_millis(START.as_millis() + ms);
    let load = |value: &str, ms| put(&at, value).when(Condition::NotNewerThan(instant(ms)));
    t.clock.set_wall(instant(100));
    applied(t.write_one(load("50", 50)).await);
    // By a clock that is ahead: the version is of an earlier time than the data.
    let ahead = key("p", "ahead");
    let load_ahead = |ms| put(&ahead, "v").when(Condition::NotNewerThan(instant(ms)));
    applied(t.write_one(load_ahead(90_000)).await);
    let t = t.restart().await;
    let refused = t.write_one(load_ahead(80_000)).await;
    assert!(
        matches!(refused, Err(WriteError::ConditionFailed { .. })),
        "{refused:?}"
    );
    let refused = t.write_one(load("49", 49)).await;
    assert!(
        matches!(refused, Err(WriteError::ConditionFailed { .. })),
        "{refused:?}"
    );
    applied(t.write_one(load("51", 51)).await);
}

/// Closing brings also those writes to the disk that were acknowledged before they were there.
pub async fn closing_keeps_async_writes<E: Restart>() {
    let t = TestSubject::<E>::fresh().await;
    for n in 0..100_u8 {
        let request = WriteRequest {
            durability: Durability::Async,
            ..t.request(vec![put(&key([n + 1], "s"), [n])])
        };
        for answer in t.store.write_rows(&CALL, request).await {
            applied(answer);
        }
    }
    let t = t.close_and_restart().await;
    assert_eq!(t.scan(&everything(NS)).await.len(), 100);
}

/// Writers that are surprised by a close lose nothing acknowledged, and nothing that was refused
/// was applied; a group is there wholly or not at all.
pub async fn a_close_amid_writes_is_clean<E: Restart>() {
    let t = TestSubject::<E>::fresh().await;
    let writers: Vec<_> = (0..6_u8)
        .map(|writer| {
            let store = Arc::clone(&t.store);
            let template = WriteRequest {
                atomicity: Atomicity::Partition,
                ..t.request(Vec::new())
            };
            tokio::spawn(async move {
                for n in 0..u16::MAX {
                    let partition = [&[writer][..], &n.to_be_bytes()].concat();
                    let rows = (0..4_u8).map(|row| put(&key(&partition, [row]), "v"));
                    let request = WriteRequest {
                        mutations: rows.collect(),
                        ..template.clone()
                    };
                    let answers = store.write_rows(&CALL, request).await;
                    if answers.iter().all(Result::is_ok) {
                        continue;
                    }
                    let closing = Err(WriteError::Store(StoreError::Closing));
                    assert!(answers.iter().all(|answer| *answer == closing));
                    return usize::from(n);
                }
                panic!("the store was never closed");
            })
        })
        .collect();
    // Close once something has been written.
    while t.store.status().iter().all(|shard| shard.rows < 8) {
        tokio::task::yield_now().await;
    }
    t.store.close().await;
    let mut groups = 0;
    for writer in writers {
        groups += writer.await.expect("the writer ends well");
    }
    let t = t.restart().await;
    assert_eq!(t.scan(&everything(NS)).await.len(), 4 * groups);
}
