//! Writes: what is acknowledged is read, and what is not touched stays.

use umbo_hotkey::{AnswerSource, Lookup, WriteScope};
use umbo_types::{Key, PartitionKey};

use super::lab::{Lab, Mood, NAMESPACE, key};

#[tokio::test]
async fn a_write_is_seen_by_the_next_read() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    lab.get("a").await.unwrap();
    let write = lab
        .shield
        .begin_write([WriteScope::Row(NAMESPACE, &key("a"))]);
    lab.put("a", "2");
    write.end();
    assert_eq!(lab.lookup("a"), Lookup::Miss);
    let served = lab.get("a").await.unwrap();
    assert_eq!(served.value.as_deref(), Some(&b"2"[..]));
}

#[tokio::test]
async fn what_is_read_while_a_write_is_under_way_is_not_kept_beyond_it() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    let write = lab
        .shield
        .begin_write([WriteScope::Row(NAMESPACE, &key("a"))]);
    assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Leader);
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
    let write = lab
        .shield
        .begin_write([WriteScope::Row(NAMESPACE, &key("a"))]);
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
        (AnswerSource::Cache, Some(&b"2"[..]))
    );
    let totals = lab.shield.report(lab.now).flight_totals;
    assert_eq!((totals.overtaken, totals.stale), (1, 1));
}

#[tokio::test]
async fn readers_after_a_write_share_one_read_again() {
    let lab = Lab::new();
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting, Mood::Waiting]);
    let before = lab.client("a").await;
    drop(
        lab.shield
            .begin_write([WriteScope::Row(NAMESPACE, &key("a"))]),
    );
    let after = lab.client("a").await;
    let follower = lab.client("a").await;
    assert_eq!(lab.reads(), 2);
    gate.add_permits(2);
    assert_eq!(before.await.unwrap().unwrap().source, AnswerSource::Leader);
    assert_eq!(after.await.unwrap().unwrap().source, AnswerSource::Leader);
    assert_eq!(
        follower.await.unwrap().unwrap().source,
        AnswerSource::Follower
    );
    assert_eq!(lab.shield.report(lab.now).flights, 0);
}

#[tokio::test]
async fn a_write_that_is_cancelled_or_panics_ends_too() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    let shield = lab.shield.clone();
    let write = tokio::spawn(async move {
        let _write = shield.begin_write([WriteScope::Row(NAMESPACE, &key("a"))]);
        panic!("on purpose");
    });
    assert!(write.await.is_err());
    lab.get("a").await.unwrap();
    assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Cache);
}

#[tokio::test]
async fn a_write_of_another_row_leaves_the_answer_of_a_row_and_ends_that_of_a_range() {
    let mut lab = Lab::new();
    lab.put("p", "1");
    let row = key("p");
    let other = Key::new("p", "other").unwrap();
    let range = lab.range_key(row.partition.as_bytes(), b"all");
    for _ in 0..1_000 {
        lab.shield.count(&range);
    }
    lab.heat(&["p"]);
    lab.get("p").await.unwrap();
    lab.range("p", b"all").await.unwrap();
    drop(lab.shield.begin_write([WriteScope::Row(NAMESPACE, &other)]));
    assert_eq!(lab.get("p").await.unwrap().source, AnswerSource::Cache);
    let ranged = lab.range("p", b"all").await.unwrap();
    assert_eq!(ranged.source, AnswerSource::Leader);
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
    let scopes = [WriteScope::Partition(NAMESPACE, &partition)];
    drop(lab.shield.begin_write(scopes));
    assert_eq!(lab.get("p").await.unwrap().source, AnswerSource::Leader);
    assert_eq!(lab.get("q").await.unwrap().source, AnswerSource::Cache);
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
    let scopes = keys.iter().map(|key| WriteScope::Row(NAMESPACE, key));
    drop(lab.shield.begin_write(scopes));
    for name in &names {
        assert_eq!(lab.get(name).await.unwrap().source, AnswerSource::Leader);
    }
}
