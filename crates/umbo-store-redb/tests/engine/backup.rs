//! Backups of shards: all pieces of one state, whatever is written meanwhile; and what becomes of them in other folders.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_store::{
    BACKUP_IDLE, BackupRequest, ByKey as _, CallContext, Change, ChunkRequest, ManualClock,
    Mutation, RecordsCopy, RecordsKeeper as _, RecordsRevision, Store, StoreError,
    StoreReport as _, UploadStep,
};
use umbo_store_redb::{BackupCheck, RedbStore, Restore};
use umbo_types::limits::LARGE_CHUNK_LEN;
use umbo_types::{Clock as _, LargeRef, NamespaceId, ShardId, UploadId, Value};

use crate::fences::fencing;
use crate::rows::{NAMESPACE, clock, fill, get, key, later, open, put, try_open, write};

const SHARD: ShardId = ShardId(0);

async fn piece(
    store: &RedbStore,
    backup: u64,
    shard: ShardId,
    piece: u32,
) -> Result<Option<Bytes>, StoreError> {
    let request = BackupRequest {
        shard,
        backup,
        piece,
    };
    store.backup(&CallContext::internal(), &request).await
}

/// Reads the rest of a backup, from a piece on.
async fn rest(store: &RedbStore, backup: u64, shard: ShardId, from: u32) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    for number in from.. {
        match piece(store, backup, shard, number).await.unwrap() {
            Some(piece) => pieces.push(piece),
            None => break,
        }
    }
    pieces
}

async fn begin(store: &RedbStore, backup: u64, shard: ShardId) {
    let begun = piece(store, backup, shard, 0).await.unwrap();
    assert_eq!(begun, Some(Bytes::new()));
}

/// Begins a backup and reads all of it.
async fn whole(store: &RedbStore, backup: u64, shard: ShardId) -> Vec<Bytes> {
    begin(store, backup, shard).await;
    rest(store, backup, shard, 1).await
}

fn rows_of(pieces: &[Bytes]) -> u64 {
    let mut check = BackupCheck::default();
    for piece in pieces {
        check.read(piece).unwrap();
    }
    check.end().unwrap()
}

fn one_shard(clock: &Arc<ManualClock>) -> (tempfile::TempDir, RedbStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = try_open(folder.path(), Some(1), clock).unwrap();
    (folder, store)
}

fn gone(piece: Result<Option<Bytes>, StoreError>) -> bool {
    piece.unwrap().is_some_and(|piece| piece.is_empty())
}

/// Records without a namespace: rows are placed by the ids of their namespaces.
fn records(fenced: &[NamespaceId]) -> RecordsCopy {
    RecordsCopy {
        revision: RecordsRevision::default(),
        fenced: fenced.iter().map(|&id| id.into()).collect(),
        datasets: Vec::new(),
        content: Bytes::new(),
    }
}

#[tokio::test]
async fn all_pieces_are_of_the_state_in_which_it_was_begun() {
    let clock = clock();
    let (_folder, store) = one_shard(&clock);
    fill(&store, &clock, 6_000).await;
    let before = whole(&store, 7, SHARD).await;
    assert!(before.len() > 2, "there are several pieces");
    assert_eq!(rows_of(&before), 6_000);
    // Read again to the end, with rows that come and change meanwhile, from before the first piece on.
    begin(&store, 8, SHARD).await;
    let rows = (0..8_000).map(|number| put(key(number), b"changed", None));
    let rows: Vec<_> = rows.collect();
    write(&store, &clock, rows[..4_000].to_vec()).await;
    let first = piece(&store, 8, SHARD, 1).await.unwrap().unwrap();
    assert_eq!(piece(&store, 8, SHARD, 1).await.unwrap().unwrap(), first);
    write(&store, &clock, rows[4_000..].to_vec()).await;
    let mut again = vec![first];
    again.extend(rest(&store, 8, SHARD, 2).await);
    assert_eq!(again, before);
    assert_eq!(rows_of(&whole(&store, 9, SHARD).await), 8_000);
}

