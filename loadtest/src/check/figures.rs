//! The record of figures that a busy machine cannot change: `figures.toml` has the bound and the last value of each,
//! and the versions by which it was counted.
//!
//! A figure must hold its bound, and must not be worse than its last value. A better one is recorded by a command, in
//! the commit that earned it; a bound stands in the check too, so that raising one is a change of both. Other versions
//! of the compiler or of the library make other figures, so there only the bounds are held, and that is said.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use toml::{Table, Value};

use crate::failure::Failure;
use crate::verdict::{Bound, Verdict};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/figures.toml");
const HEAD: &str = "\
# Figures that a busy machine cannot change: `umbo-loadtest check --counted` holds each to its bound and to its last
# value. `umbo-loadtest check --counted --record` records better ones. A worse one is written by hand, with the reason in
# the commit. The bounds stand in the checks, too. `short` marks a figure that falls short of its bound: until it is
# mended, only its last value is held.
";

/// A recorded figure.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Recorded {
    bound: Bound,
    last: f64,
    /// Whether the figure is known to fall short of its bound: then only its last value is held.
    is_short: bool,
}

/// Versions of everything that figures depend on.
type Versions = BTreeMap<String, String>;

/// The record.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Record {
    versions: Versions,
    figures: BTreeMap<String, Recorded>,
}

/// What became of the figures of a run.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// Why the run fails.
    pub(super) complaints: Vec<String>,
    /// What else is to be said.
    pub(super) notes: Vec<String>,
}

impl Record {
    /// Reads the record; it is empty where there is no file.
    pub(super) fn read() -> Result<Self, Failure> {
        match std::fs::read_to_string(PATH) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::io(PATH)(error)),
        }
    }

    /// Writes the record.
    pub(super) fn write(&self) -> Result<(), Failure> {
        std::fs::write(PATH, self.text()).map_err(Failure::io(PATH))
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::Contradiction(format!("{PATH}: {what}"));
        let table: Table = text.parse().map_err(|error| wrong(&format!("{error}")))?;
        let section = |name: &str| {
            let section = table.get(name).and_then(Value::as_table);
            section.ok_or_else(|| wrong(&format!("there is no section {name}")))
        };
        let mut record = Self::default();
        for (name, version) in section("versions")? {
            let version = version.as_str().ok_or_else(|| wrong(name))?;
            record.versions.insert(name.clone(), version.to_owned());
        }
        for (name, figure) in section("figures")? {
            let number = |key: &str| match figure.get(key) {
                Some(Value::Float(number)) => Some(*number),
                Some(Value::Integer(number)) => Some(*number as f64),
                _ => None,
            };
            let bound = match (number("at_most"), number("at_least")) {
                (Some(most), None) => Bound::AtMost(most),
                (None, Some(least)) => Bound::AtLeast(least),
                _ => return Err(wrong(name)),
            };
            let recorded = Recorded {
                bound,
                last: number("last").ok_or_else(|| wrong(name))?,
                is_short: figure.get("short").and_then(Value::as_bool) == Some(true),
            };
            record.figures.insert(name.clone(), recorded);
        }
        Ok(record)
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}\n[versions]\n");
        for (name, version) in &self.versions {
            let _ = writeln!(text, "{name} = \"{version}\"");
        }
        text.push_str("\n[figures]\n");
        for (name, recorded) in &self.figures {
            let (last, short) = (
                recorded.last,
                if recorded.is_short {
                    ", short = true"
                } else {
                    ""
                },
            );
            let bound = match recorded.bound {
                Bound::AtMost(bound) => format!("at_most = {bound}"),
                Bound::AtLeast(bound) => format!("at_least = {bound}"),
                Bound::Nothing => continue,
            };
            let _ = writeln!(text, "\"{name}\" = {{ {bound}, last = {last}{short} }}");
        }
        text
    }

    /// Holds figures to the record, and takes the better ones into it. `is_all` says that no figure is missing.
    pub(super) fn judge(
        &mut self,
        verdicts: &[Verdict],
        versions: Versions,
        is_all: bool,
    ) -> Judgement {
        let mut judgement = Judgement::default();
        let changed = self.changed(&versions);
        let has_last = changed.is_empty();
        if !has_last {
            judgement.notes.push(format!(
                "The last values were counted with {}: only the bounds are held. Record these figures anew.",
                changed.join(", ")
            ));
            self.versions = versions;
        }
        let mut found = BTreeMap::new();
        for verdict in verdicts {
            let bound = verdict.bound();
            if bound == Bound::Nothing {
                continue;
            }
            let name = verdict.name().to_owned();
            let last = (verdict.measured() * 1e6).round() / 1e6;
            let is_short = self
                .figures
                .get(&name)
                .is_some_and(|before| before.is_short);
            let now = Recorded {
                bound,
                last,
                is_short: is_short && !verdict.holds(),
            };
            match (verdict.holds(), is_short) {
                (true, false) => {}
                (false, true) => judgement
                    .notes
                    .push(format!("{name}: {last} falls short, as is recorded")),
                (true, true) => judgement
                    .complaints
                    .push(format!("{name}: holds, and is recorded as short")),
                (false, false) => judgement
                    .complaints
                    .push(format!("{name}: {last} falls short of its bound")),
            }
            match self.figures.get(&name) {
                None => judgement
                    .notes
                    .push(format!("{name}: {last} is not recorded")),
                Some(before) if before.bound != bound => judgement.complaints.push(format!(
                    "{name}: the bound of the check is {bound:?}, and that of the record {:?}",
                    before.bound
                )),
                Some(before) if has_last => judgement.compare(&name, *before, now, verdict.slack()),
                Some(_) => {}
            }
            if found.insert(name.clone(), now).is_some() {
                judgement
                    .complaints
                    .push(format!("{name}: two figures have this name"));
            }
        }
        if is_all {
            let missing = self
                .figures
                .keys()
                .filter(|name| !found.contains_key(*name));
            let missing = missing.map(|name| format!("{name}: is recorded, and was not counted"));
            judgement.complaints.extend(missing);
            self.figures.retain(|name, _| found.contains_key(name));
        }
        for (name, now) in found {
            let kept = self.figures.get(&name).filter(|_| has_last);
            if !kept.is_some_and(|kept| kept.bound == now.bound && !is_better(now, *kept)) {
                self.figures.insert(name, now);
            }
        }
        judgement
    }

    /// Returns the versions that are not those of the record, with both.
    fn changed(&self, versions: &Versions) -> Vec<String> {
        let none = String::new();
        let changed = versions.iter().filter_map(|(name, now)| {
            let before = self.versions.get(name).unwrap_or(&none);
            (before != now).then(|| format!("{name} {before} (here: {now})"))
        });
        changed.collect()
    }
}

