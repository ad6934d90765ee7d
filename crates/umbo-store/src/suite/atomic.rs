//! Atomic groups: all mutations of a partition, or none.

use umbo_types::limits::ATOMIC_ROWS_MAX;

use crate::suite::Engine;
use crate::suite::subject::{
    NS, TestSubject, WriteResult, applied, delete, everything, key, put, whole,
};
use crate::{Condition, Outcome, WriteError};

/// Checks that exactly `group` was refused because of `refused`.
fn assert_aborted(answers: &[WriteResult], group: &[usize], refused: usize) {
    for &index in group {
        let error = answers[index].clone().expect_err("the group was refused");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        if index == refused {
            assert!(matches!(error, WriteError::ConditionFailed { .. }));
        } else {
            assert_eq!(error, WriteError::GroupAborted { index: refused });
        }
    }
}

/// A group without a refused mutation is applied, and answered in order.
pub async fn a_group_is_applied_together<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    t.put(&key("p", "old"), "v").await;
    let mut mutations: Vec<_> = (0..ATOMIC_ROWS_MAX - 1)
        .map(|n| put(&key("p", n.to_be_bytes()), n.to_be_bytes()))
        .collect();
    mutations.push(delete(&key("p", "old")).when(Condition::Present));
    let answers = t.write_atomic(mutations).await;
    assert_eq!(answers.len(), ATOMIC_ROWS_MAX);
    assert!(applied(answers[ATOMIC_ROWS_MAX - 1].clone()).existed);
    let rows = t.walk(&whole("p")).await;
    assert_eq!(rows.len(), ATOMIC_ROWS_MAX - 1);
    for (row, answer) in rows.iter().zip(answers) {
        assert_eq!(row.version, applied(answer).version);
        assert_eq!(row.value, row.sort);
    }
}

/// A group of which one mutation is refused has no effect, wherever that mutation is.
pub async fn a_refused_group_leaves_no_trace<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    for sort in ["a", "b", "c"] {
        t.put(&key("p", sort), "old").await;
    }
    let before = t.walk(&whole("p")).await;
    for refused in 0..5 {
        let mut mutations = vec![
            put(&key("p", "a"), "new"),
            delete(&key("p", "b")),
            put(&key("p", "d"), "new"),
            delete(&key("p", "absent")),
        ];
        let hindrance = put(&key("p", "c"), "new").when(Condition::Absent);
        mutations.insert(refused, hindrance);
        let answers = t.write_atomic(mutations).await;
        assert_aborted(&answers, &[0, 1, 2, 3, 4], refused);
        let current = before.last().map(|row| row.version);
        assert_eq!(
            answers[refused],
            Err(WriteError::ConditionFailed { current })
        );
        assert_eq!(t.walk(&whole("p")).await, before);
    }
    let answers = t
        .write_atomic(vec![
            put(&key("q", "new"), "v"),
            delete(&key("q", "x")).when(Condition::Present),
        ])
        .await;
    assert_aborted(&answers, &[0, 1], 1);
    assert_eq!(t.walk(&whole("q")).await, []);
    assert_eq!(t.scan(&everything(NS)).await.len(), 3);
}

/// The groups of different partitions are independent, however they are mixed.
pub async fn groups_of_partitions_are_independent<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let partitions = 12;
    // Mutation n is row n / partitions of partition n % partitions; odd partitions are refused at
    // their row 2.
    let is_refused = |partition: usize| partition % 2 == 1;
    let at = |n: usize| key(format!("p{}", n % partitions), [(n / partitions) as u8]);
    let mutations = (0..5 * partitions).map(|n| {
        let mutation = put(&at(n), "v");
        if is_refused(n % partitions) && n / partitions == 2 {
            mutation.when(Condition::Present)
        } else {
            mutation.when(Condition::Absent)
        }
    });
    let answers = t.write_atomic(mutations.collect()).await;
    for partition in 0..partitions {
        let group: Vec<usize> = (0..5).map(|row| row * partitions + partition).collect();
        let rows = t.walk(&whole(format!("p{partition}"))).await;
        if is_refused(partition) {
            assert_aborted(&answers, &group, group[2]);
            assert_eq!(rows, []);
        } else {
            assert!(group.iter().all(|&index| answers[index].is_ok()));
            assert_eq!(rows.len(), 5);
        }
    }
}

/// Within a group each mutation sees the ones before; the effect of a refused group is not reported.
pub async fn a_group_sees_its_own_mutations<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let answers = t
        .write_atomic(vec![
            put(&at, "1").when(Condition::Absent),
            put(&at, "2").when(Condition::Present),
            delete(&at).when(Condition::Present),
            put(&at, "3").when(Condition::Absent),
        ])
        .await;
    let versions: Vec<_> = answers.into_iter().map(|a| applied(a).version).collect();
    assert!(versions.is_sorted_by(|one, next| one < next));
    let row = t.get(&at).await.expect("the last put stays");
    assert_eq!(
        (row.version, &row.value.bytes[..]),
        (versions[3], &b"3"[..])
    );

    let answers = t
        .write_atomic(vec![
            put(&at, "4"),
            delete(&at),
            put(&at, "5"),
            put(&at, "6").when(Condition::Absent),
        ])
        .await;
    assert_aborted(&answers, &[0, 1, 2, 3], 3);
    let current = Some(row.version);
    assert_eq!(answers[3], Err(WriteError::ConditionFailed { current }));
    assert_eq!(t.get(&at).await, Some(row));
}
