//! The oracle of loads: which values a read may return, by the writes of clients, the loads, and when each began and
//! ended.
//!
//! A version holds the rows of its load and the writes that came since the load was created. A write is out of date for
//! a read if another one, which was acknowledged before the read began, was sent after the first one had ended; a row
//! of a load is, if a write was sent after the load was created. Everything else may be seen: so the rules need no
//! order of what happened at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which a request of unknown outcome has no effect any more, unless it had it: the deadline of a request
/// and the time of a change of the records, with room.
pub(super) const LATE_MAX: Duration = Duration::from_secs(15);

/// The instant of a load is in milliseconds, and so are the writes that it is compared with.
const AS_OF_ERROR: Duration = Duration::from_millis(2);

/// A row: the number of its partition and its sort key.
pub(super) type RowId = (u64, u64);

/// A value; none where there is no row.
pub(super) type SeenValue = Option<String>;

/// A write of a row, by a client or by a load of mode merge.
#[derive(Debug)]
struct RowWrite {
    value: SeenValue,
    /// The write's place among others is between two instants: those of its request, or of the creation of its load.
    order: (Duration, Duration),
    sent: Duration,
    /// When its effect was there at the latest.
    ended: Duration,
    is_acknowledged: bool,
    /// When a later row of its load had replaced it at the latest.
    replaced: Duration,
    /// Whether it is of a load.
    is_merged: bool,
}

/// What a version has of its load.
#[derive(Debug)]
struct SimulatedVersion {
    number: u32,
    rows: BTreeMap<RowId, String>,
    /// When its load was asked for, and when it was there.
    asked: Duration,
    created: Duration,
    /// When it was first asked to be the live one.
    activated: Option<Duration>,
}

/// All versions and writes of a namespace.
#[derive(Debug)]
pub(super) struct SimulatedDatasets {
    versions: Vec<SimulatedVersion>,
    writes: BTreeMap<RowId, Vec<RowWrite>>,
    /// The version that is the live one in the end.
    pub(super) live: u32,
    /// Reads that were checked.
    pub(super) reads: u64,
}

impl SimulatedDatasets {
    /// Begins with the first version, which is empty and live.
    pub(super) fn new() -> Self {
        Self {
            versions: vec![SimulatedVersion {
                number: 1,
                rows: BTreeMap::new(),
                asked: Duration::ZERO,
                created: Duration::ZERO,
                activated: Some(Duration::ZERO),
            }],
            writes: BTreeMap::new(),
            live: 1,
            reads: 0,
        }
    }

    /// Records that a write is sent. Returns its number within the row.
    pub(super) fn begin(&mut self, row: RowId, value: SeenValue, now: Duration) -> usize {
        let writes = self.writes.entry(row).or_default();
        writes.push(RowWrite {
            value,
            order: (now, Duration::MAX),
            sent: now,
            ended: Duration::MAX,
            is_acknowledged: false,
            replaced: Duration::MAX,
            is_merged: false,
        });
        writes.len() - 1
    }

    /// Records a row of a load of mode merge that is applied from now on. The load was created between two instants.
    /// Returns the number of the write, which ends with the load.
    pub(super) fn merge(
        &mut self,
        row: RowId,
        value: String,
        (asked, created): (Duration, Duration),
        now: Duration,
    ) -> usize {
        let write = self.begin(row, Some(value), now);
        let merged = &mut self.writes.entry(row).or_default()[write];
        merged.order = (asked.saturating_sub(AS_OF_ERROR), created + AS_OF_ERROR);
        merged.is_merged = true;
        write
    }

    /// Records the end of a write: whether it was applied, none where that is unknown.
    pub(super) fn end(&mut self, row: RowId, write: usize, applied: Option<bool>, now: Duration) {
        let write = &mut self.writes.entry(row).or_default()[write];
        match applied {
            Some(true) => (write.is_acknowledged, write.ended) = (true, now),
            // A write that was not applied has no effect: as if it were never sent.
            Some(false) => write.sent = Duration::MAX,
            None => write.ended = now + LATE_MAX,
        }
        write.order.1 = write.order.1.min(write.ended);
    }

    /// Records that a later row of the same load has replaced one of a load of mode merge by now.
    pub(super) fn replace(&mut self, row: RowId, write: usize, now: Duration) {
        self.writes.entry(row).or_default()[write].replaced = now;
    }

