//! Removal of ranges, step by step.

use bytes::Bytes;
use umbo_types::Timestamp;

use crate::suite::Engine;
use crate::suite::seen::sorts;
use crate::suite::subject::{CALL, START, TestSubject, key, put, put_until, whole};
use crate::{ByKey as _, DeleteRangeRequest, Deleted, SortRange};

/// A range is removed at any step size, with exact sums, and no other row is touched.
pub async fn a_range_is_removed_in_steps<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for rows_max in [1, 2, 3, 7, 19, 20, 21, 1_000] {
        for partition in ["o", "p", "p\0", "q"] {
            let rows = (0..30_u8).map(|n| put(&key(partition, [n]), vec![n; n.into()]));
            t.write(rows.collect()).await;
        }
        let range = SortRange {
            start: Bytes::from_static(&[5]),
            end: Some(Bytes::from_static(&[25])),
        };
        let request = DeleteRangeRequest {
            rows_max,
            ..t.removal("p", range.clone())
        };
        let sum = t.remove(request.clone()).await;
        let bytes = (5..25).map(|n| 1 + n).sum();
        let expected = Deleted {
            rows: 20,
            bytes,
            resume_after: None,
        };
        assert_eq!(sum, expected, "steps of {rows_max}");
        let left: Vec<[u8; 1]> = (0..5).chain(25..30).map(|n| [n]).collect();
        assert_eq!(sorts(&t.walk(&whole("p")).await), left);
        for partition in ["o", "p\0", "q"] {
            assert_eq!(t.walk(&whole(partition)).await.len(), 30);
        }
        assert_eq!(t.remove(request).await, Deleted::default(), "nothing left");
    }
}

/// Each step removes the first rows, at most as many as requested.
pub async fn a_step_removes_from_the_front<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    t.write((0..10_u8).map(|n| put(&key("p", [n]), "v")).collect())
        .await;
    let mut request = DeleteRangeRequest {
        rows_max: 4,
        ..t.removal("p", SortRange::default())
    };
    let mut removed = 0;
    while removed < 10 {
        let step = t
            .store
            .remove_rows(&CALL, request.clone())
            .await
            .expect("served");
        assert!((1..=4).contains(&step.rows), "rows are there to remove");
        removed += step.rows;
        assert_eq!(step.bytes, 2 * step.rows);
        let left: Vec<[u8; 1]> = (removed as u8..10).map(|n| [n]).collect();
        assert_eq!(sorts(&t.walk(&whole("p")).await), left);
        match step.resume_after {
            Some(last) => request.range = request.range.beyond(&last, false),
            None => break,
        }
    }
    assert_eq!(removed, 10);
}

/// Bounds of a removal are those of a range: prefixes, empty ranges, absent partitions.
pub async fn removals_select_as_ranges_do<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let all: [&[u8]; 7] = [b"", b"\0", b"a", b"a\xFF", b"a\xFF\xFF", b"b", b"\xFF\xFF"];
    let prefixes: [&'static [u8]; 6] = [b"\xFF", b"a\xFF", b"a", b"zz", b"\0", b""];
    for prefix in prefixes {
        for sort in all {
            t.put(&key("p", sort), "v").await;
        }
        let range = SortRange::with_prefix(Bytes::from_static(prefix));
        let sum = t.remove(t.removal("p", range)).await;
        let (gone, left): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|sort| sort.starts_with(prefix));
        assert_eq!(sum.rows, gone.len() as u64);
        assert_eq!(sorts(&t.walk(&whole("p")).await), left);
    }
    t.put(&key("p", "m"), "v").await;
    let inverted = SortRange {
        start: Bytes::from_static(b"z"),
        end: Some(Bytes::from_static(b"a")),
    };
    let nothing = Deleted::default();
    assert_eq!(t.remove(t.removal("p", inverted)).await, nothing);
    let all = SortRange::default();
    assert_eq!(t.remove(t.removal("absent", all)).await, nothing);
    assert!(t.get(&key("p", "m")).await.is_some());
}

/// A removal counts visible rows only, and continues past any number of expired ones.
pub async fn removals_pass_over_expired_rows<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let soon = Timestamp::from_millis(START.as_millis() + 1);
    for rows_max in [1, 5, 1_000] {
        let rows = (0..60_u8).map(|n| {
            let expires_at = (n % 10 != 9).then_some(soon);
            put_until(&key("p", [n]), "abc", expires_at)
        });
        t.clock.set_wall(START);
        t.write(rows.collect()).await;
        t.clock.set_wall(soon);
        let request = DeleteRangeRequest {
            rows_max,
            ..t.removal("p", SortRange::default())
        };
        let sum = t.remove(request).await;
        assert_eq!((sum.rows, sum.bytes), (6, 6 * 4), "steps of {rows_max}");
        assert_eq!(t.walk(&whole("p")).await, []);
    }
}
