//! Durable writes on a failing disk: nothing acknowledged is lost, every answer is true.

use std::io::ErrorKind;

use umbo_store::{Outcome, ShardState, StoreError, WriteError};

use super::faulty_files::{FileFault, FileOperation};
use super::{Rig, get};

#[tokio::test]
async fn a_full_disk_refuses_writes_while_reads_go_on() {
    let rig = Rig::new();
    rig.put("kept", "1").await.unwrap();
    rig.files.arm(
        FileOperation::Write,
        FileFault::Fail(ErrorKind::StorageFull),
        0,
    );
    for _ in 0..3 {
        let error = rig.put("refused", "2").await.unwrap_err();
        let WriteError::Store(StoreError::Full { outcome, .. }) = error else {
            panic!("{error}");
        };
        assert_ne!(outcome, Outcome::Applied);
        assert_eq!(rig.get("kept").await.as_deref(), Some("1"));
        assert_eq!(rig.get("refused").await, None);
    }
    assert_ne!(rig.state(), ShardState::Available);
    assert!(rig.files.disarm() > 0);
    rig.put("later", "3").await.unwrap();
    assert_eq!(rig.state(), ShardState::Available);
    let (copy, _folder) = rig.copy();
    assert_eq!(get(&copy, "kept").await.as_deref(), Some("1"));
    assert_eq!(get(&copy, "later").await.as_deref(), Some("3"));
    assert_eq!(get(&copy, "refused").await, None);
}

#[tokio::test]
async fn a_shard_names_its_file_and_is_read_only_while_it_cannot_write() {
    let rig = Rig::new();
    // The first two syncs are of the log.
    rig.files
        .arm_once(FileOperation::Sync, FileFault::Fail(ErrorKind::Other), 2);
    let error = rig.put("refused", "1").await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(error.to_string().contains("shard-000.redb"), "{error}");
    let ShardState::ReadOnly(reason) = rig.state() else {
        panic!("{:?}", rig.state());
    };
    assert!(reason.contains("shard-000.redb"), "{reason}");
    assert_eq!(rig.get("refused").await, None);
}

#[tokio::test]
async fn a_panic_of_the_engine_ends_its_shard_and_is_not_taken_for_damage() {
    let mut rig = Rig::new();
    rig.put("kept", "1").await.unwrap();
    rig.files
        .arm_once(FileOperation::Sync, FileFault::OwnPanic, 0);
    let unanswered = rig.put("key", "2").await.unwrap_err();
    assert_eq!(unanswered.outcome(), Outcome::Unknown);
    for _ in 0..2 {
        let refused = rig.put("key", "2").await.unwrap_err();
        let WriteError::Store(StoreError::Unavailable {
            outcome, reason, ..
        }) = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!(*outcome, Outcome::NotApplied);
        assert!(reason.contains("shard-000.redb"), "{reason}");
        assert!(reason.contains("panicked"), "{reason}");
    }
    assert!(matches!(rig.state(), ShardState::Unavailable(_)));
    rig.reopen(|_| ()).await;
    assert_eq!(rig.get("kept").await.as_deref(), Some("1"));
    rig.put("key", "3").await.unwrap();
}

/// Makes each single operation of a commit fail in turn, once or permanently, in each way, and compares every
/// answer with the rows that exist afterwards: at once, and after a kill.
#[tokio::test]
async fn every_answer_is_true_whichever_operation_fails() {
    let faults = [
        FileFault::Fail(ErrorKind::StorageFull),
        FileFault::Fail(ErrorKind::Other),
        FileFault::RedbPanic,
    ];
    for fault in faults {
        for is_once in [true, false] {
            let rig = Rig::new();
            rig.put("kept", "old").await.unwrap();
            let mut answers = Vec::new();
            for after in 0.. {
                if is_once {
                    rig.files.arm_once(FileOperation::Change, fault, after);
                } else {
                    rig.files.arm(FileOperation::Change, fault, after);
                }
                let key = format!("key-{after}");
                let answer = rig.put(&key, "new").await;
                let was_hit = rig.files.disarm() > 0;
                // What readers see agrees with the answer, also before any restart.
                let seen = rig.get(&key).await.is_some();
                match &answer {
                    Ok(_) => assert!(seen, "{fault:?} {after}"),
                    Err(error) if error.outcome() == Outcome::NotApplied => {
                        assert!(!seen, "{fault:?} {after}: {error}");
                    }
                    Err(_) => {}
                }
                answers.push((key, answer));
                assert_eq!(rig.get("kept").await.as_deref(), Some("old"));
                rig.put("after", "works").await.unwrap();
                if !was_hit {
                    break;
                }
            }
            assert!(answers.len() > 5, "{} operations", answers.len());
            let (copy, _folder) = rig.copy();
            for (key, answer) in &answers {
                let found = get(&copy, key).await.is_some();
                match answer {
                    Ok(_) => assert!(found, "{fault:?}: {key} was lost"),
                    Err(error) if error.outcome() == Outcome::NotApplied => {
                        assert!(!found, "{fault:?}: {key} was refused but is there");
                    }
                    Err(_) => {}
                }
            }
        }
    }
}
