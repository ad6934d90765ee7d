//! What operators list and see.

use umbo_hotkey::{
    AnswerSource, KeySeed, LISTED_KEYS_MAX, Lookup, ReadKey, ShieldSettings, Standing,
    TooManyListed,
};
use umbo_types::CallerId;

use super::lab::{Lab, NAMESPACE, key, settings};

fn read_key(lab: &Lab, name: &str) -> ReadKey {
    lab.shield.seed().row(NAMESPACE, &key(name)).to_owned()
}

#[tokio::test]
async fn a_pinned_key_is_kept_however_seldom_it_is_read() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.shield.list(vec![read_key(&lab, "a")], vec![]).unwrap();
    lab.get("a").await.unwrap();
    for _ in 0..20 {
        lab.pass(100);
        lab.shield.tick(lab.now);
    }
    assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Cache);
    lab.shield.list(vec![], vec![]).unwrap();
    assert_eq!(lab.lookup("a"), Lookup::Cold);
}

#[tokio::test]
async fn a_blocked_key_is_refused_whatever_else_it_is() {
    let mut lab = Lab::new();
    lab.heat(&["a"]);
    let listed = || vec![read_key(&lab, "a")];
    lab.shield.list(listed(), listed()).unwrap();
    assert_eq!(lab.lookup("a"), Lookup::Blocked);
    let row = key("a");
    let name = lab.shield.seed().row(NAMESPACE, &row);
    assert_eq!(lab.shield.standing(&name), Some(Standing::Blocked));
    // The hot set is published anew all the time; the block stays.
    lab.pass(100);
    lab.shield.tick(lab.now);
    assert_eq!(lab.lookup("a"), Lookup::Blocked);
    lab.shield.list(vec![], vec![]).unwrap();
    assert_eq!(lab.shield.standing(&name), Some(Standing::Hot));
}

#[tokio::test]
async fn a_blocked_key_tells_who_goes_on_asking() {
    let mut lab = Lab::new();
    lab.shield.list(vec![], vec![read_key(&lab, "a")]).unwrap();
    let (row, other) = (key("a"), key("b"));
    let seed = lab.shield.seed();
    let crawler = CallerId::new("crawler");
    for _ in 0..800 {
        assert!(
            lab.shield
                .is_blocked(&seed.row(NAMESPACE, &row), crawler.as_str())
        );
        assert!(
            !lab.shield
                .is_blocked(&seed.row(NAMESPACE, &other), crawler.as_str())
        );
    }
    let told = |lab: &Lab| lab.shield.report(lab.now).keys.remove(0);
    assert_eq!((told(&lab).reads, told(&lab).hits), (800, 0));
    assert_eq!(told(&lab).callers, [(crawler, 1.0)]);
    // Who has given up is forgotten.
    for _ in 0..200 {
        lab.pass(100);
        lab.shield.tick(lab.now);
    }
    assert_eq!(told(&lab).callers, []);
}

#[tokio::test]
async fn the_lists_are_bounded_and_a_list_too_long_changes_nothing() {
    let lab = Lab::new();
    let keys = |count: usize| -> Vec<ReadKey> {
        let names = (0..count).map(|n| n.to_string());
        names.map(|name| read_key(&lab, &name)).collect()
    };
    lab.shield.list(vec![], keys(LISTED_KEYS_MAX)).unwrap();
    assert_eq!(
        lab.shield.list(vec![], keys(LISTED_KEYS_MAX + 1)),
        Err(TooManyListed(LISTED_KEYS_MAX + 1))
    );
    assert_eq!(lab.lookup("0"), Lookup::Blocked);
}

#[tokio::test]
async fn the_report_tells_rates_callers_and_what_was_saved() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    lab.heat(&["a", "b"]);
    for read in 0..800 {
        lab.caller = CallerId::new(if read % 4 == 0 { "shop" } else { "crawler" });
        lab.get("a").await.unwrap();
    }
    lab.pass(100);
    lab.shield.tick(lab.now);
    let report = lab.shield.report(lab.now);
    let hot = report
        .keys
        .iter()
        .find(|hot| hot.key == read_key(&lab, "a"))
        .unwrap();
    assert_eq!((hot.standing, hot.is_hot), (Standing::Hot, true));
    assert_eq!((hot.reads, hot.hits), (800, 799));
    assert!(hot.heat.rate > 8_000.0, "{:?}", hot.heat);
    // One request unit each, of 800 reads in 200 ms.
    assert!(
        (hot.heat.units_rate - 4_000.0).abs() < 1.0,
        "{:?}",
        hot.heat
    );
    assert!(!hot.callers.is_empty());
    assert_eq!((report.hits, report.flight_totals.leaders), (799, 1));
    // All reads of both keys, those that made them hot included.
    assert_eq!(report.reads, 2_800);
    assert!((report.saved_share() - 799.0 / 2_800.0).abs() < 1e-9);
    // The other key was not looked up: its bytes are not known.
    assert_eq!(report.keys.len(), 1);
}

#[tokio::test]
async fn the_detection_takes_a_mebibyte_at_most() {
    for threads in 1..=32 {
        let mut lab = Lab::with(ShieldSettings {
            threads,
            ..settings()
        });
        let names: Vec<String> = (0..50).map(|n| format!("listing:{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        lab.heat(&names);
        for name in names {
            lab.lookup(name);
        }
        let report = lab.shield.report(lab.now);
        assert_eq!(report.keys.len(), 50);
        assert!(
            report.detection_bytes <= 1 << 20,
            "{threads}: {}",
            report.detection_bytes
        );
    }
}

#[tokio::test]
async fn reads_of_a_hot_key_count_whoever_counts_them() {
    let mut lab = Lab::with(ShieldSettings::new(1, KeySeed::new(1)));
    let row = key("a");
    let shield = lab.shield.clone();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let name = shield.seed().row(NAMESPACE, &row);
                for _ in 0..100 {
                    shield.count(&name);
                }
            });
        }
    });
    lab.pass(100);
    lab.shield.tick(lab.now);
    assert_eq!(lab.lookup("a"), Lookup::Miss);
}
