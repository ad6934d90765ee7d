//! The local cache: for hot keys only, for so long and no longer, within its bytes.

use std::time::Duration;

use umbo_hotkey::{AnswerSource, CacheSettings, Lookup, ReadContext, ShieldSettings};

use super::lab::{Lab, Mood, key, settings, settle};

#[tokio::test]
async fn a_cold_key_is_read_each_time_and_a_hot_one_once() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    for _ in 0..3 {
        assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Leader);
    }
    lab.heat(&["a"]);
    assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Leader);
    for _ in 0..10 {
        let served = lab.get("a").await.unwrap();
        assert_eq!(served.source, AnswerSource::Cache);
        assert_eq!(served.value.as_deref(), Some(&b"1"[..]));
    }
    assert_eq!(lab.reads(), 4);
}

#[tokio::test]
async fn an_answer_is_served_for_three_seconds_and_up_to_a_tenth() {
    for (random, millis) in [(0, 3_150), (1 << 63, 3_225), (u64::MAX, 3_300)] {
        let mut lab = Lab::with_random(settings(), random);
        lab.put("a", "1");
        lab.heat(&["a"]);
        let read_at = lab.now;
        lab.get("a").await.unwrap();
        lab.pass(millis - 1);
        let Lookup::Hit { served, .. } = lab.lookup("a") else {
            panic!("not kept for {millis} ms");
        };
        assert_eq!(served.read_at, read_at);
        assert!(served.fresh_until.unwrap() <= read_at + Duration::from_millis(3_300));
        lab.pass(1);
        assert_eq!(lab.lookup("a"), Lookup::Miss);
    }
}

#[tokio::test]
async fn one_reader_is_told_to_refresh_at_three_seconds() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    lab.get("a").await.unwrap();
    lab.pass(3_074);
    let told = |lab: &Lab| {
        matches!(
            lab.lookup("a"),
            Lookup::Hit {
                is_refresh_due: true,
                ..
            }
        )
    };
    assert!(!told(&lab));
    lab.pass(1);
    assert_eq!((0..100).filter(|_| told(&lab)).count(), 1);
    // It has not come back: after a while somebody else is told.
    lab.pass(49);
    assert!(!told(&lab));
    lab.pass(1);
    assert_eq!((0..100).filter(|_| told(&lab)).count(), 1);
}

#[tokio::test]
async fn a_refresh_replaces_the_answer_while_readers_have_the_old_one() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    lab.get("a").await.unwrap();
    lab.put("a", "2");
    lab.pass(3_075);
    let gate = lab.moods(&[Mood::Waiting]);
    for _ in 0..10 {
        let served = lab.get("a").await.unwrap();
        assert_eq!(served.value.as_deref(), Some(&b"1"[..]));
    }
    settle().await;
    assert_eq!(lab.reads(), 2);
    gate.add_permits(1);
    settle().await;
    let served = lab.get("a").await.unwrap();
    assert_eq!(
        (served.source, served.read_at),
        (AnswerSource::Cache, lab.now)
    );
    assert_eq!(served.value.as_deref(), Some(&b"2"[..]));
    assert_eq!(lab.reads(), 2);
}

#[tokio::test]
async fn a_refresh_that_fails_is_tried_again_and_readers_do_not_notice() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    lab.get("a").await.unwrap();
    lab.pass(3_075);
    let gate = lab.moods(&[Mood::Failing]);
    gate.add_permits(1);
    for _ in 0..100 {
        assert!(lab.get("a").await.is_ok());
        settle().await;
    }
    assert_eq!(lab.reads(), 2);
    lab.pass(50);
    for _ in 0..100 {
        assert!(lab.get("a").await.is_ok());
        settle().await;
    }
    assert_eq!(lab.reads(), 3);
    assert_eq!(lab.get("a").await.unwrap().read_at, lab.now);
}

#[tokio::test]
async fn that_a_key_is_absent_is_kept_for_one_second_and_up_to_a_tenth() {
    let mut lab = Lab::new();
    lab.heat(&["gone"]);
    assert_eq!(lab.get("gone").await.unwrap().value, None);
    lab.pass(1_049);
    let served = lab.get("gone").await.unwrap();
    assert_eq!((served.source, served.value), (AnswerSource::Cache, None));
    lab.pass(1);
    assert_eq!(lab.get("gone").await.unwrap().source, AnswerSource::Leader);
    assert_eq!(lab.reads(), 2);
    let report = lab.shield.report(lab.now);
    assert_eq!((report.hits, report.negative_hits), (1, 1));
}

