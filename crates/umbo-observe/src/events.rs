//! Events: changes by operators, and happenings in the process and at its shard nodes.
//!
//! Two lists: changes are kept and bounded by Umbo's own records, and have the same ids on every dispatcher; happenings
//! are of this process. Happenings have a separate bound, so that a node that comes and goes all day pushes out no
//! change. Ids of happenings begin with the time, so that they grow over a restart and can be compared
//! between dispatchers.

use std::collections::VecDeque;
use std::fmt;

use umbo_api::observe::Event;

/// Most happenings that are kept: a few hundred bytes each.
const HAPPENINGS_MAX: usize = 1_000;
/// Ids that one millisecond has room for.
const IDS_PER_MILLISECOND: u64 = 1_024;

/// A place behind events, on any dispatcher: behind the changes up to one, and behind the happenings up to a time.
///
/// Another dispatcher continues with all changes that follow, and with its own happenings since that time, by its own
/// clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCursor {
    change: u64,
    happening: u64,
}

impl EventCursor {
    /// Reads a cursor as [`Display`](fmt::Display) writes it, or `0`, which is before all events.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text == b"0" {
            return Some(Self::default());
        }
        let (change, happening) = std::str::from_utf8(text).ok()?.split_once('-')?;
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain)
        };
        Some(Self {
            change: number(change)?,
            happening: number(happening)?,
        })
    }

    /// Returns whether there may be events after `other` that are not after this cursor.
    pub fn is_after(self, other: Self) -> bool {
        self.change > other.change || self.happening > other.happening
    }

    /// Returns the cursor behind all that is before either.
    #[must_use]
    pub fn later_of(self, other: Self) -> Self {
        Self {
            change: self.change.max(other.change),
            happening: self.happening.max(other.happening),
        }
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.change, self.happening)
    }
}

/// The events of a process, oldest first.
#[derive(Debug, Default)]
pub struct EventLog {
    changes: Vec<Event>,
    happenings: VecDeque<Event>,
    end: EventCursor,
}

impl EventLog {
    /// Makes an empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the changes that a newer revision of Umbo's own records keeps, by their numbers there, which give them their
    /// ids. They ascend.
    pub fn replace_changes(&mut self, changes: Vec<(u64, Event)>) {
        let with_id = |(number, event)| Event {
            id: number + 1,
            ..event
        };
        self.changes = changes.into_iter().map(with_id).collect();
        let last = self.changes.last().map_or(0, |event| event.id);
        self.end.change = self.end.change.max(last);
    }

    /// Adds what happened in this process, and gives it the next id.
    pub fn push_happening(&mut self, event: Event) {
        let id = (event.at_ms * IDS_PER_MILLISECOND).max(self.end.happening + 1);
        self.end.happening = id;
        if self.happenings.len() == HAPPENINGS_MAX {
            self.happenings.pop_front();
        }
        self.happenings.push_back(Event { id, ..event });
    }

    /// Adds happenings of before a restart. They keep their ids, and only those are taken that are older than all
    /// there are.
    pub fn restore(&mut self, mut events: Vec<Event>) {
        let first = self.happenings.front().map_or(u64::MAX, |event| event.id);
        events.retain(|event| event.id < first);
        events.sort_by_key(|event| event.id);
        for event in events.into_iter().rev() {
            if self.happenings.len() == HAPPENINGS_MAX {
                return;
            }
            self.end.happening = self.end.happening.max(event.id);
            self.happenings.push_front(event);
        }
    }

    /// Returns the events after a cursor, oldest first.
    pub fn since(&self, cursor: EventCursor) -> Vec<Event> {
        let changes = self.changes.iter();
        let changes = changes.filter(|event| event.id > cursor.change);
        let happenings = self.happenings.iter();
        let happenings = happenings.filter(|event| event.id > cursor.happening);
        let mut newer: Vec<&Event> = changes.chain(happenings).collect();
        newer.sort_by_key(|event| event.at_ms);
        newer.into_iter().cloned().collect()
    }

