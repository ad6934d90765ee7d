//! Data folders as operators find them: in use, moved, damaged, misconfigured.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::rows::{clock, fill, get, key, open, put, try_open, value, write};
use umbo_store::{ByKey as _, CallContext, Outcome, ShardState, Store, StoreError, StoreReport};
use umbo_store_redb::{OpenError, RedbStore};
use umbo_types::{ShardId, Timestamp};

const ROWS: usize = 400;

fn shard_file(folder: &tempfile::TempDir, shard: u16) -> PathBuf {
    folder.path().join(format!("shard-{shard:03}.redb"))
}

/// Fills a folder, closes it, applies `damage` to it and opens it again.
async fn damaged(damage: impl FnOnce(&tempfile::TempDir)) -> (RedbStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock);
    fill(&store, &clock, ROWS).await;
    store.close().await;
    drop(store);
    damage(&folder);
    (open(folder.path(), &clock), folder)
}

/// Asserts that shard 1 answers errors that name its file, and the others serve.
async fn assert_only_shard_1_is_down(store: &RedbStore) {
    let clock = clock();
    let mut failed = 0;
    for number in 0..ROWS {
        let owner = store
            .shard_map()
            .locate(crate::rows::NAMESPACE, &key(number).partition);
        let read = store
            .get_row(
                &CallContext::internal(),
                crate::rows::NAMESPACE,
                &key(number),
            )
            .await;
        let written = write(store, &clock, vec![put(key(number), b"new", None)]).await;
        if owner == ShardId(1) {
            failed += 1;
            let error = read.unwrap_err();
            assert!(error.to_string().contains("shard-001.redb"), "{error}");
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
            let error = written[0].as_ref().unwrap_err();
            assert_eq!(error.outcome(), Outcome::NotApplied);
        } else {
            assert_eq!(read.unwrap().unwrap().value.bytes, value(number));
            written[0].as_ref().unwrap();
        }
    }
    assert!(failed > ROWS / 10);
    for (shard, status) in store.status().iter().enumerate() {
        match &status.state {
            ShardState::Unavailable(reason) => {
                assert!(shard == 1 && reason.contains("shard-001.redb"), "{reason}");
            }
            state => assert!(shard != 1 && *state == ShardState::Available, "{shard}"),
        }
    }
    let report = &store.report().shards[1];
    assert!(report.unavailable.is_some());
}

#[tokio::test]
async fn a_truncated_file_is_named_and_the_others_serve() {
    for divisor in [2, 3, 100] {
        let (store, _folder) = damaged(|folder| {
            let file = OpenOptions::new()
                .write(true)
                .open(shard_file(folder, 1))
                .unwrap();
            let len = file.metadata().unwrap().len();
            file.set_len(len / divisor).unwrap();
        })
        .await;
        assert_only_shard_1_is_down(&store).await;
    }
}

#[tokio::test]
async fn an_empty_or_missing_file_is_named_and_never_made_anew() {
    let (store, folder) = damaged(|folder| fs::remove_file(shard_file(folder, 1)).unwrap()).await;
    assert_only_shard_1_is_down(&store).await;
    assert!(!shard_file(&folder, 1).exists());
    let (store, folder) = damaged(|folder| drop(File::create(shard_file(folder, 1)))).await;
    assert_only_shard_1_is_down(&store).await;
    assert_eq!(fs::metadata(shard_file(&folder, 1)).unwrap().len(), 0);
}

#[tokio::test]
async fn a_file_of_something_else_is_named() {
    let (store, _folder) = damaged(|folder| {
        fs::write(shard_file(folder, 1), "not a database ".repeat(1_000)).unwrap();
    })
    .await;
    assert_only_shard_1_is_down(&store).await;
}

#[tokio::test]
async fn a_file_of_another_shard_is_named() {
    let (store, _folder) = damaged(|folder| {
        fs::copy(shard_file(folder, 2), shard_file(folder, 1)).unwrap();
    })
    .await;
    assert_only_shard_1_is_down(&store).await;
}

