//! Runs of loads: once a shard has begun a write of a run, it refuses those of earlier runs of the same load.

use std::sync::Arc;

use bytes::Bytes;
use umbo_types::NamespaceId;

use crate::suite::subject::{CALL, NS, TestSubject, applied, key, put};
use crate::suite::{Engine, Restart};
use crate::{
    ByKey as _, Condition, FencingToken, RecordsCopy, RecordsRevision, StoreError, WriteError,
    WriteRequest, Written,
};

/// Bytes of the parts of a load.
const LOAD: NamespaceId = NamespaceId(70);

const fn run(number: u32) -> FencingToken {
    FencingToken { load: LOAD, number }
}

impl<E: Engine> TestSubject<E> {
    /// Puts a row whose value is the number of the run.
    async fn put_as(&self, run: FencingToken, partition: &str) -> Result<Written, WriteError> {
        let request = WriteRequest {
            run: Some(run),
            ..self.request(vec![put(&key(partition, ""), [run.number as u8])])
        };
        let mut answers = self.store.write_rows(&CALL, request).await;
        answers.pop().expect("one answer a mutation")
    }

    fn overtaken(&self, partition: &str) -> Result<Written, WriteError> {
        let at = key(partition, "");
        let shard = self.store.shard_map().locate(NS, &at.partition);
        Err(StoreError::Overtaken { shard }.into())
    }

    /// The value of the row that each run puts is the number of the latest run.
    async fn refuses_before(&self, latest: u32) {
        for number in 0..latest {
            assert_eq!(self.put_as(run(number), "p").await, self.overtaken("p"));
        }
        let value = self.value(&key("p", "")).await;
        assert_eq!(value, Some(Bytes::from(vec![latest as u8])));
    }
}

/// An overtaken run changes nothing; later runs, other loads and all other writes are not concerned.
pub async fn a_later_run_refuses_earlier_ones<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    applied(t.put_as(run(2), "p").await);
    applied(t.put_as(run(2), "p").await);
    applied(t.put_as(run(5), "p").await);
    t.refuses_before(5).await;
    let other = FencingToken {
        load: NamespaceId(LOAD.0 + 1),
        number: 1,
    };
    applied(t.put_as(other, "p").await);
    applied(t.put_as(run(5), "p").await);
    t.put(&key("p", ""), "of a client").await;
    t.delete(&key("p", "")).await;
}

/// A write counts also where its condition fails.
pub async fn a_refused_mutation_of_a_run_counts<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    applied(t.put_as(run(1), "p").await);
    let absent = put(&key("p", ""), "v").when(Condition::Absent);
    let request = WriteRequest {
        run: Some(run(2)),
        ..t.request(vec![absent])
    };
    let refused = t.store.write_rows(&CALL, request).await.pop();
    assert!(
        matches!(refused, Some(Err(WriteError::ConditionFailed { .. }))),
        "{refused:?}"
    );
    assert_eq!(t.put_as(run(1), "p").await, t.overtaken("p"));
}

/// Of a load that has ended no run writes, whatever its number.
pub async fn runs_of_ended_loads_are_refused<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    applied(t.put_as(run(1), "p").await);
    let copy = RecordsCopy {
        revision: RecordsRevision {
            epoch: 1,
            number: 1,
        },
        fenced: vec![LOAD.into()],
        datasets: Vec::new(),
        content: Bytes::from_static(b"records"),
    };
    let kept = t.store.keep_records(Arc::new(copy)).await;
    assert!(kept.iter().all(|(_, kept)| kept.is_ok()), "{kept:?}");
    let refused = t.put_as(run(2), "p").await;
    assert!(
        matches!(
            refused,
            Err(WriteError::Store(StoreError::NamespaceGone {
                namespace: LOAD,
                ..
            }))
        ),
        "{refused:?}"
    );
    let other = FencingToken {
        load: NamespaceId(LOAD.0 + 1),
        number: 1,
    };
    applied(t.put_as(other, "p").await);
}

/// What a shard has begun it knows after a restart, however the store has ended.
pub async fn runs_outlive_restarts<E: Restart>() {
    let mut t = TestSubject::<E>::fresh().await;
    applied(t.put_as(run(1), "p").await);
    applied(t.put_as(run(2), "p").await);
    for latest in 2..6 {
        t = if latest % 2 == 0 {
            t.restart().await
        } else {
            t.close_and_restart().await
        };
        t.refuses_before(latest).await;
        applied(t.put_as(run(latest + 1), "p").await);
    }
}