#[tokio::test]
async fn errors_are_never_kept() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    let gate = lab.moods(&[Mood::Failing, Mood::Failing]);
    gate.add_permits(2);
    assert!(lab.get("a").await.is_err());
    assert!(lab.get("a").await.is_err());
    assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Leader);
    assert_eq!(lab.reads(), 3);
}

#[tokio::test]
async fn an_answer_does_not_outlive_its_row() {
    let mut lab = Lab::new();
    lab.heat(&["a"]);
    lab.put("a", "1");
    let expires_at = Some(lab.now + Duration::from_millis(500));
    *lab.store.expires_at.lock().unwrap() = expires_at;
    lab.get("a").await.unwrap();
    lab.pass(499);
    assert!(
        matches!(lab.lookup("a"), Lookup::Hit { served, .. } if served.fresh_until == expires_at)
    );
    lab.pass(1);
    assert_eq!(lab.lookup("a"), Lookup::Miss);
}

#[tokio::test]
async fn a_client_may_want_a_younger_answer() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    lab.get("a").await.unwrap();
    lab.pass(1_000);
    let no_older_than = |lab: &Lab, seconds| ReadContext {
        age_max: Some(Duration::from_secs(seconds)),
        ..lab.context()
    };
    let served = lab.get_on("a", no_older_than(&lab, 1)).await.unwrap();
    assert_eq!(served.source, AnswerSource::Cache);
    let served = lab.get_on("a", no_older_than(&lab, 0)).await.unwrap();
    assert_eq!(
        (served.source, served.read_at),
        (AnswerSource::Leader, lab.now)
    );
    // What it has read is there for the others.
    let served = lab.get("a").await.unwrap();
    assert_eq!(
        (served.source, served.read_at),
        (AnswerSource::Cache, lab.now)
    );
}

#[tokio::test]
async fn an_answer_too_large_is_shared_and_not_kept() {
    let mut lab = Lab::new();
    lab.put("a", vec![0; (256 << 10) + 1]);
    lab.put("b", vec![0; 256 << 10]);
    lab.heat(&["a", "b"]);
    for _ in 0..3 {
        lab.get("a").await.unwrap();
        lab.get("b").await.unwrap();
    }
    assert_eq!(lab.reads(), 4);
}

#[tokio::test]
async fn the_bytes_of_all_answers_are_bounded() {
    let cache = CacheSettings {
        bytes_max: 1 << 20,
        ..CacheSettings::default()
    };
    let mut lab = Lab::with(ShieldSettings {
        cache,
        ..settings()
    });
    let names: Vec<String> = (0..50).map(|n| format!("key-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        lab.put(name, vec![0; 100 << 10]);
    }
    lab.heat(&names);
    for name in &names {
        lab.get(name).await.unwrap();
        let report = lab.shield.report(lab.now);
        assert!(report.cache_bytes <= 1 << 20, "{}", report.cache_bytes);
    }
    let report = lab.shield.report(lab.now);
    assert!(report.cache_entries >= 8, "{}", report.cache_entries);
}

#[tokio::test]
async fn a_cache_of_no_bytes_is_off() {
    let cache = CacheSettings {
        bytes_max: 0,
        ..CacheSettings::default()
    };
    let mut lab = Lab::with(ShieldSettings {
        cache,
        ..settings()
    });
    lab.put("a", "1");
    lab.heat(&["a"]);
    for _ in 0..5 {
        assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Leader);
    }
}

#[tokio::test]
async fn the_answer_of_a_key_that_cools_is_let_go() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a"]);
    lab.get("a").await.unwrap();
    assert_eq!(lab.shield.report(lab.now).cache_entries, 1);
    for _ in 0..40 {
        lab.pass(100);
        lab.shield.tick(lab.now);
    }
    let report = lab.shield.report(lab.now);
    assert_eq!((report.cache_entries, report.keys.len()), (0, 0));
    assert_eq!(lab.lookup("a"), Lookup::Cold);
}

#[tokio::test]
async fn equal_ranges_share_an_answer_and_others_do_not() {
    let mut lab = Lab::new();
    lab.put("p", "rows");
    let row = key("p");
    for selectors in [b"limit=1", b"limit=2"] {
        let range = lab.range_key(row.partition.as_bytes(), selectors);
        for _ in 0..1_000 {
            lab.shield.count(&range);
        }
    }
    lab.heat(&["p"]);
    for _ in 0..3 {
        lab.range("p", b"limit=1").await.unwrap();
        lab.range("p", b"limit=2").await.unwrap();
        lab.get("p").await.unwrap();
    }
    assert_eq!(lab.reads(), 3);
}
