//! Rows of the log whose page cannot be read once they are committed to the file.

use umbo_store::{
    Atomicity, Change, Condition, DIGEST_LEN, Durability, Mutation, ShardState, StoreReport,
    WriteError, Written,
};
use umbo_types::Timestamp;

use super::super::{commit_file, remove, send};
use super::{
    BAD, Duration, FAR, NAMESPACE, ROWS, Rig, assert_refused, assert_unreadable, break_text,
    fencing, file, filled, has_stranded, keep, key, name, once, put, put_request, text, try_get,
    write,
};

/// Reads rows far from the bad one, so that its page leaves the cache.
async fn evict(rig: &Rig) {
    for row in (FAR..ROWS).step_by(7) {
        assert!(try_get(rig, row).await.unwrap().is_some());
    }
}

/// A store whose log has a change of a row on a page that cannot be read any more.
async fn logged(change: Mutation) -> Rig {
    let rig = filled().await;
    for value in ["1", "2"] {
        rig.put(&name(FAR), value).await.unwrap();
    }
    let before = file(&rig);
    write(&rig, vec![change], Atomicity::None)
        .await
        .remove(0)
        .unwrap();
    assert!(before == file(&rig), "the change is only in the log");
    break_text(&rig, &text(BAD));
    evict(&rig).await;
    rig
}

#[tokio::test]
async fn an_acknowledged_row_waits_for_its_page_and_hinders_no_other() {
    let rig = logged(put(BAD, "new", None)).await;
    let openings = rig.files.openings();
    for round in 0..20 {
        commit_file(&rig.store).await;
        assert_eq!(rig.state(), ShardState::Available);
        assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("new"));
        rig.put(&name(FAR + round), "good").await.unwrap();
    }
    // Its place is not known to be readable, so nothing else changes it.
    assert_refused(&rig.put(&name(BAD), "culprit").await);
    assert_unreadable(&remove(&rig.store, key(BAD).partition).await.unwrap_err());
    // As a kill leaves it, on a disk that can be read.
    let (copy, _folder) = rig.copy();
    for value in ["new", "newer"] {
        assert_eq!(
            super::super::get(&copy, &name(BAD)).await.as_deref(),
            Some(value)
        );
        super::super::put(&copy, &name(BAD), "newer", Durability::Sync)
            .await
            .unwrap();
    }
    assert_eq!(rig.files.openings(), openings);
    // The page is tried again later, in vain, and then it can be read.
    for is_healed in [false, true] {
        if is_healed {
            rig.files.heal_sectors();
        }
        rig.files.advance(Duration::from_secs(10));
        commit_file(&rig.store).await;
        assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("new"));
    }
    assert_eq!(rig.store.status()[0].rows, u64::from(ROWS));
    assert_eq!(
        remove(&rig.store, key(BAD).partition).await.unwrap().rows,
        1
    );
    assert_eq!(try_get(&rig, BAD).await.unwrap(), None);
    let (copy, _folder) = rig.copy();
    assert_eq!(super::super::get(&copy, &name(BAD)).await, None);
}

#[tokio::test]
async fn an_acknowledged_removal_waits_for_its_page() {
    let rig = logged(Mutation {
        key: key(BAD),
        change: Change::Delete,
        condition: Condition::Always,
    })
    .await;
    commit_file(&rig.store).await;
    assert_eq!(try_get(&rig, BAD).await.unwrap(), None);
    let (copy, _folder) = rig.copy();
    assert_eq!(super::super::get(&copy, &name(BAD)).await, None);
    rig.files.heal_sectors();
    rig.files.advance(Duration::from_secs(10));
    commit_file(&rig.store).await;
    assert_eq!(try_get(&rig, BAD).await.unwrap(), None);
    assert!(!has_stranded(&rig));
    assert_eq!(rig.store.status()[0].rows, u64::from(ROWS) - 1);
}

/// A kill comes before the change is in the file, and the page turns bad while the file is opened again.
#[tokio::test]
async fn a_file_opens_with_an_acknowledged_row_that_has_no_place() {
    let mut rig = logged(put(BAD, "new", None)).await;
    let folder = rig.copied_files();
    drop(std::mem::replace(&mut rig.folder, folder));
    rig.files.hide_bad_sectors_from_opening();
    rig.reopen(super::cold).await;
    assert!(rig.files.bad_sector_reads() > 0, "the page was read");
    assert_eq!(rig.store.report().shards[0].unavailable, None);
    for number in 0..3 {
        assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("new"));
        rig.put(&name(FAR), &format!("{number}")).await.unwrap();
    }
    assert_refused(&rig.put(&name(BAD), "culprit").await);
    rig.files.heal_sectors();
    rig.files.advance(Duration::from_secs(10));
    rig.put(&name(BAD), "newest").await.unwrap();
    commit_file(&rig.store).await;
    assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("newest"));
    assert_eq!(rig.store.status()[0].rows, u64::from(ROWS));
}

#[tokio::test]
async fn a_stranded_row_is_reclaimed_with_its_namespace() {
    let rig = logged(put(BAD, "new", None)).await;
    assert!(!has_stranded(&rig));
    commit_file(&rig.store).await;
    assert!(has_stranded(&rig));
    keep(&rig.store, fencing(NAMESPACE)).await;
    assert!(!has_stranded(&rig));
}

/// Puts a row once for an id.
async fn put_once(rig: &Rig, row: u32, id: [u8; DIGEST_LEN]) -> Result<Written, WriteError> {
    let request = put_request(NAMESPACE, &name(row), "once", Durability::Sync);
    let request = once(request, id, Timestamp::from_millis(100_000));
    send(&rig.store, &request).await
}

#[tokio::test]
async fn an_acknowledged_idempotency_record_waits_for_its_page() {
    let mut rig = filled().await;
    let id = |row: u32, number: u8| {
        let mut id = [number; DIGEST_LEN];
        id[1..5].copy_from_slice(&row.to_be_bytes());
        id
    };
    for row in BAD - 100..BAD + 100 {
        put_once(&rig, row, id(row, 0xAB)).await.unwrap();
    }
    rig.reopen(super::cold).await;
    for value in ["1", "2"] {
        rig.put(&name(FAR), value).await.unwrap();
    }
    let before = file(&rig);
    let first = put_once(&rig, BAD, id(BAD, 0xCD)).await.unwrap();
    assert!(before == file(&rig), "the record is only in the log");
    super::break_bytes(&rig, &id(BAD, 0xAB));
    evict(&rig).await;
    for round in 0..3 {
        commit_file(&rig.store).await;
        assert!(has_stranded(&rig));
        assert_eq!(rig.state(), ShardState::Available);
        rig.put(&name(FAR + round), "good").await.unwrap();
        assert_refused(&put_once(&rig, BAD, id(BAD, 0xCD)).await);
        assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("once"));
    }
    rig.files.heal_sectors();
    rig.files.advance(Duration::from_secs(10));
    rig.put(&name(FAR), "good").await.unwrap();
    commit_file(&rig.store).await;
    assert!(!has_stranded(&rig));
    let again = put_once(&rig, BAD, id(BAD, 0xCD)).await.unwrap();
    assert!(again.is_replayed && again.version == first.version);
    let before = put_once(&rig, BAD, id(BAD, 0xAB)).await.unwrap();
    assert!(before.is_replayed && before.version < first.version);
    assert_eq!(rig.store.status()[0].rows, u64::from(ROWS));
}
