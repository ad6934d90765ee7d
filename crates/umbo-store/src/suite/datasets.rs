//! Datasets that take the same writes: what clients write is in all of them, what a load puts in one, and no answer
//! depends on whether shard or dispatcher has heard first of an activation.

mod kept;
mod placed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use umbo_types::{Key, NamespaceId, Row, ShardId, Value};

pub use self::kept::{
    a_kept_version_is_the_rows_and_later_ones_are_above,
    a_large_value_with_a_kept_version_is_put_again, a_written_row_stays_under_a_kept_version,
    kept_versions_outlive_a_restart,
};
pub use self::placed::calls_that_were_placed_otherwise_are_refused;
use crate::suite::seeded::Seeded;
use crate::suite::seen::Seen;
use crate::suite::subject::{CALL, NS, TestSubject, WriteResult, delete, everything, key, put};
use crate::suite::{Engine, Restart};
use crate::{
    ByKey as _, Change, Condition, DatasetGroup, DeleteRangeRequest, Durability, Mutation,
    NUMBER_TYPE, RecordsCopy, RecordsRevision, SortRange, StoreError, WriteError, WriteRequest,
};

const STEPS: u32 = 1_500;
const PARTITIONS: [&str; 6] = ["p", "p\0", "q", "r", "s", "t"];
/// Sort keys; the rows of the last ones are numbers.
const SORTS: [&str; 8] = ["", "\0", "a", "a\0", "b", "\u{7f}", "n", "n2"];
const NUMBERS_FROM: usize = 6;

type ExpectedRows = BTreeMap<(usize, usize), Row>;

/// What a dispatcher or a shard knows of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    epoch: u32,
    live: NamespaceId,
}

/// A store with a namespace of several datasets, and what each of them must hold.
struct DatasetSubject<E> {
    t: TestSubject<E>,
    random: Seeded,
    group: DatasetGroup,
    fenced: BTreeSet<NamespaceId>,
    number: u64,
    /// Whether no store has been given the newest activation yet.
    is_untold: bool,
    last_id: u32,
    dispatchers: [Known; 2],
    shards: BTreeMap<ShardId, Known>,
    rows: BTreeMap<NamespaceId, ExpectedRows>,
    /// What clients have written since the building began.
    written: BTreeSet<(usize, usize)>,
}

fn key_at(at: (usize, usize)) -> Key {
    key(PARTITIONS[at.0], SORTS[at.1])
}

impl<E: Engine> DatasetSubject<E> {
    async fn new(seed: u64) -> Self {
        let first = Known { epoch: 0, live: NS };
        Self {
            t: TestSubject::fresh().await,
            random: Seeded::new(seed),
            group: DatasetGroup {
                epoch: 0,
                live: NS,
                kept: Vec::new(),
                building: None,
                identity: NS,
            },
            fenced: BTreeSet::new(),
            number: 0,
            is_untold: false,
            last_id: 40,
            dispatchers: [first; 2],
            shards: BTreeMap::new(),
            rows: BTreeMap::from([(NS, ExpectedRows::new())]),
            written: BTreeSet::new(),
        }
    }

    fn shard_of(&self, partition: usize) -> ShardId {
        let map = self.t.store.shard_map();
        map.locate(NS, &key(PARTITIONS[partition], "").partition)
    }

    fn known_of(&mut self, partition: usize) -> &mut Known {
        let shard = self.shard_of(partition);
        let first = Known { epoch: 0, live: NS };
        self.shards.entry(shard).or_insert(first)
    }

    /// Gives the store the newest state, as the records do.
    async fn tell(&mut self) {
        self.number += 1;
        let is_group = self.group.live != NS || self.group.mirrors().next().is_some();
        let copy = RecordsCopy {
            revision: RecordsRevision {
                epoch: 0,
                number: self.number,
            },
            fenced: self.fenced.iter().map(|&id| id.into()).collect(),
            datasets: is_group.then(|| self.group.clone()).into_iter().collect(),
            content: Bytes::new(),
        };
        copy.place_datasets(&self.t.store.shard_map());
        for (shard, answer) in self.t.store.keep_records(Arc::new(copy)).await {
            assert_eq!(answer, Ok(()), "{shard}");
        }
        self.is_untold = false;
        let newest = self.newest();
        for partition in 0..PARTITIONS.len() {
            *self.known_of(partition) = newest;
        }
        for id in &self.fenced {
            self.rows.remove(id);
        }
    }

