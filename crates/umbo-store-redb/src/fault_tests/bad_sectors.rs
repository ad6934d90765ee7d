//! A sector that cannot be read affects only the rows on its page.

mod locked;
mod packed;
mod property;
mod stranded;

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use redb::ReadableDatabase as _;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, DIGEST_LEN, DeleteRangeRequest,
    Durability, Mutation, Outcome, RangeRequest, ShardState, SortRange, StoreError, StoreReport,
    WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, ShardId, Timestamp, Value, Version};

use super::group_commit::{poll_once, wait_until_a_sync_waits};
use super::{NAMESPACE, Rig, fencing, keep, once, put_in, put_request};
use crate::Config;

const SECTOR: u64 = 512;
const PAGE: usize = 4_096;
/// Enough for several branch pages.
const ROWS: u32 = 5_000;
/// A row on the bad page, and one far from it.
const BAD: u32 = 2_500;
const FAR: u32 = 4_000;

fn name(row: u32) -> String {
    format!("key-{row:05}")
}

fn key(row: u32) -> Key {
    Key::new(name(row), "").unwrap()
}

fn text(row: u32) -> String {
    format!("value-{row:05}-{}", "x".repeat(200))
}

fn put(row: u32, text: &str, expires_at: Option<Timestamp>) -> Mutation {
    Mutation {
        key: key(row),
        change: Change::Put {
            value: Value::new(Bytes::copy_from_slice(text.as_bytes()), "", "").unwrap(),
            expires_at,
        },
        condition: Condition::Always,
    }
}

async fn write(
    rig: &Rig,
    mutations: Vec<Mutation>,
    atomicity: Atomicity,
) -> Vec<Result<Written, WriteError>> {
    let request = WriteRequest {
        namespace: NAMESPACE,
        epoch: 0,
        mutations,
        atomicity,
        durability: Durability::Sync,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    };
    rig.store
        .write_rows(&CallContext::internal(), request)
        .await
}

async fn try_get(rig: &Rig, row: u32) -> Result<Option<String>, StoreError> {
    let call = CallContext::internal();
    let row = rig.store.get_row(&call, NAMESPACE, &key(row)).await?;
    Ok(row.map(|row| String::from_utf8(row.value.bytes.to_vec()).unwrap()))
}

/// A tiny cache, so that reads reach the disk.
pub(super) fn cold(config: &mut Config) {
    config.cache_bytes = 64 << 10;
}

/// A store with rows on the disk.
async fn filled() -> Rig {
    let mut rig = Rig::new();
    let rows = (0..ROWS).map(|row| put(row, &text(row), None)).collect();
    for answer in write(&rig, rows, Atomicity::None).await {
        answer.unwrap();
    }
    rig.reopen(cold).await;
    rig
}

fn file(rig: &Rig) -> Vec<u8> {
    std::fs::read(rig.folder.path().join("shard-000.redb")).unwrap()
}

/// Breaks the sectors that hold this text, including pages of old commits.
pub(super) fn break_text(rig: &Rig, text: &str) {
    break_bytes(rig, text.as_bytes());
}

fn break_bytes(rig: &Rig, bytes: &[u8]) {
    let file = file(rig);
    let found = memchr::memmem::find_iter(&file, bytes);
    for at in found.map(|at| at as u64 / SECTOR * SECTOR) {
        rig.files.break_sectors(at..at + SECTOR);
    }
}

/// Returns whether the file has a stranded row.
fn has_stranded(rig: &Rig) -> bool {
    let folder = rig.copied_files();
    let database = redb::Database::open(folder.path().join("shard-000.redb")).unwrap();
    let read = database.begin_read().unwrap();
    !crate::stranded::read(&read).unwrap().is_empty()
}

