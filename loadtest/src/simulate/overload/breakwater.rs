//! Breakwater's credit (Cho, Saeed, Fried, Park, Alizadeh, Belay, *Overload control for µs-scale RPCs with
//! Breakwater*, OSDI 2020).
//!
//! A client sends a request only with a credit of the server. Once a round trip the server changes the number of its
//! credit: by one, or a thousandth of the number of clients, more while its queuing delay is below a target, and
//! otherwise by a factor of 1 − β × the part by which the delay is above, at least a half. Clients tell what they wait
//! to send with each request. Credit follow that demand, and a client has some more than it demands (over-commitment):
//! its part of those that are left, at least one. A request that arrives while the delay is twice the target is dropped
//! (AQM). The client that is answered gets credit first, then those without any by turns. A client gives up what it could
//! not send in time.
//!
//! Departures. Target and round trip are in parts of what a request takes (those the authors recommend for their longest
//! requests, 500 and 10 µs for 100 µs), not in µs. Messages between clients
//! and server take no time, so that demand is always known. A client that is new registers with its first request.
//! A client waits for two targets before it gives up; the authors' code gives up after what a request takes. Credit
//! know no tiers.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use umbo_overload::Entry;
use umbo_types::Deadline;

use super::decision::{Decision, Decisions};
use super::places::Places;

/// Target of the queuing delay, in parts of what a request takes.
const TARGET: f64 = 5.0;
/// A round trip, in parts of what a request takes.
const ROUND_TRIP: f64 = 0.1;
/// Delay from which on arriving requests are dropped, in targets.
const DROP: u64 = 2;
/// Step up, of the number of clients.
const ALPHA: f64 = 0.001;
/// Step down for each target that the delay is above it.
const BETA: f64 = 0.02;
/// Most credit of a client, as in the code of the authors.
const CREDIT_MAX: usize = 63;
/// Time after which a client gives up what it could not send, in targets.
const PATIENCE: u64 = 2;

/// A server with its credit, and its clients.
#[derive(Debug)]
pub(crate) struct Breakwater {
    places: Places,
    target_ns: u64,
    round_trip_ns: u64,
    /// When the next one is over.
    next_ns: u64,
    /// Credit that there are, and that clients have.
    total: f64,
    issued: usize,
    clients: Vec<Client>,
    /// Clients by their callers, and by their requests at the server.
    of_caller: BTreeMap<u64, usize>,
    of_request: BTreeMap<u32, usize>,
    /// Clients that wait for their first credit.
    drained: VecDeque<usize>,
}

/// A client.
#[derive(Debug, Default)]
struct Client {
    credit: usize,
    /// Requests at the server; each has a credit.
    sent: usize,
    /// Requests without a credit, with the instants of their arrival.
    waiting: VecDeque<(u64, u32, Deadline)>,
    is_drained: bool,
}

impl Breakwater {
    pub(super) fn new(places: usize, service_ns: f64) -> Self {
        Self {
            places: Places::new(places),
            target_ns: (TARGET * service_ns) as u64,
            round_trip_ns: (ROUND_TRIP * service_ns) as u64,
            next_ns: 0,
            total: places as f64,
            issued: 0,
            clients: Vec::new(),
            of_caller: BTreeMap::new(),
            of_request: BTreeMap::new(),
            drained: VecDeque::new(),
        }
    }

    /// Returns the credit that there are.
    pub(super) const fn credit(&self) -> f64 {
        self.total
    }

    pub(super) fn enter(
        &mut self,
        request: u32,
        entry: &Entry,
        at: (Instant, u64),
        decisions: &mut Decisions,
    ) {
        let clients = self.clients.len();
        let client = *self.of_caller.entry(entry.caller).or_insert(clients);
        if client == clients {
            self.clients.push(Client::default());
        }
        self.look(at.1);
        let waits = (at.1, request, entry.deadline);
        self.clients[client].waiting.push_back(waits);
        self.send(client, at, decisions);
        self.serve(at, decisions);
    }

    pub(super) fn leave(&mut self, request: u32, at: (Instant, u64), decisions: &mut Decisions) {
        self.look(at.1);
        self.places.leave();
        self.answered(request, at, decisions);
        self.serve(at, decisions);
    }

