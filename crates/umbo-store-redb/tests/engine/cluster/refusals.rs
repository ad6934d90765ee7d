//! Folders that belong to another server, and inspections of folders that open nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_store::ManualClock;
use umbo_store_redb::{ClusterMember, FileState, OpenError, verify_folder};

use super::{Cluster, SHARDS, assert_has_its_rows, contents, member, nodes, planned, try_open};
use crate::rows;

/// Opens a folder, expects a refusal, and asserts that no byte has changed.
fn refused(folder: &Path, member: Option<ClusterMember>, clock: &Arc<ManualClock>) -> OpenError {
    let before = contents(folder);
    let opened = match member {
        Some(member) => try_open(folder, member, clock),
        None => rows::try_open(folder, None, clock),
    };
    let error = opened.expect_err("a refusal");
    assert_eq!(contents(folder), before, "{error}");
    let message = error.to_string();
    assert!(message.contains(&folder.display().to_string()), "{message}");
    error
}

#[tokio::test]
async fn somebody_elses_folder_is_refused_and_left_as_it_is() {
    let (cluster, map) = Cluster::filled().await;
    let clock = &cluster.clock;
    let a = cluster.folder("a");
    let other = ClusterMap::create("geo-us", nodes(&["a", "b"]), SHARDS).unwrap();
    let other = Arc::new(other);
    let uneven = map.to_toml().replace("682", "681").replace("683", "682");
    let uneven = Arc::new(ClusterMap::parse(&uneven).unwrap());
    let is_others = |error: &OpenError| matches!(error, OpenError::OthersFolder { .. });

    assert!(is_others(&refused(a, None, clock)));
    assert!(is_others(&refused(a, Some(member(&other, "a")), clock)));
    let error = refused(a, Some(member(&map, "b")), clock);
    assert!(
        is_others(&error) && error.to_string().contains("new name"),
        "{error}"
    );
    let error = refused(a, Some(member(&uneven, "a")), clock);
    assert!(matches!(error, OpenError::OtherSlots { .. }), "{error}");

    let newer = planned(&map, &["a", "b", "c"]);
    drop(cluster.open("a", &newer));
    let error = refused(a, Some(member(&map, "a")), clock);
    assert!(
        matches!(
            error,
            OpenError::OlderMap {
                found: 2,
                version: 1,
                ..
            }
        ),
        "{error}"
    );

    let alone = tempfile::tempdir().unwrap();
    drop(rows::open(alone.path(), clock));
    let error = refused(alone.path(), Some(member(&map, "a")), clock);
    assert!(matches!(error, OpenError::LoneFolder { .. }), "{error}");

    let unknown = try_open(a, member(&map, "z"), clock).unwrap_err();
    assert!(
        matches!(unknown, OpenError::UnknownNode { .. }),
        "{unknown}"
    );
}

#[tokio::test]
async fn shard_files_of_somebody_else_without_a_manifest_are_left_alone_too() {
    let (cluster, map) = Cluster::filled().await;
    let clock = &cluster.clock;
    let without_manifest = |folder: &Path| {
        fs::remove_file(folder.join("umbo.json")).unwrap();
        fs::remove_file(folder.join("umbo.lock")).unwrap();
    };
    let alone = tempfile::tempdir().unwrap();
    drop(rows::open(alone.path(), clock));
    without_manifest(alone.path());
    let before = contents(alone.path());
    let error = try_open(alone.path(), member(&map, "a"), clock).unwrap_err();
    assert!(matches!(error, OpenError::OthersFile { .. }), "{error}");
    let mut after = contents(alone.path());
    after.remove("umbo.lock");
    assert_eq!(after, before);

    // The files of a node belong to this cluster in any folder; a standalone server has none.
    let b = cluster.folder("b");
    without_manifest(b);
    let error = rows::try_open(b, None, clock).unwrap_err();
    assert!(
        matches!(error, OpenError::ManifestMissing { .. }),
        "{error}"
    );
    assert_has_its_rows(&cluster.open("b", &map), &map, "b").await;
}