fn assert_unreadable(error: &StoreError) {
    let StoreError::Io {
        reason, outcome, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(*outcome, Outcome::NotApplied);
    assert!(reason.contains("shard-000.redb"), "{reason}");
    assert!(reason.contains("cannot be read"), "{reason}");
}

fn assert_refused(answer: &Result<Written, WriteError>) {
    let Err(WriteError::Store(error)) = answer else {
        panic!("{answer:?}");
    };
    assert_unreadable(error);
}

#[tokio::test]
async fn writes_beside_a_bad_sector_are_acknowledged() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    let openings = rig.files.openings();
    for round in 0..60 {
        let (bad, good) = (name(BAD), name(FAR + round));
        let (bad, good) = tokio::join!(rig.put(&bad, "culprit"), rig.put(&good, "good"));
        assert_refused(&bad);
        good.unwrap();
        assert_eq!(rig.state(), ShardState::Available);
    }
    // No write has waited for the disk repeatedly, and the file was not opened again.
    assert_eq!(rig.files.openings(), openings);
    assert_eq!(rig.files.bad_sector_reads(), 2);
    for row in (0..100).chain(FAR..FAR + 60) {
        assert!(try_get(&rig, row).await.unwrap().is_some(), "{row}");
    }
    rig.files.heal_sectors();
    let (copy, _folder) = rig.copy();
    let kept = super::get(&copy, &name(BAD)).await;
    assert_eq!(kept.as_deref(), Some(&text(BAD)[..]));
}

#[tokio::test]
async fn reads_of_a_bad_sector_hurt_nobody_else() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    let openings = rig.files.openings();
    for round in 0..60 {
        assert_unreadable(&try_get(&rig, BAD).await.unwrap_err());
        rig.put(&name(FAR + round), "good").await.unwrap();
        assert_eq!(try_get(&rig, round).await.unwrap(), Some(text(round)));
    }
    assert_eq!(rig.files.openings(), openings);
    assert_eq!(rig.files.bad_sector_reads(), 2);
    assert_eq!(rig.store.status()[0].rows, u64::from(ROWS));
    assert_eq!(rig.store.bad_reads(), [(ShardId(0), 60)]);
    // Ranges and scans that end before it do not meet it.
    let partition = key(FAR).partition;
    let request = RangeRequest {
        namespace: NAMESPACE,
        partition,
        range: SortRange::default(),
        reverse: false,
        rows_max: 10,
        bytes_max: 1 << 20,
        keys_only: false,
    };
    let call = CallContext::internal();
    let page = rig.store.range_of(&call, &request).await.unwrap();
    assert_eq!(page.rows.len(), 1);
}

#[tokio::test]
async fn a_sector_that_can_be_read_again_is_found_out() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    assert_unreadable(&try_get(&rig, BAD).await.unwrap_err());
    rig.files.heal_sectors();
    assert_unreadable(&try_get(&rig, BAD).await.unwrap_err());
    rig.files.advance(Duration::from_secs(10));
    assert_eq!(try_get(&rig, BAD).await.unwrap(), Some(text(BAD)));
    rig.put(&name(BAD), "again").await.unwrap();
}

#[tokio::test]
async fn a_group_that_a_bad_sector_aborted_is_applied_as_a_whole_by_its_repetition() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    let mut beside = put(BAD, "beside", None);
    beside.key = Key::new(name(BAD), "beside").unwrap();
    let request = WriteRequest {
        mutations: vec![put(BAD, "new", None), beside],
        atomicity: Atomicity::Partition,
        ..put_request(NAMESPACE, "any", "", Durability::Sync)
    };
    let request = once(request, [1; DIGEST_LEN], Timestamp::from_millis(100_000));
    let call = CallContext::internal();
    let answers = rig.store.write_rows(&call, request.clone()).await;
    assert_refused(&answers[0]);
    assert_eq!(answers[1], Err(WriteError::GroupAborted { index: 0 }));
    rig.files.heal_sectors();
    rig.files.advance(Duration::from_secs(10));
    for is_replayed in [false, true] {
        for answer in rig.store.write_rows(&call, request.clone()).await {
            assert_eq!(answer.unwrap().is_replayed, is_replayed);
        }
    }
}

