//! A world of dispatchers that share counters, in steps of five milliseconds: their real limiters and messages, a network
//! and an ownership row that fail in every way, and clients that ask for more or less than the quota.
//!
//! A check that fails prints the seed and the faults so far.

mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbo_quota::{
    ActualUsage, FLEET_TICK, FleetQuota, Limit, Limiter, OWNERS_MAX, OwnerRow, PolicyScope,
    PolicySet, Reservation, RowWish, Weights,
};
use umbo_types::{Operation, ShardId};

use crate::counters::Counter;
use crate::lies;
use crate::support::{Random, SECRET, admit, fleet_quota, limiter, put, written};

pub(crate) const STEP_MS: u64 = 5;
/// Mean time between two faults.
const FAULT_MS: u64 = 400;
/// How often a dispatcher reads members and row anyway.
const LOOK_MS: u64 = 1_000;
/// How long the presence of a dispatcher outlives it.
const PRESENCE_MS: u64 = 2_000;
/// Time after the faults until shares and row have to be right again.
const SETTLE_MS: u64 = 4_500;
/// Time in which the fleet is measured then.
const CALM_MS: u64 = 5_000;
const NODES_MAX: usize = 11;

/// Faults of a world. Lost, late and repeated messages come in each.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each fault comes or does not"
)]
pub(crate) struct Faults {
    /// Dispatchers are killed, leave and begin.
    pub(crate) deaths: bool,
    /// Dispatchers are cut off from each other and from the row, and read old rows.
    pub(crate) cuts: bool,
    /// The limit changes, and the policy goes and comes back.
    pub(crate) policies: bool,
    /// Some requests cost more than a burst. A change of owners may count one twice, so the rate
    /// afterwards is not checked.
    pub(crate) large: bool,
    /// A peer sends garbage and lies.
    pub(crate) lies: bool,
}

struct Node {
    id: u64,
    limiter: Arc<Limiter>,
    quota: FleetQuota,
    tick_ms: u64,
    look_ms: u64,
    /// Dispatchers of another group are out of reach.
    group: u64,
    is_cut_from_row: bool,
    leaves_ms: Option<u64>,
    flights: Vec<Flight>,
}

/// An admitted request under way.
struct Flight {
    due_ms: u64,
    reservation: Reservation,
    work: ActualUsage,
    counter: usize,
    /// Estimate less cost, in micro-RU: owed back.
    beyond: u64,
}

enum Mail {
    Report(u64, u64, Vec<u8>),
    Answer(u64, u64, Vec<u8>),
    Row(u64, OwnerRow),
    Write(u64, OwnerRow),
}

pub(crate) struct World {
    seed: u64,
    faults: Faults,
    random: Random,
    origin: Instant,
    now_ms: u64,
    calm_ms: u64,
    rows: Vec<OwnerRow>,
    nodes: Vec<Node>,
    gone: Vec<(u64, u64)>,
    /// Mail on its way, by the time at which it comes and a number.
    mail: BTreeMap<(u64, u64), Mail>,
    sent: u64,
    policies: PolicySet,
    scope: PolicyScope,
    first_limit: Limit,
    counters: Vec<Counter>,
    /// Part of the messages that are lost, and the longest way.
    lost: f64,
    late_ms: u64,
    begun: u64,
    /// Names of counters, as a peer sees them in messages.
    named: Vec<[u8; 16]>,
    events: Vec<String>,
}

impl World {
    pub(crate) fn run(seed: u64, faults: Faults) -> Vec<Counter> {
        let mut random = Random(seed);
        let counters: Vec<Counter> = (0..=random.below(3))
            .map(|at| Counter::new(at, &mut random))
            .collect();
        let limit = counters[0].limit;
        // A caller of a shard's quota asks for rows of one shard.
        let scope = [PolicyScope::Fleet, PolicyScope::Shard][seed as usize % 2];
        let mut world = Self {
            seed,
            faults,
            origin: Instant::now(),
            now_ms: 0,
            calm_ms: 5_000 + random.below(8_000),
            rows: vec![OwnerRow::default()],
            nodes: Vec::new(),
            gone: Vec::new(),
            mail: BTreeMap::new(),
            sent: 0,
            policies: fleet_quota(limit, scope),
            scope,
            first_limit: limit,
            counters: counters
                .into_iter()
                .map(|one| one.with_limit(limit))
                .collect(),
            lost: random.pick(&[0.0, 0.1, 0.3]),
            late_ms: random.pick(&[2, 20, 150]),
            begun: 0,
            named: Vec::new(),
            events: Vec::new(),
            random,
        };
        world.events.push(format!(
            "{limit:?}, calm from {} ms, lost {}, late {}",
            world.calm_ms, world.lost, world.late_ms
        ));
        for _ in 0..=world.random.below(8) {
            world.begin();
        }
        while world.now_ms < world.calm_ms + SETTLE_MS + CALM_MS {
            world.step();
        }
        world.end();
        world.counters
    }

