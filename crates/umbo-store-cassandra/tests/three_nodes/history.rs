//! What clients did to rows and saw of them, and whether that is linearizable for each row.
//!
//! Versions are the witness: each applied write has one of its own, and the order of versions has to be one that the
//! clients could have seen. A write whose outcome is unknown may be anywhere after its begin, or nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use umbo_types::{Row, Version};

/// One call of a client, with its place in the order of all begins and ends.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) row: usize,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// The row was read: its version and value, or nothing.
    Read(Option<(Version, String)>),
    /// A write was applied, and made this version and value, or number.
    Wrote(Write, Version, String),
    /// A write was answered as not applied.
    Refused(Write),
    /// A write has an unknown outcome.
    Unknown(Write),
}

/// What a write asks for.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Put(String),
    /// A value in the place of this version and value, and of no other.
    Replace(String, (Version, String)),
    Increment,
}

/// The calls of all clients.
#[derive(Debug, Default)]
pub(crate) struct History {
    events: AtomicU64,
    calls: Mutex<Vec<Call>>,
}

/// An applied write, as its client was told or as a read has shown.
struct Applied {
    begun: u64,
    value: String,
    over: Option<Version>,
}

impl Write {
    fn value(&self) -> Option<&String> {
        match self {
            Self::Put(value) | Self::Replace(value, _) => Some(value),
            Self::Increment => None,
        }
    }

    fn over(&self) -> Option<Version> {
        match self {
            Self::Replace(_, (version, _)) => Some(*version),
            Self::Put(_) | Self::Increment => None,
        }
    }
}

impl Call {
    /// Returns the line of the call for porcupine; `None` for what did nothing.
    fn line(&self) -> Option<String> {
        let (write, value, is_unknown) = match &self.what {
            What::Read(seen) => {
                let value = seen.as_ref().map_or("", |(_, value)| value);
                return Some(self.line_of("read", value, "", false));
            }
            What::Wrote(write, _, value) => (write, value.as_str(), false),
            What::Unknown(write) => (write, write.value().map_or("", |value| value), true),
            What::Refused(_) => return None,
        };
        Some(match write {
            Write::Put(_) => self.line_of("put", value, "", is_unknown),
            Write::Replace(_, (_, over)) => self.line_of("replace", value, over, is_unknown),
            Write::Increment => self.line_of("increment", value, "", is_unknown),
        })
    }

    /// Values are letters, digits and hyphens.
    fn line_of(&self, kind: &str, value: &str, over: &str, is_unknown: bool) -> String {
        let Self {
            row, begun, ended, ..
        } = self;
        format!(
            r#"{{"row":{row},"begun":{begun},"ended":{ended},"kind":"{kind}","value":"{value}","over":"{over}","is_unknown":{is_unknown}}}"#
        )
    }
}

/// Panics unless porcupine finds the calls linearizable, which knows of values only.
pub(crate) fn judge_by_porcupine<'a>(calls: impl Iterator<Item = &'a Call>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/linearizability");
    let lines: Vec<String> = calls.filter_map(Call::line).collect();
    let mut judge = Command::new("go")
        .args(["run", "."])
        .env("GOFLAGS", "-mod=readonly -buildvcs=false")
        .current_dir(folder)
        .stdin(Stdio::piped())
        .spawn()
        .expect("go is installed: tests/run does that");
    let mut input = judge.stdin.take().expect("it is piped");
    input
        .write_all(lines.join("\n").as_bytes())
        .expect("it reads");
    drop(input);
    let judged = judge.wait().expect("it ends");
    assert!(
        judged.success(),
        "porcupine does not find the calls linearizable"
    );
}

impl History {
    /// Returns the place of an event that begins or ends now.
    pub(crate) fn event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::SeqCst)
    }

    /// Notes a call that has ended.
    pub(crate) fn note(&self, row: usize, begun: u64, what: What) {
        let call = Call {
            row,
            begun,
            ended: self.event(),
            what,
        };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
    }

    /// Returns all calls of each row, in the order of their begins.
    pub(crate) fn by_row(&self) -> BTreeMap<usize, Vec<Call>> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = calls.clone();
        drop(calls);
        all.sort_by_key(|call| call.begun);
        let mut by_row: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
        for call in all {
            by_row.entry(call.row).or_default().push(call);
        }
        by_row
    }
}

/// Returns what a client was shown of a row.
pub(crate) fn shown(row: Option<Row>) -> What {
    What::Read(row.map(|row| {
        let value = String::from_utf8_lossy(&row.value.bytes).into_owned();
        (row.version, value)
    }))
}

/// Panics unless the calls of a row are linearizable. Each value is written once; those of a counter are its numbers.
pub(crate) fn check(calls: &[Call], is_counter: bool) {
    let applied = applied(calls, is_counter);
    check_real_time(calls);
    check_conditions(&applied);
    if is_counter {
        check_numbers(calls, &applied);
    }
}