#[tokio::test]
async fn one_culprit_among_a_thousand_writes_is_one_error() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    let rows: Vec<u32> = (0..1_000)
        .map(|at| if at == 500 { BAD } else { 3_000 + at })
        .collect();
    // First as one commit of a thousand requests.
    rig.files.hold_syncs();
    let mut first = pin!(rig.put("first", "1"));
    assert!(poll_once(first.as_mut()).is_none());
    wait_until_a_sync_waits(&rig).await;
    let mut waiting: Vec<_> = rows
        .iter()
        .map(|&row| {
            let rig = &rig;
            Box::pin(async move { rig.put(&name(row), "new").await })
        })
        .collect();
    for write in &mut waiting {
        assert!(poll_once(write.as_mut()).is_none());
    }
    rig.files.release_syncs();
    first.await.unwrap();
    for (write, row) in waiting.into_iter().zip(&rows) {
        let answer = write.await;
        if *row == BAD {
            assert_refused(&answer);
        } else {
            answer.unwrap();
        }
    }
    assert_eq!(rig.store.status()[0].commits, 2);
    // Then as one request.
    let batch = rows.iter().map(|&row| put(row, "newer", None)).collect();
    for (answer, row) in write(&rig, batch, Atomicity::None).await.iter().zip(&rows) {
        if *row == BAD {
            assert_refused(answer);
        } else {
            assert!(answer.is_ok());
        }
    }
    // And as groups by partition, each of one row here.
    let batch = rows.iter().map(|&row| put(row, "newest", None)).collect();
    let answers = write(&rig, batch, Atomicity::Partition).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
}

#[tokio::test]
async fn conditions_and_deletes_on_a_bad_page_are_refused_alone() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    let mut absent = put(BAD, "new", None);
    absent.condition = Condition::Absent;
    let delete = Mutation {
        key: key(BAD),
        change: Change::Delete,
        condition: Condition::Always,
    };
    for culprit in [absent, delete] {
        let batch = vec![put(1, "one", None), culprit, put(FAR, "far", None)];
        let answers = write(&rig, batch, Atomicity::None).await;
        assert!(answers[0].is_ok() && answers[2].is_ok());
        assert_refused(&answers[1]);
    }
    let request = DeleteRangeRequest {
        namespace: NAMESPACE,
        epoch: 0,
        partition: key(BAD).partition,
        range: SortRange::default(),
        rows_max: 10,
        durability: Durability::Sync,
    };
    let call = CallContext::internal();
    let good = name(FAR);
    let (removed, good) = tokio::join!(
        rig.store.remove_rows(&call, request),
        rig.put(&good, "good")
    );
    assert_unreadable(&removed.unwrap_err());
    good.unwrap();
}

/// The pages that lead to the first rows, but to none of the others.
fn break_branches(rig: &Rig) -> usize {
    let file = file(rig);
    let is_branch = |page: &&[u8]| {
        let has = |row: u32| memchr::memmem::find(page, name(row).as_bytes()).is_some();
        let any = |mut rows: std::ops::Range<u32>| rows.any(has);
        page[0] == 2 && any(1..BAD) && !any(BAD..ROWS)
    };
    let pages = file.chunks_exact(PAGE).enumerate();
    let branches = pages.filter(|(_, page)| is_branch(page));
    let at: Vec<u64> = branches.map(|(at, _)| (at * PAGE) as u64).collect();
    for &at in &at {
        rig.files.break_sectors(at..at + SECTOR);
    }
    at.len()
}

#[tokio::test]
async fn a_bad_branch_page_hurts_the_rows_below_it() {
    let rig = filled().await;
    assert!(break_branches(&rig) > 0);
    let openings = rig.files.openings();
    assert_unreadable(&try_get(&rig, 1).await.unwrap_err());
    for round in 0..20 {
        let (bad, good) = (name(1 + round), name(FAR + round));
        let (bad, good) = tokio::join!(rig.put(&bad, "culprit"), rig.put(&good, "good"));
        assert_refused(&bad);
        good.unwrap();
    }
    assert_eq!(rig.files.openings(), openings);
    rig.files.heal_sectors();
    rig.files.advance(Duration::from_secs(10));
    for row in 0..FAR {
        assert_eq!(try_get(&rig, row).await.unwrap(), Some(text(row)));
    }
}

// With its assertions for debugging redb walks over the whole file at each opening.
#[cfg(not(debug_assertions))]
#[tokio::test]
async fn a_file_opens_with_a_sector_that_cannot_be_read() {
    let mut rig = filled().await;
    break_text(&rig, &text(BAD));
    rig.reopen(cold).await;
    assert_eq!(rig.store.report().shards[0].unavailable, None);
    assert_unreadable(&try_get(&rig, BAD).await.unwrap_err());
    assert_eq!(try_get(&rig, FAR).await.unwrap(), Some(text(FAR)));
    // One that was not closed, too.
    rig.put(&name(FAR), "1").await.unwrap();
    let (_, folder) = rig.copy();
    drop(std::mem::replace(&mut rig.folder, folder));
    rig.reopen(cold).await;
    assert_eq!(rig.store.report().shards[0].unavailable, None);
    rig.put(&name(FAR), "2").await.unwrap();
}