impl Judgement {
    fn compare(&mut self, name: &str, before: Recorded, now: Recorded, slack: f64) {
        let share = slack / 100.0;
        let (worse, last) = match now.bound {
            Bound::AtMost(_) => (now.last > before.last * (1.0 + share), before.last),
            Bound::AtLeast(_) => (now.last < before.last * (1.0 - share), before.last),
            Bound::Nothing => return,
        };
        if worse || now.last.is_nan() {
            let now = now.last;
            self.complaints.push(format!(
                "{name}: {now} is worse than its last value, {last}"
            ));
        } else if is_better(now, before) {
            let now = now.last;
            self.notes.push(format!(
                "{name}: {now} is better than its last value, {last}"
            ));
        }
    }
}

fn is_better(now: Recorded, before: Recorded) -> bool {
    match now.bound {
        Bound::AtMost(_) => now.last < before.last,
        Bound::AtLeast(_) => now.last > before.last,
        Bound::Nothing => false,
    }
}

/// Returns the versions of this machine. The processor is one of them: the library copies memory as it can.
pub(super) fn versions() -> Result<Versions, Failure> {
    let mut versions = Versions::new();
    let commands: [(&str, &[&str], usize); 3] = [
        ("rustc", &["rustc", "--version"], 1),
        ("libc", &["getconf", "GNU_LIBC_VERSION"], 1),
        ("valgrind", &["valgrind", "--version"], 0),
    ];
    for (name, command, word) in commands {
        let output = Command::new(command[0]).args(&command[1..]).output();
        let output = output.map_err(Failure::io(command[0]))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().nth(word).unwrap_or("unknown");
        let version = version.trim_start_matches("valgrind-");
        versions.insert(name.to_owned(), version.to_owned());
    }
    versions.insert("processor".to_owned(), processor().to_owned());
    Ok(versions)
}