#[tokio::test]
async fn a_piece_out_of_turn_is_none_of_the_backup() {
    let clock = clock();
    let (folder, store) = one_shard(&clock);
    fill(&store, &clock, 6_000).await;
    let is_gone = async |backup, number| gone(piece(&store, backup, SHARD, number).await);
    assert!(is_gone(1, 1).await, "it was not begun");
    begin(&store, 1, SHARD).await;
    assert!(is_gone(1, 2).await, "it goes step by step");
    piece(&store, 1, SHARD, 1).await.unwrap();
    // A beginning that comes late, because its sender had no answer, changes nothing.
    begin(&store, 1, SHARD).await;
    let second = piece(&store, 1, SHARD, 2).await.unwrap().unwrap();
    assert_eq!(whole(&store, 2, SHARD).await[1], second);
    assert!(is_gone(1, 3).await, "another was begun");
    // The end may be asked for again, whose answer may be lost.
    let end = whole(&store, 3, SHARD).await.len() as u32 + 1;
    assert_eq!(piece(&store, 3, SHARD, end).await.unwrap(), None);
    assert!(
        piece(&store, 3, ShardId(9), 1).await.is_err(),
        "there is no such shard"
    );
    // Nor is a state of another opening taken for that of the first.
    begin(&store, 4, SHARD).await;
    store.close().await;
    drop(store);
    let store = try_open(folder.path(), None, &clock).unwrap();
    assert!(
        gone(piece(&store, 4, SHARD, 1).await),
        "the shard was opened again"
    );
}

#[tokio::test]
async fn a_backup_that_is_not_read_is_forgotten_with_a_commit() {
    let clock = clock();
    let (_folder, store) = one_shard(&clock);
    fill(&store, &clock, 6_000).await;
    begin(&store, 1, SHARD).await;
    for number in 1..4 {
        clock.advance(BACKUP_IDLE);
        fill(&store, &clock, 1).await;
        let piece = piece(&store, 1, SHARD, number).await.unwrap().unwrap();
        assert!(!piece.is_empty());
    }
    clock.advance(BACKUP_IDLE + Duration::from_millis(1));
    fill(&store, &clock, 1).await;
    assert!(gone(piece(&store, 1, SHARD, 4).await));
    // Nor does a beginning that comes late begin it anew.
    begin(&store, 1, SHARD).await;
    assert!(gone(piece(&store, 1, SHARD, 1).await));
    store.close().await;
}

#[tokio::test]
async fn rows_of_a_removed_namespace_are_stepped_over() {
    let clock = clock();
    let (_folder, store) = one_shard(&clock);
    fill(&store, &clock, 6_000).await;
    for (_, kept) in store.keep_records(fencing()).await {
        kept.unwrap();
    }
    assert_eq!(whole(&store, 1, SHARD).await, Vec::<Bytes>::new());
}

fn large() -> LargeRef {
    LargeRef {
        upload: UploadId([5; UploadId::LEN]),
        len: LARGE_CHUNK_LEN as u64 * 3 + 1,
        sha256: [5; 32],
    }
}

fn chunk(index: u32) -> Bytes {
    let len = if index < 3 { LARGE_CHUNK_LEN } else { 1 };
    vec![index as u8; len].into()
}

async fn put_large(store: &RedbStore, clock: &ManualClock, number: usize) {
    let upload = |index| Mutation {
        change: Change::Upload(UploadStep::Append {
            upload: large().upload,
            index,
            bytes: chunk(index),
        }),
        ..put(key(number), b"", None)
    };
    write(store, clock, (0..4).map(upload).collect()).await;
    let value = Value::new(Bytes::new(), "", "").unwrap().of_large(&large());
    let row = Mutation {
        change: Change::Put {
            value,
            expires_at: None,
        },
        ..put(key(number), b"", None)
    };
    write(store, clock, vec![row]).await[0].as_ref().unwrap();
}

