//! Several processes with the same rows: each is a separate store with a separate clock, and
//! knows of the others by the cluster alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use scylla::client::session_builder::SessionBuilder;
use tokio::task::JoinSet;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Condition, DatasetGroup, Idempotency, ManualClock,
    Mutation, RangeRequest, RecordsCopy, RecordsKeeper as _, RecordsRevision, SortRange,
    StoreError, StoreReport as _, WriteError, WriteRequest,
};
use umbo_store_cassandra::{CassandraSettings, CassandraStore};
use umbo_types::limits::CHUNK_BYTES_MAX;
use umbo_types::{Clock as _, Key, NamespaceId, Timestamp};

use crate::calls::{NS, increment, key, put, read, request, write};
use crate::{open, settings};

const BUILT: NamespaceId = NamespaceId(41);
const PROCESSES: u64 = 3;

/// Opens a process whose clock is some seconds ahead.
async fn process(settings: &CassandraSettings, ahead: u64) -> Arc<CassandraStore> {
    let time = Timestamp::from_millis(1_700_000_000_000 + 1_000 * ahead);
    open(settings, &Arc::new(ManualClock::new(time))).await
}

async fn processes() -> Vec<Arc<CassandraStore>> {
    let settings = settings().await;
    let mut all = Vec::new();
    for number in 0..PROCESSES {
        all.push(process(&settings, 10 * number).await);
    }
    all
}

async fn value(store: &CassandraStore, dataset: NamespaceId, at: &Key) -> Option<Bytes> {
    let row = read(store, dataset, at).await.expect("it is served");
    row.map(|row| row.value.bytes)
}

pub(crate) fn copy(
    number: u64,
    fenced: &[NamespaceId],
    datasets: Vec<DatasetGroup>,
) -> Arc<RecordsCopy> {
    Arc::new(RecordsCopy {
        revision: RecordsRevision { epoch: 1, number },
        fenced: fenced.iter().map(|&id| id.into()).collect(),
        datasets,
        content: Bytes::new(),
    })
}

pub(crate) async fn keep(store: &CassandraStore, copy: Arc<RecordsCopy>) {
    for (shard, kept) in store.keep_records(copy).await {
        kept.unwrap_or_else(|error| panic!("shard {shard}: {error}"));
    }
}

/// A process that has heard nothing of a fence cannot write behind it, neither to buckets with rows nor to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_binds_processes_that_do_not_know_it() {
    let all = processes().await;
    let partitions: Vec<Key> = (0..40).map(|n| key(&format!("p{n}"))).collect();
    for at in &partitions[..20] {
        write(&all[1], request(put(at, "before")))
            .await
            .expect("it is not fenced yet");
    }
    keep(&all[0], copy(1, &[NS], Vec::new())).await;
    for at in &partitions {
        let refused = write(&all[1], request(put(at, "late"))).await;
        let is_gone = matches!(
            refused,
            Err(WriteError::Store(StoreError::NamespaceGone { .. }))
        );
        assert!(is_gone, "{refused:?}");
    }
    let late = write(&all[2], request(put(&partitions[39], "late"))).await;
    assert!(late.is_err(), "it has never written: {late:?}");
}

/// A process that has heard nothing of a build writes to the dataset that is being built, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_binds_processes_that_do_not_know_it() {
    let all = processes().await;
    let (one, other) = (key("one"), key("other"));
    write(&all[1], request(put(&one, "before")))
        .await
        .expect("written");
    let group = DatasetGroup {
        epoch: 0,
        live: NS,
        kept: Vec::new(),
        building: Some(BUILT),
        identity: NS,
    };
    keep(&all[0], copy(1, &[], vec![group.clone()])).await;
    for at in [&one, &other] {
        write(&all[1], request(put(at, "after")))
            .await
            .expect("written");
        assert_eq!(value(&all[0], NS, at).await.as_deref(), Some(&b"after"[..]));
        assert_eq!(
            value(&all[0], BUILT, at).await.as_deref(),
            Some(&b"after"[..])
        );
    }
    // An activation that the writer has not heard of decides its write.
    let activated = DatasetGroup {
        epoch: 1,
        live: BUILT,
        kept: vec![NS],
        building: None,
        ..group
    };
    keep(&all[0], copy(2, &[], vec![activated])).await;
    let absent = put(&one, "again");
    let absent = Mutation {
        condition: Condition::Absent,
        ..absent
    };
    let refused = write(&all[2], request(absent)).await;
    assert!(
        matches!(
            refused,
            Err(WriteError::ConditionFailed { current: Some(_) })
        ),
        "{refused:?}"
    );
}

