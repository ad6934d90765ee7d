//! Quotas of the scopes `fleet` and `shard`: a counter counts once, however many dispatchers there are.
//!
//! Each counter has one owner among the dispatchers ([`OwnerRow`]). Each period every dispatcher tells each owner how
//! much it has admitted and refused, as sums since its start, and gets back the fleet's balance and its share. Between
//! two answers the local bucket decides, so that a request asks no other process. Lost, late and repeated messages do no
//! harm. If an owner is away, the last share holds for some periods, and then an equal share, until another owner takes
//! over with the balance that was told last.
//!
//! No clock is read, and no time of day is sent: only ages.

mod ledger;
mod local;
mod message;
mod period;
mod row;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbo_types::Timestamp;

use self::ledger::Ledgers;
use self::local::LocalCounters;
pub use self::message::FleetMessageError;
use self::message::{FleetReport, OwnerReply};
use self::period::PERIOD_MS;
pub use self::row::{OWNERS_MAX, OwnerRow};
use crate::fleet_counters::FleetCounters;
use crate::identity::Identities;
use crate::limiter::Limiter;
use crate::retry_ticket::RetryTicket;
use crate::schedule::Millis;

/// How often [`FleetQuota::tick`] is due: a new counter is reported this soon.
pub const FLEET_TICK: Duration = Duration::from_millis(20);
/// How long the word of a dispatcher that an owner is silent counts, in milliseconds: longer than two messages that are
/// lost.
const WORD_MS: u64 = 4 * PERIOD_MS;
/// Shortest time between two wishes of a dispatcher to change the row, in milliseconds.
const WISH_MS: u64 = 2 * PERIOD_MS;
/// How long a row stands before one dispatcher alone may take an owner out of it that is present, in milliseconds.
const SETTLED_MS: u64 = 20 * PERIOD_MS;
/// Most dispatchers whose messages are counted: the members of the largest fleet, and as many that came after others.
const SENDERS_MAX: usize = 2_048;
/// How long the last sequence of a dispatcher is remembered, in milliseconds: no message is under way for longer.
const HEARD_MS: u64 = 60_000;

/// A message to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMessage {
    /// Presence id of the owner.
    pub to: u64,
    /// The message.
    pub body: Vec<u8>,
}

/// A wish of a dispatcher for the ownership row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowWish {
    /// The row that is known will do.
    Nothing,
    /// The row has to be read.
    Read,
    /// This row should replace the row that is known.
    Change(OwnerRow),
}

/// State of the fleet's quotas at a dispatcher, for operators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetQuotaReport {
    /// The ownership row that is known.
    pub row: OwnerRow,
    /// Owners that give no answer.
    pub silent: Vec<u64>,
    /// Counters that this dispatcher reports.
    pub reported: usize,
    /// Counters that this dispatcher owns.
    pub owned: usize,
}

/// The quotas of the scopes `fleet` and `shard` at one dispatcher.
#[derive(Debug)]
pub struct FleetQuota {
    limiter: Arc<Limiter>,
    id: u64,
    state: Mutex<FleetState>,
}

#[derive(Debug, Default)]
struct FleetState {
    /// `None` before it was read.
    row: Option<OwnerRow>,
    /// Whether another dispatcher knows a newer row.
    is_row_old: bool,
    /// Whether the row that was read is older than the known one: the home is another one, or was restored.
    is_row_lost: bool,
    wished: Option<Millis>,
    /// Revision of the row, and since when it is known.
    revision: (u64, Millis),
    members: Vec<u64>,
    /// Whether this dispatcher was among the members that were read.
    is_listed: bool,
    local: LocalCounters,
    ledgers: Ledgers,
    /// Sequence of the last message of each dispatcher, and when it came.
    heard: HashMap<u64, (u64, Millis)>,
    /// Who found which owner silent, and when.
    words: HashMap<(u64, u64), Millis>,
}

impl FleetQuota {
    /// Joins the counters of a limiter to the counters of the other dispatchers. `id` is the presence id of this dispatcher,
    /// and `secret` the secret of the store: no client can choose two names with the same counter.
    pub fn new(limiter: Arc<Limiter>, id: u64, secret: &[u8; 32]) -> Self {
        let (seed, _) = secret.split_first_chunk().expect("it has 32 bytes");
        limiter.fleet.get_or_init(|| FleetCounters {
            names: Identities::new(u64::from_le_bytes(*seed)),
            used: Arc::default(),
            // Until the rows are read there may be several.
            members: (OWNERS_MAX as u32).into(),
            first_ticket: id as u32,
        });
        let state = FleetState {
            members: vec![id],
            ..FleetState::default()
        };
        Self {
            limiter,
            id,
            state: Mutex::new(state),
        }
    }

