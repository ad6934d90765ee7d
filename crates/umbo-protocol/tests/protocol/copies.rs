//! Random copies of Umbo's own records.

use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use umbo_store::{DatasetGroup, IdRange, RecordsCopy, RecordsRevision};
use umbo_types::NamespaceId;

use umbo_protocol::{Ask, RequestWriter, WINDOW_LEN};

use crate::golden::hex;
use crate::sending::request;

pub(crate) fn copy() -> impl Strategy<Value = RecordsCopy> {
    // Two ids each, in order: some ranges have one id, and some adjoin.
    let ids = prop_oneof![btree_set(1..30_u32, 0..12), btree_set(1..=u32::MAX, 0..6)];
    let fenced = (ids, any::<bool>()).prop_map(|(ids, is_of_ranges)| {
        let ids: Vec<_> = ids.into_iter().map(NamespaceId).collect();
        let len = if is_of_ranges { 2 } else { 1 };
        let ranges = ids.chunks(len).map(|ids| IdRange {
            first: ids[0],
            last: ids[ids.len() - 1],
        });
        ranges.collect::<Vec<_>>()
    });
    let parts = (
        any::<(u64, u64)>(),
        fenced,
        vec(dataset_group(), 0..3),
        vec(any::<u8>(), 0..=200).prop_map(Bytes::from),
    );
    parts.prop_map(|((epoch, number), fenced, datasets, content)| RecordsCopy {
        revision: RecordsRevision { epoch, number },
        fenced,
        datasets,
        content,
    })
}

fn dataset_group() -> impl Strategy<Value = DatasetGroup> {
    let id = || (1..=u32::MAX).prop_map(NamespaceId);
    let kept = vec(id(), 0..3);
    let parts = (any::<u32>(), id(), kept, option::of(id()), id());
    parts.prop_map(|(epoch, live, kept, building, identity)| DatasetGroup {
        epoch,
        live,
        kept,
        building,
        identity,
    })
}

#[test]
fn ranges_are_told_behind_all_that_versions_before_read() {
    let told = |last| {
        let ids = |first, last| IdRange {
            first: NamespaceId(first),
            last: NamespaceId(last),
        };
        let copy = RecordsCopy {
            fenced: vec![ids(3, last), ids(500, 500)],
            content: Bytes::from_static(b"records"),
            ..RecordsCopy::default()
        };
        let mut writer = RequestWriter::new(WINDOW_LEN as u32);
        writer.push(&(&request(1, Ask::KeepRecords(Arc::new(copy)))).into());
        let mut out = Vec::new();
        writer.fill(&mut out);
        hex(&out)
    };
    let (ids, ranges) = (told(3), told(300));
    // Both begin with lengths.
    let common = ids.len() - ids.find(&hex(&[2, 3])).unwrap();
    let copy = &ids[ids.len() - common..];
    // Tag, length, and the ids after the first: 297 and 0 as varints.
    assert!(
        ranges.ends_with(&format!("{copy}0a83808000a90200")),
        "{ranges}, not {copy}"
    );
}
