//! Fences: once a copy of the records is kept, all work for the namespaces that it fences is refused.

use std::sync::Arc;

use bytes::Bytes;
use umbo_types::{Key, NamespaceId, ShardId, Timestamp};

use crate::suite::subject::{
    CALL, NS, START, TestSubject, applied, delete, everything, key, put, put_until, whole,
};
use crate::suite::{Engine, Restart};
use crate::{
    Atomicity, ByKey as _, Durability, RangeRequest, RecordsCopy, RecordsRevision, ShardStatus,
    SortRange, StoreError, WriteError, WriteRequest,
};

/// Namespaces other than the fenced one.
const OTHERS: [NamespaceId; 2] = [NamespaceId(NS.0 - 1), NamespaceId(NS.0 + 1)];

fn copy(number: u64, fenced: &[NamespaceId]) -> Arc<RecordsCopy> {
    Arc::new(RecordsCopy {
        revision: RecordsRevision { epoch: 1, number },
        fenced: fenced.iter().map(|&id| id.into()).collect(),
        datasets: Vec::new(),
        content: Bytes::from(format!("records {number}")),
    })
}

fn keys() -> Vec<Key> {
    (0..60_u8).map(|n| key([n / 2 + 1], [n])).collect()
}

impl<E: Engine> TestSubject<E> {
    /// Passes a copy to the store, which every shard accepts.
    async fn keep(&self, copy: &Arc<RecordsCopy>) {
        let answers = self.store.keep_records(Arc::clone(copy)).await;
        let all = (0..self.store.shard_map().shards() as u16).map(|id| (ShardId(id), Ok(())));
        assert_eq!(answers, all.collect::<Vec<_>>());
    }

    async fn fill(&self, namespace: NamespaceId) {
        let request = WriteRequest {
            namespace,
            ..self.request(keys().iter().map(|at| put(at, "v")).collect())
        };
        for answer in self.store.write_rows(&CALL, request).await {
            applied(answer);
        }
    }

    /// Every kind of work for the fenced namespace is refused by the shard that it is for.
    async fn refuses_everything(&self) {
        let gone = |at: &Key| {
            let shard = self.store.shard_map().locate(NS, &at.partition);
            let namespace = NS;
            StoreError::NamespaceGone { shard, namespace }
        };
        let keys = keys();
        let many = self.store.get_rows(&CALL, NS, &keys).await;
        for (at, answer) in keys.iter().zip(many) {
            assert_eq!(answer, Err(gone(at)));
            assert_eq!(self.store.get_row(&CALL, NS, at).await, Err(gone(at)));
            let partition = &at.partition;
            for range in [SortRange::default(), SortRange::with_prefix(Bytes::new())] {
                let request = RangeRequest {
                    range: range.clone(),
                    ..whole(partition.as_bytes())
                };
                assert_eq!(self.store.range_of(&CALL, &request).await, Err(gone(at)));
            }
            let request = crate::DeleteRangeRequest {
                partition: partition.clone(),
                ..self.removal("p", SortRange::default())
            };
            let removed = self.store.remove_rows(&CALL, request).await;
            assert_eq!(removed, Err(gone(at)));
        }
        for shard in self.shards_of(&everything(NS)) {
            let scanned = self.store.scan(&CALL, shard, &everything(NS)).await;
            let namespace = NS;
            assert_eq!(
                scanned.err(),
                Some(StoreError::NamespaceGone { shard, namespace })
            );
        }
        for atomicity in [Atomicity::None, Atomicity::Partition] {
            for durability in [Durability::Sync, Durability::Async] {
                let mutations = keys.iter().enumerate();
                let mutations = mutations.map(|(n, at)| {
                    if n % 2 == 0 {
                        put(at, "late")
                    } else {
                        delete(at)
                    }
                });
                let request = WriteRequest {
                    atomicity,
                    durability,
                    ..self.request(mutations.collect())
                };
                let answers = self.store.write_rows(&CALL, request).await;
                for (at, answer) in keys.iter().zip(answers) {
                    assert_eq!(answer, Err(WriteError::Store(gone(at))));
                }
            }
        }
    }

    async fn serves_the_others(&self) {
        self.changes_a_record().await;
        for namespace in OTHERS {
            assert_eq!(self.scan(&everything(namespace)).await.len(), keys().len());
            self.fill(namespace).await;
            let row = self.get_in(namespace, &keys()[0]).await;
            assert_eq!(row.expect("present").value.bytes, "v");
        }
    }

    /// Umbo's own records are never fenced.
    async fn changes_a_record(&self) {
        let namespace = NamespaceId::SYSTEM;
        let (map, home) = (self.store.shard_map(), self.store.home());
        let at = (0..10_000_u32)
            .map(|n| key(format!("records {n}"), "head"))
            .find(|at| map.locate(namespace, &at.partition) == home.shard)
            .expect("a shard has slots");
        for mutation in [put(&at, "v"), delete(&at)] {
            let request = WriteRequest {
                namespace,
                ..self.request(vec![mutation])
            };
            for answer in self.store.write_rows(&CALL, request).await {
                applied(answer);
            }
            assert!(self.store.get_row(&CALL, namespace, &at).await.is_ok());
        }
    }