    /// Returns the messages that are due, at most four open ones to an owner. The answers belong into
    /// [`Self::answered`]. Nothing is due while no policy counts for the fleet.
    pub fn tick(&self, now: Instant) -> Vec<FleetMessage> {
        let at = self.limiter.pricing.millis(now);
        let mut state = self.state();
        if !self.is_used() {
            state.local.clear(&self.limiter);
            return Vec::new();
        }
        let FleetState { row, local, .. } = &mut *state;
        let row = row.clone().unwrap_or_default();
        local.begin(&self.limiter, &row);
        let reports = local.reports(&self.limiter, (self.id, row.revision), at);
        let (own, others): (Vec<_>, Vec<_>) =
            reports.into_iter().partition(|(to, _)| *to == self.id);
        for (_, report) in own {
            let reply = state.hear(&report, at);
            state.local.answered(self.id, &reply, at);
        }
        let message = |(to, report): (u64, FleetReport)| FleetMessage {
            to,
            body: report.write(),
        };
        others.into_iter().map(message).collect()
    }

    /// Takes the answer of an owner. An answer that cannot be read changes nothing.
    pub fn answered(&self, owner: u64, body: &[u8], now: Instant) {
        let at = self.limiter.pricing.millis(now);
        let Ok(reply) = OwnerReply::read(body) else {
            return;
        };
        let mut state = self.state();
        state.local.answered(owner, &reply, at);
        if let Some(row) = &reply.row {
            // The row itself is read: a peer that lies could name a revision without a successor.
            let known = state.row.as_ref().map_or(0, |known| known.revision);
            state.is_row_old |= row.revision > known;
        }
    }

    /// Takes a message of another dispatcher, and returns the answer.
    pub fn hear(&self, body: &[u8], now: Instant) -> Result<Vec<u8>, FleetMessageError> {
        let at = self.limiter.pricing.millis(now);
        let report = FleetReport::read(body)?;
        Ok(self.state().hear(&report, at).write())
    }

    /// Takes the ownership row as it was read or written; an absent one is the default. If it is older than the known
    /// one, the known one is to be written again.
    pub fn set_row(&self, row: &OwnerRow) {
        let mut state = self.state();
        state.is_row_old = false;
        let is_older = |known: &OwnerRow| row.revision < known.revision;
        state.is_row_lost = state.row.as_ref().is_some_and(is_older);
        state.adopt(row, self.id);
    }

    /// Takes the presence ids of all dispatchers, as they were read. This one becomes an owner only if it is among them.
    pub fn set_members(&self, ids: &[u64]) {
        let mut members = ids.to_vec();
        members.push(self.id);
        members.sort_unstable();
        members.dedup();
        if let Some(fleet) = self.limiter.fleet.get() {
            let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
            fleet.members.store(count, Relaxed);
        }
        let mut state = self.state();
        state.is_listed = ids.contains(&self.id);
        state.members = members;
    }

    /// Returns whether any policy counts for the fleet; if not, nothing is due.
    pub fn is_used(&self) -> bool {
        let policies = self.limiter.policies();
        policies.iter().any(|policy| policy.scope.is_shared())
    }

    /// Returns the wish for the ownership row.
    pub fn row_wish(&self, now: Instant) -> RowWish {
        let at = self.limiter.pricing.millis(now);
        if !self.is_used() {
            return RowWish::Nothing;
        }
        self.state().wish(self.id, at)
    }

    /// Returns the row without this dispatcher, if it is an owner: for a stop.
    pub fn leaving(&self) -> Option<OwnerRow> {
        let state = self.state();
        let row = state.row.as_ref().filter(|row| row.has(self.id))?;
        Some(row.changed(|owner| owner == self.id, None))
    }

