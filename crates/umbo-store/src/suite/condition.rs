//! Conditions: when a mutation is applied, and the answer when it is not.

use umbo_types::{Timestamp, Version};

use crate::suite::Engine;
use crate::suite::subject::{START, TestSubject, applied, delete, key, put, put_until};
use crate::{Condition, Outcome, WriteError};

fn failed(current: Option<Version>) -> Result<crate::Written, WriteError> {
    Err(WriteError::ConditionFailed { current })
}

/// Every condition holds or fails correctly on an existing row, for puts and deletes; a failed one changes
/// nothing and returns the current version.
pub async fn conditions_on_a_present_row<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let other = t.put(&key("p", "other"), "v").await.version;
    for make in [|at: &_| put(at, "new"), delete] {
        let stale = t.put(&at, "older").await.version;
        let now = t.put(&at, "old").await.version;
        let refused = [
            Condition::Absent,
            Condition::VersionIn(vec![]),
            Condition::VersionIn(vec![stale]),
            Condition::VersionIn(vec![stale, other, Version(0), Version(now.0 + 1)]),
        ];
        for condition in refused {
            let answer = t.write_one(make(&at).when(condition.clone())).await;
            assert_eq!(answer, failed(Some(now)), "{condition:?}");
            let row = t.get(&at).await.expect("it stays");
            assert_eq!((row.version, &row.value.bytes[..]), (now, &b"old"[..]));
        }
        let granted = [
            |_: Version| Condition::Always,
            |_| Condition::Present,
            |now| Condition::VersionIn(vec![now]),
            |now| Condition::VersionIn(vec![Version(1), now, Version(u64::MAX)]),
        ];
        for condition in granted {
            let now = t.put(&at, "old").await.version;
            let written = applied(t.write_one(make(&at).when(condition(now))).await);
            assert!(written.existed && written.version > now);
            assert_ne!(t.value(&at).await.as_deref(), Some(&b"old"[..]));
        }
    }
}

/// A row that was never stored, was deleted or has expired is absent for every condition.
pub async fn conditions_on_an_absent_row<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let soon = Timestamp::from_millis(START.as_millis() + 1);
    let (never, deleted, expired) = (key("p", "never"), key("p", "deleted"), key("p", "expired"));
    let mut versions = vec![Version(0), t.put(&deleted, "v").await.version];
    t.delete(&deleted).await;
    let until_soon = put_until(&expired, "v", Some(soon));
    versions.push(applied(t.write_one(until_soon).await).version);
    t.clock.set_wall(soon);
    for at in [never, deleted, expired] {
        for condition in [Condition::Present, Condition::VersionIn(versions.clone())] {
            for mutation in [put(&at, "new"), delete(&at)] {
                let answer = t.write_one(mutation.when(condition.clone())).await;
                assert_eq!(answer, failed(None), "{condition:?}");
            }
        }
        assert_eq!(t.get(&at).await, None);
        let removed = applied(t.write_one(delete(&at).when(Condition::Absent)).await);
        let written = applied(t.write_one(put(&at, "new").when(Condition::Absent)).await);
        assert!(!removed.existed && !written.existed);
        let row = t.get(&at).await.expect("it was put");
        assert_eq!(row.version, written.version);
        let again = t.write_one(put(&at, "newer").when(Condition::Absent)).await;
        assert_eq!(again, failed(Some(row.version)));
    }
}

