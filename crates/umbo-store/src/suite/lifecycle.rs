//! Deadlines, cancellation, concurrent writers, the state of shards, and closing.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use umbo_types::{Clock, Deadline};

use crate::suite::Engine;
use crate::suite::subject::{CALL, NS, TestSubject, applied, key, put, value, whole};
use crate::{
    Atomicity, ByKey as _, CallContext, Condition, Outcome, ShardState, ShardStatus, SortRange,
    StoreError, WriteError, WriteRequest,
};

/// A write whose deadline has passed, by any time, is refused with that error and not applied.
pub async fn a_late_write_is_refused<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let shard = t.store.shard_map().locate(NS, &at.partition);
    let refused = StoreError::DeadlinePassed { shard };
    t.put(&at, "before").await;
    let begun = t.clock.monotonic();
    t.clock.advance(Duration::from_millis(5));
    for late in [0, 4, 5] {
        let late = CallContext::internal_until(Deadline::at(begun + Duration::from_millis(late)));
        for atomicity in [Atomicity::None, Atomicity::Partition] {
            let request = WriteRequest {
                atomicity,
                ..t.request(vec![put(&at, "late"), put(&key("p", "new"), "late")])
            };
            for answer in t.store.write_rows(&late, request).await {
                let error = answer.expect_err("it is late");
                assert_eq!(error, WriteError::Store(refused.clone()));
                assert_eq!(error.outcome(), Outcome::NotApplied);
            }
        }
        let request = t.removal("p", SortRange::default());
        assert_eq!(
            t.store.remove_rows(&late, request).await,
            Err(refused.clone())
        );
        let rows = t.walk(&whole("p")).await;
        assert!(rows.len() == 1 && rows[0].value == b"before");
    }
    let in_time = Deadline::after(t.clock.monotonic(), Duration::from_mins(1));
    let in_time = CallContext::internal_until(in_time);
    let request = t.request(vec![put(&at, "in time")]);
    for answer in t.store.write_rows(&in_time, request).await {
        assert!(applied(answer).existed);
    }
    assert_eq!(t.get(&at).await.expect("present").value, value("in time"));
}

/// Polls a new future once. Its place in the order of writes is then fixed.
fn begin<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A write whose future is dropped is withdrawn or completes: each of its groups is applied wholly or not at
/// all, and this is decided before a later write of the partition is answered.
pub async fn a_dropped_write_is_whole_or_withdrawn<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let partitions: Vec<_> = (0..30).map(|n| format!("p{n}")).collect();
    for round in 0..10_u8 {
        let rows = partitions
            .iter()
            .flat_map(|partition| (0..5_u8).map(move |n| put(&key(partition, [n]), [round])));
        let request = WriteRequest {
            atomicity: Atomicity::Partition,
            ..t.request(rows.collect())
        };
        let store = Arc::clone(&t.store);
        let mut write = store.write_rows(&CALL, request);
        if let Poll::Ready(answers) = begin(&mut write) {
            assert!(answers.iter().all(Result::is_ok));
        }
        drop(write);
        let later = partitions.iter().map(|at| put(&key(at, "later"), "v"));
        for answer in t.write(later.collect()).await {
            applied(answer);
        }
        let mut seen = Vec::new();
        for partition in &partitions {
            let rows = t.walk(&whole(partition)).await;
            let of_round = rows.iter().filter(|row| row.value == [round]).count();
            assert!(
                [0, 5].contains(&of_round),
                "{of_round} rows of a group of 5"
            );
            seen.push(rows);
        }
        for (partition, seen) in partitions.iter().zip(seen) {
            assert_eq!(t.walk(&whole(partition)).await, seen, "it was begun later");
        }
    }
}

/// A write whose future was dropped is never applied after a later write of its key.
pub async fn a_dropped_write_never_undoes_a_later_one<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let keys: Vec<_> = (0..100).map(|n| key(format!("p{n}"), "s")).collect();
    for at in &keys {
        let store = Arc::clone(&t.store);
        let mut early = store.write_rows(&CALL, t.request(vec![put(at, "early")]));
        let _ = begin(&mut early);
        drop(early);
        t.put(at, "late").await;
        assert_eq!(t.value(at).await.as_deref(), Some(&b"late"[..]));
    }
    for at in &keys {
        assert_eq!(t.value(at).await.as_deref(), Some(&b"late"[..]));
    }
}

/// Writes and removals of a partition are applied in the order in which they were first polled.
pub async fn writes_and_removals_of_a_partition_are_in_order<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let [early, late] = [key("p", "early"), key("p", "late")];
    for _ in 0..50 {
        let store = &t.store;
        let mut first = store.write_rows(&CALL, t.request(vec![put(&early, "v"), put(&late, "v")]));
        let mut removal = store.remove_rows(&CALL, t.removal("p", SortRange::default()));
        let mut second = store.write_rows(&CALL, t.request(vec![put(&late, "again")]));
        let first_answer = begin(&mut first);
        let removed = begin(&mut removal);
        let second_answer = begin(&mut second);
        for answer in ready(first_answer, first).await {
            applied(answer);
        }
        assert_eq!(ready(removed, removal).await.expect("served").rows, 2);
        for answer in ready(second_answer, second).await {
            assert!(!applied(answer).existed);
        }
        let rows = t.walk(&whole("p")).await;
        assert!(rows.len() == 1 && rows[0].value == b"again", "{rows:?}");
        assert!(t.delete(&late).await.existed);
    }
}

/// Waits for a future that was polled before.
async fn ready<F: Future>(polled: Poll<F::Output>, future: F) -> F::Output {
    match polled {
        Poll::Ready(answer) => answer,
        Poll::Pending => future.await,
    }
}

