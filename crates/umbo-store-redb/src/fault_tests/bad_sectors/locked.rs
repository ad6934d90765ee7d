//! A read that fails while redb holds a lock: the only one, of a page of the transaction for which its cache has no room.

use umbo_store::{Atomicity, Outcome, ShardState};

use super::super::get;
use super::{ROWS, filled, name, put, text, try_get, write};

/// It fails in `PagedCachedFile::write` of redb, under a mutex that other uses of the file need: unwinding would poison
/// it.
#[tokio::test]
async fn a_shard_serves_on_after_a_read_under_a_lock_of_redb_has_failed() {
    let rig = filled().await;
    let openings = rig.files.openings();
    rig.files.arm_locked_read();
    let changes = || {
        (0..ROWS)
            .map(|row| put(row, &text(row + 1), None))
            .collect()
    };
    for answer in write(&rig, changes(), Atomicity::None).await {
        assert_eq!(answer.unwrap_err().outcome(), Outcome::NotApplied);
    }
    assert!(rig.files.disarm() > 0, "no page was read under a lock");
    // A poisoned lock would have made redb panic in the attempts to go on without this page.
    assert_eq!(rig.files.openings(), openings + 1);
    assert_eq!(try_get(&rig, 1).await.unwrap(), Some(text(1)));
    for answer in write(&rig, changes(), Atomicity::None).await {
        answer.unwrap();
    }
    assert_eq!(rig.state(), ShardState::Available);
    assert_eq!(try_get(&rig, 1).await.unwrap(), Some(text(2)));
    let (copy, _folder) = rig.copy();
    assert_eq!(get(&copy, &name(1)).await, Some(text(2)));
}
