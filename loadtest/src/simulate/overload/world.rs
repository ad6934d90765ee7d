//! The simulated world of an overload: sources, doors, shards, and the clock.
//!
//! Load is open: requests come whatever became of those before. A request that is not answered when
//! its client's time is up is of no use to anybody, but the store does not know, and works on it.
//!
//! Each shard has a door for reads and one for writes, as a dispatcher has. Writes are done in groups, so
//! that they take a worker from nobody and no longer because of each other.

use std::time::{Duration, Instant};

use umbo_overload::{Entry, Permit, QueueSettings};
use umbo_types::{Criticality, Deadline, Operation, RequestUnits};

use super::account::{Account, Who};
use super::decision::{Decision, Decisions};
use super::door::{Bucket, Discipline, Door};
use super::scenario::Scenario;
use super::store::Store;
use crate::random::Random;
use crate::simulate::agenda::Agenda;

/// How often doors are looked after.
const TICK_NS: u64 = 5_000_000;
/// Sum of the fixed quotas of all callers, in parts of what the shards can do. They are sold twice
/// because hardly anybody uses all of its own.
const QUOTAS: f64 = 2.0;

enum Event {
    Arrive(usize),
    End(u32),
    Tick,
}

/// A request.
#[derive(Debug)]
struct Request {
    who: Who,
    criticality: Criticality,
    operation: Operation,
    permit: Option<Permit>,
    admitted_ns: u64,
    /// What there is still to do, in nanoseconds of a worker, once it does what is under way.
    left_ns: f64,
}

struct World<'a> {
    scenario: &'a Scenario,
    begun: Instant,
    random: Random,
    agenda: Agenda<Event>,
    /// By the number of a door.
    doors: Vec<Door>,
    stores: Vec<Store>,
    /// Of each source, of each of its callers; none where there are no quotas.
    quotas: Vec<Vec<Bucket>>,
    requests: Vec<Option<Request>>,
    free: Vec<u32>,
    account: Account,
}

/// Runs a scenario with one discipline.
pub(crate) fn run(scenario: &Scenario, discipline: Discipline, settings: QueueSettings) -> Account {
    let shards = scenario.shards;
    let mut world = World {
        scenario,
        begun: Instant::now(),
        random: Random::seeded(scenario.seed),
        agenda: Agenda::new(),
        doors: (0..shards)
            .flat_map(|_| doors(discipline, settings))
            .collect(),
        stores: (0..shards)
            .map(|shard| Store::new(scenario, shard))
            .collect(),
        quotas: quotas(scenario, discipline),
        requests: Vec::new(),
        free: Vec::new(),
        account: Account::new(scenario.sources.len(), shards),
    };
    for source in 0..scenario.sources.len() {
        world.arrange(source, 0);
    }
    world.agenda.enter(0, Event::Tick);
    while let Some((now_ns, event)) = world.agenda.next() {
        if now_ns >= scenario.length_ns {
            break;
        }
        world.happen(&event, now_ns);
    }
    world.account.close_all();
    world.account
}

/// Returns the doors of a shard: for reads, and for writes, which take no worker but places of Umbo's number.
fn doors(discipline: Discipline, reads: QueueSettings) -> [Door; 2] {
    let writes = reads.for_groups();
    [reads, writes].map(|settings| Door::new(discipline, settings))
}

fn quotas(scenario: &Scenario, discipline: Discipline) -> Vec<Vec<Bucket>> {
    if discipline != Discipline::Quotas {
        return Vec::new();
    }
    // Quotas follow what is usual; who usually asks for nothing has the quota of a hundredth.
    let usual: f64 = scenario.sources.iter().map(|source| source.load[0]).sum();
    let bucket = |source: &super::scenario::Source| {
        let part = (source.load[0] / usual).max(0.01);
        let rate = scenario.capacity() * QUOTAS * part / source.times / source.callers as f64;
        vec![Bucket::new(rate); source.callers as usize]
    };
    scenario.sources.iter().map(bucket).collect()
}