    /// Records a version that a load builds, which was created between two instants.
    pub(super) fn create(&mut self, number: u32, (asked, created): (Duration, Duration)) {
        self.versions.push(SimulatedVersion {
            number,
            rows: BTreeMap::new(),
            asked,
            created,
            activated: None,
        });
    }

    /// Records the rows of the load that builds a version.
    pub(super) fn fill(&mut self, number: u32, rows: BTreeMap<RowId, String>) {
        self.version(number).rows = rows;
    }

    /// Records that a version is asked to be the live one.
    pub(super) fn activate(&mut self, number: u32, now: Duration) {
        self.version(number).activated.get_or_insert(now);
    }

    fn version(&mut self, number: u32) -> &mut SimulatedVersion {
        let found = self.versions.iter_mut().find(|one| one.number == number);
        found.expect("the loader names only versions that it has created")
    }

    /// Checks what a read from `sent` to `ended` has returned: all of it is of one version, and nothing is out of date.
    /// The version is `only`, or where that is none, any that may have been live by then: a dispatcher may not know the
    /// newest one. Returns why not.
    pub(super) fn check(
        &mut self,
        seen: &[(RowId, SeenValue)],
        (sent, ended): (Duration, Duration),
        only: Option<u32>,
    ) -> Result<(), String> {
        self.reads += 1;
        let mut reasons = String::new();
        for version in &self.versions {
            let may_be_live = match only {
                Some(only) => version.number == only,
                None => version.activated.is_some_and(|at| at <= ended),
            };
            if !may_be_live {
                continue;
            }
            let wrong = seen
                .iter()
                .find(|(row, value)| !self.may_be(version, *row, value.as_ref(), (sent, ended)));
            let Some(((partition, sort), value)) = wrong else {
                return Ok(());
            };
            let text = format!(
                " version {} has no {value:?} as p{partition}/k{sort};",
                version.number
            );
            reasons.push_str(&text);
        }
        Err(reasons)
    }

