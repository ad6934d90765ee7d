//! Single rows: put, get, delete, multi-get, the fields of a value, and namespaces.

use bytes::Bytes;
use umbo_types::limits::{CONTENT_FIELD_LEN_MAX, MULTI_GET_BYTES_MAX, VALUE_LEN_MAX};
use umbo_types::{NamespaceId, Row, Timestamp, Value};

use crate::suite::Engine;
use crate::suite::seeded::Seeded;
use crate::suite::subject::{
    CALL, NS, START, TestSubject, applied, everything, key, put, put_until, value, whole,
};
use crate::{ByKey as _, Change, Condition, Durability, Mutation, Outcome, WriteRequest};

/// A row is read as it was written, with the version in the answer of the write.
pub async fn get_returns_what_was_put<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    assert_eq!(t.get(&at).await, None);
    let stored = Value {
        form: umbo_types::StoredForm::Plain,
        bytes: Bytes::from_static(b"\0bytes\xFF"),
        content_type: Bytes::from_static(b"text/plain; charset=utf-8"),
        content_encoding: Bytes::from_static(b"zstd"),
    };
    let expires_at = Some(Timestamp::from_millis(START.as_millis() + 5));
    let mutation = Mutation {
        key: at.clone(),
        change: Change::Put {
            value: stored.clone(),
            expires_at,
        },
        condition: Condition::Always,
    };
    let written = applied(t.write_one(mutation).await);
    let expected = Row {
        value: stored,
        version: written.version,
        expires_at,
    };
    assert_eq!(t.get(&at).await, Some(expected));
}

/// A put replaces the whole row: no field of the old one remains.
pub async fn put_replaces_the_whole_row<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let rich = Change::Put {
        value: Value {
            form: umbo_types::StoredForm::Plain,
            content_type: Bytes::from_static(b"text/html"),
            content_encoding: Bytes::from_static(b"gzip"),
            ..value("a longer first value")
        },
        expires_at: Some(Timestamp::from_millis(START.as_millis() + 1)),
    };
    let mutation = put(&at, "");
    t.write(vec![Mutation {
        change: rich,
        ..mutation
    }])
    .await;
    let version = t.put(&at, "short").await.version;
    let expected = Row {
        value: value("short"),
        version,
        expires_at: None,
    };
    assert_eq!(t.get(&at).await, Some(expected));
}

/// Every write reports whether there was a visible row before it.
pub async fn writes_say_whether_a_row_existed<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    assert!(!t.delete(&at).await.existed);
    assert!(!t.put(&at, "1").await.existed);
    assert!(t.put(&at, "2").await.existed);
    assert!(t.delete(&at).await.existed);
    assert_eq!(t.get(&at).await, None);
    assert!(!t.delete(&at).await.existed);
    assert!(!t.put(&at, "3").await.existed);
}

/// A write that is acknowledged before it is on the disk is visible immediately.
pub async fn an_async_write_is_visible_at_once<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for n in 0..50_u32 {
        let at = key("p", n.to_be_bytes());
        let request = WriteRequest {
            durability: Durability::Async,
            ..t.request(vec![put(&at, "v")])
        };
        t.store
            .write_rows(&CALL, request)
            .await
            .into_iter()
            .for_each(|answer| {
                applied(answer);
            });
        assert_eq!(t.value(&at).await.as_deref(), Some(&b"v"[..]));
        assert_eq!(t.walk(&whole("p")).await.len(), n as usize + 1);
    }
}

/// Values of any size are kept, from empty to the largest.
pub async fn values_of_every_size_come_back<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let sizes = [0, 1, 255, 256, 65_535, 65_536, 65_537, VALUE_LEN_MAX];
    let bytes = |size: usize| -> Vec<u8> { (0..size).map(|n| (n * 31 % 251) as u8).collect() };
    for size in sizes {
        t.put(&key("p", size.to_be_bytes()), bytes(size)).await;
    }
    let keys = sizes.map(|size| key("p", size.to_be_bytes()));
    let many = t.store.get_rows(&CALL, NS, &keys).await;
    let ranged = t.walk(&whole("p")).await;
    let scanned = t.scan(&everything(NS)).await;
    assert_eq!([many.len(), ranged.len(), scanned.len()], [sizes.len(); 3]);
    for (at, size) in sizes.into_iter().enumerate() {
        let expected = bytes(size);
        assert!(t.value(&keys[at]).await.as_deref() == Some(&expected[..]));
        let row = many[at].clone().expect("served").expect("present");
        assert!(row.value.bytes == expected);
        assert!(ranged[at].value == expected && ranged[at].value_len as usize == size);
        assert!(scanned[at].value == expected);
    }
}

