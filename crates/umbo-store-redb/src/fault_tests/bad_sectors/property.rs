//! For any unreadable pages: acknowledged rows are there, and every row is at its key.

use std::collections::BTreeMap;

use proptest::prelude::*;
use umbo_store::{Atomicity, Change, Condition, Mutation, StoreReport};

use super::{
    FAR, ROWS, Rig, assert_unreadable, cold, file, filled, has_stranded, key, put, text, try_get,
    write,
};

const PAGE: u64 = 4_096;

#[derive(Debug, Clone)]
enum Step {
    /// Bytes that cannot be read from now on, as a part of the file.
    Break(prop::sample::Index),
    Put(Vec<u32>),
    Delete(Vec<u32>),
    Get(u32),
    Heal,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Rows that lie close together, so that pages are split and merged.
    let rows = || prop::collection::vec((0_u32..60).prop_map(|row| row * 7 + FAR / 2), 1..30);
    let step = prop_oneof![
        2 => any::<prop::sample::Index>().prop_map(Step::Break),
        4 => rows().prop_map(Step::Put),
        4 => rows().prop_map(Step::Delete),
        3 => (0..ROWS).prop_map(Step::Get),
        1 => Just(Step::Heal),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 10..40)
}

/// Breaks a leaf page of rows: other pages are needed by every commit.
fn break_leaf(rig: &Rig, part: prop::sample::Index) {
    let file = file(rig);
    let is_leaf = |at: &usize| {
        let page = &file[*at..*at + PAGE as usize];
        page[0] == 1 && memchr::memmem::find(page, b"value-").is_some()
    };
    let leaves: Vec<usize> = (0..file.len() - PAGE as usize)
        .step_by(PAGE as usize)
        .filter(is_leaf)
        .collect();
    let at = *part.get(&leaves) as u64;
    rig.files.break_sectors(at..at + 512);
}

fn delete(row: u32) -> Mutation {
    Mutation {
        key: key(row),
        change: Change::Delete,
        condition: Condition::Always,
    }
}

async fn run(steps: Vec<Step>) {
    let mut rig = filled().await;
    let mut twin: BTreeMap<u32, String> = (0..ROWS).map(|row| (row, text(row))).collect();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Break(part) => break_leaf(&rig, part),
            Step::Heal => rig.files.heal_sectors(),
            Step::Reopen => {
                // With its assertions for debugging redb reads the whole file at each opening.
                if cfg!(debug_assertions) {
                    rig.files.heal_sectors();
                }
                rig.reopen(cold).await;
            }
            Step::Get(row) => match try_get(&rig, row).await {
                Ok(found) => assert_eq!(found.as_ref(), twin.get(&row)),
                Err(error) => assert_unreadable(&error),
            },
            Step::Put(rows) => {
                let text = |row| format!("value-{row:05}-{number}-{}", "y".repeat(150));
                let batch = rows.iter().map(|&row| put(row, &text(row), None)).collect();
                let answers = write(&rig, batch, Atomicity::None).await;
                for (row, answer) in rows.into_iter().zip(answers) {
                    if answer.is_ok() {
                        twin.insert(row, text(row));
                    }
                }
            }
            Step::Delete(rows) => {
                let batch = rows.iter().map(|&row| delete(row)).collect();
                let answers = write(&rig, batch, Atomicity::None).await;
                for (row, answer) in rows.into_iter().zip(answers) {
                    if answer.is_ok() {
                        twin.remove(&row);
                    }
                }
            }
        }
    }
    rig.files.heal_sectors();
    rig.reopen(cold).await;
    if !has_stranded(&rig) {
        assert_eq!(rig.store.status()[0].rows, twin.len() as u64);
    }
    // The first commit puts stranded rows, which no size has yet, in their places.
    let again = vec![put(FAR, &twin[&FAR], None)];
    write(&rig, again, Atomicity::None).await.remove(0).unwrap();
    for row in 0..ROWS {
        assert_eq!(try_get(&rig, row).await.unwrap().as_ref(), twin.get(&row));
    }
    assert_eq!(rig.store.status()[0].rows, twin.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn after_healing_the_store_equals_its_twin(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(steps));
    }
}
