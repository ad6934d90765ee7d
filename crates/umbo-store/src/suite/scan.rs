//! Scans: a namespace in segments, each row once, whatever the chunks.

use std::collections::BTreeSet;

use umbo_routing::ShardMap;
use umbo_types::limits::SCAN_SEGMENTS_MAX;
use umbo_types::{NamespaceId, Timestamp};

use crate::suite::Engine;
use crate::suite::seen::Seen;
use crate::suite::subject::{
    CALL, NS, START, TestSubject, applied, delete, everything, key, put, put_until, served,
};
use crate::{ByKey as _, RowBatch, ScanPage, ScanRequest, WriteRequest};

/// Returns segment `segment` of `segments` of the namespace.
fn part(segment: u32, segments: u32) -> ScanRequest {
    ScanRequest {
        slots: ShardMap::segment(segment, segments).expect("there is such a segment"),
        ..everything(NS)
    }
}

fn names(rows: Vec<Seen>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = rows.into_iter().map(|row| (row.partition, row.sort));
    names.collect()
}

/// Fills the namespace and its neighbours with 150 partitions of 1 to 5 rows.
async fn fill<E: Engine>(t: &TestSubject<E>) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let mut mutations = Vec::new();
    for n in 0..150_u8 {
        for row in 0..=n % 5 {
            mutations.push(put(&key([b'p', n], [row; 2]), [n, row]));
        }
    }
    for namespace in [NamespaceId(NS.0 - 1), NS, NamespaceId(NS.0 + 1)] {
        let request = WriteRequest {
            namespace,
            ..t.request(mutations.clone())
        };
        for answer in t.store.write_rows(&CALL, request).await {
            applied(answer);
        }
    }
    let names = mutations.iter().map(|m| {
        let key = &m.key;
        (key.partition.as_bytes().into(), key.sort.as_bytes().into())
    });
    names.collect()
}

/// The segments of a scan, however many and in whatever chunks, are the namespace, each row once.
pub async fn segments_cover_the_namespace_once<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let expected = fill(&t).await;
    for segments in [1, 2, 3, 7, 16, SCAN_SEGMENTS_MAX] {
        for rows_max in [1, 2, 5, 64, 10_000] {
            if segments == SCAN_SEGMENTS_MAX && rows_max != 2 {
                continue;
            }
            let mut found = Vec::new();
            for segment in 0..segments {
                let request = ScanRequest {
                    rows_max,
                    ..part(segment, segments)
                };
                found.extend(names(t.scan(&request).await));
            }
            let count = found.len();
            let found: BTreeSet<_> = found.into_iter().collect();
            assert_eq!(count, found.len(), "a row was given twice");
            assert!(found == expected, "{segments} segments of {rows_max} rows");
        }
    }
}

/// Rows of a scan are whole, with their partition key; `keys_only` leaves just the bytes out.
pub async fn scanned_rows_are_whole<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    fill(&t).await;
    let mut rows = t.scan(&everything(NS)).await;
    for row in &rows {
        let stored = t.get(&key(&row.partition, &row.sort)).await;
        let stored = stored.expect("it was scanned");
        assert_eq!(
            *row,
            Seen::expected(&row.partition, &row.sort, &stored, false)
        );
    }
    for row in &mut rows {
        row.value.clear();
    }
    let mut request = everything(NS);
    request.keys_only = true;
    assert_eq!(t.scan(&request).await, rows);
    // The rows of a page are the same where a sink takes them.
    for shard in t.shards_of(&request) {
        let page = served(t.store.scan(&CALL, shard, &request).await);
        let mut rows = RowBatch::default();
        let rest = t.store.scan_into(&CALL, shard, &request, &mut rows);
        let rest = served(rest.await);
        assert!(rest.rows.is_empty());
        assert_eq!(ScanPage { rows, ..rest }, page);
    }
}