/// Increments and conditional writes of one row by several processes lose nothing, whatever their clocks say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_lose_no_increment() {
    const STEPS: u64 = 25;
    let all = processes().await;
    let (counter, guarded) = (key("p"), key("p2"));
    write(&all[0], request(put(&guarded, "0")))
        .await
        .expect("written");
    let tasks = all.iter().map(|store| {
        let (store, counter, guarded) = (Arc::clone(store), counter.clone(), guarded.clone());
        tokio::spawn(async move {
            let mut versions = Vec::new();
            for _ in 0..STEPS {
                let answer = write(&store, request(increment(&counter, 1))).await;
                let written = answer.expect("counted");
                versions.push(written.version);
                loop {
                    let row = read(&store, NS, &guarded).await.expect("served");
                    let row = row.expect("it is there");
                    let text = String::from_utf8_lossy(&row.value.bytes);
                    let next: u64 = text.parse::<u64>().expect("a number") + 1;
                    let step = Mutation {
                        condition: Condition::VersionIn(vec![row.version]),
                        ..put(&guarded, &next.to_string())
                    };
                    match write(&store, request(step)).await {
                        Ok(_) => break,
                        Err(WriteError::ConditionFailed { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            versions
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut versions = Vec::new();
    for task in tasks {
        let own = task.await.expect("it ends well");
        assert!(own.is_sorted(), "a later write has a lower version");
        versions.extend(own);
    }
    let all_steps = (PROCESSES * STEPS).to_string();
    for at in [&counter, &guarded] {
        let found = value(&all[0], NS, at).await.expect("it is there");
        assert_eq!(found, all_steps.as_bytes());
    }
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(
        versions.len() as u64,
        PROCESSES * STEPS,
        "a version was given twice"
    );
}

/// A request that is sent to several processes at the same time with one idempotency key is applied once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repetition_through_another_process_is_recognised() {
    let all = processes().await;
    let at = key("p");
    let keep_until = ManualClock::new(Timestamp::from_millis(1_700_003_600_000)).wall();
    let asked = WriteRequest {
        idempotency: Some(Idempotency {
            id: [1; 16],
            request: [2; 16],
            keep_until,
            keeps_refusals: true,
            lines: vec![0],
        }),
        ..request(increment(&at, 5))
    };
    let tasks = all.iter().map(|store| {
        let (store, asked) = (Arc::clone(store), asked.clone());
        tokio::spawn(async move { write(&store, asked).await })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut first = 0;
    for task in tasks {
        let written = task.await.expect("it ends well").expect("it is served");
        assert_eq!(written.number, Some(5));
        first += usize::from(!written.is_replayed);
    }
    assert_eq!(first, 1, "exactly one was applied");
    assert_eq!(value(&all[0], NS, &at).await.as_deref(), Some(&b"5"[..]));
}

/// A layout that the settings do not say is refused by name, and so is a data center that is not there.
#[tokio::test]
async fn other_layouts_are_refused() {
    let settings = settings().await;
    let _first = process(&settings, 0).await;
    let clock = || Arc::new(ManualClock::new(Timestamp::from_millis(1)));
    for (wrong, text) in [
        (
            CassandraSettings {
                buckets: 16,
                ..settings.clone()
            },
            "has buckets 8, and the settings say 16",
        ),
        (
            CassandraSettings {
                shards: 3,
                ..settings.clone()
            },
            "shards and buckets are powers of two",
        ),
        (
            CassandraSettings {
                data_center: "elsewhere".to_owned(),
                ..settings.clone()
            },
            "no data center 'elsewhere': it has datacenter1",
        ),
        (
            CassandraSettings {
                contact_points: vec!["127.0.0.1:1".to_owned()],
                request_timeout: Duration::from_secs(1),
                ..settings.clone()
            },
            "the Cassandra cluster cannot be used",
        ),
    ] {
        let error = CassandraStore::open(&wrong, clock()).await.map(|_| ());
        let error = error.expect_err("it is wrong").to_string();
        assert!(error.contains(text), "{error}");
    }
}

/// A keyspace with tables of an earlier version is refused by name, also for an instance that it has no rows of.
#[tokio::test]
async fn an_earlier_format_is_refused() {
    let settings = CassandraSettings {
        keyspace: "earlier".to_owned(),
        ..settings().await
    };
    let node = SessionBuilder::new().known_nodes(&settings.contact_points);
    let session = node.build().await.expect("the nodes serve");
    for text in [
        "create keyspace earlier with replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
        "create table earlier.layout (instance int primary key, format int, shards int, buckets int)",
        "create table earlier.buckets (instance int, pk blob, primary key (instance, pk))",
        "insert into earlier.layout (instance, format, shards, buckets) values (1000, 2, 4, 8)",
    ] {
        session.query_unpaged(text, ()).await.expect(text);
    }
    for instance in [1000, 1001] {
        let of_instance = CassandraSettings {
            instance,
            ..settings.clone()
        };
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1)));
        let error = CassandraStore::open(&of_instance, clock).await.map(|_| ());
        let error = error.expect_err("it is of an earlier version").to_string();
        assert!(
            error.contains("has format 2, and this version reads 4"),
            "{error}"
        );
    }
    let rows = session
        .query_unpaged("select instance from earlier.layout", ())
        .await;
    let rows = rows
        .expect("it is there")
        .into_rows_result()
        .expect("it has rows");
    assert_eq!(rows.rows_num(), 1, "a refused start leaves nothing");
}

/// A process counts what others have written once it goes through all buckets: after a new copy of the records, at the
/// latest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_have_the_rows_of_other_processes() {
    let all = processes().await;
    for number in 0..30 {
        let at = key(&format!("p{number}"));
        write(&all[1], request(put(&at, "value")))
            .await
            .expect("written");
    }
    let rows_of = |store: &CassandraStore| -> u64 {
        let shards = store.status();
        shards.iter().map(|shard| shard.rows).sum()
    };
    assert_eq!((rows_of(&all[0]), rows_of(&all[1])), (0, 30));
    keep(&all[0], copy(1, &[], Vec::new())).await;
    for _ in 0..10_000 {
        if rows_of(&all[0]) == 30 {
            break;
        }
        read(&all[0], NS, &key("p0")).await.expect("it is served");
    }
    assert_eq!(rows_of(&all[0]), 30);
    assert_eq!(all[0].status()[0].sizes, all[1].status()[0].sizes);
    write(&all[0], request(put(&key("p0"), "longer value")))
        .await
        .expect("written");
    assert_eq!(rows_of(&all[0]), 30, "it replaces a row of another process");
}

/// Writers of one row each in the bucket of a partition, until they are told to end.
struct ShortWrites {
    ends: Arc<AtomicBool>,
    writers: JoinSet<()>,
}

impl ShortWrites {
    fn begin(store: &Arc<CassandraStore>) -> Self {
        let (ends, mut writers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for writer in 0..6 {
            let (store, ends) = (Arc::clone(store), Arc::clone(&ends));
            let at = Key::new("p", format!("short-{writer}")).expect("it is short");
            writers.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    let written = write(&store, request(put(&at, "short"))).await;
                    written.expect("it is served");
                }
            });
        }
        Self { ends, writers }
    }

    async fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.writers.join_all().await;
    }
}

/// Returns a write of many rows of a partition.
fn long_write(rows: usize, condition: &Condition) -> WriteRequest {
    let at = |row: usize| Key::new("p", row.to_be_bytes().to_vec()).expect("it is short");
    let row = |row| Mutation {
        condition: condition.clone(),
        ..put(&at(row), "long")
    };
    WriteRequest {
        mutations: (0..rows).map(row).collect(),
        ..request(put(&at(0), ""))
    }
}

/// Writers of one row each, through another process, do not keep a write of many rows from its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_write_ends_beside_short_ones() {
    let all = processes().await;
    let short = ShortWrites::begin(&all[1]);
    let long = long_write(3_000, &Condition::Always);
    let answers = all[0].write_rows(&CallContext::internal(), long).await;
    short.end().await;
    let failed: Vec<_> = answers.iter().filter(|answer| answer.is_err()).collect();
    assert!(failed.is_empty(), "{}, as {:?}", failed.len(), failed[0]);
}

/// Nor do they keep the rows of a load that was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_reclaimed_beside_short_writes() {
    const READS_MAX: u32 = 20_000;
    let all = processes().await;
    let group = |building| DatasetGroup {
        epoch: 0,
        live: NS,
        kept: Vec::new(),
        building,
        identity: NS,
    };
    keep(&all[0], copy(1, &[], vec![group(Some(BUILT))])).await;
    let load = WriteRequest {
        namespace: BUILT,
        ..long_write(8_000, &Condition::Unwritten(None))
    };
    for answer in all[0].write_rows(&CallContext::internal(), load).await {
        answer.expect("it is being built");
    }
    let of_load = |store: &CassandraStore| -> u64 {
        let shards = store.status().into_iter();
        let sizes = shards.flat_map(|shard| shard.sizes.unwrap_or_default());
        sizes
            .filter(|size| size.namespace == BUILT)
            .map(|size| size.rows)
            .sum()
    };
    assert_eq!(of_load(&all[0]), 8_000);
    let short = ShortWrites::begin(&all[1]);
    keep(&all[0], copy(2, &[BUILT], vec![group(None)])).await;
    let mut reads = 0;
    while of_load(&all[0]) == 8_000 && reads < READS_MAX {
        read(&all[0], NS, &key("q")).await.expect("it is served");
        reads += 1;
    }
    // A write of the process that reclaims does not wait for the last step.
    write(&all[0], request(put(&key("p"), "between")))
        .await
        .expect("it is served");
    assert!(of_load(&all[0]) > 0, "the write came after all steps");
    while of_load(&all[0]) > 0 && reads < READS_MAX {
        read(&all[0], NS, &key("q")).await.expect("it is served");
        reads += 1;
    }
    short.end().await;
    assert_eq!(of_load(&all[0]), 0, "after {reads} reads");
}

