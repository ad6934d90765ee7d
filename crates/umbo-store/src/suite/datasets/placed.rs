//! Calls for a dataset that caller and store have placed otherwise.

use umbo_types::limits::SLOTS;
use umbo_types::{Key, NamespaceId};

use super::DatasetSubject;
use crate::suite::Engine;
use crate::suite::subject::{NS, key, put};
use crate::{
    ByKey as _, CallContext, DeleteRangeRequest, Durability, Outcome, RangeRequest, ScanRequest,
    SortRange, StoreError, WriteError, WriteRequest,
};

/// A call that was placed otherwise than the store places it is refused before it begins, whatever it asks for.
pub async fn calls_that_were_placed_otherwise_are_refused<E: Engine>() {
    let mut datasets = DatasetSubject::<E>::new(2).await;
    datasets.build().await;
    let built = datasets.group.building.expect("it is being built");
    datasets.activate(built);
    datasets.tell().await;
    let at = key("p", "a");
    // As one that takes the dataset for a namespace, and as one of another namespace.
    for wrong in [built, NamespaceId(39)] {
        let refused = datasets.refused_as(wrong, built, &at).await;
        for (index, error) in refused.into_iter().enumerate() {
            assert!(
                matches!(
                    error,
                    Some(StoreError::Unavailable {
                        outcome: Outcome::NotApplied,
                        ..
                    })
                ),
                "{index}: {error:?}"
            );
        }
    }
    let call = placed_as(NS);
    let store = &datasets.t.store;
    assert_eq!(store.get_row(&call, built, &at).await, Ok(None));
    let write = datasets.put_to(built, &at);
    let written = store.write_rows(&call, write).await;
    written[0].clone().expect("it is placed right");
    let row = store.get_row(&call, built, &at).await;
    assert!(row.is_ok_and(|row| row.is_some()));
}

fn placed_as(id: NamespaceId) -> CallContext {
    let mut call = CallContext::internal();
    call.placed_as = Some(id);
    call
}

impl<E: Engine> DatasetSubject<E> {
    fn put_to(&self, dataset: NamespaceId, at: &Key) -> WriteRequest {
        WriteRequest {
            namespace: dataset,
            epoch: self.group.epoch,
            ..self.t.request(vec![put(at, "v")])
        }
    }

    /// Asks for everything in a dataset that was placed so; returns the errors.
    async fn refused_as(
        &self,
        sent: NamespaceId,
        dataset: NamespaceId,
        at: &Key,
    ) -> Vec<Option<StoreError>> {
        let (call, store) = (placed_as(sent), &self.t.store);
        let partition = at.partition.clone();
        let removal = DeleteRangeRequest {
            namespace: dataset,
            epoch: self.group.epoch,
            partition: partition.clone(),
            range: SortRange::default(),
            rows_max: 9,
            durability: Durability::Sync,
        };
        let range = RangeRequest {
            namespace: dataset,
            partition,
            range: SortRange::default(),
            reverse: false,
            rows_max: 9,
            bytes_max: 1_000,
            keys_only: false,
        };
        let scan = ScanRequest {
            namespace: dataset,
            slots: 0..=SLOTS - 1,
            after: None,
            rows_max: 9,
            bytes_max: 1_000,
            keys_only: false,
        };
        let shard = store.shard_of(dataset, at);
        let written = store.write_rows(&call, self.put_to(dataset, at)).await;
        let written = match &written[0] {
            Err(WriteError::Store(error)) => Some(error.clone()),
            _ => None,
        };
        let got = store
            .get_rows(&call, dataset, std::slice::from_ref(at))
            .await;
        vec![
            written,
            got[0].clone().err(),
            store.get_row(&call, dataset, at).await.err(),
            store.range_of(&call, &range).await.err(),
            store.scan(&call, shard, &scan).await.err(),
            store.remove_rows(&call, removal).await.err(),
        ]
    }
}