/// Returns by which instructions the library copies and compares memory.
#[cfg(target_arch = "x86_64")]
fn processor() -> &'static str {
    if std::arch::is_x86_feature_detected!("avx2") {
        "x86_64 with AVX2"
    } else {
        "x86_64"
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> &'static str {
    std::env::consts::ARCH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(rustc: &str) -> Versions {
        Versions::from([("rustc".to_owned(), rustc.to_owned())])
    }

    fn record(last: f64) -> Record {
        let mut record = Record::default();
        let bound = Bound::AtMost(10.0);
        record.versions = versions("1");
        record.figures.insert(
            "a".to_owned(),
            Recorded {
                bound,
                last,
                is_short: false,
            },
        );
        record
    }

    #[test]
    fn a_figure_that_is_recorded_as_short_is_held_to_its_last_value() {
        let short = |figure| {
            let mut record = record(12.0);
            record
                .figures
                .values_mut()
                .for_each(|figure| figure.is_short = true);
            complaints(&mut record, verdict(10.0, figure), "1")
        };
        assert_eq!([12.0, 13.0, 9.0].map(short), [0, 1, 1]);
    }

    fn verdict(most: f64, figure: f64) -> Verdict {
        Verdict::one("a", Bound::AtMost(most), figure, "").with_slack(2.0)
    }

    fn complaints(record: &mut Record, verdict: Verdict, rustc: &str) -> usize {
        record
            .judge(&[verdict], versions(rustc), true)
            .complaints
            .len()
    }

    #[test]
    fn a_figure_holds_its_bound_and_its_last_value() {
        let worse = |figure| complaints(&mut record(5.0), verdict(10.0, figure), "1");
        assert_eq!([5.0, 5.1, 4.0].map(worse), [0; 3]);
        assert_eq!([5.11, f64::NAN].map(worse), [1, 2]);
        assert_eq!(complaints(&mut record(9.9), verdict(10.0, 10.05), "1"), 1);
    }

    #[test]
    fn other_versions_hold_bounds_only_and_say_so() {
        let judged = record(5.0).judge(&[verdict(10.0, 9.0)], versions("2"), true);
        assert!(judged.complaints.is_empty());
        assert!(judged.notes[0].contains("rustc 1 (here: 2)"), "{judged:?}");
        assert_eq!(complaints(&mut record(5.0), verdict(10.0, 11.0), "2"), 1);
    }

    #[test]
    fn a_bound_that_is_changed_in_one_place_is_told() {
        assert_eq!(complaints(&mut record(5.0), verdict(20.0, 5.0), "1"), 1);
    }

    #[test]
    fn better_ones_are_taken_and_worse_ones_are_not() {
        for (figure, kept) in [(4.0, 4.0), (5.05, 5.0), (9.0, 5.0)] {
            let mut record = record(5.0);
            record.judge(&[verdict(10.0, figure)], versions("1"), true);
            assert!((record.figures["a"].last - kept).abs() < 1e-9);
        }
        let mut record = record(5.0);
        record.judge(&[verdict(10.0, 9.0)], versions("2"), true);
        assert!((record.figures["a"].last - 9.0).abs() < 1e-9);
        assert_eq!(record.versions, versions("2"));
    }

    #[test]
    fn a_recorded_figure_that_is_not_counted_is_missed() {
        let mut record = record(5.0);
        assert!(
            record
                .judge(&[], versions("1"), false)
                .complaints
                .is_empty()
        );
        assert_eq!(record.judge(&[], versions("1"), true).complaints.len(), 1);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = record(0.25);
        let bound = Bound::AtLeast(1.0);
        record.figures.insert(
            "b, c: d".to_owned(),
            Recorded {
                bound,
                last: 7.0,
                is_short: true,
            },
        );
        assert_eq!(Record::parse(&record.text()).unwrap(), record);
    }
}
