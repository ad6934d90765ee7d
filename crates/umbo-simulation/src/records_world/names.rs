//! The oracle of namespaces: the requested changes, their answers, and what each dispatcher returned.

use std::time::Duration;

use super::process::Told;
use crate::history::EventNumber;
use crate::simulation::{elapsed, violated};

/// State of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimulatedState {
    /// There is no namespace of that name.
    Absent,
    /// The namespace exists, with this setting, which no other change sets.
    Live(u64),
}

#[derive(Debug, Clone)]
struct SimulatedChange {
    state: SimulatedState,
    told: Option<Told>,
    done_at: Duration,
}

/// The rows of a namespace from its creation to its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch {
    /// Number, unique.
    pub(super) number: u64,
    /// When its creation was requested.
    pub(super) since: EventNumber,
}

#[derive(Debug, Clone)]
struct Name {
    /// The first is the initial state, without a namespace of that name.
    changes: Vec<SimulatedChange>,
    /// By dispatcher, the earliest change whose state it may still return.
    seen: Vec<usize>,
    epoch: Option<Epoch>,
    /// The last id of the namespace, and its rows.
    last: Option<(u64, Epoch)>,
    /// When its creation was first requested since it last certainly existed.
    asked_since: Option<EventNumber>,
}

/// All namespaces.
#[derive(Debug)]
pub(super) struct SimulatedNamespaces {
    names: Vec<Name>,
    epochs: u64,
}

impl SimulatedNamespaces {
    pub(super) fn new(names: usize, dispatchers: usize) -> Self {
        let beginning = SimulatedChange {
            state: SimulatedState::Absent,
            told: Some(Told::Done),
            done_at: Duration::ZERO,
        };
        let name = Name {
            changes: vec![beginning],
            seen: vec![0; dispatchers],
            epoch: None,
            last: None,
            asked_since: None,
        };
        Self {
            names: vec![name; names],
            epochs: 0,
        }
    }

    /// A restarted dispatcher may begin with an old copy.
    pub(super) fn forget_seen(&mut self, dispatcher: usize) {
        for name in &mut self.names {
            name.seen[dispatcher] = 0;
        }
    }

    /// Records that a change is requested. Returns its number.
    pub(super) fn begin(&mut self, name: usize, state: SimulatedState) -> usize {
        let name = &mut self.names[name];
        if state == SimulatedState::Absent {
            // From now on it is unknown whether the rows exist.
            name.epoch = None;
        }
        name.changes.push(SimulatedChange {
            state,
            told: None,
            done_at: Duration::ZERO,
        });
        name.changes.len() - 1
    }

    /// Records the answer to a change.
    pub(super) fn end(&mut self, name: usize, change: usize, told: Told, dispatcher: usize) {
        let name = &mut self.names[name];
        name.changes[change].told = Some(told);
        name.changes[change].done_at = elapsed();
        if told == Told::Done {
            // The dispatcher that made it has it.
            let seen = &mut name.seen[dispatcher];
            *seen = change.max(*seen);
        }
    }

    /// Returns the last known rows, whether they certainly exist or not.
    pub(super) fn latest(&self, name: usize) -> Option<Epoch> {
        self.names[name].last.map(|(_, epoch)| epoch)
    }

    /// Returns the rows if they certainly exist.
    pub(super) fn epoch(&self, name: usize) -> Option<Epoch> {
        self.names[name].epoch
    }

    /// Records that a namespace was created, or that its removal was refused.
    pub(super) fn set_epoch(&mut self, name: usize, epoch: Option<Epoch>) {
        self.names[name].epoch = epoch;
    }

    /// Records that the creation of the namespace is requested.
    pub(super) fn ask_for(&mut self, name: usize, event: EventNumber) {
        let name = &mut self.names[name];
        if name.epoch.is_none() {
            name.asked_since.get_or_insert(event);
        }
    }

    /// Records that the namespace exists with an id. Returns its previous id if that was another one: its
    /// rows begin anew then.
    pub(super) fn note_there(&mut self, name: usize, id: u64) -> Option<u64> {
        let name = &mut self.names[name];
        let before = name.last;
        let since = name.asked_since.take();
        if let Some((_, epoch)) = before.filter(|(before, _)| *before == id) {
            // A removal of unknown outcome was not applied.
            name.epoch = Some(epoch);
            return None;
        }
        self.epochs += 1;
        let epoch = Epoch {
            number: self.epochs,
            since: since.unwrap_or_default(),
        };
        name.epoch = Some(epoch);
        name.last = Some((id, epoch));
        before.map(|(before, _)| before)
    }

    /// Returns the states that a namespace may have now, by all answers.
    pub(super) fn possible(&self, name: usize) -> Vec<SimulatedState> {
        let changes = &self.names[name].changes;
        let settled = self.last_done(name, |_| true);
        let open = changes[settled..]
            .iter()
            .filter(|change| change.told != Some(Told::Refused));
        open.map(|change| change.state).collect()
    }

    fn last_done(&self, name: usize, is_meant: impl Fn(&SimulatedChange) -> bool) -> usize {
        let changes = self.names[name].changes.iter();
        let is_done =
            |change: &&SimulatedChange| change.told == Some(Told::Done) && is_meant(change);
        let done = changes.enumerate().filter(|(_, change)| is_done(change));
        done.map(|(number, _)| number).max().unwrap_or_default()
    }

    /// Checks the answer of a dispatcher. All changes before `known_by` must be visible to it.
    pub(super) fn check(
        &mut self,
        name: usize,
        dispatcher: usize,
        shown: SimulatedState,
        known_by: Option<Duration>,
    ) {
        let must = known_by.map_or(0, |by| self.last_done(name, |change| change.done_at <= by));
        let of = &mut self.names[name];
        let from = of.seen[dispatcher].max(must);
        let fits =
            |change: &SimulatedChange| change.state == shown && change.told != Some(Told::Refused);
        let found = (from..of.changes.len()).find(|&number| fits(&of.changes[number]));
        if let Some(number) = found {
            of.seen[dispatcher] = number;
            return;
        }
        let refused = of
            .changes
            .iter()
            .rposition(|change| change.state == shown && change.told == Some(Told::Refused));
        let old = (0..from).rev().find(|&number| fits(&of.changes[number]));
        violated(&match (refused, old) {
            (Some(change), _) => format!(
                "dispatcher {dispatcher} shows namespace n{name} as {shown:?}: change {change} was answered as not \
                 applied"
            ),
            (None, Some(change)) => format!(
                "dispatcher {dispatcher} shows namespace n{name} as {shown:?}, change {change}, after change {from} \
                 was acknowledged or shown"
            ),
            (None, None) => {
                format!(
                    "dispatcher {dispatcher} shows namespace n{name} as {shown:?}, which nobody asked for"
                )
            }
        });
    }
}
