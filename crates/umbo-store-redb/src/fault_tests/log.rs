//! The log of a shard while its disk fails, while its rows are applied, and after kills.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use umbo_store::{
    ByKey as _, CallContext, Change, Condition, DIGEST_LEN, Durability, ManualClock, Mutation,
    Outcome, RangeRequest, ShardState, SortRange, Store, StoreReport, WriteError, WriteRequest,
};
use umbo_types::{Clock as _, Key, PartitionKey, ShardId, Value};

use super::faulty_files::{FileFault, FileOperation};
use super::reads::read_backup;
use super::{NAMESPACE, Rig, commit_file, get, once, put, put_request, send};
use crate::RedbStore;

fn logged() -> Rig {
    Rig::with(|config| config.has_log = true)
}

async fn write(store: &RedbStore, mutations: Vec<Mutation>, durability: Durability) {
    let request = WriteRequest {
        mutations,
        ..put_request(NAMESPACE, "p", "", durability)
    };
    for answer in store.write_rows(&CallContext::internal(), request).await {
        answer.unwrap();
    }
}

fn at(sort: usize) -> Key {
    Key::new("p", format!("{sort:06}")).unwrap()
}

fn mutation(sort: usize, value: Option<usize>) -> Mutation {
    let put = |value: usize| Change::Put {
        value: Value::new(value.to_string().repeat(20), "", "").unwrap(),
        expires_at: None,
    };
    Mutation {
        key: at(sort),
        change: value.map_or(Change::Delete, put),
        condition: Condition::Always,
    }
}

