//! Events of a dispatcher: logged and kept at one place.
//!
//! A change by an operator is recorded among Umbo's own records, in the write of the change itself. So every dispatcher
//! shows it, and no dispatcher shows a change that did not take effect. The dispatcher that made the change logs it.
//! The newest 500 are kept. Changes that need only the permission to write a namespace (its loads, and the choice of
//! the live version) have separate bounds, so they never displace changes of operators. Each process keeps its
//! happenings for itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use umbo_api::observe::{Event, EventKind, EventList};
use umbo_observe::{EventCursor, EventLog};

use crate::records::{Edits, Kind, RecordSet, Unreadable, unreadable};

/// Changes by operators that are kept. The set of records is copied as a whole with each change: this is a few hundred
/// KiB of it.
const CHANGES_MAX: usize = 500;
/// Changes by writers that are kept, in all namespaces: another few hundred KiB.
const WRITER_CHANGES_MAX: usize = 500;
/// Changes by writers that are kept of one namespace: a load has some eight, and eight loads may be open.
const NAMESPACE_CHANGES_MAX: usize = 64;
/// Texts of the events of version changes.
pub(crate) const ACTIVATED: &str = "activated a version";
pub(crate) const ROLLED_BACK: &str = "rolled back to the version before";
pub(crate) const DROPPED: &str = "dropped a version";
const VERSION_CHANGES: [&str; 3] = [ACTIVATED, ROLLED_BACK, DROPPED];
/// Longest `before` and `after`, in bytes.
const STATE_LEN_MAX: usize = 1_024;

/// The origin of a change: the caller and the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The caller.
    pub by: String,
    /// Why, in the caller's words.
    pub reason: Option<String>,
}

/// A change, as its event describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeSummary {
    kind: EventKind,
    subject: String,
    text: &'static str,
    before: Option<String>,
    after: Option<String>,
}

impl ChangeSummary {
    pub(crate) fn new(kind: EventKind, subject: impl Into<String>, text: &'static str) -> Self {
        let subject = subject.into();
        Self {
            kind,
            subject,
            text,
            before: None,
            after: None,
        }
    }

    /// Adds the states before and after the change.
    #[must_use]
    pub(crate) fn between<T: serde::Serialize>(
        mut self,
        before: Option<&T>,
        after: Option<&T>,
    ) -> Self {
        self.before = before.map(state);
        self.after = after.map(state);
        self
    }

    pub(crate) fn event(self, origin: &Origin, at_ms: u64) -> Event {
        Event {
            by: Some(origin.by.clone()),
            reason: origin.reason.clone(),
            before: self.before,
            after: self.after,
            ..Event::new(at_ms, self.kind, self.subject, self.text)
        }
    }
}