/// Inspects a folder, asserts that nothing was changed, and returns the states of the node's shards.
fn verified(folder: &Path, map: &Arc<ClusterMap>, node: Option<&str>) -> Vec<FileState> {
    let before = contents(folder);
    let check = verify_folder(folder, map, node).unwrap();
    assert_eq!(contents(folder), before);
    let shards: Vec<_> = check.files.iter().map(|file| file.shard).collect();
    assert_eq!(shards, map.shards_of(&check.node));
    check.files.into_iter().map(|file| file.state).collect()
}

#[tokio::test]
async fn a_look_at_a_folder_says_what_opening_it_would() {
    let (cluster, map) = Cluster::filled().await;
    let (a, b, c) = (
        cluster.folder("a"),
        cluster.folder("b"),
        cluster.folder("c"),
    );
    assert_eq!(verified(a, &map, None), [const { FileState::Good }; 3]);
    assert_eq!(verified(b, &map, Some("b")), [const { FileState::Good }; 3]);

    let newer = planned(&map, &["a", "b", "c"]);
    let is_bad = |state: &FileState, with: &str| {
        let FileState::Bad(reason) = state else {
            panic!("{state:?}, expected {with}");
        };
        assert!(reason.contains(with), "{reason}");
    };
    for state in verified(c, &newer, Some("c")) {
        is_bad(&state, "has moved here");
    }
    assert!(matches!(
        verify_folder(c, &newer, None),
        Err(OpenError::NobodysFolder { .. })
    ));
    for shard in newer.shards_of("c") {
        cluster.copy(shard, map.node_of(shard).unwrap().name(), "c");
    }
    for state in verified(c, &newer, Some("c")) {
        is_bad(&state, "has not given this file away");
    }
    assert_eq!(verified(a, &newer, None).len(), 2);
    let others = verify_folder(a, &newer, None).unwrap().others;
    assert_eq!(others.len(), 1);

    // The state after a kill, and the state while the node runs.
    let running = cluster.open("a", &map);
    let killed = tempfile::tempdir().unwrap();
    for (name, bytes) in contents(a) {
        fs::write(killed.path().join(name), bytes).unwrap();
    }
    assert_eq!(
        verified(killed.path(), &map, None),
        [const { FileState::Unclosed }; 3]
    );
    assert_eq!(
        verify_folder(a, &map, None).unwrap().files[0].state,
        FileState::InUse
    );
    drop(running);

    for node in ["a", "b"] {
        cluster.release(node, &newer);
    }
    for shard in newer.shards_of("c") {
        cluster.copy(shard, map.node_of(shard).unwrap().name(), "c");
    }
    assert_eq!(
        verified(c, &newer, Some("c")),
        [const { FileState::Good }; 2]
    );
    assert!(matches!(
        verify_folder(a, &map, None),
        Err(OpenError::OlderMap { .. })
    ));

    let map = newer;
    let shard = map.shards_of("b")[0];
    let file = b.join(format!("shard-{:03}.redb", shard.0));
    fs::copy(a.join("shard-000.redb"), &file).unwrap();
    is_bad(&verified(b, &map, None)[0], "belongs to another shard");
    fs::write(&file, "").unwrap();
    is_bad(&verified(b, &map, None)[0], "empty");
    fs::remove_file(&file).unwrap();
    is_bad(&verified(b, &map, None)[0], "restore it");
    let error = verify_folder(b, &map, Some("a")).unwrap_err();
    assert!(matches!(error, OpenError::OthersFolder { .. }), "{error}");

    let new = tempfile::tempdir().unwrap();
    let first = super::first_map();
    assert_eq!(
        verified(new.path(), &first, Some("a")),
        [const { FileState::New }; 3]
    );
}