    /// Some milliseconds are over: looks after all clients.
    pub(super) fn tick(&mut self, at: (Instant, u64), decisions: &mut Decisions) {
        self.look(at.1);
        for client in 0..self.clients.len() {
            self.give_up(client, at.1, decisions);
        }
        self.serve(at, decisions);
    }

    /// Changes the number of credit for each round trip that is over.
    fn look(&mut self, now_ns: u64) {
        let delay_ns = self.places.delay_ns(now_ns);
        let clients = self.clients.len();
        let most = (CREDIT_MAX * clients.max(1)) as f64;
        while now_ns >= self.next_ns {
            self.next_ns += self.round_trip_ns;
            if delay_ns < self.target_ns {
                self.total += (ALPHA * clients as f64).max(1.0);
            } else {
                let above = (delay_ns - self.target_ns) as f64 / self.target_ns as f64;
                self.total *= (1.0 - BETA * above).max(0.5);
            }
            self.total = self.total.min(most).max(self.places.places() as f64);
        }
    }

    /// Drops what a client could not send in time.
    fn give_up(&mut self, client: usize, now_ns: u64, decisions: &mut Decisions) {
        let since_ns = now_ns.saturating_sub(PATIENCE * self.target_ns);
        let waiting = &mut self.clients[client].waiting;
        while waiting
            .front()
            .is_some_and(|(arrived_ns, ..)| *arrived_ns < since_ns)
        {
            let (_, request, _) = waiting.pop_front().expect("one is in front");
            decisions.push((request, Decision::Shed));
        }
    }

    /// Changes the credit of a client by its demand.
    fn grant(&mut self, client: usize) {
        let total = self.total as usize;
        let clients = self.clients.len();
        let own = &mut self.clients[client];
        let left = total.saturating_sub(self.issued);
        let wanted = own.sent + own.waiting.len() + (left / clients).max(1);
        let granted = wanted.min(match self.issued.cmp(&total) {
            Ordering::Less => own.credit + left,
            Ordering::Equal => own.credit,
            Ordering::Greater => own.credit.saturating_sub(1),
        });
        // A credit that is in use cannot be taken back.
        let granted = granted.min(CREDIT_MAX).max(own.sent);
        self.issued = self.issued + granted - own.credit;
        own.credit = granted;
    }

    /// Sends what a client has credit for.
    fn send(&mut self, client: usize, at: (Instant, u64), decisions: &mut Decisions) {
        let is_full = |places: &Places| places.delay_ns(at.1) >= DROP * self.target_ns;
        let own = &mut self.clients[client];
        while own.sent < own.credit
            && let Some((_, request, deadline)) = own.waiting.pop_front()
        {
            if is_full(&self.places) {
                decisions.push((request, Decision::Shed));
                continue;
            }
            own.sent += 1;
            self.of_request.insert(request, client);
            self.places.enter(request, deadline, at.1);
        }
        if own.credit == 0 && !own.waiting.is_empty() && !own.is_drained {
            own.is_drained = true;
            self.drained.push_back(client);
        }
    }

    fn serve(&mut self, at: (Instant, u64), decisions: &mut Decisions) {
        while self.issued < self.total as usize
            && let Some(client) = self.drained.pop_front()
        {
            self.clients[client].is_drained = false;
            if !self.clients[client].waiting.is_empty() {
                self.grant(client);
                self.send(client, at, decisions);
            }
        }
        while let Some(turn) = self.places.next(at) {
            if turn.is_expired {
                decisions.push((turn.request, Decision::Expired));
                self.answered(turn.request, at, decisions);
            } else {
                decisions.push((turn.request, Decision::Admitted(None)));
            }
        }
    }

    /// A client has its answer, and sends what it has credit for now.
    fn answered(&mut self, request: u32, at: (Instant, u64), decisions: &mut Decisions) {
        let client = self.of_request.remove(&request);
        let client = client.expect("what is at the server is of a client");
        self.clients[client].sent -= 1;
        self.grant(client);
        self.send(client, at, decisions);
    }
}
