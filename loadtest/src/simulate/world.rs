//! The simulated world: pods with their limiters, callers with their requests, and the clock.
//!
//! The limiters are the real ones; all else is events. Nothing sleeps and no clock is read but once,
//! for an instant from which simulated time is counted. The invariant: equal scenarios give equal
//! outcomes, whatever the machine does besides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use umbo_quota::{
    BroughtTicket, Limiter, LimiterSettings, PolicySet, QuotaRequest, Rejection, Reservation,
    RetryTicket, Subject, Unit, Weights,
};
use umbo_types::{Attributes, NamespaceId, PriceMultiplier, Timestamp};

use super::account::Account;
use super::agenda::Agenda;
use super::arrivals::{Arrivals, SECOND_NS};
use super::client::{Client, Clients};
use super::fleet::{Faults, Fleet, FleetEvent};
use super::ideal::Quota;
use super::pattern::{Behaviour, Caller};
use super::settle_error::{Costs, SettleError};
use super::work::{Job, Knowledge};
use crate::random::Random;

/// Shortest service time of the simulated store.
const SERVICE_LEAST_NS: u64 = 500_000;
/// Mean of what a request takes beyond that, exponentially distributed.
const SERVICE_MORE_NS: f64 = 1_500_000.0;
/// Longest service time.
const SERVICE_MOST_NS: u64 = 40_000_000;

/// The clock that all pods share, at the beginning.
const CLOCK_MS: u64 = 1_800_000_000_000;

/// What is simulated.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Of all randomness.
    pub(crate) seed: u64,
    /// Simulated seconds.
    pub(crate) length_s: u64,
    /// Dispatchers, each with a limiter of its own.
    pub(crate) pods: u32,
    /// Who asks.
    pub(crate) callers: Vec<Caller>,
    /// What each of them may spend on each pod, or in the whole fleet, in atoms of `unit`.
    pub(crate) quota: Quota,
    /// Whether the pods share counters, and what goes wrong then.
    pub(crate) fleet: Option<Faults>,
    /// What the quota counts: `ru` or `requests`.
    pub(crate) unit: Unit,
    /// How wrong estimates are.
    pub(crate) error: SettleError,
    /// Mean cost of a request, in micro-RU.
    pub(crate) mean_cost: u64,
    /// How costs can be known beforehand.
    pub(crate) knowledge: Knowledge,
    /// What the limiters enforce.
    pub(crate) policies: PolicySet,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Accounts: callers by the order in which their names come first, and the pods of each; one for all pods of a
    /// fleet.
    pub(crate) accounts: Vec<Vec<Account>>,
    /// What closed-loop clients met with.
    pub(crate) clients: Clients,
    /// Sum of all charges, in micro-RU.
    pub(crate) charged: u128,
    /// Sum of the ledgers of all pods, in micro-RU.
    pub(crate) ledger: u128,
}

#[derive(Debug)]
enum Event {
    /// A source has a request.
    Arrive(u32),
    /// A client asks, or asks again.
    Try(u32),
    /// The store has answered.
    Settle(u32),
    /// A second is over.
    Maintain,
    /// Of the fleet.
    Fleet(FleetEvent),
}

/// An admitted request.
struct Flight {
    reservation: Reservation,
    job: Job,
    caller: u32,
    pod: u32,
    number: u64,
    admitted_ns: u64,
    client: Option<u32>,
}

/// An open-loop caller.
struct Source {
    caller: u32,
    arrivals: Arrivals,
    next_pod: u32,
}

/// A scenario under way.
struct World<'a> {
    scenario: &'a Scenario,
    begun: Instant,
    random: Random,
    agenda: Agenda<Event>,
    limiters: Vec<Arc<Limiter>>,
    fleet: Option<Fleet>,
    weights: Weights,
    sources: Vec<Source>,
    clients: Clients,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    accounts: Vec<Vec<Account>>,
    /// The account of each caller: those of one name share one.
    account_of: Vec<usize>,
    charged: u128,
}