/// Returns a state as JSON, cut to [`STATE_LEN_MAX`] bytes.
fn state<T: serde::Serialize>(state: &T) -> String {
    let mut text = serde_json::to_string(state).unwrap_or_default();
    if text.len() > STATE_LEN_MAX {
        text.truncate(text.floor_char_boundary(STATE_LEN_MAX - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// Adds an event to the edits of a set, and removes the oldest beyond the bounds.
pub(crate) fn with_event(
    edits: Edits,
    set: &RecordSet,
    event: &Event,
) -> Result<Edits, Unreadable> {
    let mut kept = read(set)?;
    let number = kept.last().map_or(0, |(last, _)| last + 1);
    kept.push((number, event.clone()));
    let content = serde_json::to_vec(event).expect("an event is numbers and texts");
    let edits = edits.put(Kind::Event, &name_of(number), Bytes::from(content));
    let remove = |edits: Edits, number| edits.remove(Kind::Event, &name_of(number));
    Ok(beyond_bounds(&kept).into_iter().fold(edits, remove))
}

/// Returns the name of the record of a change: names sort as their numbers do.
fn name_of(number: u64) -> String {
    format!("{number:016}")
}

/// Returns the numbers of the changes beyond the bounds. Beyond the bound of all writers, the namespace with the most
/// changes loses its oldest; the newest change of all always stays.
fn beyond_bounds(kept: &[(u64, Event)]) -> Vec<u64> {
    let mut by_operators = Vec::new();
    let mut by_writers: BTreeMap<&str, VecDeque<u64>> = BTreeMap::new();
    for (number, event) in kept {
        match namespace_of_writer(event) {
            Some(namespace) => by_writers.entry(namespace).or_default().push_back(*number),
            None => by_operators.push(*number),
        }
    }
    let mut left = kept.len() - by_operators.len();
    by_operators.truncate(by_operators.len().saturating_sub(CHANGES_MAX));
    let mut beyond = by_operators;
    loop {
        let most =
            |numbers: &&mut VecDeque<u64>| (numbers.len(), Reverse(numbers.front().copied()));
        let most = by_writers.values_mut().max_by_key(most);
        let is_beyond =
            |most: &VecDeque<u64>| most.len() > NAMESPACE_CHANGES_MAX || left > WRITER_CHANGES_MAX;
        let Some(oldest) = most
            .filter(|most| is_beyond(most))
            .and_then(VecDeque::pop_front)
        else {
            return beyond;
        };
        beyond.push(oldest);
        left -= 1;
    }
}

/// Returns the namespace of a change that needs no more than the permission to write it.
fn namespace_of_writer(event: &Event) -> Option<&str> {
    match event.kind {
        EventKind::LoadChanged => Some(event.subject.split('/').next().unwrap_or_default()),
        EventKind::NamespaceChanged if VERSION_CHANGES.contains(&event.text.as_str()) => {
            Some(&event.subject)
        }
        _ => None,
    }
}

/// Reads the events of a set of records, oldest first, with their numbers.
pub(crate) fn read(set: &RecordSet) -> Result<Vec<(u64, Event)>, Unreadable> {
    let events = set.of(Kind::Event).map(|(name, content)| {
        let number = name
            .parse()
            .map_err(|error| unreadable(Kind::Event, name, &error))?;
        Ok((number, RecordSet::read_json(Kind::Event, name, content)?))
    });
    events.collect()
}

/// The events of a dispatcher.
#[derive(Debug)]
pub struct Events {
    kept: Mutex<KeptEvents>,
    /// Behind the newest.
    newest: watch::Sender<EventCursor>,
}

#[derive(Debug, Default)]
struct KeptEvents {
    log: EventLog,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            newest: watch::Sender::new(EventCursor::default()),
        }
    }
}

impl Events {
    /// Logs and keeps an event of this process.
    pub fn happened(&self, event: Event) {
        log(&event);
        let mut kept = self.kept();
        kept.log.push_happening(event);
        self.newest.send_replace(kept.log.end());
    }

    /// Adds happenings of before a restart.
    pub fn restore(&self, events: Vec<Event>) {
        self.kept().log.restore(events);
    }

    /// Returns the happenings of this process after an id.
    pub fn happenings_since(&self, id: u64) -> Vec<Event> {
        self.kept().log.happenings_since(id)
    }

    /// Takes up the changes of a set of records.
    pub(crate) fn take_up(&self, changes: Vec<(u64, Event)>) {
        let mut kept = self.kept();
        kept.log.replace_changes(changes);
        let end = kept.log.end();
        let is_news = |newest: &mut EventCursor| std::mem::replace(newest, end) != end;
        self.newest.send_if_modified(is_news);
    }

    /// Returns the events after a cursor, and the cursor to continue with.
    pub fn since(&self, cursor: EventCursor) -> EventList {
        let kept = self.kept();
        EventList {
            events: kept.log.since(cursor),
            next: kept.log.end().later_of(cursor).to_string(),
        }
    }

    /// Waits until there is an event after a cursor.
    pub async fn wait_for_newer(&self, cursor: EventCursor) {
        let mut newest = self.newest.subscribe();
        // The sender is in `self`, so the channel stays open.
        let _ = newest.wait_for(|newest| newest.is_after(cursor)).await;
    }

    fn kept(&self) -> MutexGuard<'_, KeptEvents> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes an event to the log of the server: the audit of changes.
pub(crate) fn log(event: &Event) {
    let Event {
        kind,
        subject,
        text,
        by,
        reason,
        before,
        after,
        ..
    } = event;
    tracing::info!(
        kind = kind.as_str(),
        subject,
        by,
        reason,
        before,
        after,
        "{text}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a change, and returns the set after it.
    fn after(set: &RecordSet, kind: EventKind, subject: &str, text: &str) -> RecordSet {
        let number = set.revision.number;
        let event = Event::new(number, kind, subject, text);
        set.changed(&with_event(Edits::none(), set, &event).unwrap())
    }

    fn subjects(set: &RecordSet) -> Vec<String> {
        let events = Events::default();
        events.take_up(read(set).unwrap());
        let all = events.since(EventCursor::default()).events;
        assert!(all.is_sorted_by(|one, next| one.id < next.id));
        all.into_iter().map(|event| event.subject).collect()
    }

    #[test]
    fn a_flood_of_changes_of_loads_leaves_those_of_operators() {
        let mut set = RecordSet::default();
        set = after(&set, EventKind::LoadChanged, "other/1", "created a load");
        set = after(&set, EventKind::NamespaceRemoved, "victim", "removed");
        let kept = Events::default();
        for step in 0..2_000 {
            let (kind, subject, text) = match step % 3 {
                0 => (EventKind::LoadChanged, "n/1", "paused a load"),
                1 => (EventKind::LoadChanged, "n/2", "resumed a load"),
                _ => (EventKind::NamespaceChanged, "n", VERSION_CHANGES[step % 2]),
            };
            set = after(&set, kind, subject, text);
            kept.take_up(read(&set).unwrap());
        }
        let all = kept.since(EventCursor::default());
        assert_eq!(all.events.len(), 2 + NAMESPACE_CHANGES_MAX);
        assert_eq!(all.events[0].subject, "other/1");
        assert_eq!(all.events[1].kind, EventKind::NamespaceRemoved);
        let ids = all.events.iter().map(|event| event.id);
        assert!(ids.is_sorted_by(|one, next| one < next));
        // Numbers are given once, so that a cursor is before what follows it.
        assert_eq!(all.events.last().unwrap().id, 2_002);
        assert_eq!(all.next, "2002-0");
    }

    /// Adds changes to a set that an earlier version wrote, which kept all in one list.
    fn with_old(
        set: &RecordSet,
        count: usize,
        kind: EventKind,
        subject: fn(usize) -> String,
    ) -> RecordSet {
        let first = set.of(Kind::Event).count();
        let edits = (0..count).fold(Edits::none(), |edits, number| {
            let event = Event::new(0, kind, subject(number), "text");
            let content = serde_json::to_vec(&event).unwrap();
            edits.put(Kind::Event, &name_of((first + number) as u64), content)
        });
        set.changed(&edits)
    }

    #[test]
    fn changes_of_operators_and_of_all_writers_are_bounded() {
        let set = RecordSet::default();
        let set = with_old(&set, 1, EventKind::LoadChanged, |_| "quiet/1".to_owned());
        let set = with_old(&set, CHANGES_MAX + 7, EventKind::NamespaceCreated, |n| {
            n.to_string()
        });
        let set = with_old(&set, 2 * WRITER_CHANGES_MAX, EventKind::LoadChanged, |n| {
            format!("n{}/1", n % 20)
        });
        let set = after(&set, EventKind::TokenCreated, "t", "made a token");
        let all = subjects(&set);
        assert_eq!(all.len(), CHANGES_MAX + WRITER_CHANGES_MAX);
        // The namespace with the most changes loses its oldest, and no other any.
        assert_eq!((&*all[0], &*all[1]), ("quiet/1", "8"));
        assert_eq!(all.last().unwrap(), "t");
        for namespace in 0..20 {
            let subject = format!("n{namespace}/1");
            let own = all.iter().filter(|one| **one == subject).count();
            assert!((24..=25).contains(&own), "{own}");
        }
    }
}
