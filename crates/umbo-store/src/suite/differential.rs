//! Long random sequences of all operations, each answer compared with that of an exact reference.

use std::time::Duration;

use umbo_types::{Clock, Key, NamespaceId, Version};

use crate::suite::seeded::Seeded;
use crate::suite::subject::{CALL, START, TestSubject, delete, everything, key, put_until};
use crate::suite::twin::Twin;
use crate::suite::versions::Versions;
use crate::suite::{Engine, Restart};
use crate::{
    Atomicity, ByKey as _, Condition, DeleteRangeRequest, Durability, Mutation, RangeRequest,
    ScanRequest, SortRange, WriteRequest,
};

const STEPS: u32 = 2_000;
const PARTITIONS: [&str; 5] = ["p", "p\0", "p\0a", "q", "\u{7f}"];
const NAMESPACES: [NamespaceId; 3] = [NamespaceId(1), NamespaceId(2), NamespaceId(0x0201)];

/// A store and its reference, with the state that the next random step needs.
struct Pair<E> {
    t: TestSubject<E>,
    twin: Twin,
    random: Seeded,
    versions: Versions,
}

impl<E: Engine> Pair<E> {
    async fn new(seed: u64) -> Self {
        Self {
            t: TestSubject::fresh().await,
            twin: Twin::default(),
            random: Seeded::new(seed),
            versions: Versions::default(),
        }
    }

    fn key(&mut self) -> Key {
        let partition = *self.random.pick(&PARTITIONS);
        key(partition, self.random.bytes(2))
    }

    fn range(&mut self) -> SortRange {
        let mut range = SortRange::default();
        if self.random.one_in(3) {
            range = SortRange::with_prefix(self.random.bytes(2).into());
        }
        if self.random.one_in(3) {
            range.start = self.random.bytes(2).into();
        }
        if self.random.one_in(3) {
            range.end = Some(self.random.bytes(3).into());
        }
        range
    }

    fn mutation(&mut self, namespace: NamespaceId) -> Mutation {
        let at = self.key();
        let now = self.t.clock.wall();
        let current = self.twin.get(namespace, &at, now).map(|row| row.version);
        let condition = match self.random.below(12) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 | 3 => Condition::VersionIn(current.into_iter().collect()),
            4 => Condition::VersionIn(vec![Version(START.0), Version(1)]),
            _ => Condition::Always,
        };
        if self.random.one_in(4) {
            return delete(&at).when(condition);
        }
        let lifetime = Duration::from_millis(self.random.below(40));
        let expires_at = self.random.one_in(3).then(|| now.saturating_add(lifetime));
        let bytes = self.random.bytes(30);
        put_until(&at, bytes, expires_at).when(condition)
    }

    async fn write(&mut self) {
        let namespace = *self.random.pick(&NAMESPACES);
        let count = *self.random.pick(&[1, 1, 2, 5, 20]);
        let mutations: Vec<_> = (0..count).map(|_| self.mutation(namespace)).collect();
        let now = self.t.clock.wall();
        let offset = *self.random.pick(&[0, 0, 0, 3_000]);
        let request = WriteRequest {
            namespace,
            atomicity: *self.random.pick(&[Atomicity::None, Atomicity::Partition]),
            durability: *self.random.pick(&[Durability::Sync, Durability::Async]),
            proposed: Version(now.0 + offset),
            ..self.t.request(mutations)
        };
        let answers = self.t.store.write_rows(&CALL, request.clone()).await;
        let expected = self.twin.write(&request, &answers, now);
        assert_eq!(answers, expected, "{request:?}");
        self.versions.check(&*self.t.store, &request, &answers);
    }

    async fn read(&mut self) {
        let namespace = *self.random.pick(&NAMESPACES);
        let now = self.t.clock.wall();
        let keys: Vec<_> = (0..5).map(|_| self.key()).collect();
        let many = self.t.store.get_rows(&CALL, namespace, &keys).await;
        for (at, answer) in keys.iter().zip(many) {
            let expected = self.twin.get(namespace, at, now);
            assert_eq!(self.t.get_in(namespace, at).await, expected);
            assert_eq!(answer, Ok(expected));
        }
    }

    async fn walk(&mut self) {
        let request = RangeRequest {
            namespace: *self.random.pick(&NAMESPACES),
            partition: self.key().partition,
            range: self.range(),
            reverse: self.random.one_in(2),
            rows_max: *self.random.pick(&[1, 2, 5, 1_000]),
            bytes_max: *self.random.pick(&[0, 10, 100, u32::MAX]),
            keys_only: self.random.one_in(3),
        };
        let expected = self.twin.range(&request, self.t.clock.wall());
        assert_eq!(self.t.walk(&request).await, expected, "{request:?}");
    }

    async fn scan(&mut self) {
        let request = ScanRequest {
            rows_max: *self.random.pick(&[1, 3, 50, 10_000]),
            bytes_max: *self.random.pick(&[0, 50, u32::MAX]),
            ..everything(*self.random.pick(&NAMESPACES))
        };
        let mut rows = self.t.scan(&request).await;
        rows.sort();
        let mut expected = self.twin.scan(request.namespace, self.t.clock.wall());
        expected.sort();
        assert_eq!(rows, expected, "{request:?}");
    }

    async fn remove(&mut self) {
        let namespace = *self.random.pick(&NAMESPACES);
        let partition = *self.random.pick(&PARTITIONS);
        let range = self.range();
        let request = DeleteRangeRequest {
            namespace,
            rows_max: *self.random.pick(&[1, 2, 7, 1_000]),
            ..self.t.removal(partition, range.clone())
        };
        let sum = self.t.remove(request).await;
        let now = self.t.clock.wall();
        let expected = self
            .twin
            .remove(namespace, partition.as_bytes(), &range, now);
        assert_eq!(sum, expected, "{range:?}");
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..40 => self.write().await,
            40..60 => self.read().await,
            60..80 => self.walk().await,
            80..85 => self.scan().await,
            85..90 => self.remove().await,
            _ => {
                let passed = Duration::from_millis(self.random.below(8));
                self.t.clock.advance(passed);
            }
        }
    }

    /// Compares everything that is visible.
    async fn compare(&self) {
        for namespace in NAMESPACES {
            let mut rows = self.t.scan(&everything(namespace)).await;
            rows.sort();
            let mut expected = self.twin.scan(namespace, self.t.clock.wall());
            expected.sort();
            assert_eq!(rows, expected);
        }
    }
}

/// Two thousand random operations have the same answers as the reference.
pub async fn random_operations_agree_with_the_twin<E: Engine>() {
    let mut pair = Pair::<E>::new(0x0B05).await;
    for _ in 0..STEPS {
        pair.step().await;
    }
    pair.compare().await;
}

/// Random operations with closings in between have the same answers as the reference.
pub async fn random_operations_and_restarts_agree_with_the_twin<E: Restart>() {
    let mut pair = Pair::<E>::new(0x0B06).await;
    for _ in 0..10 {
        for _ in 0..STEPS / 20 {
            pair.step().await;
        }
        pair.t = pair.t.close_and_restart().await;
        pair.compare().await;
    }
}
