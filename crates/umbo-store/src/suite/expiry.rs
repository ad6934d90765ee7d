//! Expiry: a row is visible until its millisecond and not after it, for every operation.

use std::time::Duration;

use umbo_types::{Clock, Key, Timestamp};

use crate::suite::Engine;
use crate::suite::subject::{
    CALL, NS, START, TestSubject, applied, delete, everything, key, put, put_until, whole,
};
use crate::{
    ByKey as _, Condition, RangeRequest, SortRange, StoreError, WriteError, WriteRequest, Written,
};

fn at_ms(offset: u64) -> Timestamp {
    Timestamp::from_millis(START.as_millis() + offset)
}

/// Returns how many rows of partition `p` each kind of read sees, of those in `keys`.
async fn seen<E: Engine>(t: &TestSubject<E>, keys: &[Key]) -> [usize; 7] {
    let mut got = 0;
    for at in keys {
        got += usize::from(t.get(at).await.is_some());
    }
    let many = t.store.get_rows(&CALL, NS, keys).await;
    let many = many.iter().filter(|row| matches!(row, Ok(Some(_))));
    let range = |reverse, keys_only| RangeRequest {
        reverse,
        keys_only,
        rows_max: 3,
        ..whole("p")
    };
    let mut scan = everything(NS);
    let scanned = t.scan(&scan).await.len();
    scan.keys_only = true;
    scan.rows_max = 2;
    [
        got,
        many.count(),
        t.walk(&range(false, false)).await.len(),
        t.walk(&range(true, false)).await.len(),
        t.walk(&range(false, true)).await.len(),
        scanned,
        t.scan(&scan).await.len(),
    ]
}

/// A row is visible a millisecond before it expires and gone at that instant, for every read.
pub async fn a_row_goes_at_its_millisecond<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let keys: Vec<_> = (0..10_u8).map(|n| key("p", [n])).collect();
    for (n, at) in (0..).zip(&keys) {
        // Row n expires after 10 n + 1 ms.
        let mutation = put_until(at, "v", Some(at_ms(10 * n + 1)));
        applied(t.write_one(mutation).await);
    }
    for gone in 0..10_usize {
        let expiry = at_ms(10 * gone as u64 + 1);
        t.clock.set_wall(Timestamp(expiry.0 - 1_000));
        assert_eq!(seen(&t, &keys).await, [10 - gone; 7], "1 ms before");
        t.clock.set_wall(expiry);
        assert_eq!(seen(&t, &keys).await, [9 - gone; 7], "at that instant");
    }
}

/// An expired row counts as absent: for conditions, for what existed, for the sums of a removal.
pub async fn an_expired_row_counts_as_absent<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = |n: u8| key("p", [n]);
    for n in 0..4 {
        applied(t.write_one(put_until(&at(n), "v", Some(at_ms(5)))).await);
    }
    t.put(&at(9), "stays").await;
    t.clock.set_wall(Timestamp(at_ms(5).0 - 1_000));
    let absent = Condition::Absent;
    let early = t.write_one(put(&at(0), "w").when(absent.clone())).await;
    assert!(early.is_err(), "refused before the instant");
    t.clock.set_wall(at_ms(5));
    let late = t.write_one(put(&at(0), "w").when(absent)).await;
    assert!(!applied(late).existed);
    assert!(!t.put(&at(1), "w").await.existed);
    assert!(!t.delete(&at(2)).await.existed);
    let present = delete(&at(3)).when(Condition::Present);
    assert!(t.write_one(present).await.is_err());
    // Rows 0, 1 and 9 are visible; row 3 has expired.
    let removed = t.remove(t.removal("p", SortRange::default())).await;
    assert_eq!((removed.rows, removed.bytes), (3, 3 + 1 + 1 + 5));
    assert_eq!(t.walk(&whole("p")).await, []);
}

/// A row that is put with an expiry in the past is applied and never seen.
pub async fn a_row_may_be_born_expired<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    for expires_at in [Timestamp(0), Timestamp(1_000), at_ms(0)] {
        t.put(&at, "there").await;
        let written = applied(t.write_one(put_until(&at, "v", Some(expires_at))).await);
        assert!(written.existed);
        assert_eq!(seen(&t, std::slice::from_ref(&at)).await, [0; 7]);
        assert!(!t.delete(&at).await.existed);
    }
}

