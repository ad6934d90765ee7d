//! Sizes of namespaces: what reclaiming does to them, and files of versions that kept none.

use std::time::Duration;

use redb::{Database, ReadableDatabase, TableDefinition};
use umbo_store::{NamespaceSize, RecordsKeeper, Store, StoreReport};

use crate::fences::{fencing, reclaimed};
use crate::rows::{NAMESPACE, clock, config, fill, key, later, put, try_open, write};

const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

fn sizes(store: &dyn Store) -> Vec<NamespaceSize> {
    store.status().remove(0).sizes.unwrap()
}

#[tokio::test]
async fn reclaimed_rows_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    fill(&store, &clock, 100).await;
    let before = sizes(&store);
    assert_eq!((before[0].namespace, before[0].rows), (NAMESPACE, 100));
    let expiry = later(&clock, Duration::from_mins(1));
    let rows = (100..300).map(|number| put(key(number), b"value", Some(expiry)));
    write(&store, &clock, rows.collect()).await;
    assert_eq!(sizes(&store)[0].rows, 300);
    clock.advance(Duration::from_mins(1));
    while sizes(&store)[0].rows > 100 {
        write(&store, &clock, vec![put(key(0), b"again", None)]).await;
    }
    assert_eq!(store.status()[0].reclaimed, 200);
    fill(&store, &clock, 1).await;
    assert_eq!(sizes(&store), before);
    for (_, answer) in store.keep_records(fencing()).await {
        answer.unwrap();
    }
    reclaimed(&store).await;
    assert_eq!(sizes(&store), []);
}

#[tokio::test]
async fn a_file_without_sizes_is_counted_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = try_open(folder.path(), Some(1), &clock).unwrap();
    fill(&store, &clock, 500).await;
    let before = sizes(&store);
    store.close().await;
    drop(store);
    let path = config(folder.path(), None).folder.join("shard-000.redb");
    // As an earlier version would have written it; a record that is there nevertheless does not count.
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut meta = transaction.open_table(META).unwrap();
        meta.remove("sizes").unwrap().unwrap();
        meta.insert("size/000000ff", &[1; 17][..]).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let store = try_open(folder.path(), None, &clock).unwrap();
    assert_eq!(sizes(&store), before);
    write(&store, &clock, vec![put(key(500), b"new", None)]).await;
    assert_eq!(sizes(&store)[0].rows, 501);
    store.close().await;
    drop(store);
    let database = Database::open(&path).unwrap();
    let meta = database.begin_read().unwrap().open_table(META).unwrap();
    let names = meta.range("size"..).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().0.value().to_owned())
        .collect();
    assert_eq!(names, ["size/00000001", "sizes"]);
}
