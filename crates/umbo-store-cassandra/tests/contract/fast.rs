//! Fast writes of several processes: rows are whole, the highest version stays, and nothing is left of a namespace that
//! is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, DeleteRangeRequest, Deleted, Durability,
    Idempotency, Mutation, RangeRequest, SortRange, StoreError, StoreReport as _, WriteError,
    WriteRequest,
};
use umbo_store_cassandra::{CassandraSettings, CassandraStore};
use umbo_types::limits::CHUNK_BYTES_MAX;
use umbo_types::{Clock, Key, NamespaceId, Timestamp, Value, Version};

use crate::calls::{NS, increment, key, put, read, request, write};
use crate::processes::{copy, keep};
use crate::settings;

const FAST: NamespaceId = NamespaceId(9).with_fast_writes();
/// Lengths on both sides of the one from which a value stands apart.
const LENGTHS: [usize; 5] = [0, 5, 8 << 10, (8 << 10) + 1, 100_000];

/// The clock of the machine, as which the nodes have it, and so many seconds more.
#[derive(Debug)]
struct ClockAhead(i64);

impl Clock for ClockAhead {
    fn wall(&self) -> Timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("it is after 1970").as_micros() as u64;
        Timestamp(now.saturating_add_signed(1_000_000 * self.0))
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// Opens a process whose clock is some seconds ahead of the nodes.
async fn process(settings: &CassandraSettings, ahead: i64) -> CassandraStore {
    let clock = Arc::new(ClockAhead(ahead));
    let store = CassandraStore::open(settings, clock).await;
    store.expect("the node serves")
}

fn at_version(version: u64, mutations: Vec<Mutation>) -> WriteRequest {
    WriteRequest {
        namespace: FAST,
        proposed: Version(version),
        mutations,
        ..request(put(&key("p"), ""))
    }
}

async fn write_at(store: &CassandraStore, version: u64, mutation: Mutation) -> u64 {
    let written = write(store, at_version(version, vec![mutation])).await;
    written.expect("it is written").version.0
}

fn deletion(at: &Key) -> Mutation {
    Mutation {
        change: Change::Delete,
        ..put(at, "")
    }
}

fn row(number: usize) -> Key {
    Key::new("p", format!("{number:03}")).expect("it is short")
}

fn range_request(range: SortRange, keys_only: bool) -> RangeRequest {
    RangeRequest {
        namespace: FAST,
        partition: key("p").partition,
        range,
        reverse: false,
        rows_max: 7,
        bytes_max: CHUNK_BYTES_MAX,
        keys_only,
    }
}

/// Reads the rows of a partition with as many chunks as it takes.
async fn range(store: &CassandraStore, keys_only: bool) -> BTreeMap<Bytes, (u64, Bytes)> {
    let (mut range, mut rows) = (SortRange::default(), BTreeMap::new());
    loop {
        let request = range_request(range.clone(), keys_only);
        let page = store.range_of(&CallContext::internal(), &request).await;
        let page = page.expect("it is served");
        for row in page.rows.iter() {
            let value = Bytes::copy_from_slice(row.value);
            rows.insert(Bytes::copy_from_slice(row.sort), (row.version.0, value));
        }
        match page.resume_after {
            Some(last) => range = range.beyond(&last, false),
            None => return rows,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_whole_for_all_processes() {
    let settings = settings().await;
    let (one, other) = (process(&settings, 0).await, process(&settings, 0).await);
    let mut expected = BTreeMap::new();
    let mut version = 1_000;
    // Each row is short and long in turn, so that each column has bytes of an earlier write.
    for round in 0..3 {
        for number in 0..25 {
            let value = "x".repeat(LENGTHS[(number + round) % LENGTHS.len()]);
            version += 1;
            let writer = if number % 2 == 0 { &one } else { &other };
            let at = row(number);
            assert_eq!(write_at(writer, version, put(&at, &value)).await, version);
            expected.insert(at.sort.as_bytes().to_vec(), (version, Bytes::from(value)));
        }
    }
    for number in [3, 4, 24] {
        version += 1;
        write_at(&other, version, deletion(&row(number))).await;
        expected.remove(row(number).sort.as_bytes());
    }
    for store in [&one, &other] {
        let found = range(store, false).await;
        assert_eq!(found.len(), expected.len());
        for (sort, (version, value)) in &expected {
            assert_eq!(found[&sort[..]], (*version, value.clone()));
            let at = Key::new("p", sort.clone()).expect("it is short");
            let read = read(store, FAST, &at).await.expect("it is served");
            let read = read.expect("it is there");
            assert_eq!((read.version.0, &read.value.bytes), (*version, value));
        }
        let keys = range(store, true).await;
        assert!(keys.values().all(|(_, value)| value.is_empty()));
        assert_eq!(keys.len(), expected.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_highest_version_stays_in_any_order() {
    let settings = settings().await;
    let (one, other) = (process(&settings, 0).await, process(&settings, 0).await);
    let at = key("p");
    write_at(&one, 5_000, put(&at, "high")).await;
    // The clock of the other process is behind: it has no say, and its next versions grow.
    assert_eq!(write_at(&other, 4_000, put(&at, "low")).await, 4_000);
    assert_eq!(write_at(&other, 4_000, deletion(&at)).await, 4_001);
    let found = read(&other, FAST, &at)
        .await
        .expect("it is served")
        .expect("it is there");
    assert_eq!(
        (found.version.0, &found.value.bytes[..]),
        (5_000, &b"high"[..])
    );
    write_at(&other, 6_000, deletion(&at)).await;
    write_at(&one, 5_500, put(&at, "before the deletion")).await;
    assert_eq!(read(&one, FAST, &at).await, Ok(None));
}

/// An hour ahead, an hour behind, and set back by a day for a restart: the last write stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_wrong_hides_no_write() {
    let settings = settings().await;
    let at = key("p");
    for (number, ahead) in (0..).zip([0, 3_600, -3_600, 0, -86_400]) {
        let store = process(&settings, ahead).await;
        // A second apart: clocks that are set right may differ by less.
        let now = ClockAhead(ahead + number).wall();
        let value = number.to_string();
        write_at(&store, Version::proposed_at(now).0, put(&at, &value)).await;
        let found = read(&store, FAST, &at).await.expect("it is served");
        assert_eq!(found.expect("it is there").value.bytes, value);
    }
}

/// The cluster decides for each cell by itself which write stays. Of two writes with one version, one stays whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_with_one_version_are_not_mixed() {
    let settings = settings().await;
    let (one, other) = (process(&settings, 0).await, process(&settings, 0).await);
    let typed = |at: &Key, text: &'static str, len: usize| Mutation {
        change: Change::Put {
            value: Value::new(text.repeat(len), text, "").expect("it is short"),
            expires_at: None,
        },
        ..put(at, "")
    };
    for number in 0..60 {
        let at = row(number);
        let (len, len_of_other) = (LENGTHS[1 + number % 4], LENGTHS[1 + number / 4 % 4]);
        let version = 10_000 + 10 * number as u64;
        let (first, second) = tokio::join!(
            write_at(&one, version, typed(&at, "a", len)),
            write_at(&other, version, typed(&at, "b", len_of_other)),
        );
        assert_eq!(first, second);
        let found = read(&one, FAST, &at)
            .await
            .expect("it is served")
            .expect("it is there");
        let (text, len) = match &found.value.content_type[..] {
            b"a" => ("a", len),
            _ => ("b", len_of_other),
        };
        assert_eq!(found.value.bytes, text.repeat(len), "{number}");
    }
}

#[tokio::test]
async fn what_needs_a_read_is_refused_and_changes_nothing() {
    let store = process(&settings().await, 0).await;
    let (at, near) = (key("p"), Key::new("p", "near").expect("it is short"));
    write_at(&store, 1_000, put(&at, "1")).await;
    let under = |condition| Mutation {
        condition,
        ..put(&at, "2")
    };
    let conditions = [
        Condition::Absent,
        Condition::Present,
        Condition::VersionIn(vec![Version(1_000)]),
        Condition::NotNewerThan(Timestamp(7)),
        Condition::Unwritten(None),
    ];
    let refused = conditions.into_iter().map(under).chain([increment(&at, 1)]);
    for mutation in refused {
        let alone = write(&store, at_version(2_000, vec![mutation.clone()])).await;
        assert_eq!(alone, Err(WriteError::NeedsExactWrites), "{mutation:?}");
        // Rows of a batch are independent, and a group is one.
        let both = vec![put(&near, "near"), mutation];
        for atomicity in [Atomicity::Partition, Atomicity::None] {
            let request = WriteRequest {
                atomicity,
                ..at_version(3_000, both.clone())
            };
            let answers = store.write_rows(&CallContext::internal(), request).await;
            assert_eq!(answers[1], Err(WriteError::NeedsExactWrites));
            let is_group = atomicity == Atomicity::Partition;
            let aborted = Err(WriteError::GroupAborted { index: 1 });
            assert_eq!(answers[0] == aborted, is_group, "{answers:?}");
            assert_eq!(answers[0].is_ok(), !is_group);
        }
        write_at(&store, 4_000, deletion(&near)).await;
    }
    let keyed = WriteRequest {
        idempotency: Some(Idempotency {
            id: [1; 16],
            request: [2; 16],
            keep_until: Timestamp(u64::MAX),
            keeps_refusals: true,
            lines: vec![0],
        }),
        ..at_version(5_000, vec![put(&at, "2")])
    };
    assert_eq!(
        write(&store, keyed).await,
        Err(WriteError::NeedsExactWrites)
    );
    let found = read(&store, FAST, &at)
        .await
        .expect("it is served")
        .expect("it is there");
    assert_eq!(&found.value.bytes[..], b"1");
}

/// Partitions share buckets, and no group is refused for the mutation of another.
#[tokio::test]
async fn a_group_is_a_partition() {
    let store = process(&settings().await, 0).await;
    let of = |number: u64| key(&format!("p{number}"));
    let second = |number: u64| {
        let at = Key::new(format!("p{number}"), "t").expect("it is short");
        if number.is_multiple_of(5) {
            increment(&at, 1)
        } else {
            put(&at, "t")
        }
    };
    let mutations = (0..40).flat_map(|number| [put(&of(number), "s"), second(number)]);
    let request = WriteRequest {
        atomicity: Atomicity::Partition,
        ..at_version(1_000, mutations.collect())
    };
    let answers = store.write_rows(&CallContext::internal(), request).await;
    for (number, group) in (0..).zip(answers.chunks(2)) {
        let found = read(&store, FAST, &of(number)).await.expect("it is served");
        if number.is_multiple_of(5) {
            let aborted = Err(WriteError::GroupAborted {
                index: 2 * number as usize + 1,
            });
            assert_eq!(group, [aborted, Err(WriteError::NeedsExactWrites)]);
            assert_eq!(found, None);
        } else {
            assert!(group.iter().all(Result::is_ok), "{number}: {group:?}");
            let version = group[0].as_ref().map(|written| written.version);
            assert_eq!(found.map(|row| row.version).as_ref(), version.as_ref().ok());
        }
    }
}

#[tokio::test]
async fn ranges_are_removed_in_steps() {
    let settings = settings().await;
    let store = process(&settings, 0).await;
    let rows = (0..30).map(|number| put(&row(number), "value")).collect();
    let request = WriteRequest {
        atomicity: Atomicity::Partition,
        ..at_version(1_000, rows)
    };
    let answers = store.write_rows(&CallContext::internal(), request).await;
    let versions: Vec<u64> = answers
        .into_iter()
        .map(|one| one.expect("written").version.0)
        .collect();
    assert_eq!(versions, (1_000..1_030).collect::<Vec<u64>>());
    // The clock of another process is ahead: its row has a higher version than the removal, and stays inside the range.
    let ahead = process(&settings, 0).await;
    write_at(&ahead, 1 << 62, put(&row(10), "ahead")).await;
    let mut range = SortRange {
        start: Bytes::from_static(b"005"),
        end: Some(Bytes::from_static(b"025")),
    };
    let mut steps = 0;
    loop {
        let request = DeleteRangeRequest {
            namespace: FAST,
            epoch: 0,
            partition: key("p").partition,
            range: range.clone(),
            rows_max: 8,
            durability: Durability::Sync,
        };
        let step = store.remove_rows(&CallContext::internal(), request).await;
        let Deleted {
            rows, resume_after, ..
        } = step.expect("it is removed");
        steps += rows;
        match resume_after {
            Some(last) => range = range.beyond(&last, false),
            None => break,
        }
    }
    assert_eq!(steps, 20);
    let left = self::range(&store, false).await;
    let expected = (0..5)
        .chain([10])
        .chain(25..30)
        .map(|number| row(number).sort.as_bytes().to_vec());
    assert!(
        left.keys().map(|sort| sort.to_vec()).eq(expected),
        "{left:?}"
    );
}

/// A process that does not know of a removal yet leaves nothing that would stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_namespace_that_is_gone() {
    let settings = settings().await;
    let (one, other) = (process(&settings, 0).await, process(&settings, 10).await);
    let now = |ahead: i64| ClockAhead(ahead).wall().0;
    for number in 0..20 {
        let at = key(&format!("p{number}"));
        write_at(&other, now(10), put(&at, "value")).await;
    }
    keep(&one, copy(1, &[FAST], Vec::new())).await;
    let is_reclaimed =
        |store: &CassandraStore| store.status().iter().all(|shard| shard.purging == 0);
    let gone = read(&one, FAST, &key("p0")).await;
    assert!(
        matches!(gone, Err(StoreError::NamespaceGone { .. })),
        "{gone:?}"
    );
    for _ in 0..10_000 {
        if is_reclaimed(&one) {
            break;
        }
        // Rows that are not gone are asked of the node: time passes.
        read(&one, NS, &key("p0")).await.expect("it is served");
    }
    assert!(is_reclaimed(&one));
    // The other process has not heard of it, and its clock is ahead.
    let late = write(&other, at_version(now(20), vec![put(&key("p0"), "late")])).await;
    late.expect("it does not know");
    for number in 0..20 {
        let left = read(&other, FAST, &key(&format!("p{number}"))).await;
        assert_eq!(left, Ok(None));
    }
}

/// A read of the cluster fails that meets 100,000 removed rows. Neither the start of a process nor a commit reads them,
/// wherever they stand in the bucket; a range over them says why it fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_of_many_removed_rows_is_read_and_bound() {
    const REMOVED: usize = 101_000;
    let settings = settings().await;
    let one = process(&settings, 0).await;
    for first in (0..REMOVED).step_by(1_000) {
        let rows = (first..first + 1_000).map(|number| deletion(&row(number)));
        let request = at_version(1_000_000, rows.collect());
        for removed in one.write_rows(&CallContext::internal(), request).await {
            removed.expect("it is written");
        }
    }
    let other = process(&settings, 0).await;
    keep(&other, copy(1, &[], Vec::new())).await;
    let at = key("p");
    write_at(&other, 9_000_000, put(&at, "behind them")).await;
    let found = read(&one, FAST, &at).await.expect("it is served");
    assert_eq!(found.expect("it is there").value.bytes, "behind them");
    let all = range_request(SortRange::default(), false);
    let refused = one.range_of(&CallContext::internal(), &all).await;
    let refused = refused.expect_err("it meets them").to_string();
    assert!(refused.contains("tombstone_failure_threshold"), "{refused}");
}
