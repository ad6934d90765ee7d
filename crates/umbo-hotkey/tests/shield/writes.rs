//! Writes: what is acknowledged is read, and what is not touched stays.

use umbo_hotkey::{Look, Source, Touched};
use umbo_types::{Key, PartitionKey};

use super::lab::{Lab, Mood, NAMESPACE, fill, key};

#[tokio::test]
async fn a_write_is_seen_by_the_next_read() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    lab.get("a").await.unwrap();
    let write = lab.shield.begin_write([Touched::Row(NAMESPACE, &key("a"))]);
    lab.put("a", "2");
    write.end();
    assert_eq!(lab.look("a"), Look::Miss);
    let served = lab.get("a").await.unwrap();
    assert_eq!(served.value.as_deref(), Some(&b"2"[..]));
}

#[tokio::test]
async fn what_is_read_while_a_write_is_under_way_is_not_kept_beyond_it() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    let write = lab.shield.begin_write([Touched::Row(NAMESPACE, &key("a"))]);
    assert_eq!(lab.get("a").await.unwrap().source, Source::Leader);
    lab.put("a", "2");
    drop(write);
    let served = lab.get("a").await.unwrap();
    assert_eq!(served.value.as_deref(), Some(&b"2"[..]));
}

#[tokio::test]
async fn a_read_that_a_write_has_overtaken_is_neither_joined_nor_kept() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    let gate = lab.moods(&[Mood::Waiting]);
    let before = lab.client("a").await;
    let write = lab.shield.begin_write([Touched::Row(NAMESPACE, &key("a"))]);
    lab.put("a", "2");
    drop(write);
    let after = lab.get("a").await.unwrap();
    assert_eq!(after.value.as_deref(), Some(&b"2"[..]));
    gate.add_permits(1);
    let before = before.await.unwrap().unwrap();
    assert_eq!(before.value.as_deref(), Some(&b"1"[..]));
    let kept = lab.get("a").await.unwrap();
    assert_eq!(
        (kept.source, kept.value.as_deref()),
        (Source::Cache, Some(&b"2"[..]))
    );
    let board = lab.shield.report(lab.now).board;
    assert_eq!((board.overtaken, board.stale), (1, 1));
}

#[tokio::test]
async fn readers_after_a_write_share_one_read_again() {
    let lab = Lab::new();
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting, Mood::Waiting]);
    let before = lab.client("a").await;
    drop(lab.shield.begin_write([Touched::Row(NAMESPACE, &key("a"))]));
    let after = lab.client("a").await;
    let follower = lab.client("a").await;
    assert_eq!(lab.reads(), 2);
    gate.add_permits(2);
    assert_eq!(before.await.unwrap().unwrap().source, Source::Leader);
    assert_eq!(after.await.unwrap().unwrap().source, Source::Leader);
    assert_eq!(follower.await.unwrap().unwrap().source, Source::Follower);
    assert_eq!(lab.shield.report(lab.now).flights, 0);
}

#[tokio::test]
async fn a_write_that_is_cancelled_or_panics_ends_too() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    let shield = lab.shield.clone();
    let write = tokio::spawn(async move {
        let _write = shield.begin_write([Touched::Row(NAMESPACE, &key("a"))]);
        panic!("on purpose");
    });
    assert!(write.await.is_err());
    lab.get("a").await.unwrap();
    assert_eq!(lab.get("a").await.unwrap().source, Source::Cache);
}

#[tokio::test]
async fn a_write_of_another_row_leaves_the_answer_of_a_row_and_ends_that_of_a_range() {
    let mut lab = Lab::new();
    lab.put("p", "1");
    let row = key("p");
    let other = Key::new("p", "other").unwrap();
    let range = lab.range_key(row.partition.as_bytes(), b"all");
    for _ in 0..1_000 {
        lab.shield.count(&range, umbo_types::RequestUnits::ZERO);
    }
    lab.heat(&["p"]);
    lab.get("p").await.unwrap();
    lab.range("p", b"all").await.unwrap();
    drop(lab.shield.begin_write([Touched::Row(NAMESPACE, &other)]));
    assert_eq!(lab.get("p").await.unwrap().source, Source::Cache);
    let ranged = lab.range("p", b"all").await.unwrap();
    assert_eq!(ranged.source, Source::Leader);
}

#[tokio::test]
async fn a_write_of_a_range_ends_every_answer_of_its_partition_and_of_no_other() {
    let mut lab = Lab::new();
    lab.put("p", "1");
    lab.put("q", "1");
    lab.heat(&["p", "q"]);
    lab.get("p").await.unwrap();
    lab.get("q").await.unwrap();
    let partition = PartitionKey::new("p").unwrap();
    let touched = [Touched::Partition(NAMESPACE, &partition)];
    drop(lab.shield.begin_write(touched));
    assert_eq!(lab.get("p").await.unwrap().source, Source::Leader);
    assert_eq!(lab.get("q").await.unwrap().source, Source::Cache);
}

#[tokio::test]
async fn a_batch_touches_all_its_rows() {
    let mut lab = Lab::new();
    let names: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    lab.heat(&names);
    for name in &names {
        lab.get(name).await.unwrap();
    }
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    let touched = keys.iter().map(|key| Touched::Row(NAMESPACE, key));
    drop(lab.shield.begin_write(touched));
    for name in &names {
        assert_eq!(lab.get(name).await.unwrap().source, Source::Leader);
    }
}

#[tokio::test]
async fn a_multi_get_looks_up_its_hot_keys_and_keeps_what_it_reads_of_them() {
    let mut lab = Lab::new();
    lab.put("hot", "1");
    lab.put("cold", "2");
    lab.heat(&["hot"]);
    let rows = [key("hot"), key("cold")];
    let terms = lab.terms();
    let seed = lab.shield.seed();
    let keys = rows.each_ref().map(|row| seed.row(NAMESPACE, row));
    let looks = keys.map(|key| lab.shield.look(&key, &terms, &lab.caller));
    assert_eq!(looks, [Look::Miss, Look::Cold]);
    let stamps = keys.map(|key| lab.shield.stamp(&key));
    let kept: Vec<bool> = keys
        .iter()
        .zip(stamps)
        .zip(["1", "2"])
        .map(|((key, stamp), value)| {
            let fill = fill(Some(value.into()));
            lab.shield.keep(key, stamp, &fill, &terms)
        })
        .collect();
    assert_eq!(kept, [true, false]);
    assert!(matches!(lab.look("hot"), Look::Hit { .. }));
    assert_eq!(lab.look("cold"), Look::Cold);

    // One that a write has overtaken is not kept.
    let stamp = lab.shield.stamp(&keys[0]);
    drop(lab.shield.begin_write([Touched::Row(NAMESPACE, &rows[0])]));
    let old = fill(Some("1".into()));
    assert!(!lab.shield.keep(&keys[0], stamp, &old, &terms));
    assert_eq!(lab.look("hot"), Look::Miss);
}