    fn newest(&self) -> Known {
        Known {
            epoch: self.group.epoch,
            live: self.group.live,
        }
    }

    async fn build(&mut self) {
        self.last_id += 1;
        let id = NamespaceId(self.last_id);
        self.group.building = Some(id);
        self.rows.insert(id, ExpectedRows::new());
        self.written.clear();
        self.tell().await;
    }

    async fn abort(&mut self) {
        self.fenced.extend(self.group.building.take());
        self.tell().await;
    }

    /// Activates a dataset. One dispatcher knows it at once, the other and the shards later.
    fn activate(&mut self, id: NamespaceId) {
        self.group.epoch += 1;
        let old = std::mem::replace(&mut self.group.live, id);
        if self.group.building == Some(id) {
            self.group.building = None;
            self.fenced.extend(self.group.kept.drain(..));
        }
        self.group.kept.retain(|&kept| kept != id);
        self.group.kept.push(old);
        self.dispatchers[0] = self.newest();
        self.is_untold = true;
    }

    fn mutation(&mut self, partition: usize, live: NamespaceId) -> ((usize, usize), Mutation) {
        let at = (partition, self.random.below(SORTS.len() as u64) as usize);
        let current = self.rows[&live].get(&at).map(|row| row.version);
        let is_number = at.1 >= NUMBERS_FROM;
        let mutation = match self.random.below(4) {
            0 => delete(&key_at(at)),
            _ if is_number => Mutation {
                change: Change::Increment {
                    by: self.random.below(9).cast_signed(),
                    expires_at: None,
                    default_expiry: None,
                },
                ..delete(&key_at(at))
            },
            _ => put(&key_at(at), self.random.bytes(20)),
        };
        let condition = match self.random.below(6) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 => Condition::VersionIn(current.into_iter().collect()),
            _ => Condition::Always,
        };
        (at, mutation.when(condition))
    }

    /// Writes through one of the dispatchers, to one partition.
    async fn write(&mut self) {
        let by = self.random.below(2) as usize;
        let sender = self.dispatchers[by];
        let partition = self.random.below(PARTITIONS.len() as u64) as usize;
        let is_gone = !self.is_untold && self.fenced.contains(&sender.live);
        let live = self.decider(partition, sender, is_gone);
        let count = self.random.below(3) + 1;
        let mutations: Vec<_> = (0..count).map(|_| self.mutation(partition, live)).collect();
        let request = WriteRequest {
            namespace: sender.live,
            epoch: sender.epoch,
            durability: *self.random.pick(&[Durability::Sync, Durability::Async]),
            ..self
                .t
                .request(mutations.iter().map(|one| one.1.clone()).collect())
        };
        let answers = self.t.store.write_rows(&CALL, request).await;
        for ((at, mutation), answer) in mutations.into_iter().zip(answers) {
            if is_gone {
                let gone = matches!(
                    answer,
                    Err(WriteError::Store(StoreError::NamespaceGone { .. }))
                );
                assert!(gone, "{answer:?}");
                continue;
            }
            self.expect(live, at, &mutation, &answer);
        }
        if is_gone {
            self.dispatchers[by] = self.newest();
        }
    }

    /// Returns the dataset that decides what a dispatcher sends to a partition; its shard learns what it knows.
    fn decider(&mut self, partition: usize, sender: Known, is_gone: bool) -> NamespaceId {
        let known = self.known_of(partition);
        if sender.epoch > known.epoch && !is_gone {
            *known = sender;
        }
        known.live
    }

    /// Checks the answer to a mutation by the dataset that decides it, and makes its effect in all.
    fn expect(
        &mut self,
        live: NamespaceId,
        at: (usize, usize),
        mutation: &Mutation,
        answer: &WriteResult,
    ) {
        let current = self.rows[&live].get(&at);
        if !mutation.condition.holds(current.map(|row| row.version)) {
            let refused = matches!(answer, Err(WriteError::ConditionFailed { .. }));
            return assert!(refused, "{at:?} {mutation:?}: {answer:?}");
        }
        let written = match answer {
            Ok(written) => *written,
            Err(error) => panic!("{at:?} {mutation:?}: {error}"),
        };
        assert_eq!(written.existed, current.is_some(), "{at:?} {mutation:?}");
        let value = match &mutation.change {
            Change::Delete => None,
            Change::Put { value, .. } => Some(value.clone()),
            Change::Upload(_) => panic!("no case uploads: {mutation:?}"),
            Change::Increment { by, .. } => {
                let text = current
                    .map(|row| row.value.bytes.to_vec())
                    .unwrap_or_default();
                let text = String::from_utf8(text).expect("it is a number");
                let sum = text.parse().unwrap_or(0) + by;
                assert_eq!(written.number, Some(sum));
                let content_type = current.map_or_else(
                    || Bytes::from_static(NUMBER_TYPE.as_bytes()),
                    |row| row.value.content_type.clone(),
                );
                Some(Value::new(sum.to_string(), content_type, "").expect("it is short"))
            }
        };
        let row = value.map(|value| Row {
            value,
            version: written.version,
            expires_at: None,
        });
        for rows in self.rows.values_mut() {
            match &row {
                Some(row) => rows.insert(at, row.clone()),
                None => rows.remove(&at),
            };
        }
        self.written.insert(at);
    }

    async fn remove(&mut self) {
        let sender = *self.random.pick(&self.dispatchers);
        if self.fenced.contains(&sender.live) {
            return;
        }
        let partition = self.random.below(PARTITIONS.len() as u64) as usize;
        let range = SortRange {
            start: Bytes::from(*self.random.pick(&SORTS)),
            end: self
                .random
                .one_in(2)
                .then(|| Bytes::from(*self.random.pick(&SORTS))),
        };
        let live = self.decider(partition, sender, false);
        let is_in = |at: &(usize, usize)| {
            at.0 == partition && range.contains(SORTS[at.1].as_bytes()) && !range.is_empty()
        };
        let expected = self.rows[&live].keys().filter(|at| is_in(at)).count();
        let request = DeleteRangeRequest {
            namespace: sender.live,
            epoch: sender.epoch,
            rows_max: *self.random.pick(&[1, 2, 1_000]),
            ..self.t.removal(PARTITIONS[partition], range.clone())
        };
        let sum = self.t.remove(request).await;
        assert_eq!(sum.rows, expected as u64, "{range:?}");
        for rows in self.rows.values_mut() {
            rows.retain(|at, _| !is_in(at));
        }
        let all = (0..SORTS.len()).map(|sort| (partition, sort));
        self.written.extend(all.filter(is_in));
    }

    /// Puts rows as a load does: a later one replaces an earlier one, and none what a client has written.
    async fn load(&mut self) {
        let Some(building) = self.group.building else {
            return;
        };
        let ats: Vec<_> = (0..=self.random.below(6))
            .map(|_| {
                let partition = self.random.below(PARTITIONS.len() as u64) as usize;
                (partition, self.random.below(NUMBERS_FROM as u64) as usize)
            })
            .collect();
        let value = self.random.bytes(20);
        let mutation =
            |at: &(usize, usize)| put(&key_at(*at), &value).when(Condition::Unwritten(None));
        let request = WriteRequest {
            namespace: building,
            epoch: self.group.epoch,
            ..self.t.request(ats.iter().map(mutation).collect())
        };
        let answers = self.t.store.write_rows(&CALL, request.clone()).await;
        for ((at, mutation), answer) in ats.iter().zip(&request.mutations).zip(answers) {
            if self.written.contains(at) {
                let refused = matches!(answer, Err(WriteError::ConditionFailed { .. }));
                assert!(refused, "{at:?}: {answer:?}");
                continue;
            }
            let version = answer.expect("no client has written it").version;
            let Change::Put { value, .. } = &mutation.change else {
                unreachable!("a load puts")
            };
            let row = Row {
                value: value.clone(),
                version,
                expires_at: None,
            };
            self.rows.entry(building).or_default().insert(*at, row);
        }
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..55 => self.write().await,
            55..62 => self.remove().await,
            62..80 if !self.is_untold => self.load().await,
            80..86 if self.is_untold => self.tell().await,
            86..90 => self.dispatchers[1] = self.newest(),
            90..96 if !self.is_untold => match self.group.building {
                None => self.build().await,
                Some(id) => self.activate(id),
            },
            96..98 if !self.is_untold && self.group.building.is_some() => self.abort().await,
            98.. if !self.is_untold && self.group.building.is_none() => {
                if let Some(&id) = self.group.kept.first() {
                    self.activate(id);
                }
            }
            _ => {}
        }
    }

    /// Compares all datasets with what they must hold, and their sizes.
    async fn compare(&self) {
        for (&id, rows) in &self.rows {
            let mut found = self.t.scan(&everything(id)).await;
            found.sort();
            let seen = |(at, row): (&(usize, usize), &Row)| {
                let (partition, sort) = (PARTITIONS[at.0], SORTS[at.1]);
                Seen::expected(partition.as_bytes(), sort.as_bytes(), row, false)
            };
            let mut expected: Vec<_> = rows.iter().map(seen).collect();
            expected.sort();
            assert_eq!(found, expected, "dataset {id}");
        }
        let is_counted = |shards: &[crate::ShardStatus]| {
            self.rows.iter().all(|(&id, rows)| {
                let sizes = shards.iter().flat_map(|shard| shard.sizes.iter().flatten());
                let of_dataset = sizes.filter(|size| size.namespace == id);
                of_dataset.map(|size| size.rows).sum::<u64>() == rows.len() as u64
            })
        };
        assert!(
            is_counted(&self.t.told(is_counted).await),
            "sizes are not exact"
        );
    }
}

