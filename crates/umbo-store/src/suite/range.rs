//! Ranges within a partition: order, bounds, limits, and walks in chunks.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use umbo_types::Timestamp;
use umbo_types::limits::CHUNK_BYTES_MAX;

use crate::suite::Engine;
use crate::suite::seeded::Seeded;
use crate::suite::seen::sorts;
use crate::suite::subject::{
    CALL, START, TestSubject, applied, delete, key, put, put_until, served, whole,
};
use crate::{Atomicity, ByKey as _, Page, RangeRequest, RowBatch, SortRange, WriteRequest};

/// Chunk sizes around every edge case of the walks here.
const CHUNKS: [u32; 5] = [1, 2, 3, 7, 10_000];

/// Any range, in either direction and in any chunks, equals that of a sorted map.
pub async fn ranges_agree_with_a_sorted_twin<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let mut random = Seeded::new(1);
    let mut twin: BTreeMap<(&str, Vec<u8>), Vec<u8>> = BTreeMap::new();
    for n in 0..600_u32 {
        let at = (*random.pick(&["p", "p\0", "q"]), random.bytes(5));
        twin.insert(at, n.to_string().into());
    }
    let rows = twin
        .iter()
        .map(|((partition, sort), value)| put(&key(partition, sort), value));
    let answers = t.write(rows.collect()).await;
    assert!(answers.iter().all(Result::is_ok));
    for _ in 0..300 {
        let mut range = SortRange::default();
        if random.one_in(2) {
            range.start = random.bytes(5).into();
        }
        if random.one_in(2) {
            range.end = Some(random.bytes(5).into());
        }
        if random.one_in(3) {
            range = range.intersect(SortRange::with_prefix(random.bytes(2).into()));
        }
        let partition = *random.pick(&["p", "p\0", "q", "absent"]);
        let request = RangeRequest {
            range: range.clone(),
            reverse: random.one_in(2),
            rows_max: *random.pick(&CHUNKS),
            bytes_max: *random.pick(&[0, 1, 20, u32::MAX]),
            keys_only: random.one_in(3),
            ..whole(partition)
        };
        let mut expected: Vec<_> = twin
            .iter()
            .filter(|((p, sort), _)| *p == partition && range.contains(sort))
            .map(|((_, sort), value)| (sort.clone(), value.clone()))
            .collect();
        if request.reverse {
            expected.reverse();
        }
        if request.keys_only {
            for (_, value) in &mut expected {
                value.clear();
            }
        }
        let rows = t.walk(&request).await.into_iter();
        let rows: Vec<_> = rows.map(|row| (row.sort, row.value)).collect();
        assert_eq!(rows, expected, "{request:?}");
        // The rows are the same where a sink takes them.
        let page = served(t.store.range_of(&CALL, &request).await);
        let mut rows = RowBatch::default();
        let map = t.store.shard_map();
        let shard = map.locate(request.namespace, &request.partition);
        let rest = t.store.range_into(&CALL, shard, &request, &mut rows);
        let rest = served(rest.await);
        assert!(rest.rows.is_empty());
        assert_eq!(Page { rows, ..rest }, page, "{request:?}");
    }
}

/// A prefix that ends in 0xFF, or is nothing but 0xFF, selects exactly the keys with this prefix.
pub async fn prefixes_may_end_in_the_highest_byte<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let all: [&[u8]; 10] = [
        b"",
        b"a",
        b"a\xFE",
        b"a\xFF",
        b"a\xFF\0",
        b"a\xFF\xFF",
        b"b",
        b"\xFF",
        b"\xFF\xFF",
        b"\xFF\xFF\xFF",
    ];
    for sort in all {
        t.put(&key("p", sort), "v").await;
    }
    for prefix in all {
        for reverse in [false, true] {
            let request = RangeRequest {
                range: SortRange::with_prefix(Bytes::from_static(prefix)),
                reverse,
                rows_max: 2,
                ..whole("p")
            };
            let mut expected: Vec<_> = all
                .into_iter()
                .filter(|sort| sort.starts_with(prefix))
                .collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(sorts(&t.walk(&request).await), expected);
        }
    }
}

/// A range that is empty, ends before it begins, or is in an absent partition has no rows.
pub async fn empty_ranges_are_answered<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    t.put(&key("p", "m"), "v").await;
    let ranges = [("m", "m"), ("n", "m"), ("z", "a"), ("", ""), ("n", "z")];
    for (start, end) in ranges {
        for reverse in [false, true] {
            let range = SortRange {
                start: Bytes::from_static(start.as_bytes()),
                end: Some(Bytes::from_static(end.as_bytes())),
            };
            let request = RangeRequest {
                range,
                reverse,
                ..whole("p")
            };
            let (rows, resume_after) = t.chunk(&request).await;
            assert_eq!((rows, resume_after), (vec![], None), "{start}..{end}");
        }
    }
    assert_eq!(t.walk(&whole("absent")).await, []);
}