impl Scenario {
    /// Returns the names of all callers, each once.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for caller in &self.callers {
            if !names.contains(&caller.name.as_str()) {
                names.push(&caller.name);
            }
        }
        names
    }

    /// Returns for how many pods each caller has another quota.
    fn books(&self) -> u32 {
        if self.fleet.is_some() { 1 } else { self.pods }
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> Outcome {
        let mut world = World::new(self);
        world.begin();
        let end_ns = self.length_s * SECOND_NS;
        while let Some((at_ns, event)) = world.agenda.next() {
            // After the end only what is in flight is settled.
            if at_ns < end_ns || matches!(event, Event::Settle(_)) {
                world.happen(at_ns, event);
            }
        }
        world.finish()
    }
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let begun = Instant::now();
        let weights = Weights::default();
        let limiter = |pod| new_limiter(scenario, pod, begun);
        let limiters: Vec<_> = (0..scenario.pods).map(limiter).collect();
        let mut random = Random::seeded(scenario.seed);
        let fleet = scenario
            .fleet
            .map(|faults| Fleet::new(&limiters, faults, Random::seeded(random.next())));
        let account = || Account::new(scenario.quota, scenario.length_s as usize);
        let accounts = || (0..scenario.books()).map(|_| account()).collect();
        let names = scenario.names();
        let account_of = |caller: &Caller| names.iter().position(|name| *name == caller.name);
        Self {
            scenario,
            begun,
            random,
            agenda: Agenda::new(),
            limiters,
            fleet,
            weights,
            sources: Vec::new(),
            clients: Clients::default(),
            flights: Vec::new(),
            free: Vec::new(),
            accounts: names.iter().map(|_| accounts()).collect(),
            account_of: scenario.callers.iter().filter_map(account_of).collect(),
            charged: 0,
        }
    }

    /// Lets every caller begin.
    fn begin(&mut self) {
        let scenario = self.scenario;
        for second in 1..=scenario.length_s {
            self.agenda.enter(second * SECOND_NS, Event::Maintain);
        }
        let due = self.fleet.as_mut().map(Fleet::begin);
        self.enter_all(0, due.unwrap_or_default());
        // Requests a second that use up the quota of all pods.
        let mean = match scenario.unit {
            Unit::Requests => Unit::Requests.atoms_per_unit(),
            _ => scenario.mean_cost,
        };
        let rate = scenario.quota.rate as f64 / mean as f64 * f64::from(scenario.books());
        for (caller, Caller { behaviour, .. }) in (0..).zip(&scenario.callers) {
            match *behaviour {
                Behaviour::Open {
                    shape,
                    scale,
                    is_random,
                } => {
                    let random = Random::seeded(self.random.next());
                    let (rate, length_ns) = (rate * scale, scenario.length_s * SECOND_NS);
                    let arrivals = Arrivals::new(shape, rate, is_random, length_ns, random);
                    let next_pod = 0;
                    self.sources.push(Source {
                        caller,
                        arrivals,
                        next_pod,
                    });
                    self.await_next(self.sources.len() as u32 - 1);
                }
                Behaviour::Closed {
                    clients,
                    demand,
                    is_obedient,
                } => {
                    let cycle_ns = f64::from(clients) / (rate * demand) * SECOND_NS as f64;
                    let service_ns = SERVICE_LEAST_NS as f64 + SERVICE_MORE_NS;
                    let think_ns = (cycle_ns - service_ns).max(0.0);
                    for at in 0..clients {
                        let pod = at % scenario.pods;
                        let client = Client::new(caller, pod, think_ns, is_obedient);
                        let index = self.clients.add(client);
                        let first_ns = (cycle_ns * self.random.unit()) as u64;
                        self.agenda.enter(first_ns, Event::Try(index));
                    }
                }
            }
        }
    }

    fn happen(&mut self, at_ns: u64, event: Event) {
        match event {
            Event::Arrive(source) => self.arrive(at_ns, source),
            Event::Try(client) => self.attempt(at_ns, client),
            Event::Settle(flight) => self.settle(at_ns, flight),
            Event::Maintain => {
                let now = self.instant(at_ns);
                for limiter in &self.limiters {
                    limiter.maintain(now);
                }
                self.harm(at_ns);
            }
            Event::Fleet(event) => {
                let now = self.instant(at_ns);
                let due = self
                    .fleet
                    .as_mut()
                    .map(|fleet| fleet.happen(event, at_ns, now));
                self.enter_all(at_ns, due.unwrap_or_default());
            }
        }
    }

    fn enter_all(&mut self, at_ns: u64, due: Vec<(u64, FleetEvent)>) {
        for (after_ns, event) in due {
            self.agenda.enter(at_ns + after_ns, Event::Fleet(event));
        }
    }

    /// Kills dispatchers, and begins others, as the faults of the scenario say.
    fn harm(&mut self, at_ns: u64) {
        let (Some(fleet), Some(faults)) = (&mut self.fleet, self.scenario.fleet) else {
            return;
        };
        let second = at_ns / SECOND_NS;
        if faults.killed_at_s == Some(second)
            && let Some(owner) = fleet.busiest_owner()
        {
            fleet.kill(owner, at_ns);
        }
        if let Some(churn_s) = faults
            .churn_s
            .filter(|churn_s| second.is_multiple_of(*churn_s))
        {
            let round = second / churn_s;
            let pods = self.scenario.pods;
            fleet.kill((round % u64::from(pods)) as u32, at_ns);
            let back = ((round + u64::from(pods) - 1) % u64::from(pods)) as u32;
            if !fleet.is_up(back) {
                let limiter = new_limiter(
                    self.scenario,
                    back + pods * second as u32,
                    self.instant(at_ns),
                );
                self.limiters[back as usize] = limiter;
                let fleet = self.fleet.as_mut().expect("it was there");
                let due = fleet.begin_again(back, &self.limiters[back as usize]);
                self.enter_all(at_ns, due);
            }
        }
    }

    /// Returns the pod that a request for `pod` goes to: in a fleet, to one that runs.
    fn pod_for(&self, pod: u32) -> u32 {
        let (Some(fleet), Some(faults)) = (&self.fleet, self.scenario.fleet) else {
            return pod;
        };
        let first = if faults.is_on_one { 0 } else { pod };
        let pods = (0..self.scenario.pods).map(|more| (first + more) % self.scenario.pods);
        pods.clone().find(|pod| fleet.is_up(*pod)).unwrap_or(first)
    }

    fn instant(&self, at_ns: u64) -> Instant {
        self.begun + Duration::from_nanos(at_ns)
    }

    fn await_next(&mut self, source: u32) {
        if let Some(at_ns) = self.sources[source as usize].arrivals.next_ns() {
            self.agenda.enter(at_ns, Event::Arrive(source));
        }
    }

    fn draw(&mut self) -> Costs {
        let Scenario {
            error, mean_cost, ..
        } = *self.scenario;
        error.draw(mean_cost, &mut self.random)
    }

    fn arrive(&mut self, at_ns: u64, index: u32) {
        let source = &mut self.sources[index as usize];
        let (caller, pod) = (source.caller, source.next_pod);
        source.next_pod = (pod + 1) % self.scenario.pods;
        let costs = self.draw();
        // What was rejected is forgotten.
        let _ = self.offer(at_ns, (caller, pod), costs, None, None);
        self.await_next(index);
    }

    fn attempt(&mut self, at_ns: u64, index: u32) {
        if self.clients.is_at_rest(index) {
            let costs = self.draw();
            self.clients.begin(index, costs);
        }
        let client = self.clients.get(index);
        let (place, costs, ticket) = ((client.caller, client.pod), client.costs, client.ticket);
        match self.offer(at_ns, place, costs, ticket, Some(index)) {
            Ok(()) => self.clients.admitted(index),
            Err(rejection) => {
                let again_ns = self.clients.rejected(index, &rejection, &mut self.random);
                self.agenda.enter(at_ns + again_ns, Event::Try(index));
            }
        }
    }

    /// Asks a pod to admit a request, and fetches it if it does.
    fn offer(
        &mut self,
        at_ns: u64,
        (caller, pod): (u32, u32),
        costs: Costs,
        ticket: Option<RetryTicket>,
        client: Option<u32>,
    ) -> Result<(), Box<Rejection>> {
        let now = self.instant(at_ns);
        let scenario = self.scenario;
        let pod = self.pod_for(pod);
        let book = (pod % scenario.books()) as usize;
        let shared = Timestamp::from_millis(CLOCK_MS + at_ns / 1_000_000);
        let more_ns = (self.random.exponential() * SERVICE_MORE_NS) as u64;
        let service_ns = (SERVICE_LEAST_NS + more_ns).min(SERVICE_MOST_NS);
        let job = Job::new(&self.weights, scenario.knowledge, costs, service_ns);
        let price = self.weights.price(job.operation, &job.work).as_micros();
        let account = &mut self.accounts[self.account_of[caller as usize]][book];
        account.offered(at_ns, counted(scenario.unit, price));
        let request = QuotaRequest {
            subject: Subject {
                caller: &scenario.callers[caller as usize].name,
                namespace: "simulated",
                namespace_id: NamespaceId(1),
                attributes: Attributes::NONE,
                operation: job.operation,
            },
            hint: job.hint,
            ticket: ticket.map(|ticket| {
                BroughtTicket::Issued(self.limiters[pod as usize].ticket_in(ticket, shared, now))
            }),
            price_multiplier: PriceMultiplier::NONE,
        };
        let limiter = &self.limiters[pod as usize];
        let mut reservation = match limiter.admit(&request, now, self.random.next()) {
            Ok(reservation) => reservation,
            Err(mut rejection) => {
                account.rejected += 1;
                let ticket = rejection.ticket;
                rejection.ticket = ticket.map(|ticket| limiter.ticket_out(ticket, shared, now));
                return Err(rejection);
            }
        };
        reservation.sent();
        let flight = Flight {
            reservation,
            job,
            caller,
            pod,
            number: account.admit(at_ns),
            admitted_ns: at_ns,
            client,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() as u32 - 1
        });
        self.flights[index as usize] = Some(flight);
        self.agenda.enter(at_ns + service_ns, Event::Settle(index));
        Ok(())
    }

    fn settle(&mut self, at_ns: u64, index: u32) {
        let flight = self.flights[index as usize].take();
        let mut flight = flight.expect("a request in flight is settled once");
        self.free.push(index);
        let charged = flight.reservation.settle(&flight.job.work).as_micros();
        self.charged += u128::from(charged);
        let account = self.account_of[flight.caller as usize];
        let book = flight.pod % self.scenario.books();
        let account = &mut self.accounts[account][book as usize];
        let amount = counted(self.scenario.unit, charged);
        account.settle(flight.number, flight.admitted_ns, amount);
        if let Some(client) = flight.client {
            let rest_ns = self.clients.answered(client, &mut self.random);
            self.agenda.enter(at_ns + rest_ns, Event::Try(client));
        }
    }

    fn finish(self) -> Outcome {
        let of_pod = |limiter: &Arc<Limiter>| -> u128 {
            let rows = limiter.usage().rows.into_iter();
            rows.map(|row| u128::from(row.tally.charged.as_micros()))
                .sum()
        };
        Outcome {
            ledger: self.limiters.iter().map(of_pod).sum(),
            accounts: self.accounts,
            clients: self.clients,
            charged: self.charged,
        }
    }
}

fn new_limiter(scenario: &Scenario, pod: u32, begun: Instant) -> Arc<Limiter> {
    let settings = LimiterSettings {
        weights: Weights::default(),
        accounts_max: 10_000,
        buckets_max: 10_000,
        shards: 4,
        seed: scenario.seed ^ u64::from(pod),
    };
    Arc::new(Limiter::new(settings, scenario.policies.clone(), begun))
}

/// Returns what a request that costs `price` counts for a quota of this unit, in its atoms.
fn counted(unit: Unit, price: u64) -> u64 {
    match unit {
        Unit::Requests => Unit::Requests.atoms_per_unit(),
        _ => price,
    }
}
