//! Idempotency records in the file: reclaimed at their time and with their namespace, bounded, there after a kill
//! exactly if the rows are, and absent in files of versions that had none.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, CounterRow, DIGEST_LEN, Durability,
    Idempotency, ManualClock, Mutation, RecordsKeeper, Store, WriteError, WriteRequest, Written,
};
use umbo_store_redb::{Config, RedbStore};
use umbo_types::{Clock, Key, Version};

use crate::fences::{fencing, reclaimed};
use crate::rows::{NAMESPACE, clock, config, key, later, put, try_open, write};

const RECORDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("idempotency");
const EXPIRY: TableDefinition<'static, &[u8], ()> = TableDefinition::new("idempotency_expiry");
const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
const FOLDER: &str = "UMBO_TEST_COUNTING_FOLDER";
const WRITES: u32 = 200;

/// Adds 1 to the row of `key`, once for each number.
async fn add_once(
    store: &RedbStore,
    clock: &ManualClock,
    key: Key,
    number: u32,
    kept_for: Duration,
) -> Result<Written, WriteError> {
    let mut id = [0; DIGEST_LEN];
    id[..4].copy_from_slice(&number.to_be_bytes());
    let request = WriteRequest {
        namespace: NAMESPACE,
        epoch: 0,
        mutations: vec![Mutation {
            key,
            change: Change::Increment {
                by: 1,
                expires_at: None,
                default_expiry: None,
            },
            condition: Condition::Always,
        }],
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version::proposed_at(clock.wall()),
        idempotency: Some(Idempotency {
            id,
            request: [7; DIGEST_LEN],
            keep_until: later(clock, kept_for),
            keeps_refusals: true,
            lines: vec![0],
        }),
        not_before: None,
        run: None,
    };
    let call = CallContext::internal();
    let written = store.write_rows(&call, request);
    written.await.remove(0)
}

async fn number(store: &RedbStore, key: &Key) -> Option<i64> {
    let row = store
        .get_row(&CallContext::internal(), NAMESPACE, key)
        .await;
    let row = row.unwrap()?;
    CounterRow::of(&row.value, None).number
}

/// Returns the records, the entries of their index, and the records of their sizes, of a closed store.
fn kept(folder: &Path) -> (u64, u64, u64) {
    let path = config(folder, None).folder.join("shard-000.redb");
    let database = Database::open(path).unwrap();
    let transaction = database.begin_read().unwrap();
    let records = transaction.open_table(RECORDS).unwrap().len().unwrap();
    let entries = transaction.open_table(EXPIRY).unwrap().len().unwrap();
    let meta = transaction.open_table(META).unwrap();
    let sizes = meta.range("idempotency/".."idempotency0").unwrap().count();
    (records, entries, sizes as u64)
}

#[tokio::test]
async fn records_are_reclaimed_at_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    for number in 0..300 {
        let kept_for = Duration::from_secs(if number < 250 { 60 } else { 3_600 });
        let added = add_once(&store, &clock, key(1), number, kept_for);
        assert!(!added.await.unwrap().is_replayed);
    }
    clock.advance(Duration::from_mins(1));
    for number in 300..310 {
        let added = add_once(&store, &clock, key(1), number, Duration::from_mins(1));
        assert!(!added.await.unwrap().is_replayed);
    }
    assert!(
        add_once(&store, &clock, key(1), 299, Duration::from_mins(1))
            .await
            .unwrap()
            .is_replayed
    );
    store.close().await;
    drop(store);
    assert_eq!(kept(folder.path()), (60, 60, 1));
    // An idle store goes on by itself, also one that was opened after the last row expired.
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    clock.advance(Duration::from_hours(2));
    for _ in 0..20 {
        write(&store, &clock, vec![put(key(2), b"value", None)]).await;
    }
    assert_eq!(number(&store, &key(1)).await, Some(310));
    store.close().await;
    drop(store);
    assert_eq!(kept(folder.path()), (0, 0, 0));
}