    /// Waits until all shards together have this many rows, and nothing more to reclaim.
    async fn reclaims_all_but(&self, rows: usize) {
        let is_done = |shards: &[ShardStatus]| {
            let left: u64 = shards.iter().map(|shard| shard.rows).sum();
            left == rows as u64 && shards.iter().all(|shard| shard.purging == 0)
        };
        let status = self.told(is_done).await;
        assert!(is_done(&status), "{status:?}");
    }
}

/// All work for a fenced namespace is refused, and no other namespace is touched.
pub async fn a_fenced_namespace_is_refused<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    assert_eq!(t.store.kept_records().await, Ok(None));
    assert_eq!(t.store.records_revision(), RecordsRevision::default());
    for namespace in OTHERS.into_iter().chain([NS]) {
        t.fill(namespace).await;
    }
    t.keep(&copy(1, &[])).await;
    assert_eq!(t.scan(&everything(NS)).await.len(), keys().len());
    let fencing = copy(2, &[NS]);
    t.keep(&fencing).await;
    t.refuses_everything().await;
    t.serves_the_others().await;
    assert_eq!(t.store.kept_records().await, Ok(Some(Arc::clone(&fencing))));
    assert_eq!(t.store.records_revision(), fencing.revision);
}

/// The newest copy counts: an older one, or the same again, is answered and changes nothing.
pub async fn an_older_copy_changes_nothing<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for namespace in OTHERS {
        t.fill(namespace).await;
    }
    let newest = copy(5, &[NS]);
    t.keep(&newest).await;
    let next_epoch = RecordsCopy {
        revision: RecordsRevision {
            epoch: 2,
            number: 1,
        },
        ..RecordsCopy::clone(&copy(9, &[NS]))
    };
    for older in [copy(4, &[]), copy(4, &OTHERS), Arc::clone(&newest)] {
        t.keep(&older).await;
        t.refuses_everything().await;
        t.serves_the_others().await;
        assert_eq!(t.store.kept_records().await, Ok(Some(Arc::clone(&newest))));
    }
    let next_epoch = Arc::new(next_epoch);
    t.keep(&next_epoch).await;
    t.keep(&copy(99, &[NS])).await;
    assert_eq!(t.store.kept_records().await, Ok(Some(next_epoch)));
}

/// The rows of a fenced namespace are reclaimed automatically, including expired ones; no other row is.
pub async fn rows_behind_a_fence_are_reclaimed<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for namespace in OTHERS {
        t.fill(namespace).await;
    }
    let soon = Timestamp::from_millis(START.as_millis() + 1);
    for part in 0..20_u32 {
        let rows = (0..250).map(|n| {
            let at = key((part * 250 + n).to_be_bytes(), "");
            put_until(&at, "v", (n % 5 == 0).then_some(soon))
        });
        t.write(rows.collect()).await;
    }
    t.keep(&copy(1, &[NamespaceId(3), NS, NamespaceId(90)]))
        .await;
    t.reclaims_all_but(OTHERS.len() * keys().len()).await;
    t.refuses_everything().await;
    t.serves_the_others().await;
    let status = t.store.status();
    let highest = status.iter().map(|shard| shard.namespace_max).max();
    assert_eq!(highest, OTHERS.into_iter().max());
}

/// A write is acknowledged and reclaimed, or refused: none is applied after the fence is raised, however many
/// concurrent writers there are.
pub async fn writers_meet_a_fence<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let writers: Vec<_> = (0..6_u8)
        .map(|writer| {
            let (store, request) = (Arc::clone(&t.store), t.request(Vec::new()));
            tokio::spawn(async move {
                for n in 0..u16::MAX {
                    let durability = match n % 2 {
                        0 => Durability::Sync,
                        _ => Durability::Async,
                    };
                    let request = WriteRequest {
                        mutations: vec![put(&key([writer + 1], n.to_be_bytes()), "v")],
                        durability,
                        ..request.clone()
                    };
                    match store.write_rows(&CALL, request).await.pop() {
                        Some(Err(WriteError::Store(StoreError::NamespaceGone { .. }))) => return,
                        answer => {
                            applied(answer.expect("one answer"));
                        }
                    }
                }
                panic!("the fence was never met");
            })
        })
        .collect();
    while t.store.status().iter().all(|shard| shard.rows < 8) {
        tokio::task::yield_now().await;
    }
    t.keep(&copy(1, &[NS])).await;
    t.refuses_everything().await;
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    t.reclaims_all_but(0).await;
}

/// Fences and the copy that raised them outlive a restart, in any state of the rows.
pub async fn fences_outlive_a_restart<E: Restart>() {
    let mut t = TestSubject::<E>::fresh().await;
    for namespace in OTHERS.into_iter().chain([NS]) {
        t.fill(namespace).await;
    }
    let fencing = copy(7, &[NS]);
    t.keep(&fencing).await;
    for is_closed in [false, true, false] {
        t = if is_closed {
            t.close_and_restart().await
        } else {
            t.restart().await
        };
        assert_eq!(t.store.records_revision(), fencing.revision);
        assert_eq!(t.store.kept_records().await, Ok(Some(Arc::clone(&fencing))));
        t.refuses_everything().await;
        t.serves_the_others().await;
    }
    t.reclaims_all_but(OTHERS.len() * keys().len()).await;
    t = t.restart().await;
    t.refuses_everything().await;
    t.reclaims_all_but(OTHERS.len() * keys().len()).await;
}
