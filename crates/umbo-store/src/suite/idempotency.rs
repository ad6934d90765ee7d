//! Idempotency: a repeated write is applied once and answered as it was; and increments, which need that most.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use umbo_types::{Deadline, Key, NamespaceId, Timestamp, Value};

use crate::idempotency::{DIGEST_LEN, Idempotency};
use crate::suite::subject::{CALL, NS, START, TestSubject, WriteResult, applied, delete, key, put};
use crate::suite::{Engine, Restart};
use crate::{
    Atomicity, ByKey as _, CallContext, Change, Condition, Durability, Mutation, NUMBER_TYPE,
    StoreError, WriteError, WriteRequest, Written,
};

/// Instant until which the records of most cases are kept.
const KEPT: Timestamp = Timestamp::from_millis(START.as_millis() + 3_600_000);

/// Returns the idempotency of a request for this many mutations: of the key and the content of these numbers.
fn once(id: u8, request: u8, mutations: u32) -> Idempotency {
    Idempotency {
        id: [id; DIGEST_LEN],
        request: [request; DIGEST_LEN],
        keep_until: KEPT,
        keeps_refusals: true,
        lines: (0..mutations).collect(),
    }
}

fn add(key: &Key, by: i64) -> Mutation {
    Mutation {
        key: key.clone(),
        change: Change::Increment {
            by,
            expires_at: None,
            default_expiry: None,
        },
        condition: Condition::Always,
    }
}

fn replayed(error: WriteError) -> WriteError {
    WriteError::Replayed(Box::new(error))
}

fn again(written: Written) -> Written {
    Written {
        is_replayed: true,
        ..written
    }
}

impl<E: Engine> TestSubject<E> {
    async fn write_once(
        &self,
        mutations: Vec<Mutation>,
        idempotency: &Idempotency,
    ) -> Vec<WriteResult> {
        let request = WriteRequest {
            idempotency: Some(idempotency.clone()),
            ..self.request(mutations)
        };
        self.store.write_rows(&CALL, request).await
    }

    async fn one_once(&self, mutation: Mutation, idempotency: &Idempotency) -> WriteResult {
        let mut answers = self.write_once(vec![mutation], idempotency).await;
        assert_eq!(answers.len(), 1, "one answer a mutation");
        answers.remove(0)
    }
}

/// The second of two equal requests changes nothing and is answered as the first, whatever was written meanwhile.
pub async fn a_repeated_write_is_answered_from_its_record<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    for (n, make) in [|at: &Key| put(at, "first"), delete, |at: &Key| add(at, 5)]
        .into_iter()
        .enumerate()
    {
        t.delete(&at).await;
        t.put(&at, "1").await;
        let own = once(n as u8, 1, 1);
        let first = applied(t.one_once(make(&at), &own).await);
        assert!(first.existed && !first.is_replayed);
        let between = t.put(&at, "between").await;
        assert_eq!(t.one_once(make(&at), &own).await, Ok(again(first)));
        let row = t.get(&at).await.expect("it stays");
        assert_eq!(
            (row.version, &row.value.bytes[..]),
            (between.version, &b"between"[..])
        );
    }
}

/// A refusal by a condition is repeated too, unless the sender tries again by itself.
pub async fn a_refusal_is_replayed_if_it_is_kept<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let now = t.put(&at, "v").await.version;
    let absent = || put(&at, "new").when(Condition::Absent);
    let failed = WriteError::ConditionFailed { current: Some(now) };
    let own = once(1, 1, 1);
    assert_eq!(t.one_once(absent(), &own).await, Err(failed.clone()));
    let mut other = once(2, 1, 1);
    other.keeps_refusals = false;
    assert_eq!(t.one_once(absent(), &other).await, Err(failed.clone()));
    t.delete(&at).await;
    assert_eq!(t.one_once(absent(), &own).await, Err(replayed(failed)));
    let written = applied(t.one_once(absent(), &other).await);
    assert!(!written.is_replayed);
    assert_eq!(t.one_once(absent(), &other).await, Ok(again(written)));
}

/// A key names one request of its caller, in a namespace and partition, until its record is no longer in effect.
pub async fn a_key_is_that_of_one_request<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let own = once(1, 1, 1);
    applied(t.one_once(put(&at, "one"), &own).await);
    let other = once(1, 2, 1);
    let mismatch = Err(WriteError::IdempotencyMismatch);
    for key in [at.clone(), key("p", "other")] {
        assert_eq!(t.one_once(put(&key, "two"), &other).await, mismatch);
    }
    assert_eq!(t.value(&at).await.as_deref(), Some(&b"one"[..]));
    // Another partition and another namespace have records of their own.
    assert!(!applied(t.one_once(put(&key("q", "s"), "q"), &other).await).is_replayed);
    let request = WriteRequest {
        namespace: NamespaceId(NS.0 + 1),
        idempotency: Some(other.clone()),
        ..t.request(vec![put(&at, "n")])
    };
    assert!(!applied(t.store.write_rows(&CALL, request).await.remove(0)).is_replayed);
    t.clock
        .set_wall(Timestamp::from_millis(KEPT.as_millis() - 1));
    assert_eq!(t.one_once(put(&at, "two"), &other).await, mismatch);
    t.clock.set_wall(KEPT);
    let late = Idempotency {
        keep_until: Timestamp::from_millis(KEPT.as_millis() + 1_000),
        ..other
    };
    let written = applied(t.one_once(put(&at, "two"), &late).await);
    assert!(!written.is_replayed);
    assert_eq!(t.one_once(put(&at, "two"), &late).await, Ok(again(written)));
}