/// A start is part of the range and an end is not.
pub async fn start_is_included_and_end_is_not<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for sort in ["a", "b", "b\0", "c", "d"] {
        t.put(&key("p", sort), "v").await;
    }
    let request = RangeRequest {
        range: SortRange {
            start: Bytes::from_static(b"b"),
            end: Some(Bytes::from_static(b"c")),
        },
        ..whole("p")
    };
    assert_eq!(sorts(&t.walk(&request).await), [&b"b"[..], b"b\0"]);
}

/// A chunk ends with the row that reaches the byte limit, and contains that row even if it alone exceeds the
/// limit.
pub async fn a_chunk_ends_with_the_row_that_reaches_the_bytes<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for n in 0..20_u8 {
        t.put(&key("p", [n]), [n; 99]).await;
    }
    // 100 bytes per row: the limit and the maximum number of rows of a chunk.
    for (bytes_max, rows_max) in [(0, 1), (1, 1), (100, 1), (101, 2), (200, 2), (550, 6)] {
        let request = RangeRequest {
            bytes_max,
            ..whole("p")
        };
        let (rows, resume_after) = t.chunk(&request).await;
        assert!((1..=rows_max).contains(&rows.len()), "{bytes_max} bytes");
        assert!(resume_after.is_some());
        assert_eq!(t.walk(&request).await.len(), 20);
    }
}

/// A chunk is bounded for any requested limit; the walk still returns everything.
pub async fn chunks_are_bounded_by_the_store<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let many = (0..3_000_u32).map(|n| put(&key("many", n.to_be_bytes()), "v"));
    t.write(many.collect()).await;
    let large = (0..12_u8).map(|n| put(&key("large", [n]), vec![n; 100_000]));
    t.write(large.collect()).await;
    for reverse in [false, true] {
        for (partition, expected) in [("many", 3_000), ("large", 12)] {
            let request = RangeRequest {
                reverse,
                ..whole(partition)
            };
            let (_, resume_after) = t.chunk(&request).await;
            assert!(resume_after.is_some(), "one chunk holds all of it");
            assert_eq!(t.walk(&request).await.len(), expected);
        }
    }
}

/// A walk returns every visible row once, at every chunk size, with expired rows in between.
pub async fn walks_give_every_row_once<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let soon = Timestamp::from_millis(START.as_millis() + 10);
    // Runs of expired rows at both ends, and every second row in the middle.
    let is_kept = |n: u8| (20..80).contains(&n) && n.is_multiple_of(2);
    let rows = (0..100_u8).map(|n| {
        let expires_at = (!is_kept(n)).then_some(soon);
        put_until(&key("p", [n]), [n], expires_at)
    });
    t.write(rows.collect()).await;
    for passed in [false, true] {
        if passed {
            t.clock.set_wall(soon);
        }
        for reverse in [false, true] {
            for rows_max in CHUNKS {
                let request = RangeRequest {
                    reverse,
                    rows_max,
                    ..whole("p")
                };
                let mut expected: Vec<[u8; 1]> = (0..100)
                    .filter(|&n| !passed || is_kept(n))
                    .map(|n| [n])
                    .collect();
                if reverse {
                    expected.reverse();
                }
                assert_eq!(sorts(&t.walk(&request).await), expected);
            }
        }
    }
}

/// Rows that are inserted and removed between two chunks never make a walk repeat or miss the other rows.
pub async fn walks_survive_changes_between_chunks<E: Engine>() {
    for reverse in [false, true] {
        let t = TestSubject::<E>::fresh().await;
        let stays = (0..40_u8).map(|n| [4 * n]);
        t.write(stays.clone().map(|sort| put(&key("p", sort), "")).collect())
            .await;
        let mut request = RangeRequest {
            reverse,
            rows_max: 3,
            ..whole("p")
        };
        let mut seen = Vec::new();
        let mut random = Seeded::new(9);
        loop {
            let (rows, resume_after) = t.chunk(&request).await;
            seen.extend(rows.into_iter().map(|row| row.sort));
            let Some(last) = resume_after else { break };
            request.range = request.range.beyond(&last, reverse);
            // Temporary rows on both sides of the walk; the row at its position is removed and comes back.
            let guests = (0..5).map(|_| [4 * random.below(40) as u8 + 1]);
            let mut changes: Vec<_> = guests.map(|sort| put(&key("p", sort), "guest")).collect();
            changes.push(delete(&key("p", [4 * random.below(40) as u8 + 1])));
            changes.push(delete(&key("p", &last)));
            t.write(changes).await;
            if last[0] % 4 == 0 {
                t.put(&key("p", &last), "back").await;
            }
        }
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count, "a row was given twice");
        seen.retain(|sort| sort[0] % 4 == 0);
        assert!(seen.into_iter().eq(stays), "a row was missed");
    }
}

