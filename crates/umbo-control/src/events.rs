//! Events of a dispatcher: logged and kept at one place.
//!
//! A change by an operator is a record of Umbo's own, written together with what it changed, so that every
//! dispatcher shows it and none shows a change that did not take effect; the newest 500 are kept. It
//! is logged by the dispatcher that made it. What happens to a process is kept by that process alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use umbo_api::observe::{Event, EventKind, EventList};
use umbo_observe::{EVENTS_MAX, EventCursor, EventLog};

use crate::records::{Edits, Kind, RecordSet, Unreadable, unreadable};

/// Changes that are kept. The set of records is copied as a whole with each change: this is a few hundred KiB of it.
const CHANGES_MAX: usize = 500;
/// Longest `before` and `after`, in bytes.
const STATE_LEN_MAX: usize = 1_024;

/// Who makes a change, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The caller.
    pub by: String,
    /// Why, in the caller's words.
    pub reason: Option<String>,
}

/// What a change did, as its event tells it.
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

    /// Says what was in effect before and what is afterwards.
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

/// Returns a state as JSON, cut where it is too long.
fn state<T: serde::Serialize>(state: &T) -> String {
    let mut text = serde_json::to_string(state).unwrap_or_default();
    if text.len() > STATE_LEN_MAX {
        text.truncate(text.floor_char_boundary(STATE_LEN_MAX - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// Adds an event to the edits of a set, and removes the oldest beyond the bound.
pub(crate) fn with_event(edits: Edits, set: &RecordSet, event: &Event) -> Edits {
    let names: Vec<&str> = set.of(Kind::Event).map(|(name, _)| name).collect();
    let last = names.last().and_then(|name| name.parse::<u64>().ok());
    let number = last.map_or(0, |last| last + 1);
    let content = serde_json::to_vec(event).expect("an event is numbers and texts");
    // Names sort as their numbers do.
    let mut edits = edits.put(Kind::Event, &format!("{number:016}"), Bytes::from(content));
    let beyond = (names.len() + 1).saturating_sub(CHANGES_MAX);
    for name in &names[..beyond] {
        edits = edits.remove(Kind::Event, name);
    }
    edits
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
    /// Logs and keeps what happened in this process.
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

    /// Takes up the changes of a set of records that are new here.
    pub(crate) fn take_up(&self, changes: Vec<(u64, Event)>) {
        let mut kept = self.kept();
        for (number, event) in changes {
            kept.log.push_change(number, event);
        }
        let end = kept.log.end();
        let is_news = |newest: &mut EventCursor| std::mem::replace(newest, end) != end;
        self.newest.send_if_modified(is_news);
    }

    /// Returns the events after a cursor, and the cursor to continue with.
    pub fn since(&self, cursor: EventCursor) -> EventList {
        let kept = self.kept();
        EventList {
            events: kept.log.since(cursor, EVENTS_MAX),
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