/// A batch has one record for each partition, and a repetition that lacks some of its rows finds the others.
pub async fn a_batch_is_replayed_row_by_row<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let rows: Vec<Key> = (0..12).map(|n| key([n % 5], [n])).collect();
    t.put(&rows[3], "taken").await;
    let batch = |keys: &[Key]| -> Vec<Mutation> {
        let mutation = |key: &Key| {
            if *key == rows[3] {
                put(key, "new").when(Condition::Absent)
            } else {
                add(key, 2)
            }
        };
        keys.iter().map(mutation).collect()
    };
    let own = once(1, 1, 12);
    let first = t.write_once(batch(&rows), &own).await;
    let expected: Vec<WriteResult> = first
        .iter()
        .map(|answer| match answer {
            Ok(written) => Ok(again(*written)),
            Err(error) => Err(replayed(error.clone())),
        })
        .collect();
    assert_eq!(expected.iter().filter(|answer| answer.is_err()).count(), 1);
    assert_eq!(t.write_once(batch(&rows), &own).await, expected);
    let part = own.of_part(2..9);
    assert_eq!(
        t.write_once(batch(&rows[2..9]), &part).await,
        expected[2..9]
    );
    assert_eq!(t.value(&rows[0]).await.as_deref(), Some(&b"2"[..]));
    let other = once(1, 2, 12);
    for answer in t.write_once(batch(&rows), &other).await {
        assert_eq!(answer, Err(WriteError::IdempotencyMismatch));
    }
}

/// An atomic group is replayed whole, refused or applied, and names the same mutation.
pub async fn an_atomic_group_is_replayed_whole<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let (one, two) = (key("p", "1"), key("p", "2"));
    let send = async |idempotency: &Idempotency, condition: Condition| {
        let request = WriteRequest {
            atomicity: Atomicity::Partition,
            idempotency: Some(idempotency.clone()),
            ..t.request(vec![add(&one, 1), add(&two, 1).when(condition)])
        };
        t.store.write_rows(&CALL, request).await
    };
    let (refused, granted) = (once(1, 1, 2), once(2, 1, 2));
    let aborted = WriteError::GroupAborted { index: 1 };
    let failed = WriteError::ConditionFailed { current: None };
    let first = send(&refused, Condition::Present).await;
    assert_eq!(first, [Err(aborted.clone()), Err(failed.clone())]);
    let first = send(&granted, Condition::Always).await;
    let expected: Vec<_> = first
        .into_iter()
        .map(|answer| Ok(again(applied(answer))))
        .collect();
    assert_eq!(send(&granted, Condition::Always).await, expected);
    let answers = send(&refused, Condition::Present).await;
    assert_eq!(answers, [Err(replayed(aborted)), Err(replayed(failed))]);
    for key in [one, two] {
        assert_eq!(t.value(&key).await.as_deref(), Some(&b"1"[..]));
    }
}

/// Of equal requests at the same time one is applied, and all get its answer.
pub async fn equal_requests_in_flight_are_applied_once<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for round in 0..20_u8 {
        let at = key("p", [round]);
        let mut senders = JoinSet::new();
        for n in 0..8 {
            let store = Arc::clone(&t.store);
            let request = WriteRequest {
                idempotency: Some(once(round, 1, 1)),
                durability: if n % 2 == 0 {
                    Durability::Sync
                } else {
                    Durability::Async
                },
                ..t.request(vec![add(&at, 7)])
            };
            senders.spawn(async move { store.write_rows(&CALL, request).await.remove(0) });
        }
        let answers: Vec<Written> = senders.join_all().await.into_iter().map(applied).collect();
        assert_eq!(answers.iter().filter(|one| !one.is_replayed).count(), 1);
        for answer in &answers {
            assert_eq!(
                (answer.version, answer.number),
                (answers[0].version, Some(7))
            );
        }
        assert_eq!(t.value(&at).await.as_deref(), Some(&b"7"[..]));
    }
}

/// A write that was refused for want of time leaves no record: its repetition is applied.
pub async fn a_late_write_leaves_no_record<E: Engine>() {
    use umbo_types::Clock as _;

    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let own = once(1, 1, 1);
    let deadline = Deadline::after(t.clock.monotonic(), Duration::from_millis(5));
    t.clock.advance(Duration::from_millis(6));
    let request = WriteRequest {
        idempotency: Some(own.clone()),
        ..t.request(vec![add(&at, 1)])
    };
    let late = CallContext::internal_until(deadline);
    let answer = t.store.write_rows(&late, request).await.remove(0);
    let is_late = matches!(
        answer,
        Err(WriteError::Store(StoreError::DeadlinePassed { .. }))
    );
    assert!(is_late, "{answer:?}");
    assert!(!applied(t.one_once(add(&at, 1), &own).await).is_replayed);
    assert_eq!(t.value(&at).await.as_deref(), Some(&b"1"[..]));
}