    /// Describes the state.
    pub fn report(&self) -> FleetQuotaReport {
        let state = self.state();
        FleetQuotaReport {
            row: state.row.clone().unwrap_or_default(),
            silent: state.local.silent(),
            reported: state.local.len(),
            owned: state.ledgers.len(),
        }
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limiter {
    /// Returns a ticket as it goes to its client. The due time of a ticket for the fleet counts by the clock that all
    /// dispatchers share, which shows `shared`.
    pub fn ticket_out(&self, ticket: RetryTicket, shared: Timestamp, now: Instant) -> RetryTicket {
        let (here, there) = (self.pricing.millis(now), Millis(shared.as_millis()));
        if ticket.is_of_fleet() {
            ticket.by_clock(here, there)
        } else {
            ticket
        }
    }

    /// Returns a ticket that [`Self::ticket_out`] of any dispatcher has made as this limiter takes it.
    pub fn ticket_in(&self, ticket: RetryTicket, shared: Timestamp, now: Instant) -> RetryTicket {
        let (here, there) = (self.pricing.millis(now), Millis(shared.as_millis()));
        if ticket.is_of_fleet() {
            ticket.by_clock(there, here)
        } else {
            ticket
        }
    }
}

impl FleetState {
    /// Takes a newer row.
    fn adopt(&mut self, row: &OwnerRow, id: u64) {
        let is_newer = self
            .row
            .as_ref()
            .is_none_or(|known| row.revision > known.revision);
        if is_newer {
            self.ledgers
                .keep(|counter| row.owner_of(counter) == Some(id));
            self.local.set_owners(row);
            self.words.retain(|(owner, _), _| row.has(*owner));
            self.row = Some(row.clone());
        }
    }

    fn hear(&mut self, report: &FleetReport, now: Millis) -> OwnerReply {
        let mut reply = OwnerReply {
            sequence: report.sequence,
            ..OwnerReply::default()
        };
        let known = self.row.as_ref().map_or(0, |row| row.revision);
        if report.revision < known {
            reply.row.clone_from(&self.row);
            return reply;
        }
        self.is_row_old |= report.revision > known;
        if self.heard.len() >= SENDERS_MAX && !self.heard.contains_key(&report.sender) {
            return reply;
        }
        let last = self.heard.entry(report.sender).or_default();
        if report.sequence <= last.0 {
            return reply;
        }
        *last = (report.sequence, now);
        self.heard
            .retain(|_, (_, at)| now.0.saturating_sub(at.0) < HEARD_MS);
        let owners = self.row.iter().flat_map(|row| &row.owners);
        for silent in owners.filter(|owner| report.silent.contains(owner)) {
            self.words.insert((*silent, report.sender), now);
            self.local.suspect(*silent);
        }
        let members = self.members.len() as u64;
        let answer = |one| self.ledgers.take(report.sender, one, members, now);
        reply.counters = report.counters.iter().map(answer).collect();
        reply
    }

    fn wish(&mut self, id: u64, now: Millis) -> RowWish {
        let Some(row) = &self.row else {
            return RowWish::Read;
        };
        let wished_ms = self
            .wished
            .map_or(u64::MAX, |at| now.0.saturating_sub(at.0));
        if self.is_row_old && wished_ms >= PERIOD_MS {
            self.wished = Some(now);
            return RowWish::Read;
        }
        if self.is_row_old || wished_ms < WISH_MS {
            return RowWish::Nothing;
        }
        if self.revision.0 != row.revision {
            self.revision = (row.revision, now);
        }
        let is_settled = now.0.saturating_sub(self.revision.1.0) >= SETTLED_MS;
        for silent in self.local.silent() {
            self.words.insert((silent, id), now);
        }
        self.words
            .retain(|_, at| now.0.saturating_sub(at.0) < WORD_MS);
        let others = self.members.len().saturating_sub(1);
        let is_gone = |owner: u64| {
            let words = self
                .words
                .keys()
                .filter(|(silent, _)| *silent == owner)
                .count();
            let is_present = self.members.contains(&owner);
            // Two that do not reach each other would vote each other out again and again.
            let is_enough = words > 1 || is_settled || !is_present;
            is_enough && words >= if is_present { others.clamp(1, 2) } else { 1 }
        };
        let is_any_gone = row.owners.iter().any(|owner| is_gone(*owner));
        let joins = Some(id).filter(|_| self.is_listed && !row.has(id));
        let is_due = is_any_gone || self.is_row_lost;
        if !is_due && (joins.is_none() || !row.has_room()) {
            return RowWish::Nothing;
        }
        let next = row.changed(is_gone, joins);
        self.wished = Some(now);
        RowWish::Change(next)
    }
}