/// Content type and encoding are kept up to their maximum lengths.
pub async fn content_fields_are_kept<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let lengths = [0, 1, CONTENT_FIELD_LEN_MAX];
    for (n, (kind, encoding)) in (0_u8..).zip(
        lengths
            .iter()
            .flat_map(|kind| lengths.iter().map(move |encoding| (*kind, *encoding))),
    ) {
        let stored = Value {
            form: umbo_types::StoredForm::Plain,
            content_type: vec![b't'; kind].into(),
            content_encoding: vec![b'e'; encoding].into(),
            ..value("body")
        };
        let at = key("p", [n]);
        let change = Change::Put {
            value: stored.clone(),
            expires_at: None,
        };
        let mutation = put(&at, "");
        applied(t.write_one(Mutation { change, ..mutation }).await);
        let row = t.get(&at).await.expect("present");
        assert_eq!(row.value, stored);
        let expected = super::seen::Seen::expected(b"", &[n], &row, false);
        let request = crate::RangeRequest {
            range: crate::SortRange::with_prefix(vec![n].into()),
            ..whole("p")
        };
        assert_eq!(t.walk(&request).await, [expected]);
    }
}

/// A multi-get answers in the order of its keys, duplicates and absent keys included.
pub async fn multi_get_answers_in_order<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    assert!(t.store.get_rows(&CALL, NS, &[]).await.is_empty());
    let present: Vec<_> = (0..40).map(|n| key(format!("p{n}"), "s")).collect();
    for at in &present {
        t.put(at, at.partition.as_bytes()).await;
    }
    let mut asked = Vec::new();
    for at in present.iter().rev() {
        asked.push(at.clone());
        asked.push(key(at.partition.as_bytes(), "absent"));
        asked.push(present[3].clone());
    }
    let answers = t.store.get_rows(&CALL, NS, &asked).await;
    assert_eq!(answers.len(), asked.len());
    for (at, answer) in asked.iter().zip(answers) {
        let found = answer.expect("served").map(|row| row.value.bytes);
        let expected = (at.sort.as_bytes() == b"s").then(|| at.partition.as_bytes());
        assert_eq!(found.as_deref(), expected);
    }
}

/// A write that has rows of another shard than that which is asked is refused before it begins, and so is a read.
pub async fn rows_of_another_shard_are_refused<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let own = key("p", "s");
    let shard = t.store.shard_of(NS, &own);
    let others = (0..1_000).map(|n| key(format!("p{n}"), "s"));
    let mut others = others.filter(|at| t.store.shard_of(NS, at) != shard);
    let Some(other) = others.next() else {
        return;
    };
    let request = t.request(vec![put(&own, "1"), put(&other, "2")]);
    let answers = t.store.write(&CALL, shard, request).await;
    assert_eq!(answers.len(), 2);
    for answer in answers {
        assert_eq!(
            answer.map_err(|error| error.outcome()),
            Err(Outcome::NotApplied)
        );
    }
    let keys = [own, other];
    for row in t.store.multi_get(&CALL, shard, NS, &keys).await {
        assert!(row.is_err());
    }
    for at in &keys {
        assert_eq!(t.get(at).await, None);
    }
}

/// A multi-get ends with the row with which its values are as long as they may be.
pub async fn a_long_multi_get_ends_early<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    // Noise, which no form of a value makes shorter.
    let mut random = Seeded::new(7);
    let noise = (0..VALUE_LEN_MAX).map(|_| random.below(256) as u8);
    let noise: Vec<u8> = noise.collect();
    t.put(&at, &noise).await;
    let keys = vec![at.clone(); 2 * MULTI_GET_BYTES_MAX / VALUE_LEN_MAX];
    let shard = t.store.shard_of(NS, &at);
    let rows = t.store.multi_get(&CALL, shard, NS, &keys).await;
    assert_eq!(rows.len(), keys.len() / 2);
    for row in rows {
        assert_eq!(row.expect("served").expect("present").value.bytes, noise);
    }
}

/// The same key in two namespaces is two rows, for every operation.
pub async fn namespaces_are_isolated<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    // Not Umbo's own namespace: a cluster accepts rows of that in one shard only.
    let highest = NamespaceId(u32::MAX).number();
    let namespaces = [1, 2, 7, 8, 255, 256, 0x0100_0000, highest].map(NamespaceId);
    let at = key("p", "s");
    for namespace in namespaces {
        let request = WriteRequest {
            namespace,
            ..t.request(vec![put(&at, namespace.0.to_string())])
        };
        for answer in t.store.write_rows(&CALL, request).await {
            assert!(!applied(answer).existed, "seen through a namespace");
        }
    }
    for namespace in namespaces {
        let row = t.get_in(namespace, &at).await.expect("present");
        assert_eq!(row.value, value(namespace.0.to_string()));
        let request = crate::RangeRequest {
            namespace,
            ..whole("p")
        };
        assert_eq!(t.walk(&request).await.len(), 1);
        assert_eq!(t.scan(&everything(namespace)).await.len(), 1);
    }
    t.delete(&at).await;
    t.write(vec![put_until(&at, "gone at once", Some(Timestamp(1)))])
        .await;
    assert_eq!(t.get(&at).await, None);
    for namespace in namespaces.into_iter().filter(|&namespace| namespace != NS) {
        assert!(t.get_in(namespace, &at).await.is_some());
    }
}