/// Mutations of one key are applied in the order of the request, each seeing the one before.
pub async fn mutations_of_one_key_are_applied_in_order<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let (at, other) = (key("p", "s"), key("p", "other"));
    let answers = t
        .write(vec![
            put(&at, "1").when(Condition::Absent),
            put(&other, "x"),
            put(&at, "2").when(Condition::Present),
            delete(&at),
            delete(&at),
            put(&at, "3").when(Condition::Present),
            put(&at, "4").when(Condition::Absent),
            put(&at, "5").when(Condition::Absent),
        ])
        .await;
    let existed: Vec<Option<bool>> = answers
        .iter()
        .map(|answer| answer.as_ref().ok().map(|written| written.existed))
        .collect();
    let (yes, no) = (Some(true), Some(false));
    assert_eq!(existed, [no, no, yes, yes, no, None, no, None]);
    let last = applied(answers[6].clone());
    assert_eq!(answers[5], failed(None));
    assert_eq!(answers[7], failed(Some(last.version)));
    let row = t.get(&at).await.expect("the last put stays");
    assert_eq!(
        (row.version, &row.value.bytes[..]),
        (last.version, &b"4"[..])
    );
    let of_key = answers.iter().enumerate().filter(|&(index, _)| index != 1);
    let versions: Vec<_> = of_key.flat_map(|(_, a)| a).map(|w| w.version).collect();
    assert!(versions.is_sorted_by(|one, next| one < next));
}

/// Without atomicity a refused mutation does not affect others, and its answer is that it was not applied.
pub async fn a_refused_mutation_stands_alone<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = |n: u32| key(format!("p{}", n % 5), n.to_string());
    let mutations = (0..100).map(|n| {
        let condition = if n % 3 == 0 {
            Condition::Present
        } else {
            Condition::Absent
        };
        put(&at(n), "v").when(condition)
    });
    let answers = t.write(mutations.collect()).await;
    for (n, answer) in (0..).zip(answers) {
        match answer {
            Ok(written) => assert!(n % 3 != 0 && !written.existed),
            Err(error) => {
                assert!(n % 3 == 0);
                assert_eq!(error, WriteError::ConditionFailed { current: None });
                assert_eq!(error.outcome(), Outcome::NotApplied);
            }
        }
        assert_eq!(t.get(&at(n)).await.is_some(), n % 3 != 0);
    }
}

/// Rows of a load replace what is no newer than the load's instant: older writes, and rows of loads of this instant or
/// an older one, whenever they were put. Nothing of it depends on when a load is applied, so repeating one changes no
/// value.
pub async fn older_data_never_replaces_newer<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let instant = |ms: u64| Timestamp::from_millis(START.as_millis() + ms);
    let load = |value: &str, ms| put(&at, value).when(Condition::NotNewerThan(instant(ms)));
    let is_refused = |answer: &Result<crate::Written, WriteError>| {
        matches!(
            answer,
            Err(WriteError::ConditionFailed { current: Some(_) })
        )
    };
    t.clock.set_wall(instant(100));
    t.put(&at, "service").await;
    let refused = t.write_one(load("older", 50)).await;
    assert!(is_refused(&refused), "{refused:?}");
    t.clock.set_wall(instant(200));
    let first = applied(t.write_one(load("load 150", 150)).await);
    let again = applied(t.write_one(load("load 150", 150)).await);
    assert!(first.existed && again.version > first.version);
    t.clock.set_wall(instant(300));
    let refused = t.write_one(load("load 140", 140)).await;
    assert!(is_refused(&refused), "{refused:?}");
    let gone = delete(&at).when(Condition::NotNewerThan(instant(149)));
    let refused = t.write_one(gone).await;
    assert!(is_refused(&refused), "{refused:?}");
    applied(t.write_one(load("load 160", 160)).await);
    assert_eq!(t.value(&at).await.as_deref(), Some(&b"load 160"[..]));
    // A write of a service is of its own time again.
    t.put(&at, "service").await;
    let refused = t.write_one(load("load 290", 290)).await;
    assert!(is_refused(&refused), "{refused:?}");
    t.clock.set_wall(instant(400));
    let gone = delete(&at).when(Condition::NotNewerThan(instant(400)));
    applied(t.write_one(gone).await);
    applied(t.write_one(load("load 0", 0)).await);
    assert_eq!(t.value(&at).await.as_deref(), Some(&b"load 0"[..]));
}