#[tokio::test]
async fn what_is_restored_into_other_shards_is_what_was_there() {
    let (from, to, clock) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        clock(),
    );
    let store = open(from.path(), &clock);
    let versions = fill(&store, &clock, 1_000).await;
    let expiry = later(&clock, Duration::from_mins(5));
    write(
        &store,
        &clock,
        vec![put(key(1_000), b"for a while", Some(expiry))],
    )
    .await;
    put_large(&store, &clock, 1_001).await;
    let mut streams = Vec::new();
    for shard in 0..4 {
        streams.push(whole(&store, 1, ShardId(shard)).await);
    }
    store.close().await;
    try_open(to.path(), Some(7), &clock).unwrap().close().await;
    let mut restore = Restore::begin(to.path(), records(&[]), clock.wall()).unwrap();
    for stream in &streams {
        for piece in stream {
            restore.read(piece).unwrap();
        }
        restore.end_shard().unwrap();
    }
    let restored = restore.end().unwrap();
    assert_eq!((restored.rows, restored.left_out), (1_002, 0));
    let again = try_open(to.path(), None, &clock).unwrap();
    for (number, version) in versions.iter().enumerate() {
        let row = get(&again, number).await.unwrap();
        assert_eq!((row.version, row.expires_at), (*version, None));
    }
    assert_eq!(get(&again, 1_000).await.unwrap().expires_at, Some(expiry));
    let request = |index| ChunkRequest {
        namespace: NAMESPACE,
        large: large(),
        index,
    };
    for index in 0..4 {
        let call = CallContext::internal();
        let found = again.chunk_of(&call, &key(1_001), &request(index)).await;
        assert_eq!(found.unwrap(), Some(chunk(index)));
    }
    let sizes = |store: &RedbStore| {
        let all = store
            .status()
            .into_iter()
            .flat_map(|shard| shard.sizes.unwrap());
        all.fold((0, 0), |(rows, bytes), size| {
            (rows + size.rows, bytes + size.bytes)
        })
    };
    assert_eq!(sizes(&again).0, 1_002);
    let next = write(&again, &clock, vec![put(key(0), b"newer", None)]).await;
    assert!(next[0].as_ref().unwrap().version > *versions.iter().max().unwrap());
    clock.advance(Duration::from_mins(5));
    assert!(get(&again, 1_000).await.is_none(), "it expires");
    again.close().await;
}

#[tokio::test]
async fn rows_of_a_fenced_namespace_are_not_restored() {
    let (to, clock) = (tempfile::tempdir().unwrap(), clock());
    let (_from, store) = one_shard(&clock);
    fill(&store, &clock, 100).await;
    put_large(&store, &clock, 100).await;
    let stream = whole(&store, 1, SHARD).await;
    try_open(to.path(), Some(2), &clock).unwrap().close().await;
    let mut restore = Restore::begin(to.path(), records(&[NAMESPACE]), clock.wall()).unwrap();
    for piece in &stream {
        restore.read(piece).unwrap();
    }
    let restored = restore.end().unwrap();
    assert_eq!((restored.rows, restored.left_out), (0, 101));
}

#[tokio::test]
async fn a_stream_that_is_cut_or_changed_is_no_backup() {
    let clock = clock();
    let (_folder, store) = one_shard(&clock);
    fill(&store, &clock, 20).await;
    put_large(&store, &clock, 20).await;
    let stream = whole(&store, 1, SHARD).await.concat();
    let is_whole = |bytes: &[u8]| {
        let mut check = BackupCheck::default();
        check.read(bytes).is_ok() && check.end().is_ok()
    };
    assert!(is_whole(&stream));
    for cut in [1, 20, 1_000, stream.len() - 1] {
        assert!(!is_whole(&stream[..cut]), "{cut}");
    }
    for at in (0..stream.len()).step_by(997) {
        let mut changed = stream.clone();
        changed[at] ^= 1;
        assert!(!is_whole(&changed), "{at}");
    }
}