/// Random writes, removals, loads, activations and rollbacks leave each dataset with exactly what it must hold.
pub async fn datasets_take_the_same_writes<E: Engine>() {
    let mut datasets = DatasetSubject::<E>::new(0x0B16).await;
    for step in 0..STEPS {
        datasets.step().await;
        if step % 100 == 0 {
            datasets.compare().await;
        }
    }
    assert!(datasets.group.epoch > 5, "the steps activate datasets");
    datasets.compare().await;
}

/// The same with closings in between.
pub async fn datasets_outlive_restarts<E: Restart>() {
    let mut datasets = DatasetSubject::<E>::new(0x0B17).await;
    for _ in 0..10 {
        for _ in 0..STEPS / 20 {
            datasets.step().await;
        }
        datasets.t = datasets.t.close_and_restart().await;
        datasets.compare().await;
    }
}

/// A repetition is answered from the record of the first, whichever dataset is live by then, also when the first
/// dataset of the namespace is gone.
pub async fn idempotency_records_outlive_an_activation<E: Engine>() {
    let mut datasets = DatasetSubject::<E>::new(1).await;
    let at = key("p", "n");
    let increment = Mutation {
        change: Change::Increment {
            by: 2,
            expires_at: None,
            default_expiry: None,
        },
        ..delete(&at)
    };
    let keep_until = umbo_types::Timestamp(crate::suite::subject::START.0 + 3_600_000_000);
    let idempotency = crate::Idempotency {
        id: [1; crate::DIGEST_LEN],
        request: [2; crate::DIGEST_LEN],
        keep_until,
        keeps_refusals: true,
        lines: vec![0],
    };
    for round in 0..4 {
        let request = WriteRequest {
            namespace: datasets.group.live,
            epoch: datasets.group.epoch,
            idempotency: Some(idempotency.clone()),
            ..datasets.t.request(vec![increment.clone()])
        };
        let answers = datasets.t.store.write_rows(&CALL, request).await;
        let written = answers[0].clone().expect("nothing hinders it");
        assert_eq!((written.number, written.is_replayed), (Some(2), round > 0));
        datasets.build().await;
        let built = datasets.group.building.expect("it is being built");
        datasets.activate(built);
        datasets.tell().await;
    }
    assert!(datasets.fenced.contains(&NS));
}

/// A row of a load is refused where no load builds the dataset.
pub async fn rows_of_loads_need_a_dataset_that_is_built<E: Engine>() {
    let mut datasets = DatasetSubject::<E>::new(1).await;
    let load = |id| {
        let mutations = vec![put(&key("p", "a"), "v").when(Condition::Unwritten(None))];
        (id, mutations)
    };
    datasets.build().await;
    let built = datasets.group.building.expect("it is being built");
    for (id, is_taken) in [(NS, false), (NamespaceId(39), false), (built, true)] {
        let (namespace, mutations) = load(id);
        let request = WriteRequest {
            namespace,
            ..datasets.t.request(mutations)
        };
        let answers = datasets.t.store.write_rows(&CALL, request).await;
        assert_eq!(answers[0].is_ok(), is_taken, "{id}: {answers:?}");
    }
    datasets.activate(built);
    datasets.tell().await;
    let (namespace, mutations) = load(built);
    let request = WriteRequest {
        namespace,
        ..datasets.t.request(mutations)
    };
    let answers = datasets.t.store.write_rows(&CALL, request).await;
    assert!(matches!(
        answers[0],
        Err(WriteError::ConditionFailed { .. })
    ));
}