/// Each of many writes of one key gets a version of its own, and the write with the highest version stays.
pub async fn concurrent_writers_are_put_in_order<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let writers: Vec<_> = (0..8_u8)
        .map(|writer| {
            let store = Arc::clone(&t.store);
            let requests: Vec<_> = (0..25_u8)
                .map(|n| t.request(vec![put(&at, [writer, n])]))
                .collect();
            tokio::spawn(async move {
                let mut versions = Vec::new();
                for (n, request) in (0..).zip(requests) {
                    let answer = store.write_rows(&CALL, request).await.pop();
                    let written = applied(answer.expect("one answer"));
                    versions.push((written.version, [writer, n]));
                }
                versions
            })
        })
        .collect();
    let mut all = BTreeSet::new();
    for writer in writers {
        let versions = writer.await.expect("the writer ends well");
        assert!(versions.is_sorted(), "a later write has a lower version");
        all.extend(versions);
    }
    let distinct: BTreeSet<_> = all.iter().map(|(version, _)| version).collect();
    assert_eq!(distinct.len(), 200, "a version was given twice");
    let (version, bytes) = all.last().expect("there were writes");
    let row = t.get(&at).await.expect("present");
    assert_eq!((row.version, row.value), (*version, value(bytes)));
}

/// Of many writes that require a key to be absent exactly one succeeds.
pub async fn one_of_many_creators_wins<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for round in 0..10_u8 {
        let at = key("p", [round]);
        let writers: Vec<_> = (0..8_u8)
            .map(|writer| {
                let store = Arc::clone(&t.store);
                let request = t.request(vec![put(&at, [writer]).when(Condition::Absent)]);
                tokio::spawn(async move { store.write_rows(&CALL, request).await.pop() })
            })
            .collect();
        let mut winners = Vec::new();
        let mut losers = Vec::new();
        for (writer, task) in (0_u8..).zip(writers) {
            match task.await.expect("the writer ends well").expect("answered") {
                Ok(written) => winners.push((writer, written.version)),
                Err(error) => losers.push(error),
            }
        }
        let [(winner, version)] = winners[..] else {
            panic!("{} writers created one row", winners.len());
        };
        let current = Some(version);
        let refused = WriteError::ConditionFailed { current };
        assert!(losers.iter().all(|error| *error == refused));
        assert_eq!(t.get(&at).await.expect("present").value, value([winner]));
    }
}

/// A counter that many tasks increment by reading, adding and writing with a condition loses no increment.
pub async fn conditional_increments_lose_nothing<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "counter");
    t.put(&at, 0_u32.to_be_bytes()).await;
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (store, at) = (Arc::clone(&t.store), at.clone());
            let template = t.request(Vec::new());
            tokio::spawn(async move {
                let mut raised = 0;
                while raised < 10 {
                    let row = store
                        .get_row(&CALL, NS, &at)
                        .await
                        .expect("served")
                        .expect("present");
                    let bytes = row.value.bytes[..].try_into().expect("four bytes");
                    let next = u32::from_be_bytes(bytes) + 1;
                    let condition = Condition::VersionIn(vec![row.version]);
                    let request = WriteRequest {
                        mutations: vec![put(&at, next.to_be_bytes()).when(condition)],
                        ..template.clone()
                    };
                    raised += u32::from(store.write_rows(&CALL, request).await[0].is_ok());
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    assert_eq!(
        t.get(&at).await.expect("present").value,
        value([0, 0, 0, 40])
    );
}

/// Each shard is listed once, in order, serves, and reports its rows and counters.
pub async fn shards_tell_their_state<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let sum = |shards: &[ShardStatus], pick: fn(&ShardStatus) -> u64| -> u64 {
        shards.iter().map(pick).sum()
    };
    let before = sum(&t.store.status(), |shard| shard.mutations);
    for n in 0..100_u8 {
        t.put(&key([n + 1], ""), "v").await;
    }
    t.delete(&key([1], "")).await;
    let is_told = |shards: &[ShardStatus]| {
        sum(shards, |shard| shard.rows) == 99 && sum(shards, |shard| shard.mutations) >= 101
    };
    let status = t.told(is_told).await;
    assert_eq!(status.len(), t.store.shard_map().shards());
    assert!(status.is_sorted_by(|one, next| one.shard < next.shard));
    for shard in &status {
        assert_eq!(shard.state, ShardState::Available);
        assert!(shard.commits > 0 && shard.rows > 0, "{shard:?}");
        assert_eq!(shard.queued, 0);
    }
    assert_eq!(sum(&status, |shard| shard.rows), 99);
    assert_eq!(sum(&status, |shard| shard.mutations) - before, 101);
}

/// A closed store accepts no writes of any kind, reports that, and can be closed again.
pub async fn a_closed_store_takes_no_writes<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    t.put(&key("p", "s"), "v").await;
    t.store.close().await;
    let mutations = || (0..20).map(|n| put(&key(format!("p{n}"), "s"), "late"));
    for atomicity in [Atomicity::None, Atomicity::Partition] {
        let request = WriteRequest {
            atomicity,
            ..t.request(mutations().collect())
        };
        let answers = t.store.write_rows(&CALL, request).await;
        assert_eq!(answers.len(), 20);
        for answer in answers {
            assert_eq!(answer, Err(WriteError::Store(StoreError::Closing)));
        }
    }
    let removal = t.removal("p", SortRange::default());
    let removed = t.store.remove_rows(&CALL, removal).await;
    assert_eq!(removed, Err(StoreError::Closing));
    t.store.close().await;
}