impl World<'_> {
    fn instant(&self, at_ns: u64) -> Instant {
        self.begun + Duration::from_nanos(at_ns)
    }

    /// Enters the next request of a source.
    fn arrange(&mut self, source: usize, now_ns: u64) {
        let scenario = self.scenario;
        let asks = &scenario.sources[source];
        let gap = self.random.exponential();
        let rate = |load: f64| load * scenario.capacity() / asks.times / 1e9;
        // Piecewise constant: what is left of the gap is spent at the next rate.
        let (mut at, mut gap) = (now_ns as f64, gap);
        for (until_ns, load) in [
            (scenario.from_ns, asks.load[0]),
            (scenario.to_ns, asks.load[1]),
            (scenario.length_ns, asks.load[0]),
        ] {
            let until = until_ns as f64;
            if at >= until {
                continue;
            }
            let gain = rate(load) * (until - at);
            if gain >= gap && gain > 0.0 {
                self.agenda
                    .enter((at + gap / rate(load)) as u64, Event::Arrive(source));
                return;
            }
            gap -= gain;
            at = until;
        }
    }

    fn happen(&mut self, event: &Event, now_ns: u64) {
        let mut decisions = Decisions::new();
        let now = self.instant(now_ns);
        let mut shard_of = 0;
        match *event {
            Event::Arrive(source) => {
                self.arrange(source, now_ns);
                shard_of = self.arrive(source, now_ns, &mut decisions);
            }
            Event::End(request) => {
                if let Some(shard) = self.end(request, now_ns, &mut decisions) {
                    shard_of = shard;
                }
            }
            Event::Tick => {
                for door in 0..self.doors.len() {
                    self.doors[door].tick(now, &mut decisions);
                    self.decide(door / 2, std::mem::take(&mut decisions), now_ns);
                }
                self.agenda.enter(now_ns + TICK_NS, Event::Tick);
            }
        }
        self.decide(shard_of, decisions, now_ns);
    }

    fn arrive(&mut self, source: usize, now_ns: u64, decisions: &mut Decisions) -> usize {
        let asks = self.scenario.sources[source];
        let shard = self.random.below(self.scenario.shards as u64) as usize;
        let caller = self.random.below(asks.callers);
        let drawn = self.scenario.spread.draw(&mut self.random);
        let who = Who {
            source,
            shard,
            is_sound: shard >= self.scenario.troubled,
            is_write: asks.operation.is_write(),
            arrived_ns: now_ns,
            work_ns: self.scenario.service_ns * asks.times * drawn,
        };
        self.account.offered(&who);
        if let Some(buckets) = self.quotas.get_mut(source)
            && !buckets[caller as usize].admits(now_ns)
        {
            self.account.shed(&who, asks.criticality as usize, now_ns);
            return shard;
        }
        let number = self.keep(Request {
            who,
            criticality: asks.criticality,
            operation: asks.operation,
            permit: None,
            admitted_ns: 0,
            left_ns: who.work_ns,
        });
        let now = self.instant(now_ns);
        let entry = Entry {
            criticality: asks.criticality,
            caller: (source as u64) << 32 | caller,
            price: RequestUnits::from_micros((asks.times * 1e6) as u64),
            deadline: Deadline::at(self.instant(now_ns + self.scenario.timeout_ns)),
            is_above_share: false,
        };
        self.doors[who.door()].enter(number, &entry, (now, now_ns), decisions);
        shard
    }

    fn keep(&mut self, request: Request) -> u32 {
        if let Some(number) = self.free.pop() {
            self.requests[number as usize] = Some(request);
            return number;
        }
        self.requests.push(Some(request));
        self.requests.len() as u32 - 1
    }

    fn end(&mut self, number: u32, now_ns: u64, decisions: &mut Decisions) -> Option<usize> {
        let place = self.requests[number as usize].as_ref();
        let request = place.expect("what is worked on is there");
        let shard = request.who.shard;
        if let Some(later_ns) = self.stores[shard].delayed_ns(now_ns) {
            self.agenda.enter(later_ns, Event::End(number));
            return None;
        }
        if request.left_ns >= 1.0 {
            self.begin(number, now_ns);
            return None;
        }
        let request = self.forget(number);
        if now_ns - request.who.arrived_ns <= self.scenario.timeout_ns {
            self.account.good(&request.who, now_ns);
        }
        if !request.who.is_write
            && let Some(next) = self.stores[shard].end()
        {
            self.begin(next, now_ns);
        }
        let served = (
            request.operation,
            Duration::from_nanos(now_ns - request.admitted_ns),
        );
        let now = self.instant(now_ns);
        let door = &mut self.doors[request.who.door()];
        door.leave(request.permit, served, (now, now_ns), decisions);
        Some(shard)
    }

    fn forget(&mut self, number: u32) -> Request {
        self.free.push(number);
        let request = self.requests[number as usize].take();
        request.expect("what is decided is there")
    }

    fn decide(&mut self, shard: usize, decisions: Decisions, now_ns: u64) {
        for (number, decision) in decisions {
            match decision {
                Decision::Admitted(permit) => {
                    let request = self.requests[number as usize].as_mut();
                    let request = request.expect("who waits is there");
                    let is_by_floor = permit.as_ref().is_some_and(Permit::is_by_floor);
                    request.permit = permit;
                    request.admitted_ns = now_ns;
                    let tier = request.criticality as usize;
                    let who = request.who;
                    self.account.admitted(&who, tier, is_by_floor, now_ns);
                    if who.is_write {
                        self.begin(number, now_ns);
                    } else if let Some(begun) = self.stores[shard].take(number) {
                        self.begin(begun, now_ns);
                    }
                }
                Decision::Shed => {
                    let request = self.forget(number);
                    let tier = request.criticality as usize;
                    self.account.shed(&request.who, tier, now_ns);
                }
                Decision::Expired => drop(self.forget(number)),
            }
        }
    }

    /// Begins a request at its shard, or goes on with it.
    fn begin(&mut self, number: u32, now_ns: u64) {
        let request = self.requests[number as usize].as_mut();
        let request = request.expect("what is begun is there");
        let store = &self.stores[request.who.shard];
        let end_ns;
        (end_ns, request.left_ns) = if request.who.is_write {
            (store.commit_ns(now_ns, request.left_ns), 0.0)
        } else {
            store.goes_on(now_ns, request.left_ns, self.scenario.service_ns / 4.0)
        };
        self.agenda.enter(end_ns, Event::End(number));
    }
}