/// Returns the rows of the partition, as a range reads them.
async fn rows(store: &RedbStore, reverse: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut range = SortRange::default();
    loop {
        let request = RangeRequest {
            namespace: NAMESPACE,
            partition: PartitionKey::new("p").unwrap(),
            range: range.clone(),
            reverse,
            rows_max: 500,
            bytes_max: 1 << 20,
            keys_only: false,
        };
        let call = CallContext::internal();
        let page = store.range_of(&call, &request).await.unwrap();
        let row = |row: umbo_store::RowRef<'_>| (row.sort.to_vec(), row.value.to_vec());
        found.extend(page.rows.iter().map(row));
        match page.resume_after {
            None => return found,
            Some(last) => range = range.beyond(&last, reverse),
        }
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply(model: &mut Model, mutations: &[Mutation]) {
    for mutation in mutations {
        let key = mutation.key.sort.as_bytes().to_vec();
        match &mutation.change {
            Change::Put { value, .. } => model.insert(key, value.bytes.to_vec()),
            _ => model.remove(&key),
        };
    }
}

async fn assert_has(store: &RedbStore, model: &Model) {
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert!(rows(store, false).await == expected);
    let reversed: Vec<_> = expected.into_iter().rev().collect();
    assert!(rows(store, true).await == reversed);
}

/// Several memtables are filled, so that some are applied while the next ones grow.
#[tokio::test]
async fn rows_are_read_and_kept_while_they_are_applied() {
    let rig = logged();
    let mut model = Model::new();
    for round in 0..40_usize {
        let number = |at: usize| (round * 7_919 + at * 31) % 5_000;
        let is_put = |at: usize| !(at + round).is_multiple_of(7);
        let mut mutations = BTreeMap::new();
        for at in 0..500 {
            let value = is_put(at).then_some(round * 1_000 + at);
            mutations.insert(number(at), mutation(number(at), value));
        }
        let mutations: Vec<_> = mutations.into_values().collect();
        apply(&mut model, &mutations);
        let durability = if round % 3 == 0 {
            Durability::Async
        } else {
            Durability::Sync
        };
        write(&rig.store, mutations, durability).await;
        if round % 5 == 0 {
            assert_has(&rig.store, &model).await;
        }
        if round % 13 == 12 {
            // As a kill leaves it.
            let (copy, _folder) = rig.copy();
            assert_has(&copy, &model).await;
        }
    }
    let status = rig.store.status().remove(0);
    assert!(status.syncs > 0 && status.commits > 40, "{status:?}");
    rig.store.close().await;
    // A file that was closed needs no log.
    for segment in ["shard-000.log0", "shard-000.log1"] {
        std::fs::remove_file(rig.folder.path().join(segment)).unwrap();
    }
    let (copy, _folder) = rig.copy();
    assert_has(&copy, &model).await;
    assert_eq!(copy.status()[0].rows, model.len() as u64);
}

/// Makes each operation of a group fail in turn, and compares every answer with the rows that exist afterwards.
#[tokio::test]
async fn every_answer_is_true_whichever_operation_fails() {
    let faults = [
        FileFault::Fail(ErrorKind::StorageFull),
        FileFault::Fail(ErrorKind::Other),
    ];
    for (fault, is_once) in faults
        .into_iter()
        .flat_map(|fault| [(fault, true), (fault, false)])
    {
        let rig = logged();
        let mut answers = Vec::new();
        for after in 0..14 {
            // The log is tried again after its last failure, with its first group in the file.
            rig.files.advance(Duration::from_secs(10));
            for number in 0..2 {
                rig.put("kept", &format!("{after}-{number}")).await.unwrap();
            }
            if is_once {
                rig.files.arm_once(FileOperation::Change, fault, after);
            } else {
                rig.files.arm(FileOperation::Change, fault, after);
            }
            let key = format!("key-{after}");
            let answer = rig.put(&key, "new").await;
            let was_hit = rig.files.disarm() > 0;
            // A group is one write and one sync; if both succeed, nothing else is done.
            assert!(!is_once || was_hit == (after < 2), "{fault:?} {after}");
            let seen = rig.get(&key).await.is_some();
            match &answer {
                Ok(_) => assert!(seen, "{fault:?} {after}"),
                Err(error) if error.outcome() == Outcome::NotApplied => assert!(!seen),
                Err(_) => {}
            }
            // A fault that is over costs no write: the file takes it.
            assert!(answer.is_ok() || !is_once, "{fault:?} {after}: {answer:?}");
            assert_eq!(rig.get("kept").await, Some(format!("{after}-1")));
            answers.push((key, answer));
        }
        let (copy, _folder) = rig.copy();
        assert_eq!(get(&copy, "kept").await.as_deref(), Some("13-1"));
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

/// A group whose sync failed may be on the disk. It is made once nevertheless.
#[tokio::test]
async fn a_failed_sync_makes_no_increment_twice() {
    let rig = logged();
    let add = |by| Mutation {
        key: at(0),
        change: Change::Increment {
            by,
            expires_at: None,
            default_expiry: None,
        },
        condition: Condition::Always,
    };
    for round in 0..4 {
        for _ in 0..2 {
            write(&rig.store, vec![add(1)], Durability::Sync).await;
        }
        let fault = FileFault::Fail(ErrorKind::Other);
        rig.files.arm_once(FileOperation::Sync, fault, 0);
        write(&rig.store, vec![add(100)], Durability::Sync).await;
        assert_eq!(rig.files.disarm(), 1);
        let (copy, _folder) = rig.copy();
        for store in [&rig.store, &copy] {
            let row = store
                .get_row(&CallContext::internal(), NAMESPACE, &at(0))
                .await;
            let expected = 102 * (round + 1);
            assert_eq!(row.unwrap().unwrap().value.bytes, expected.to_string());
        }
        rig.files.advance(Duration::from_secs(10));
    }
}

fn keyed(key: &str, id: u8, clock: &ManualClock) -> WriteRequest {
    let request = put_request(NAMESPACE, key, "keyed", Durability::Sync);
    let keep_until = clock.wall().saturating_add(Duration::from_secs(100));
    once(request, [id; DIGEST_LEN], keep_until)
}

/// A record of the log is found wherever it is: in a memtable, in the file, and after a kill in between.
#[tokio::test]
async fn a_write_with_a_key_is_one_sync_and_is_made_once() {
    let rig = logged();
    for value in ["1", "2"] {
        rig.put("warm", value).await.unwrap();
    }
    let syncs = rig.files.syncs();
    let request = keyed("a", 1, &rig.clock);
    let first = send(&rig.store, &request).await.unwrap();
    assert!(!first.is_replayed);
    assert_eq!(rig.files.syncs() - syncs, 1, "the log took it");
    let (killed, _folder) = rig.copy();
    for step in 0..2 {
        for store in [&rig.store, &killed] {
            let again = send(store, &request).await.unwrap();
            assert!(again.is_replayed && again.version == first.version);
            let mut other = request.clone();
            other.idempotency.as_mut().unwrap().request = [2; DIGEST_LEN];
            let mismatch = Err(WriteError::IdempotencyMismatch);
            assert_eq!(send(store, &other).await, mismatch);
            if step == 0 {
                commit_file(store).await;
            }
        }
    }
    assert_eq!(rig.store.status()[0].rows, 2);
    let backed_up = read_backup(&rig, 1, 0..u32::MAX).await.unwrap();
    assert_eq!(backed_up, 2, "a record is no row");
}

/// The bound on records holds for memtables too, and records that expire make room again.
#[tokio::test]
async fn records_of_the_log_count_until_they_are_reclaimed() {
    let rig = Rig::with(|config| {
        config.has_log = true;
        config.idempotency_bytes_max = 4_096;
    });
    for value in ["1", "2"] {
        rig.put("warm", value).await.unwrap();
    }
    let mut room = None;
    for round in 0..3_usize {
        let mut taken = 0;
        for id in 0..100 {
            match send(&rig.store, &keyed("a", id, &rig.clock)).await {
                Ok(written) => assert!(!written.is_replayed, "round {round}, {id}"),
                Err(refused) => {
                    let bytes_max = 4_096;
                    assert_eq!(refused, WriteError::IdempotencyFull { bytes_max });
                    break;
                }
            }
            taken += 1;
            if id == 10 + round as u8 {
                commit_file(&rig.store).await;
            }
        }
        assert!((10..90).contains(&taken));
        assert_eq!(*room.get_or_insert(taken), taken, "round {round}");
        rig.clock.advance(Duration::from_secs(101));
        for _ in 0..40 {
            commit_file(&rig.store).await;
        }
    }
}

/// A backup has the state in which it was begun, whatever the log takes meanwhile.
#[tokio::test]
async fn a_backup_has_the_rows_that_are_only_in_the_log() {
    let rig = logged();
    for number in 0..5 {
        rig.put(&format!("key-{number}"), "1").await.unwrap();
    }
    read_backup(&rig, 1, 0..1).await.unwrap();
    for number in 3..9 {
        rig.put(&format!("key-{number}"), "2").await.unwrap();
    }
    assert_eq!(read_backup(&rig, 1, 0..u32::MAX).await.unwrap(), 5);
    assert_eq!(read_backup(&rig, 2, 0..u32::MAX).await.unwrap(), 9);
}

/// Otherwise refused writes would make the log grow without bound, as they fill no memtable.
#[tokio::test]
async fn a_group_that_changes_nothing_has_no_record() {
    let rig = logged();
    for value in ["1", "2"] {
        rig.put("kept", value).await.unwrap();
    }
    let syncs = rig.files.syncs();
    for _ in 0..20 {
        let mut request = put_request(NAMESPACE, "kept", "3", Durability::Sync);
        request.mutations[0].condition = Condition::Absent;
        let answers = rig
            .store
            .write_rows(&CallContext::internal(), request)
            .await;
        assert!(answers[0].is_err(), "{answers:?}");
    }
    assert_eq!(rig.files.syncs(), syncs);
    assert_eq!(rig.get("kept").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_file_that_needs_its_log_does_not_open_without_it() {
    let rig = logged();
    for number in 0..3 {
        rig.put(&format!("key-{number}"), "1").await.unwrap();
    }
    let other = logged();
    for number in 0..3 {
        other.put(&format!("key-{number}"), "other").await.unwrap();
    }
    let log_of = |folder: &tempfile::TempDir| folder.path().join("shard-000.log0");
    let of_another_shard = std::fs::read(log_of(&other.folder)).unwrap();
    for log in [None, Some(Vec::new()), Some(of_another_shard)] {
        let folder = rig.copied_files();
        match log {
            Some(bytes) => std::fs::write(log_of(&folder), bytes).unwrap(),
            None => std::fs::remove_file(log_of(&folder)).unwrap(),
        }
        refuses_until_repaired(&rig, &folder).await;
    }
}

/// The shard does not open, names its log, and opens after a repair that gives up the lost groups.
async fn refuses_until_repaired(rig: &Rig, folder: &tempfile::TempDir) {
    let clock: std::sync::Arc<dyn umbo_types::Clock> = std::sync::Arc::<_>::clone(&rig.clock) as _;
    let store = RedbStore::open(super::config(folder.path()), clock).unwrap();
    let ShardState::Unavailable(reason) = store.status().remove(0).state else {
        panic!("the shard serves without its log");
    };
    assert!(reason.contains("shard-000.log0"), "{reason}");
    assert_eq!(store.status()[0].shard, ShardId(0));
    store.close().await;
    drop(store);
    // A repair that gives up the lost groups opens the shard with the rest.
    for drops_lost_groups in [false, true] {
        let repaired =
            crate::repair_shards(folder.path(), rig.clock.wall(), drops_lost_groups).unwrap();
        assert_eq!(
            repaired[0].failure.is_none(),
            drops_lost_groups,
            "{repaired:?}"
        );
    }
    let clock: std::sync::Arc<dyn umbo_types::Clock> = std::sync::Arc::<_>::clone(&rig.clock) as _;
    let store = RedbStore::open(super::config(folder.path()), clock).unwrap();
    assert_eq!(store.status()[0].state, ShardState::Available);
    assert_eq!(get(&store, "key-0").await.as_deref(), Some("1"));
    assert_eq!(get(&store, "key-2").await, None);
    put(&store, "key-2", "2", Durability::Sync).await.unwrap();
}
