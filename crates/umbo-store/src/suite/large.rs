//! Large values: whole or not there, kept as long as a row refers to them, reclaimed afterwards.

use std::time::Duration;

use bytes::Bytes;
use umbo_types::limits::LARGE_CHUNK_LEN;
use umbo_types::{Clock, Key, LargeRef, UploadId, Value};

use crate::suite::subject::{CALL, NS, TestSubject, applied, delete, key, put, served, whole};
use crate::suite::{Engine, Restart};
use crate::{
    ByKey as _, Change, ChunkRequest, Condition, DeleteRangeRequest, Durability, Mutation,
    READ_GRACE, UPLOAD_IDLE, UploadStep, WriteError,
};

/// Length of the last chunk of the values here, which have two.
const TAIL_LEN: usize = 1_000;

fn bytes(index: u32) -> Bytes {
    let len = if index == 0 {
        LARGE_CHUNK_LEN
    } else {
        TAIL_LEN
    };
    vec![b'a' + index as u8; len].into()
}

pub(super) fn large(id: u8) -> LargeRef {
    LargeRef {
        upload: UploadId([id; UploadId::LEN]),
        len: (LARGE_CHUNK_LEN + TAIL_LEN) as u64,
        sha256: [id; 32],
    }
}

fn step(at: &Key, step: UploadStep) -> Mutation {
    Mutation {
        change: Change::Upload(step),
        ..delete(at)
    }
}

fn append(at: &Key, id: u8, index: u32, bytes: Bytes) -> Mutation {
    let upload = large(id).upload;
    step(
        at,
        UploadStep::Append {
            upload,
            index,
            bytes,
        },
    )
}

pub(super) fn refer(at: &Key, large: &LargeRef) -> Mutation {
    let value = Value::new(Bytes::new(), "image/x", "").expect("it is short");
    Mutation {
        change: Change::Put {
            value: value.of_large(large),
            expires_at: None,
        },
        ..put(at, "")
    }
}

pub(super) async fn upload<E: Engine>(t: &TestSubject<E>, at: &Key, id: u8) {
    for index in 0..2 {
        applied(t.write_one(append(at, id, index, bytes(index))).await);
    }
}

async fn chunk<E: Engine>(t: &TestSubject<E>, at: &Key, id: u8, index: u32) -> Option<Bytes> {
    let request = ChunkRequest {
        namespace: NS,
        large: large(id),
        index,
    };
    served(t.store.chunk_of(&CALL, at, &request).await)
}

pub(super) async fn is_kept<E: Engine>(t: &TestSubject<E>, at: &Key, id: u8) -> bool {
    let kept = [chunk(t, at, id, 0).await, chunk(t, at, id, 1).await];
    kept == [Some(bytes(0)), Some(bytes(1))]
}

/// Lets time pass, and commits, which is when a shard reclaims.
pub(super) async fn pass<E: Engine>(t: &TestSubject<E>, at: &Key, time: Duration) {
    t.clock.advance(time);
    for round in 0..4_u8 {
        let other = Key::new(at.partition.as_bytes().to_vec(), vec![b'~', round]);
        t.put(&other.expect("it is short"), "v").await;
    }
}

async fn is_reclaimed<E: Engine>(t: &TestSubject<E>, at: &Key, id: u8) -> bool {
    pass(t, at, READ_GRACE + Duration::from_millis(1)).await;
    chunk(t, at, id, 0).await.is_none() && chunk(t, at, id, 1).await.is_none()
}

/// A row that refers to an upload has its length and content fields, and its chunks come back.
pub async fn a_large_value_comes_back<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "large");
    upload(&t, &at, 1).await;
    assert_eq!(t.get(&at).await, None, "nothing is visible before the put");
    applied(t.write_one(refer(&at, &large(1))).await);
    let row = t.get(&at).await.expect("it was put");
    assert_eq!(row.value.large(), Some(large(1)));
    assert_eq!(row.value.plain_len(), LARGE_CHUNK_LEN + TAIL_LEN);
    assert_eq!(row.value.content_type, "image/x");
    assert!(is_kept(&t, &at, 1).await);
    assert_eq!(chunk(&t, &at, 1, 2).await, None);
    assert_eq!(chunk(&t, &at, 2, 0).await, None);
    let seen = t.chunk(&whole("p")).await.0;
    assert_eq!(seen.len(), 1);
    let size = t.told(|shards| shards.iter().any(|one| one.rows > 0)).await;
    let sizes = size.iter().filter_map(|one| one.sizes.as_ref()).flatten();
    let bytes: u64 = sizes.map(|size| size.bytes).sum();
    assert!(bytes > large(1).len, "the sizes count it: {bytes}");
    pass(&t, &at, UPLOAD_IDLE + READ_GRACE).await;
    assert!(is_kept(&t, &at, 1).await, "as long as the row stands");
}