    fn may_be(
        &self,
        version: &SimulatedVersion,
        row: RowId,
        value: Option<&String>,
        (sent, ended): (Duration, Duration),
    ) -> bool {
        let none = Vec::new();
        let writes = self.writes.get(&row).unwrap_or(&none);
        let is_replaced_since = |since: Duration| {
            let newer = |write: &&RowWrite| {
                write.is_acknowledged && write.order.0 > since && write.ended < sent
            };
            writes.iter().rev().any(|write| newer(&write))
        };
        let is_loaded = version.rows.get(&row) == value && !is_replaced_since(version.created);
        let may_be_seen = |write: &&RowWrite| {
            write.value.as_ref() == value
                && write.sent <= ended
                && write.ended >= version.asked
                && write.replaced >= sent
        };
        let is_newest = |write: &RowWrite| {
            // A removal leaves nothing that a row of a merge could be compared with, so one that comes before the end
            // of the load hides older writes from it, and does not keep it out.
            let is_removal = |other: &RowWrite| {
                other.value.is_none() && other.sent <= write.ended && other.ended >= write.order.0
            };
            let since = if write.is_merged && writes.iter().any(is_removal) {
                write.ended
            } else {
                write.order.1
            };
            !is_replaced_since(since)
        };
        is_loaded || writes.iter().rev().filter(may_be_seen).any(is_newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: RowId = (0, 1);
    const OTHER: RowId = (0, 2);

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Version 1 with an acknowledged write of 10 to 20 ms, and version 2 with both rows, created at 30 to 40 ms.
    fn datasets() -> SimulatedDatasets {
        let mut datasets = SimulatedDatasets::new();
        let write = datasets.begin(ROW, Some("old".to_owned()), at(10));
        datasets.end(ROW, write, Some(true), at(20));
        let rows = [(ROW, "loaded".to_owned()), (OTHER, "other".to_owned())];
        datasets.create(2, (at(30), at(40)));
        datasets.fill(2, rows.into());
        datasets
    }

    fn sees(datasets: &mut SimulatedDatasets, value: Option<&str>, only: u32) -> bool {
        let seen = [(ROW, value.map(str::to_owned))];
        datasets
            .check(&seen, (at(100), at(110)), Some(only))
            .is_ok()
    }

    #[test]
    fn a_version_has_the_rows_of_its_load_and_no_older_writes() {
        let mut datasets = datasets();
        assert!(sees(&mut datasets, Some("loaded"), 2));
        assert!(!sees(&mut datasets, Some("old"), 2));
        assert!(!sees(&mut datasets, None, 2));
        assert!(sees(&mut datasets, Some("old"), 1));
        assert!(!sees(&mut datasets, Some("loaded"), 1));
        assert!(!sees(&mut datasets, None, 1));
    }

    #[test]
    fn a_write_since_the_creation_is_in_both_versions_and_wins() {
        for (value, acknowledged) in [(Some("new"), true), (None, true), (Some("new"), false)] {
            let mut datasets = datasets();
            let write = datasets.begin(ROW, value.map(str::to_owned), at(50));
            datasets.end(ROW, write, acknowledged.then_some(true), at(60));
            for version in [1, 2] {
                assert!(sees(&mut datasets, value, version));
            }
            assert_eq!(sees(&mut datasets, Some("loaded"), 2), !acknowledged);
            assert_eq!(sees(&mut datasets, Some("old"), 1), !acknowledged);
        }
    }

    #[test]
    fn a_write_at_the_same_time_as_the_creation_may_be_in_it_or_not() {
        let mut datasets = datasets();
        let write = datasets.begin(ROW, Some("new".to_owned()), at(35));
        datasets.end(ROW, write, Some(true), at(60));
        assert!(sees(&mut datasets, Some("new"), 2));
        assert!(sees(&mut datasets, Some("loaded"), 2));
        assert!(!sees(&mut datasets, Some("old"), 1));
    }

    #[test]
    fn a_refused_write_is_never_seen_and_replaces_nothing() {
        let mut datasets = datasets();
        let write = datasets.begin(ROW, Some("refused".to_owned()), at(50));
        datasets.end(ROW, write, Some(false), at(60));
        assert!(!sees(&mut datasets, Some("refused"), 1));
        assert!(sees(&mut datasets, Some("old"), 1));
        assert!(sees(&mut datasets, Some("loaded"), 2));
    }

    #[test]
    fn a_row_of_a_merge_replaces_older_writes_and_no_newer_ones() {
        let mut datasets = datasets();
        let merged = datasets.merge(ROW, "merged".to_owned(), (at(50), at(60)), at(62));
        assert!(sees(&mut datasets, Some("merged"), 1));
        assert!(sees(&mut datasets, Some("old"), 1));
        datasets.end(ROW, merged, Some(true), at(90));
        assert!(sees(&mut datasets, Some("merged"), 2));
        assert!(!sees(&mut datasets, Some("old"), 1));
        assert!(!sees(&mut datasets, Some("loaded"), 2));
        // Before the rows of the merge were there, and after its creation.
        let write = datasets.begin(ROW, Some("new".to_owned()), at(70));
        datasets.end(ROW, write, Some(true), at(80));
        assert!(sees(&mut datasets, Some("new"), 1));
        assert!(!sees(&mut datasets, Some("merged"), 1));
        // A row that was removed before the end of the load may be of the load again.
        let write = datasets.begin(ROW, None, at(82));
        datasets.end(ROW, write, Some(true), at(88));
        assert!(sees(&mut datasets, Some("merged"), 1));
        assert!(sees(&mut datasets, None, 1));
        assert!(!sees(&mut datasets, Some("new"), 1));
        let write = datasets.begin(ROW, None, at(92));
        datasets.end(ROW, write, Some(true), at(95));
        assert!(!sees(&mut datasets, Some("merged"), 1));
    }

    #[test]
    fn an_answer_is_of_one_version_that_was_activated() {
        let mut datasets = datasets();
        let mut sees = |row: &str, other: Option<&str>, is_activated: bool| {
            if is_activated {
                datasets.activate(2, at(90));
            }
            let rows = [
                (ROW, Some(row.to_owned())),
                (OTHER, other.map(str::to_owned)),
            ];
            datasets.check(&rows, (at(100), at(110)), None).is_ok()
        };
        assert!(!sees("loaded", Some("other"), false));
        assert!(sees("old", None, false));
        assert!(sees("loaded", Some("other"), true));
        assert!(sees("old", None, true));
        assert!(!sees("old", Some("other"), true));
        assert!(!sees("loaded", None, true));
    }
}