/// Only the last put decides when a row expires.
pub async fn a_put_sets_the_expiry_anew<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let names = ["longer", "shorter", "for ever", "bounded", "very far"];
    let [longer, shorter, forever, bounded, far] = names.map(|name| key("p", name));
    let end_of_time = Timestamp::from_millis(u64::MAX / 1_000);
    for (at, one, two) in [
        (&longer, Some(at_ms(10)), Some(at_ms(30))),
        (&shorter, Some(at_ms(30)), Some(at_ms(10))),
        (&forever, Some(at_ms(10)), None),
        (&bounded, None, Some(at_ms(10))),
        (&far, Some(at_ms(10)), Some(end_of_time)),
    ] {
        applied(t.write_one(put_until(at, "1", one)).await);
        applied(t.write_one(put_until(at, "2", two)).await);
        assert_eq!(t.get(at).await.expect("not yet").expires_at, two);
    }
    t.clock.advance(Duration::from_millis(10));
    for (at, is_there) in [(&longer, true), (&shorter, false), (&bounded, false)] {
        assert_eq!(t.get(at).await.is_some(), is_there);
    }
    t.clock.advance(Duration::from_millis(20));
    assert_eq!(t.clock.wall(), at_ms(30));
    assert_eq!(t.get(&longer).await, None);
    t.clock.advance(Duration::from_hours(87_600));
    assert!(t.get(&forever).await.is_some() && t.get(&far).await.is_some());
}

/// A partition of expired rows only is read to its end and found empty.
pub async fn only_expired_rows_are_nothing<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let rows = (0..2_500_u32).map(|n| put_until(&key("p", n.to_be_bytes()), "v", Some(at_ms(1))));
    t.write(rows.collect()).await;
    assert_eq!(t.walk(&whole("p")).await.len(), 2_500);
    t.clock.set_wall(at_ms(1));
    assert_eq!(seen(&t, &[]).await, [0; 7]);
}

/// A row whose expiry was made by the time of its shard lives for that time.
pub async fn a_row_lives_for_its_time_at_its_shard<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let (at, second) = (key("p", "s"), Duration::from_secs(1));
    let shard = t.store.shard_map().locate(NS, &at.partition);
    let now = t.store.time_at(shard, t.clock.wall());
    let expires_at = now.saturating_add(60 * second);
    applied(t.write_one(put_until(&at, "v", Some(expires_at))).await);
    t.clock.advance(59 * second);
    assert!(t.get(&at).await.is_some());
    t.clock.advance(second);
    assert_eq!(t.get(&at).await, None);
}

/// Puts a row that is not to be put before `due_at`.
async fn put_due<E: Engine>(
    t: &TestSubject<E>,
    at: &Key,
    due_at: Timestamp,
) -> Result<Written, WriteError> {
    let request = WriteRequest {
        not_before: Some(due_at),
        ..t.request(vec![put(at, "v")])
    };
    let mut answers = t.store.write_rows(&CALL, request).await;
    answers.pop().expect("one answer a mutation")
}

fn is_too_early(answer: &Result<Written, WriteError>) -> bool {
    matches!(answer, Err(WriteError::Store(StoreError::TooEarly { .. })))
}

/// A change that is due later is refused and not applied, and made once it is due.
pub async fn a_change_is_refused_until_it_is_due<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    assert!(is_too_early(&put_due(&t, &at, at_ms(10)).await));
    assert_eq!(t.get(&at).await, None);
    t.clock.advance(Duration::from_millis(10));
    applied(put_due(&t, &at, at_ms(10)).await);
    assert!(t.get(&at).await.is_some());
}

/// A time of day that jumps ahead makes a change due only once it has lasted for ten minutes.
pub async fn a_jump_of_the_clock_makes_no_change_due<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let day = Duration::from_hours(24);
    let (due_at, ahead) = (START.saturating_add(day), START.saturating_add(8 * day));
    for _ in 0..2 {
        t.clock.set_wall(ahead);
        assert!(is_too_early(&put_due(&t, &at, due_at).await));
        t.clock.advance(Duration::from_secs(35));
        assert!(is_too_early(&put_due(&t, &at, due_at).await));
        t.clock
            .set_wall(START.saturating_add(Duration::from_secs(70)));
        assert!(is_too_early(&put_due(&t, &at, due_at).await));
    }
    t.clock.set_wall(ahead);
    assert!(is_too_early(&put_due(&t, &at, due_at).await));
    t.clock.advance(Duration::from_mins(10));
    applied(put_due(&t, &at, due_at).await);
}