/// A walk continues from a row that has been removed.
pub async fn a_walk_goes_on_from_a_removed_row<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for n in 0..9_u8 {
        t.put(&key("p", [n]), "v").await;
    }
    for reverse in [false, true] {
        let request = RangeRequest {
            range: SortRange::default().beyond(&[4], reverse),
            reverse,
            ..whole("p")
        };
        let before = t.walk(&request).await;
        t.delete(&key("p", [4])).await;
        assert_eq!(t.walk(&request).await, before);
        assert_eq!(before.len(), 4);
        t.put(&key("p", [4]), "v").await;
    }
}

/// If only keys are requested, the rows have everything but the bytes of their values.
pub async fn keys_only_leaves_just_the_bytes_out<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let expires_at = Some(Timestamp::from_millis(START.as_millis() + 9));
    for (n, len) in (0_u8..).zip([0, 1, 1_000, 200_000]) {
        t.write_one(put_until(&key("p", [n]), vec![n; len], expires_at))
            .await
            .expect("written");
    }
    let mut full = t.walk(&whole("p")).await;
    let lengths: Vec<u32> = full.iter().map(|row| row.value_len).collect();
    assert_eq!(lengths, [0, 1, 1_000, 200_000]);
    for row in &mut full {
        row.value.clear();
    }
    let request = RangeRequest {
        keys_only: true,
        ..whole("p")
    };
    assert_eq!(t.walk(&request).await, full);
}

/// One chunk is one snapshot: it never shows half of an atomic write.
pub async fn a_chunk_is_one_snapshot<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let is_snapshot = t.store.capabilities().chunk_is_snapshot;
    let generation = |n: u32| -> Vec<_> {
        let rows = (0..20_u8).map(|sort| put(&key("p", [sort]), n.to_be_bytes()));
        rows.collect()
    };
    t.write_atomic(generation(0)).await;
    let requests: Vec<_> = (1..=60)
        .map(|n| WriteRequest {
            atomicity: Atomicity::Partition,
            ..t.request(generation(n))
        })
        .collect();
    let store = Arc::clone(&t.store);
    let writer = tokio::spawn(async move {
        for request in requests {
            for answer in store.write_rows(&CALL, request).await {
                applied(answer);
            }
        }
    });
    while !writer.is_finished() {
        let (rows, _) = t.chunk(&whole("p")).await;
        let first = rows.first().expect("there are always rows");
        let is_one = rows.iter().all(|row| row.value == first.value);
        assert!(is_one || !is_snapshot, "two generations in one chunk");
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
    let (rows, _) = t.chunk(&whole("p")).await;
    assert!(rows.iter().all(|row| row.value == 60_u32.to_be_bytes()));
}

/// A chunk ends with the row with which its bound of bytes is read, whatever of it is returned, and says what it
/// has read.
pub async fn chunks_are_bounded_by_what_is_read<E: Engine>() {
    /// Of each value: three rows are more than a chunk.
    const VALUE_LEN: usize = 100 << 10;
    const ROWS: u8 = 8;
    let t = TestSubject::<E>::fresh().await;
    // Of bytes that no engine stores shorter.
    let mut chance = 1_u64;
    let value: Vec<u8> = std::iter::repeat_with(|| {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (chance >> 56) as u8
    })
    .take(VALUE_LEN)
    .collect();
    let soon = Timestamp::from_millis(START.as_millis() + 9);
    for row in 0..ROWS {
        t.put(&key("p", [row]), &value).await;
        let expiring = put_until(&key("gone", [row]), &value, Some(soon));
        applied(t.write(vec![expiring]).await.remove(0));
    }
    let row_bytes = 1 + VALUE_LEN as u64;
    let bound = u64::from(CHUNK_BYTES_MAX) + row_bytes;
    for keys_only in [false, true] {
        let mut request = RangeRequest {
            rows_max: 10_000,
            bytes_max: u32::MAX,
            keys_only,
            ..whole("p")
        };
        let mut rows = 0;
        loop {
            let page = t
                .store
                .range_of(&CALL, &request)
                .await
                .expect("it is there");
            assert!(page.touched.bytes < bound, "{:?}", page.touched);
            let read = page.rows.len() as u64;
            assert_eq!(
                (page.touched.rows, page.touched.bytes),
                (read, read * row_bytes)
            );
            rows += read;
            let Some(last) = page.resume_after else { break };
            request.range = request.range.beyond(&last, false);
        }
        assert_eq!(rows, u64::from(ROWS));
    }
    t.clock.set_wall(soon);
    let (mut request, mut touched) = (whole("gone"), 0);
    loop {
        let page = t
            .store
            .range_of(&CALL, &request)
            .await
            .expect("it is there");
        assert!(page.rows.is_empty() && page.touched.bytes < bound);
        touched += page.touched.rows;
        let Some(last) = page.resume_after else { break };
        request.range = request.range.beyond(&last, false);
    }
    // An engine may have reclaimed some of them.
    assert!(touched <= u64::from(ROWS), "{touched}");
}