/// Damage in the middle of a file may be found when it is opened or when it is read. It must never cause a
/// wrong value, a panic, or a failure of another shard.
#[tokio::test]
async fn damaged_pages_are_errors_and_never_wrong_values() {
    let mut errors = 0;
    for seed in 0..24_u64 {
        let (store, _folder) = damaged(|folder| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(shard_file(folder, 1))
                .unwrap();
            let len = file.metadata().unwrap().len();
            for page in (1..len / 4_096).filter(|page| page % 8 == seed % 8) {
                let offset = page * 4_096 + (seed * 977) % 4_096;
                let mut byte = [0];
                file.read_exact_at(&mut byte, offset).unwrap();
                file.write_all_at(&[byte[0] ^ 0x55], offset).unwrap();
            }
        })
        .await;
        for number in 0..ROWS {
            let owner = store
                .shard_map()
                .locate(crate::rows::NAMESPACE, &key(number).partition);
            match store
                .get_row(
                    &CallContext::internal(),
                    crate::rows::NAMESPACE,
                    &key(number),
                )
                .await
            {
                Ok(Some(row)) => assert_eq!(row.value.bytes, value(number)),
                Ok(None) => assert_eq!(owner, ShardId(1)),
                Err(error) => {
                    errors += 1;
                    assert_eq!(owner, ShardId(1));
                    assert!(error.to_string().contains("shard-001.redb"), "{error}");
                }
            }
        }
    }
    assert!(errors > 0);
}

#[tokio::test]
async fn a_second_store_is_refused_until_the_first_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock);
    let error = try_open(folder.path(), None, &clock).unwrap_err();
    let message = error.to_string();
    assert!(
        matches!(error, OpenError::InUse { .. })
            && message.contains(&folder.path().display().to_string())
            && message.contains(&std::process::id().to_string()),
        "{message}"
    );
    store.close().await;
    open(folder.path(), &clock);
}

#[tokio::test]
async fn another_number_of_shards_is_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    drop(open(folder.path(), &clock));
    let message = try_open(folder.path(), Some(5), &clock)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("4 shards") && message.contains("has 5"),
        "{message}"
    );
    let store = try_open(folder.path(), None, &clock).unwrap();
    assert_eq!(store.shard_map().shards(), 4);
    assert!(!store.report().was_created);
}

#[tokio::test]
async fn a_folder_that_lost_its_manifest_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    drop(open(folder.path(), &clock));
    fs::remove_file(folder.path().join("umbo.json")).unwrap();
    let error = try_open(folder.path(), None, &clock).unwrap_err();
    assert!(
        matches!(error, OpenError::ManifestMissing { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn an_interrupted_creation_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    drop(open(folder.path(), &clock));
    let manifest = folder.path().join("umbo.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"ready\"", "\"creating\"")).unwrap();
    fs::write(shard_file(&folder, 0), "half a header").unwrap();
    fs::remove_file(shard_file(&folder, 3)).unwrap();
    let store = open(folder.path(), &clock);
    assert!(store.report().was_created);
    fill(&store, &clock, ROWS).await;
    drop(store);
    let store = open(folder.path(), &clock);
    assert!(!store.report().was_created);
    assert!(get(&store, 0).await.is_some());
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    File::create(&file).unwrap();
    for data in [file.clone(), file.join("data")] {
        let message = try_open(&data, None, &clock()).unwrap_err().to_string();
        assert!(
            message.contains(&data.display().to_string())
                && message.contains("is a file, not a folder: choose another")
                && !message.contains("write access"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_restart_keeps_rows_and_versions_with_the_clock_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock);
    let versions = fill(&store, &clock, ROWS).await;
    drop(store);
    clock.set_wall(Timestamp::from_millis(5));
    let store = open(folder.path(), &clock);
    for (number, &version) in versions.iter().enumerate() {
        let row = get(&store, number).await.unwrap();
        assert_eq!(
            (row.version, &row.value.bytes[..]),
            (version, &value(number)[..])
        );
    }
    let newer = fill(&store, &clock, ROWS).await;
    for (new, old) in newer.iter().zip(&versions) {
        assert!(new > old);
    }
    assert!(
        store
            .report()
            .shards
            .iter()
            .all(|shard| !shard.was_recovered)
    );
}
