//! Keys of any bytes: none is special, and no two are confused.

use std::collections::BTreeSet;

use umbo_types::limits::{PARTITION_KEY_LEN_MAX, SORT_KEY_LEN_MAX};

use crate::suite::Engine;
use crate::suite::seen::sorts;
use crate::suite::subject::{NS, TestSubject, everything, key, whole};
use crate::{RangeRequest, SortRange};

/// Byte strings that break codecs, paths and escapes.
const ODD: [&[u8]; 26] = [
    b"\0",
    b"\0\0",
    b"\0\x01",
    b"\0\xFF",
    b"\x01",
    b"\x01\0",
    b"\x01\x01",
    b".",
    b"..",
    b"/",
    b"//",
    b"%",
    b"%2F",
    b"%00",
    b"a",
    b"a\0",
    b"a\0\0",
    b"a\0b",
    b"a/b",
    b"ab",
    b"\xC3\xA9",
    b"\xC3",
    b"\xFE\xFF",
    b"\xFF",
    b"\xFF\0",
    b"\xFF\xFF",
];

fn longest() -> Vec<(Vec<u8>, Vec<u8>)> {
    [0x00, 0x01, b'/', 0xFE, 0xFF]
        .into_iter()
        .map(|byte| {
            (
                vec![byte; PARTITION_KEY_LEN_MAX],
                vec![byte; SORT_KEY_LEN_MAX],
            )
        })
        .collect()
}

/// Every pair of odd partition and sort keys is a row of its own, in bytewise order.
pub async fn any_bytes_are_a_key<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let mut sort_keys: Vec<&[u8]> = ODD.to_vec();
    sort_keys.push(b"");
    let tag = |partition: &[u8], sort: &[u8]| [partition, b"|", sort].concat();
    for partition in ODD {
        let mutations = sort_keys
            .iter()
            .map(|sort| super::subject::put(&key(partition, sort), tag(partition, sort)))
            .collect();
        for answer in t.write(mutations).await {
            assert!(!answer.expect("written").existed, "two keys are one");
        }
    }
    sort_keys.sort_unstable();
    for partition in ODD {
        let rows = t.walk(&whole(partition)).await;
        assert_eq!(sorts(&rows), sort_keys);
        for row in rows {
            assert_eq!(row.value, tag(partition, &row.sort));
            let found = t.value(&key(partition, &row.sort)).await;
            assert_eq!(found.as_deref(), Some(&row.value[..]));
        }
    }
    let scanned: BTreeSet<_> = t
        .scan(&everything(NS))
        .await
        .into_iter()
        .map(|row| (row.partition, row.sort))
        .collect();
    assert_eq!(scanned.len(), ODD.len() * sort_keys.len());
}

/// Keys whose concatenations of partition and sort key are equal are different rows.
pub async fn partition_and_sort_key_do_not_run_together<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let pairs: [(&[u8], &[u8]); 14] = [
        (b"a", b""),
        (b"a", b"\0"),
        (b"a\0", b""),
        (b"a\0", b"\0"),
        (b"a", b"\0\0"),
        (b"a\0\0", b""),
        (b"a", b"bc"),
        (b"ab", b"c"),
        (b"abc", b""),
        (b"a\0b", b"c"),
        (b"a", b"\0bc"),
        (b"a\0\x01", b"b"),
        (b"a\0\xFF", b"b"),
        (b"a", b"\xFFb"),
    ];
    for (partition, sort) in pairs {
        assert!(!t.put(&key(partition, sort), "v").await.existed);
    }
    for (at, (partition, sort)) in pairs.into_iter().enumerate() {
        let mut expected: Vec<&[u8]> = pairs[at..]
            .iter()
            .filter(|pair| pair.0 == partition)
            .map(|pair| pair.1)
            .collect();
        expected.sort_unstable();
        assert_eq!(sorts(&t.walk(&whole(partition)).await), expected);
        assert!(t.delete(&key(partition, sort)).await.existed);
    }
    assert_eq!(t.scan(&everything(NS)).await, []);
}

/// The longest keys work everywhere, also as the position a walk continues from.
pub async fn the_longest_keys_are_kept<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for (partition, sort) in longest() {
        let short = &sort[..SORT_KEY_LEN_MAX - 1];
        t.put(&key(&partition, &sort), "longest").await;
        t.put(&key(&partition, short), "one shorter").await;
        let found = t.value(&key(&partition, &sort)).await;
        assert_eq!(found.as_deref(), Some(&b"longest"[..]));
        for reverse in [false, true] {
            let request = RangeRequest {
                reverse,
                rows_max: 1,
                ..whole(&partition)
            };
            let mut expected = [short, &sort];
            if reverse {
                expected.reverse();
            }
            assert_eq!(sorts(&t.walk(&request).await), expected);
            let beyond = RangeRequest {
                range: SortRange::default().beyond(&sort, reverse),
                ..request
            };
            let expected = if reverse { &[short][..] } else { &[] };
            assert_eq!(sorts(&t.walk(&beyond).await), expected);
        }
    }
    let mut one_by_one = everything(NS);
    one_by_one.rows_max = 1;
    assert_eq!(t.scan(&one_by_one).await.len(), 2 * longest().len());
}