/// A store with rows that have expired, one of them on a bad page.
async fn expiring() -> Rig {
    let mut rig = Rig::new();
    let soon = Some(Timestamp::from_millis(2_000));
    let rows = (0..ROWS).map(|row| put(row, &text(row), soon)).collect();
    for answer in write(&rig, rows, Atomicity::None).await {
        answer.unwrap();
    }
    rig.reopen(cold).await;
    rig
}

#[tokio::test]
async fn the_sweeper_goes_round_a_bad_page() {
    let rig = expiring().await;
    break_text(&rig, &text(BAD));
    let openings = rig.files.openings();
    rig.clock.advance(Duration::from_mins(1));
    let mut rounds = 0;
    while rig.store.status()[0].rows > 100 {
        rig.put("other", "1").await.unwrap();
        rounds += 1;
        assert!(rounds < 2_000, "{:?}", rig.store.status());
    }
    assert_eq!(rig.files.openings(), openings);
    assert_eq!(rig.state(), ShardState::Available);
}

#[tokio::test]
async fn a_bad_page_of_the_expiry_index_stops_the_sweeper_alone() {
    let mut rig = expiring().await;
    // The index holds keys, but no values; a leaf of it begins with the earliest expiry.
    let entry = Timestamp::from_millis(2_000).0.to_be_bytes();
    let file = file(&rig);
    let pages = file.chunks_exact(PAGE).enumerate();
    let leaves = pages.filter(|(_, page)| {
        page[0] == 1
            && memchr::memmem::find(page, &entry).is_some()
            && memchr::memmem::find(page, b"value-").is_none()
    });
    let leaves: Vec<u64> = leaves.map(|(at, _)| (at * PAGE) as u64).collect();
    assert!(!leaves.is_empty());
    for at in leaves {
        rig.files.break_sectors(at..at + SECTOR);
    }
    if cfg!(not(debug_assertions)) {
        rig.reopen(cold).await;
        assert_eq!(rig.store.report().shards[0].unavailable, None);
    }
    let openings = rig.files.openings();
    rig.clock.advance(Duration::from_mins(1));
    for round in 0..20 {
        rig.put(&format!("other-{round}"), "1").await.unwrap();
    }
    assert_eq!(rig.files.openings(), openings);
    // Its first leaf was in the cache.
    assert!(rig.store.status()[0].reclaimed <= 100);
}

/// Rows that are on a page that cannot be read.
async fn unreadable_rows(rig: &Rig, rows: std::ops::Range<u32>) -> Vec<u32> {
    let mut unreadable = Vec::new();
    for row in rows {
        if try_get(rig, row).await.is_err() {
            unreadable.push(row);
        }
    }
    unreadable
}

#[tokio::test]
async fn a_bad_sector_costs_the_rows_of_one_page() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    let lost = unreadable_rows(&rig, 0..ROWS).await;
    assert!(lost.contains(&BAD) && lost.len() < 40, "{lost:?}");
}

#[tokio::test]
async fn the_purge_goes_round_a_bad_page() {
    let rig = filled().await;
    break_text(&rig, &text(BAD));
    let openings = rig.files.openings();
    keep(&rig.store, fencing(NAMESPACE)).await;
    let other = NamespaceId(NAMESPACE.0 + 1);
    let mut written = 0;
    while rig.store.status()[0].rows > 150 + written {
        let key = format!("other-{written}");
        let put = put_in(&rig.store, other, &key, "1", Durability::Sync);
        put.await.unwrap();
        written += 1;
        assert!(written < 2_000, "{:?}", rig.store.status());
    }
    assert_eq!(rig.files.openings(), openings);
    assert_eq!(rig.store.status()[0].purging, 1);
    // What can be read again is reclaimed.
    rig.files.heal_sectors();
    rig.files.advance(Duration::from_mins(2));
    while rig.store.status()[0].purging > 0 {
        let key = format!("other-{written}");
        let put = put_in(&rig.store, other, &key, "1", Durability::Sync);
        put.await.unwrap();
        written += 1;
        assert!(written < 3_000, "{:?}", rig.store.status());
    }
    assert_eq!(rig.store.status()[0].rows, written);
    assert_eq!(rig.files.openings(), openings);
}