/// Returns the applied writes by their versions: acknowledged ones, and those of unknown outcome that a read has seen.
fn applied(calls: &[Call], is_counter: bool) -> BTreeMap<Version, Applied> {
    let (mut applied, mut unknown, mut refused) =
        (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for call in calls {
        match &call.what {
            What::Wrote(write, version, value) => {
                let one = Applied {
                    begun: call.begun,
                    value: value.clone(),
                    over: write.over(),
                };
                let other = applied.insert(*version, one);
                assert!(other.is_none(), "a version was given twice: {call:?}");
            }
            What::Unknown(write) => unknown.extend(write.value().map(|value| (value, call.begun))),
            What::Refused(write) => refused.extend(write.value()),
            What::Read(_) => {}
        }
    }
    for call in calls {
        let What::Read(Some((version, value))) = &call.what else {
            continue;
        };
        assert!(
            !refused.contains(value),
            "a refused write is seen: {call:?}"
        );
        let write = applied.entry(*version).or_insert_with(|| {
            let begun = if is_counter {
                Some(0)
            } else {
                unknown.get(value).copied()
            };
            Applied {
                begun: begun.unwrap_or_else(|| panic!("a value that was never written: {call:?}")),
                value: value.clone(),
                over: None,
            }
        });
        assert_eq!(
            &write.value, value,
            "another value of the same version: {call:?}"
        );
        assert!(
            write.begun < call.ended,
            "a value before its write: {call:?}"
        );
    }
    applied
}

/// What has ended before a call begins has no later version than the call.
fn check_real_time(calls: &[Call]) {
    let mut by_end: Vec<&Call> = calls.iter().collect();
    by_end.sort_by_key(|call| call.ended);
    let (mut ends, mut latest) = (by_end.into_iter().peekable(), None);
    for call in calls {
        while let Some(ended) = ends.next_if(|ended| ended.ended < call.begun) {
            latest = latest.max(version_of(&ended.what));
        }
        let (is_write, seen) = match &call.what {
            What::Wrote(..) => (true, version_of(&call.what)),
            What::Read(_) => (false, version_of(&call.what)),
            What::Refused(_) | What::Unknown(_) => continue,
        };
        let is_later = if is_write {
            seen > latest
        } else {
            seen >= latest
        };
        assert!(is_later, "{latest:?} had been seen before {call:?}");
    }
}

fn version_of(what: &What) -> Option<Version> {
    match what {
        What::Wrote(_, version, _) => Some(*version),
        What::Read(seen) => seen.as_ref().map(|(version, _)| *version),
        What::Refused(_) | What::Unknown(_) => None,
    }
}

/// A conditional write follows the version that it is bound to.
fn check_conditions(applied: &BTreeMap<Version, Applied>) {
    let mut before = None;
    for (version, write) in applied {
        if let Some(over) = write.over {
            assert_eq!(
                before,
                Some(over),
                "{version:?} is not over the version of its condition"
            );
        }
        before = Some(*version);
    }
}

/// The numbers of a counter rise by one, and by one more for each increment of unknown outcome at most.
fn check_numbers(calls: &[Call], applied: &BTreeMap<Version, Applied>) {
    let unknown = calls
        .iter()
        .filter(|call| matches!(call.what, What::Unknown(_)))
        .count();
    let numbers: Vec<u64> = applied
        .values()
        .map(|write| write.value.parse().expect("a number"))
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let last = numbers.last().copied().unwrap_or_default();
    let missing = last - numbers.len() as u64;
    assert!(
        missing <= unknown as u64,
        "{missing} increments more than were sent"
    );
}

mod tests {
    use super::*;

    fn call(begun: u64, what: What) -> Call {
        let ended = begun + 1;
        Call {
            row: 0,
            begun,
            ended,
            what,
        }
    }

    fn wrote(begun: u64, version: u64, write: Write, value: &str) -> Call {
        call(
            begun,
            What::Wrote(write, Version(version), value.to_owned()),
        )
    }

    fn put(begun: u64, version: u64, value: &str) -> Call {
        wrote(begun, version, Write::Put(value.to_owned()), value)
    }

    fn saw(begun: u64, version: u64, value: &str) -> Call {
        let seen = (Version(version), value.to_owned());
        call(begun, What::Read(Some(seen)))
    }

    fn is_refused(judge: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(judge).is_err()
    }

    #[test]
    fn what_no_order_explains_is_found() {
        let replaced = |over| {
            let write = Write::Replace("c".to_owned(), (Version(over), "a".to_owned()));
            wrote(4, 3, write, "c")
        };
        let unknown = call(0, What::Unknown(Write::Put("b".to_owned())));
        check(&[put(0, 1, "a"), saw(2, 1, "a"), replaced(1)], false);
        check(&[unknown, put(0, 1, "a"), saw(2, 2, "b")], false);
        let wrong: [&[Call]; 5] = [
            &[put(0, 1, "a"), put(2, 2, "b"), saw(4, 1, "a")],
            &[put(0, 2, "a"), put(2, 1, "b")],
            &[put(0, 1, "a"), put(2, 2, "b"), replaced(1)],
            &[
                call(0, What::Refused(Write::Put("b".to_owned()))),
                saw(2, 2, "b"),
            ],
            &[saw(0, 1, "a"), put(2, 1, "a")],
        ];
        for calls in wrong {
            assert!(is_refused(|| check(calls, false)), "{calls:?}");
        }
        let counts = [(0, 1, "1"), (2, 2, "3")]
            .map(|(begun, version, number)| wrote(begun, version, Write::Increment, number));
        assert!(is_refused(|| check(&counts, true)), "{counts:?}");
    }

    #[test]
    fn porcupine_finds_an_old_value() {
        let calls = [put(0, 1, "a"), put(2, 2, "b"), saw(4, 2, "b")];
        judge_by_porcupine(calls.iter());
        let old = [put(0, 1, "a"), put(2, 2, "b"), saw(4, 2, "a")];
        assert!(is_refused(|| judge_by_porcupine(old.iter())));
    }
}