/// Chunks come in order, the last one again if need be; and a put of what is not whole is refused.
pub async fn a_part_of_a_large_value_is_none<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "large");
    let gone = Err(WriteError::UploadGone);
    assert_eq!(t.write_one(refer(&at, &large(1))).await, gone);
    assert_eq!(t.write_one(append(&at, 1, 1, bytes(1))).await, gone);
    applied(t.write_one(append(&at, 1, 0, bytes(0))).await);
    assert_eq!(t.write_one(refer(&at, &large(1))).await, gone);
    assert_eq!(t.write_one(append(&at, 1, 2, bytes(1))).await, gone);
    applied(t.write_one(append(&at, 1, 1, bytes(1))).await);
    applied(t.write_one(append(&at, 1, 1, bytes(1))).await);
    let shorter = LargeRef {
        len: large(1).len - 1,
        ..large(1)
    };
    assert_eq!(t.write_one(refer(&at, &shorter)).await, gone);
    assert_eq!(t.get(&at).await, None);
    let mutations = vec![refer(&at, &large(1)), put(&key("p", "other"), "v")];
    assert!(t.write(mutations).await.iter().all(Result::is_ok));
    assert_eq!(t.write_one(append(&at, 1, 1, bytes(1))).await, gone);
    assert!(is_kept(&t, &at, 1).await);
}

/// A put of a large value has its condition, and one that is refused leaves the row as it was.
pub async fn a_large_value_is_put_on_a_condition<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "large");
    t.put(&at, "small").await;
    upload(&t, &at, 1).await;
    let refused = t
        .write_one(refer(&at, &large(1)).when(Condition::Absent))
        .await;
    assert!(matches!(refused, Err(WriteError::ConditionFailed { .. })));
    assert_eq!(t.value(&at).await.as_deref(), Some(&b"small"[..]));
    let put = t.write_one(refer(&at, &large(1)).when(Condition::Present));
    assert!(applied(put.await).existed);
    assert!(is_kept(&t, &at, 1).await);
}

/// An upload is reclaimed once the last row that refers to it is gone, in whichever way, and not at once.
pub async fn a_large_value_goes_with_its_last_row<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let (one, other) = (key("p", "one"), key("p", "other"));
    upload(&t, &one, 1).await;
    applied(t.write_one(refer(&one, &large(1))).await);
    applied(t.write_one(refer(&other, &large(1))).await);
    applied(t.write_one(refer(&other, &large(1))).await);
    t.delete(&one).await;
    assert!(!is_reclaimed(&t, &one, 1).await);
    assert!(is_kept(&t, &one, 1).await, "the other row refers to it");
    t.put(&other, "small").await;
    assert!(is_reclaimed(&t, &one, 1).await, "overwritten");

    upload(&t, &one, 2).await;
    applied(t.write_one(refer(&one, &large(2))).await);
    let removal = DeleteRangeRequest {
        namespace: NS,
        epoch: 0,
        partition: one.partition.clone(),
        range: whole("p").range,
        rows_max: 100,
        durability: Durability::Sync,
    };
    served(t.store.remove_rows(&CALL, removal).await);
    assert!(is_reclaimed(&t, &one, 2).await, "removed with its range");
}

