//! Rows of the log whose page cannot be read once they are committed to the file.

use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, DeleteRangeRequest, Deleted, Durability,
    Mutation, ShardState, SortRange, StoreError, StoreReport,
};
use umbo_types::PartitionKey;

use super::{
    BAD, Duration, FAR, NAMESPACE, ROWS, Rig, assert_refused, assert_unreadable, break_text, file,
    filled, key, name, put, text, try_get, write,
};

/// Reads rows far from the bad one, so that its page leaves the cache.
async fn evict(rig: &Rig) {
    for row in (FAR..ROWS).step_by(7) {
        assert!(try_get(rig, row).await.unwrap().is_some());
    }
}

async fn remove(rig: &Rig, partition: PartitionKey) -> Result<Deleted, StoreError> {
    let request = DeleteRangeRequest {
        namespace: NAMESPACE,
        epoch: 0,
        partition,
        range: SortRange::default(),
        rows_max: 10,
        durability: Durability::Sync,
    };
    let call = CallContext::internal();
    rig.store.remove_rows(&call, request).await
}

/// Makes a commit of the file: the log takes no removals of ranges.
async fn commit_file(rig: &Rig) {
    let none = PartitionKey::new("none").unwrap();
    assert_eq!(remove(rig, none).await.unwrap().rows, 0);
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
        commit_file(&rig).await;
        assert_eq!(rig.state(), ShardState::Available);
        assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("new"));
        rig.put(&name(FAR + round), "good").await.unwrap();
    }
    // Its place is not known to be readable, so nothing else changes it.
    assert_refused(&rig.put(&name(BAD), "culprit").await);
    assert_unreadable(&remove(&rig, key(BAD).partition).await.unwrap_err());
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
        commit_file(&rig).await;
        assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("new"));
    }
    assert_eq!(rig.store.status()[0].rows, u64::from(ROWS));
    assert_eq!(remove(&rig, key(BAD).partition).await.unwrap().rows, 1);
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
    commit_file(&rig).await;
    assert_eq!(try_get(&rig, BAD).await.unwrap(), None);
    let (copy, _folder) = rig.copy();
    assert_eq!(super::super::get(&copy, &name(BAD)).await, None);
    rig.files.heal_sectors();
    rig.files.advance(Duration::from_secs(10));
    commit_file(&rig).await;
    assert_eq!(try_get(&rig, BAD).await.unwrap(), None);
    assert_eq!(rig.store.status()[0].rows, u64::from(ROWS) - 1);
}

// With its assertions for debugging redb walks over the whole file at each opening.
#[cfg(not(debug_assertions))]
#[tokio::test]
async fn a_file_opens_with_a_row_of_its_log_that_has_no_place() {
    let mut rig = logged(put(BAD, "new", None)).await;
    let (_, folder) = rig.copy();
    drop(std::mem::replace(&mut rig.folder, folder));
    rig.reopen(super::cold).await;
    assert_eq!(rig.store.report().shards[0].unavailable, None);
    assert_eq!(try_get(&rig, BAD).await.unwrap().as_deref(), Some("new"));
    rig.put(&name(FAR), "3").await.unwrap();
}