#[tokio::test]
async fn a_full_table_refuses_new_keys_and_forgets_none() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let config = Config {
        idempotency_bytes_max: 4_000,
        ..config(folder.path(), Some(1))
    };
    let store = RedbStore::open(config, std::sync::Arc::<ManualClock>::clone(&clock)).unwrap();
    let minute = Duration::from_mins(1);
    let mut taken = 0;
    let full = loop {
        match add_once(&store, &clock, key(1), taken, minute).await {
            Ok(written) => assert!(!written.is_replayed),
            Err(error) => break error,
        }
        taken += 1;
    };
    assert_eq!(full, WriteError::IdempotencyFull { bytes_max: 4_000 });
    assert!((10..100).contains(&taken), "{taken}");
    for number in 0..taken {
        assert!(
            add_once(&store, &clock, key(1), number, minute)
                .await
                .unwrap()
                .is_replayed
        );
    }
    assert_eq!(number(&store, &key(1)).await, Some(taken.into()));
    assert!(write(&store, &clock, vec![put(key(2), b"value", None)]).await[0].is_ok());
    clock.advance(minute);
    // The sweeper makes room step by step, with each commit of the file.
    let again = loop {
        write(&store, &clock, vec![put(key(2), b"value", None)]).await;
        match add_once(&store, &clock, key(1), 0, minute).await {
            Err(refused) => assert_eq!(refused, full),
            Ok(written) => break written,
        }
    };
    assert!(!again.is_replayed);
}

#[tokio::test]
async fn records_go_with_their_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    for number in 0..3_000 {
        let at = key(number as usize % 7);
        add_once(&store, &clock, at, number, Duration::from_hours(1))
            .await
            .unwrap();
    }
    for (_, answer) in store.keep_records(fencing()).await {
        answer.unwrap();
    }
    reclaimed(&store).await;
    store.close().await;
    drop(store);
    assert_eq!(kept(folder.path()), (0, 0, 0));
}

#[tokio::test]
async fn a_file_without_the_tables_gets_them() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    write(&store, &clock, vec![put(key(1), b"41", None)]).await;
    store.close().await;
    drop(store);
    let path = config(folder.path(), None).folder.join("shard-000.redb");
    let database = Database::open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    assert!(transaction.delete_table(RECORDS).unwrap());
    assert!(transaction.delete_table(EXPIRY).unwrap());
    transaction.commit().unwrap();
    drop(database);
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    assert_eq!(number(&store, &key(1)).await, Some(41));
    for is_again in [false, true] {
        let added = add_once(&store, &clock, key(1), 0, Duration::from_hours(1))
            .await
            .unwrap();
        assert_eq!((added.number, added.is_replayed), (Some(42), is_again));
    }
}

/// Not a test of its own: the process that the test below starts and kills.
#[tokio::test]
async fn counter_that_dies() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let clock = clock();
    let store = try_open(folder.as_ref(), Some(1), &clock).unwrap();
    for number in 0..WRITES {
        let at = key(number as usize % 3);
        add_once(&store, &clock, at, number, Duration::from_hours(1))
            .await
            .unwrap();
        println!("\nadded {number}");
        std::io::stdout().flush().unwrap();
    }
    std::process::abort();
}

#[tokio::test]
async fn what_a_killed_process_counted_is_counted_once() {
    for kill_after in [usize::MAX, 20, 90] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "idempotency::counter_that_dies", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut acknowledged = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if line.unwrap().starts_with("added ") {
                acknowledged += 1;
                if acknowledged == kill_after {
                    child.kill().unwrap();
                }
            }
        }
        assert!(!child.wait().unwrap().success());
        let clock = clock();
        let store = try_open(folder.path(), Some(1), &clock).unwrap();
        for number in 0..WRITES {
            let at = key(number as usize % 3);
            let added = add_once(&store, &clock, at, number, Duration::from_hours(1));
            let is_replayed = added.await.unwrap().is_replayed;
            assert!(
                is_replayed || number as usize >= acknowledged,
                "{number} was counted twice"
            );
        }
        for at in 0..3 {
            let expected = (0..WRITES).filter(|number| number % 3 == at as u32).count();
            assert_eq!(number(&store, &key(at)).await, i64::try_from(expected).ok());
        }
    }
}