    /// Returns the happenings after an id, oldest first.
    pub fn happenings_since(&self, id: u64) -> Vec<Event> {
        let newer = self.happenings.iter().filter(|event| event.id > id);
        newer.cloned().collect()
    }

    /// Returns the cursor behind all events.
    pub fn end(&self) -> EventCursor {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use umbo_api::observe::EventKind;

    use super::*;

    fn event(at_ms: u64, subject: &str) -> Event {
        Event::new(at_ms, EventKind::NodeLost, subject, "a node is away")
    }

    fn subjects(log: &EventLog, cursor: EventCursor) -> String {
        let events = log.since(cursor);
        events.iter().map(|event| event.subject.as_str()).collect()
    }

    #[test]
    fn events_come_once_in_the_order_of_their_times() {
        let mut log = EventLog::new();
        log.push_happening(event(1_000, "a"));
        let first = log.end();
        // Another dispatcher's clock is behind: its change is still new here.
        log.replace_changes(vec![(7, event(900, "b"))]);
        log.push_happening(event(1_000, "c"));
        assert!(log.end().is_after(first) && !log.end().is_after(log.end()));
        let start = EventCursor::default();
        assert_eq!(subjects(&log, start), "bac");
        assert_eq!(subjects(&log, first), "bc");
        // The records keep another one, and forget the first.
        log.replace_changes(vec![(9, event(950, "d"))]);
        assert_eq!(subjects(&log, start), "dac");
        assert_eq!(subjects(&log, first), "dc");
        assert_eq!(subjects(&log, log.end()), "");
    }

    #[test]
    fn a_cursor_continues_on_another_dispatcher() {
        let (mut one, mut other) = (EventLog::new(), EventLog::new());
        for log in [&mut one, &mut other] {
            log.replace_changes(vec![(0, event(1_000, "a"))]);
        }
        one.push_happening(event(2_000, "x"));
        other.push_happening(event(1_500, "before"));
        let cursor = one.end();
        assert_eq!(subjects(&other, cursor), "");
        // The other dispatcher learns late of a change that was made before.
        other.replace_changes(vec![(0, event(1_000, "a")), (1, event(1_900, "b"))]);
        other.push_happening(event(2_001, "y"));
        assert_eq!(subjects(&other, cursor), "by");
        assert_eq!(other.end().later_of(cursor), other.end());
    }

    #[test]
    fn cursors_read_back_and_others_are_none() {
        for cursor in [
            EventCursor::default(),
            EventCursor {
                change: 7,
                happening: 1 << 50,
            },
        ] {
            assert_eq!(
                EventCursor::parse(cursor.to_string().as_bytes()),
                Some(cursor)
            );
        }
        assert_eq!(EventCursor::parse(b"0"), Some(EventCursor::default()));
        for text in [
            "",
            "-",
            "1",
            "1832960000256000",
            "1-",
            "-1",
            "+1-1",
            "1-1-1",
            "x-1",
            "\u{ff}",
        ] {
            assert_eq!(EventCursor::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_flood_of_happenings_leaves_the_changes() {
        let mut log = EventLog::new();
        log.replace_changes(vec![(0, event(1, "change"))]);
        for at in 0..3 * HAPPENINGS_MAX as u64 {
            log.push_happening(event(2 + at, "node"));
        }
        let all = log.since(EventCursor::default());
        assert_eq!(
            (all.len(), all[0].subject.as_str()),
            (HAPPENINGS_MAX + 1, "change")
        );
    }

    #[test]
    fn what_a_file_kept_comes_before_what_has_happened_since() {
        let mut log = EventLog::new();
        let old = [
            Event {
                id: 7,
                ..event(1, "old")
            },
            Event {
                id: 5,
                ..event(1, "older")
            },
        ];
        log.push_happening(event(1_000, "new"));
        log.restore(old.to_vec());
        let all = log.since(EventCursor::default());
        let subjects: Vec<_> = all.iter().map(|event| event.subject.as_str()).collect();
        assert_eq!(subjects, ["older", "old", "new"]);
    }
}