/// Equal scans of equal rows give equal orders, whatever the chunks.
pub async fn equal_scans_give_equal_orders<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    fill(&t).await;
    for segment in 0..3 {
        let request = part(segment, 3);
        let rows = t.scan(&request).await;
        for (rows_max, bytes_max) in [(1, 1), (3, 100), (1_000, 0), (1_000, 40)] {
            let request = ScanRequest {
                rows_max,
                bytes_max,
                ..request.clone()
            };
            assert_eq!(t.scan(&request).await, rows);
        }
    }
}

/// Large values end a chunk early; the scan still gives every row.
pub async fn scan_chunks_are_bounded<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let large = (0..20_u8).map(|n| put(&key([n + 1], ""), vec![n; 100_000]));
    t.write(large.collect()).await;
    let mut are_cut = 0;
    for shard in t.shards_of(&everything(NS)) {
        let (_, resume_after) = t.scan_chunk(shard, &everything(NS)).await;
        are_cut += u64::from(resume_after.is_some());
    }
    assert!(are_cut > 0, "one chunk holds all of a shard");
    assert_eq!(t.scan(&everything(NS)).await.len(), 20);
}

/// Expired rows are not scanned, and do not end a scan early.
pub async fn scans_pass_over_expired_rows<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let soon = Timestamp::from_millis(START.as_millis() + 1);
    let rows = (0..240_u8).map(|n| {
        let expires_at = (n % 30 != 29).then_some(soon);
        put_until(&key([n / 10 + 1], [n]), "v", expires_at)
    });
    t.write(rows.collect()).await;
    assert_eq!(t.scan(&everything(NS)).await.len(), 240);
    t.clock.set_wall(soon);
    for rows_max in [1, 2, 1_000] {
        let request = ScanRequest {
            rows_max,
            ..everything(NS)
        };
        let mut sorts: Vec<_> = t.scan(&request).await.into_iter().map(|r| r.sort).collect();
        sorts.sort();
        let expected: Vec<Vec<u8>> = (0..8).map(|n| vec![30 * n + 29]).collect();
        assert_eq!(sorts, expected);
    }
}

/// Rows that come and go between two chunks never make a scan repeat or miss the rows that stay.
pub async fn scans_survive_changes_between_chunks<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let expected = fill(&t).await;
    let all = ScanRequest {
        rows_max: 7,
        ..everything(NS)
    };
    let mut shards = t.shards_of(&all).into_iter().peekable();
    let mut request = all.clone();
    let mut found = Vec::new();
    let mut n = 0_u8;
    while let Some(&shard) = shards.peek() {
        let (rows, resume_after) = t.scan_chunk(shard, &request).await;
        found.extend(names(rows));
        let Some(at) = resume_after else {
            shards.next();
            request = all.clone();
            continue;
        };
        // Guests everywhere, and the row the scan stands on goes, for good where it is a guest.
        n += 1;
        let guest = |n: u8| key([b'p', n], "guest");
        t.write(vec![
            put(&guest(n), ""),
            put(&guest(149 - n), ""),
            delete(&at),
            delete(&guest(n / 2)),
        ])
        .await;
        request.after = Some(at.clone());
        let (peeked, _) = t.scan_chunk(shard, &request).await;
        let at = (at.partition.as_bytes().into(), at.sort.as_bytes().into());
        assert!(!names(peeked).contains(&at), "given again");
    }
    let count = found.len();
    let mut found: BTreeSet<_> = found.into_iter().collect();
    assert_eq!(found.len(), count, "a row was given twice");
    found.retain(|(_, sort)| sort != b"guest");
    assert!(found == expected, "a row was missed");
}

/// A namespace without rows is scanned in one empty chunk, or a few.
pub async fn an_empty_namespace_is_nothing<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    assert_eq!(t.scan(&everything(NS)).await, []);
    t.put(&key("p", ""), "v").await;
    let neighbour = everything(NamespaceId(NS.0 + 1));
    assert_eq!(t.scan(&neighbour).await, []);
}