/// Increments count from 0, keep media type and expiry, and refuse what is no number without changing the row.
pub async fn increments_are_exact<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "n");
    for (by, number, existed) in [
        (5, 5, false),
        (-8, -3, true),
        (0, -3, true),
        (i64::MAX, i64::MAX - 3, true),
    ] {
        let written = applied(t.write_one(add(&at, by)).await);
        assert_eq!((written.number, written.existed), (Some(number), existed));
        let row = t.get(&at).await.expect("it is stored");
        assert_eq!(row.version, written.version);
        assert_eq!(&row.value.bytes[..], number.to_string().as_bytes());
        assert_eq!(&row.value.content_type[..], NUMBER_TYPE.as_bytes());
    }
    let overflow = WriteError::IncrementOverflow {
        current: i64::MAX - 3,
    };
    assert_eq!(t.write_one(add(&at, 4)).await, Err(overflow));
    let stale = add(&at, 1).when(Condition::Absent);
    let refused = t.write_one(stale).await;
    assert!(matches!(
        refused,
        Err(WriteError::ConditionFailed { current: Some(_) })
    ));
    let text = t.put(&key("p", "text"), "12 apples").await;
    assert_eq!(
        t.write_one(add(&key("p", "text"), 1)).await,
        Err(WriteError::NotANumber)
    );
    let row = t.get(&key("p", "text")).await.expect("it stays");
    assert_eq!(
        (row.version, &row.value.bytes[..]),
        (text.version, &b"12 apples"[..])
    );
    // Several in one request see one another, a put and a delete between them too.
    let at = key("p", "several");
    let mutations = vec![
        add(&at, 1),
        put(&at, "40"),
        add(&at, 2),
        delete(&at),
        add(&at, 9),
    ];
    let numbers: Vec<_> = t
        .write(mutations)
        .await
        .into_iter()
        .map(|one| applied(one).number)
        .collect();
    assert_eq!(numbers, [Some(1), None, Some(42), None, Some(9)]);
}

/// An increment keeps the expiry of a row unless it names one; a row that it creates gets the default.
pub async fn increments_keep_the_expiry<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "n");
    let after = |ms| Timestamp::from_millis(START.as_millis() + ms);
    let step = async |set: Option<Timestamp>| {
        let change = Change::Increment {
            by: 1,
            expires_at: set,
            default_expiry: Some(after(10)),
        };
        let written = applied(
            t.write_one(Mutation {
                change,
                ..add(&at, 1)
            })
            .await,
        );
        let row = t.get(&at).await.expect("it is stored");
        (written.number, row.expires_at, row.value.content_type)
    };
    let plain = Value::default().content_type;
    let text: bytes::Bytes = NUMBER_TYPE.into();
    assert_eq!(step(None).await, (Some(1), Some(after(10)), text.clone()));
    assert_eq!(
        step(Some(after(20))).await,
        (Some(2), Some(after(20)), text.clone())
    );
    assert_eq!(step(None).await, (Some(3), Some(after(20)), text.clone()));
    t.put(&at, "7").await;
    assert_eq!(step(None).await, (Some(8), None, plain));
    applied(t.write_one(add(&at, 1)).await);
    assert_eq!(step(Some(after(30))).await.1, Some(after(30)));
    t.clock.set_wall(after(30));
    let later = after(30);
    let change = Change::Increment {
        by: 1,
        expires_at: None,
        default_expiry: None,
    };
    let written = applied(
        t.write_one(Mutation {
            change,
            ..add(&at, 1)
        })
        .await,
    );
    assert_eq!(
        (written.number, written.existed),
        (Some(1), false),
        "{later:?}"
    );
}

/// Records outlive a restart exactly as their rows do.
pub async fn records_outlive_a_restart<E: Restart>() {
    let t = TestSubject::<E>::fresh().await;
    let mut first = Vec::new();
    for n in 0..30_u8 {
        let request = WriteRequest {
            idempotency: Some(once(n, 1, 1)),
            durability: if n % 3 == 0 {
                Durability::Async
            } else {
                Durability::Sync
            },
            ..t.request(vec![add(&key([n % 4], "n"), 1)])
        };
        first.push(applied(t.store.write_rows(&CALL, request).await.remove(0)));
    }
    let t = t.close_and_restart().await;
    for (n, first) in (0_u8..).zip(first) {
        let answer = t.one_once(add(&key([n % 4], "n"), 1), &once(n, 1, 1)).await;
        assert_eq!(answer, Ok(again(first)));
    }
    let counted = async |n: u8| t.value(&key([n], "n")).await;
    for n in 0..4 {
        let expected = (0..30).filter(|one| one % 4 == n).count().to_string();
        assert_eq!(counted(n).await.as_deref(), Some(expected.as_bytes()));
    }
}