    fn step(&mut self) {
        if self.now_ms == self.calm_ms / STEP_MS * STEP_MS {
            self.heal();
        } else if self.now_ms < self.calm_ms && self.random.one_in(FAULT_MS / STEP_MS) {
            self.harm();
        }
        while let Some(entry) = self.mail.first_entry()
            && entry.key().0 <= self.now_ms
        {
            let mail = entry.remove();
            self.deliver(mail);
        }
        for at in 0..self.nodes.len() {
            self.tick(at);
        }
        let now_ms = self.now_ms;
        self.nodes
            .retain(|node| node.leaves_ms.is_none_or(|at| at > now_ms));
        self.ask();
        let mut sides: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (node.group, node.quota.report().row.revision))
            .collect();
        sides.sort_unstable();
        sides.dedup();
        let is_lie = self.faults.lies;
        let is_cut = |node: &Node| node.group != self.nodes[0].group || node.is_cut_from_row;
        let is_cut = self.nodes.iter().any(is_cut);
        for at in 0..self.counters.len() {
            let counter = &mut self.counters[at];
            counter.pass(STEP_MS, sides.len() as u64, is_cut);
            if now_ms == self.calm_ms / STEP_MS * STEP_MS + SETTLE_MS {
                counter.measure();
            }
            if !is_lie && let Err(text) = counter.check(self.begun) {
                self.fail(&text);
            }
        }
        self.now_ms += STEP_MS;
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.now_ms)
    }

    fn note(&mut self, text: impl Into<String>) {
        self.events
            .push(format!("{:>6} ms: {}", self.now_ms, text.into()));
    }

    fn fail(&self, text: &str) -> ! {
        let events = self.events.join("\n");
        panic!(
            "seed {} of {:?}, at {} ms: {text}\n{events}",
            self.seed, self.faults, self.now_ms
        );
    }

    fn row(&self) -> &OwnerRow {
        self.rows.last().expect("there is one")
    }

    fn begin(&mut self) {
        let id = self.random.next() | 1;
        let limiter = limiter(self.policies.clone(), self.random.next(), self.now());
        let limiter = Arc::new(limiter);
        let quota = FleetQuota::new(Arc::clone(&limiter), id, &SECRET);
        self.nodes.push(Node {
            id,
            limiter,
            quota,
            tick_ms: self.now_ms,
            look_ms: self.now_ms,
            group: 0,
            is_cut_from_row: false,
            leaves_ms: None,
            flights: Vec::new(),
        });
        self.begun += 1;
        self.note(format!("{id:x} begins"));
        self.look(self.nodes.len() - 1);
    }

    fn send(&mut self, mail: Mail, late_ms: u64) {
        let at_ms = self.now_ms + 1 + self.random.below(late_ms.max(1));
        self.sent += 1;
        self.mail.insert((at_ms, self.sent), mail);
    }

    /// Sends a message from one dispatcher to another; it may be lost or repeated, and some come very late.
    fn post(&mut self, make: impl Fn() -> Mail) {
        let lot = self.random.unit();
        let copies = match lot {
            lot if lot < self.lost => 0,
            lot if lot < self.lost * 1.3 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let is_late = self.lost > 0.0 && self.random.one_in(200);
            self.send(make(), if is_late { 5_000 } else { self.late_ms });
        }
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    fn deliver(&mut self, mail: Mail) {
        let now = self.now();
        match mail {
            Mail::Report(from, to, body) => {
                let (Some(at), Some(sender)) = (self.find(to), self.find(from)) else {
                    return;
                };
                if self.nodes[at].group != self.nodes[sender].group {
                    return;
                }
                let Ok(answer) = self.nodes[at].quota.hear(&body, now) else {
                    self.fail("a message cannot be read")
                };
                self.post(|| Mail::Answer(to, from, answer.clone()));
            }
            Mail::Answer(owner, to, body) => {
                if let (Some(at), Some(sender)) = (self.find(to), self.find(owner))
                    && self.nodes[at].group == self.nodes[sender].group
                {
                    self.nodes[at].quota.answered(owner, &body, now);
                }
            }
            Mail::Row(to, row) => {
                if let Some(at) = self.find(to) {
                    self.nodes[at].quota.set_row(&row);
                }
            }
            Mail::Write(from, row) => {
                if row.revision == self.row().revision + 1 {
                    let mut owners = row.owners.clone();
                    owners.sort_unstable();
                    owners.dedup();
                    if owners.len() != row.owners.len() || owners.len() > OWNERS_MAX {
                        self.fail(&format!("{row:?} is no row"));
                    }
                    self.note(format!("{from:x} writes {row:x?}"));
                    self.rows.push(row);
                }
                let row = self.row().clone();
                self.send(Mail::Row(from, row), 5);
            }
        }
    }

    /// Reads members and row.
    fn look(&mut self, at: usize) {
        let is_present = |(_, since): &&(u64, u64)| self.now_ms - since < PRESENCE_MS;
        let gone = self.gone.iter().filter(is_present).map(|(id, _)| *id);
        let ids: Vec<u64> = self.nodes.iter().map(|node| node.id).chain(gone).collect();
        let node = &mut self.nodes[at];
        node.look_ms = self.now_ms + LOOK_MS;
        if !node.is_cut_from_row {
            node.quota.set_members(&ids);
            self.read_row(at);
        }
    }

    fn read_row(&mut self, at: usize) {
        let is_old = self.faults.cuts && self.now_ms < self.calm_ms && self.random.one_in(4);
        let back = if is_old { self.random.below(3) } else { 0 } as usize;
        let row = self.rows[self.rows.len().saturating_sub(1 + back)].clone();
        self.send(Mail::Row(self.nodes[at].id, row), 5);
    }

    fn tick(&mut self, at: usize) {
        let now = self.now();
        if self.now_ms >= self.nodes[at].look_ms {
            self.look(at);
            self.nodes[at].limiter.maintain(now);
        }
        let node = &mut self.nodes[at];
        node.flights.retain_mut(|flight| {
            let is_due = flight.due_ms <= self.now_ms;
            if is_due && flight.work.rows == 0 {
                flight.reservation.release();
            } else if is_due {
                flight.reservation.settle(&flight.work);
            }
            !is_due
        });
        if self.now_ms < node.tick_ms {
            return;
        }
        node.tick_ms = self.now_ms + FLEET_TICK.as_millis() as u64;
        let (id, is_cut) = (node.id, node.is_cut_from_row);
        let messages = node.quota.tick(now);
        let may_change_row = !is_cut && node.leaves_ms.is_none();
        match node.quota.row_wish(now) {
            RowWish::Read if may_change_row => self.read_row(at),
            RowWish::Change(row) if may_change_row => self.send(Mail::Write(id, row), 5),
            RowWish::Nothing | RowWish::Read | RowWish::Change(_) => {}
        }
        for message in messages {
            if let Some(name) = lies::named(&message.body)
                && self.named.len() < 8
                && !self.named.contains(&name)
            {
                self.named.push(name);
            }
            self.post(|| Mail::Report(id, message.to, message.body.clone()));
        }
    }

    /// Lets clients ask.
    fn ask(&mut self) {
        let now = self.now();
        let up: Vec<usize> = (0..self.nodes.len())
            .filter(|at| self.nodes[*at].leaves_ms.is_none())
            .collect();
        if up.is_empty() {
            return;
        }
        for (index, counter) in self.counters.iter_mut().enumerate() {
            for _ in 0..counter.due(STEP_MS, &mut self.random) {
                let at = up[counter.place(up.len(), &mut self.random)];
                let node = &mut self.nodes[at];
                let is_calm = self.now_ms >= self.calm_ms;
                let most = match (is_calm, self.faults.large) {
                    (true, _) => None,
                    (false, true) => Some(250),
                    (false, false) => Some(50),
                };
                let (len, done) = counter.draw(most, &mut self.random);
                let request = put(&counter.name, len);
                let shard = ShardId(index as u16 % 2);
                let random = self.random.next();
                let Ok(mut reservation) = admit(&node.limiter, &request, shard, now, random) else {
                    continue;
                };
                let work = done.map_or(ActualUsage::default(), written);
                let cost = done.map_or(0, |_| {
                    Weights::default().price(Operation::Put, &work).as_micros()
                });
                let estimate = reservation.estimate().as_micros();
                counter.admit(estimate, cost);
                reservation.sent();
                node.flights.push(Flight {
                    due_ms: self.now_ms + self.random.below(60),
                    reservation,
                    work,
                    counter: index,
                    beyond: estimate.saturating_sub(cost),
                });
            }
        }
    }

    fn end(&mut self) {
        for node in &self.nodes {
            let report = node.quota.report();
            if !report.silent.is_empty() {
                self.fail(&format!("{:x} finds {:x?} silent", node.id, report.silent));
            }
            if report.row != *self.row() {
                self.fail(&format!("{:x} knows {:x?}", node.id, report.row));
            }
        }
        let owners = &self.row().owners;
        let is_owner = |node: &Node| owners.contains(&node.id);
        if owners.len() < OWNERS_MAX && !self.nodes.iter().all(is_owner) {
            self.fail(&format!("the row is {owners:x?}"));
        }
        for counter in &self.counters {
            if !self.faults.lies
                && !self.faults.large
                && let Err(text) = counter.check_calm(CALM_MS)
            {
                self.fail(&text);
            }
        }
    }
}
