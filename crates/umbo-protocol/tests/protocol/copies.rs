//! Random copies of Umbo's own records.

use bytes::Bytes;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use umbo_store::{DatasetGroup, RecordsCopy, RecordsRevision};
use umbo_types::NamespaceId;

pub(crate) fn copy() -> impl Strategy<Value = RecordsCopy> {
    let fenced = btree_set((1..=u32::MAX).prop_map(NamespaceId), 0..6);
    let parts = (
        any::<(u64, u64)>(),
        fenced,
        vec(dataset_group(), 0..3),
        vec(any::<u8>(), 0..=200).prop_map(Bytes::from),
    );
    parts.prop_map(|((epoch, number), fenced, datasets, content)| RecordsCopy {
        revision: RecordsRevision { epoch, number },
        fenced: fenced.into_iter().collect(),
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