/// An upload that nothing refers to is reclaimed: at once where it is given up, and once nothing has come for long.
pub async fn an_upload_without_a_row_goes<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "large");
    upload(&t, &at, 1).await;
    applied(
        t.write_one(step(&at, UploadStep::Abandon(large(1).upload)))
            .await,
    );
    assert_eq!(
        t.write_one(refer(&at, &large(1))).await,
        Err(WriteError::UploadGone)
    );
    pass(&t, &at, Duration::from_millis(1)).await;
    assert_eq!(chunk(&t, &at, 1, 0).await, None);

    applied(t.write_one(append(&at, 2, 0, bytes(0))).await);
    pass(
        &t,
        &at,
        UPLOAD_IDLE.saturating_sub(Duration::from_millis(1)),
    )
    .await;
    applied(t.write_one(append(&at, 2, 1, bytes(1))).await);
    pass(
        &t,
        &at,
        UPLOAD_IDLE.saturating_sub(Duration::from_millis(1)),
    )
    .await;
    assert!(is_kept(&t, &at, 2).await, "each chunk begins the time anew");
    pass(&t, &at, Duration::from_millis(2)).await;
    assert_eq!(chunk(&t, &at, 2, 0).await, None);

    upload(&t, &at, 3).await;
    applied(t.write_one(refer(&at, &large(3))).await);
    applied(
        t.write_one(step(&at, UploadStep::Abandon(large(3).upload)))
            .await,
    );
    assert!(!is_reclaimed(&t, &at, 3).await, "a row refers to it");
}

/// Values and uploads under way outlive a restart.
pub async fn large_values_outlive_a_restart<E: Restart>() {
    let t = TestSubject::<E>::fresh().await;
    let (at, other) = (key("p", "large"), key("p", "other"));
    upload(&t, &at, 1).await;
    applied(t.write_one(refer(&at, &large(1))).await);
    applied(t.write_one(append(&other, 2, 0, bytes(0))).await);
    let t = t.restart().await;
    assert!(is_kept(&t, &at, 1).await);
    applied(t.write_one(append(&other, 2, 1, bytes(1))).await);
    applied(t.write_one(refer(&other, &large(2))).await);
    t.delete(&at).await;
    let now = t.clock.wall();
    let t = t.restart().await;
    assert!(t.clock.wall() >= now);
    assert!(is_reclaimed(&t, &at, 1).await);
    assert!(is_kept(&t, &other, 2).await);
}

/// A put of a large value counts from its own commit on: a step of its upload beside it finds the row.
pub async fn an_upload_is_put_and_given_up_at_once<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "large");
    let give_up = |id| step(&at, UploadStep::Abandon(large(id).upload));
    let gone = Err(WriteError::UploadGone);
    upload(&t, &at, 1).await;
    let answers = t.write(vec![refer(&at, &large(1)), give_up(1)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    applied(t.write_one(refer(&at, &large(1))).await);
    assert!(!is_reclaimed(&t, &at, 1).await);

    let other = key("p", "other");
    let short = LargeRef {
        len: LARGE_CHUNK_LEN as u64,
        ..large(2)
    };
    applied(t.write_one(append(&other, 2, 0, bytes(0))).await);
    let mutations = vec![refer(&other, &short), append(&other, 2, 1, bytes(1))];
    let mut answers = t.write(mutations).await;
    assert_eq!(answers.pop(), Some(gone.clone()), "nothing is added to it");
    applied(answers.remove(0));
    applied(t.write_one(refer(&other, &short)).await);

    upload(&t, &at, 3).await;
    let refused = refer(&at, &large(3)).when(Condition::Absent);
    let answers = t.write(vec![refused, give_up(3)]).await;
    assert!(matches!(
        answers[..],
        [Err(WriteError::ConditionFailed { .. }), Ok(_)]
    ));
    assert_eq!(t.write_one(refer(&at, &large(3))).await, gone);

    upload(&t, &at, 4).await;
    let answers = t.write(vec![give_up(4), refer(&at, &large(4))]).await;
    assert_eq!(answers.last(), Some(&gone), "the order counts");

    // Two writes that may be in one commit.
    upload(&t, &at, 5).await;
    let put = t.write_one(refer(&at, &large(5)));
    let (put, abandoned) = tokio::join!(put, t.write_one(give_up(5)));
    applied(abandoned);
    if put.is_ok() {
        applied(t.write_one(refer(&at, &large(5))).await);
        assert!(is_kept(&t, &at, 5).await);
    } else {
        assert_eq!(put, gone);
    }
}
