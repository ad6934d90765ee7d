//! Files against the history they were written from, whole, cut off at each byte, and damaged.

use umbo_api::observe::EventKind;

use super::*;
use crate::history::{Level, Range};
use crate::metric_names::CALLER_REQUEST_UNITS;

const BEGIN: u64 = 1_800_000_000;

fn key(label: &str) -> SeriesKey {
    SeriesKey::new(&CALLER_REQUEST_UNITS.history[0], label)
}

/// Records an hour and ten minutes, and appends every minute.
fn written(folder: &Path) -> (History, Vec<Event>) {
    let mut history = History::new();
    let (mut files, restored) = HistoryFiles::open(folder, BEGIN, &mut history).unwrap();
    assert!(restored.damaged.is_empty() && restored.events.is_empty());
    let mut events = Vec::new();
    for second in BEGIN..BEGIN + 4_200 {
        let value = f64::from((second % 977) as u32);
        history.record(second, [(key("a"), value), (key("ü"), value / 3.0)]);
        if second % 60 == 59 {
            let id = second * 1_000 * 1_024;
            let event = Event::new(second * 1_000, EventKind::NodeLost, "b", "away");
            events.push(Event { id, ..event });
            let blocks = files.blocks(&history, &events, false);
            files.append(blocks).unwrap();
        }
    }
    (history, events)
}

fn reopened(folder: &Path) -> (History, Restored) {
    let mut history = History::new();
    let (_, restored) = HistoryFiles::open(folder, BEGIN + 4_230, &mut history).unwrap();
    (history, restored)
}

#[test]
fn a_restart_keeps_the_steps_and_the_events() {
    let folder = tempfile::tempdir().unwrap();
    let (history, events) = written(folder.path());
    let (again, restored) = reopened(folder.path());
    assert_eq!(restored.events, events);
    for (level, Level { step_seconds, .. }) in LEVELS.into_iter().enumerate().skip(1) {
        let end = (BEGIN + 4_200) / step_seconds;
        for step in BEGIN / step_seconds..end {
            let expected: Vec<_> = history.step(level, step).collect();
            let restored: Vec<_> = again.step(level, step).collect();
            // Ten minutes that were not in a block yet are made of the steps within, which were rounded.
            for ((key, value), (other, restored)) in expected.iter().zip(&restored) {
                assert_eq!(key, other);
                assert!(
                    (value - restored).abs() <= value * 1e-5,
                    "{level} {step} {value} {restored}"
                );
            }
            assert_eq!(expected.len(), restored.len(), "{level} {step}");
        }
    }
    // What was not running has no values.
    let view = again.view(Range::Hour, |_| true);
    assert_eq!(view.series[0].values.last(), Some(&None));
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_read_up_to_there_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let (_, path) = newest(folder.path());
    let whole = fs::read(&path).unwrap();
    for len in (0..whole.len()).rev().step_by(41) {
        fs::write(&path, &whole[..len]).unwrap();
        let (_, restored) = reopened(folder.path());
        assert!(restored.damaged.is_empty(), "{len}");
        // What is left is whole blocks: it opens again without a cut.
        let left = fs::metadata(&path).unwrap().len();
        assert!(left <= len as u64);
        reopened(folder.path());
        assert_eq!(fs::metadata(&path).unwrap().len(), left);
    }
}

#[test]
fn a_damaged_file_is_set_aside_and_what_is_before_the_damage_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (history, _) = written(folder.path());
    let (first, path) = newest(folder.path());
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (again, restored) = reopened(folder.path());
    assert_eq!(restored.damaged, [folder.path().join("1.damaged")]);
    assert!(!path.exists());
    let begin = (BEGIN / 10).max(first);
    assert_eq!(again.step(1, begin).count(), history.step(1, begin).count());
    assert_eq!(again.step(1, (BEGIN + 4_190) / 10).count(), 0);
    assert!(reopened(folder.path()).1.damaged.is_empty());
}

fn newest(folder: &Path) -> (u64, PathBuf) {
    let files = HistoryFiles {
        folder: folder.to_owned(),
        next: [0; LEVELS.len()],
        last_event: 0,
    };
    files.of_level(1).unwrap().pop().unwrap()
}

#[test]
fn files_that_are_too_old_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let mut history = History::new();
    let later = BEGIN + 3 * 86_400;
    HistoryFiles::open(folder.path(), later, &mut history).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| name.to_str().unwrap().starts_with("2-")),
        "{names:?}"
    );
    assert!(history.view(Range::Month, |_| true).series.len() == 2);
}

#[test]
fn an_orderly_end_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::new();
    let (mut files, _) = HistoryFiles::open(folder.path(), BEGIN, &mut history).unwrap();
    for second in BEGIN..BEGIN + 30 {
        history.record(second, [(key("a"), 5.0)]);
    }
    let blocks = files.blocks(&history, &[], true);
    files.append(blocks).unwrap();
    let mut again = History::new();
    let (mut files, _) = HistoryFiles::open(folder.path(), BEGIN + 50, &mut again).unwrap();
    for second in BEGIN + 50..BEGIN + 130 {
        again.record(second, [(key("a"), 6.0)]);
        let blocks = files.blocks(&again, &[], false);
        files.append(blocks).unwrap();
    }
    let (history, _) = reopened(folder.path());
    let values: Vec<_> = (0..13)
        .map(|at| history.step(1, BEGIN / 10 + at).next())
        .collect();
    let values: Vec<_> = values
        .iter()
        .map(|found| found.as_ref().map(|(_, value)| *value))
        .collect();
    let (before, after) = (Some(5.0), Some(6.0));
    let expected = [
        before, before, before, None, None, after, after, after, after, after, after, after,
    ];
    assert_eq!(values[..12], expected);
}