/// Values that are too long for the answers of walks are read after them; the rows of a chunk are one snapshot
/// nevertheless, while another process overwrites all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_values_of_a_chunk_are_one_snapshot() {
    const LEN: usize = 60_000;
    const WRITES: u8 = 40;
    let all = processes().await;
    let partition = key("p").partition;
    let rows: Vec<Key> = (b'0'..b'6')
        .map(|row| Key::new("p", vec![row]).expect("it is short"))
        .collect();
    let (writer, at) = (Arc::clone(&all[1]), rows.clone());
    let overwrite = async move {
        for step in 0..WRITES {
            let value = char::from(b'a' + step % 26).to_string().repeat(LEN);
            let request = WriteRequest {
                mutations: at.iter().map(|at| put(at, &value)).collect(),
                atomicity: Atomicity::Partition,
                ..request(put(&at[0], ""))
            };
            for answer in writer.write_rows(&CallContext::internal(), request).await {
                answer.expect("written");
            }
        }
    };
    let overwriting = tokio::spawn(overwrite);
    let (mut reads, mut longest) = (0, 0);
    while !overwriting.is_finished() || reads == 0 {
        let range = RangeRequest {
            namespace: NS,
            partition: partition.clone(),
            range: SortRange::default(),
            reverse: reads % 2 == 1,
            rows_max: 1_000,
            bytes_max: u32::MAX,
            keys_only: false,
        };
        let page = all[0].range_of(&CallContext::internal(), &range).await;
        let page = page.expect("it is served").rows;
        let values: Vec<&[u8]> = page.iter().map(|row| row.value).collect();
        assert!(page.bytes() < CHUNK_BYTES_MAX as usize + 2 * LEN);
        assert!(values.iter().all(|value| value.len() == LEN));
        let first = values.first().map(|value| value[0]);
        assert!(values.iter().all(|value| Some(value[0]) == first), "a mix");
        longest = longest.max(values.len());
        reads += 1;
    }
    overwriting.await.expect("all are written");
    assert_eq!(longest, CHUNK_BYTES_MAX as usize / LEN + 1, "{reads} reads");
}
