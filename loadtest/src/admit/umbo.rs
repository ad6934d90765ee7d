//! Umbo's decision: the limiter of a dispatcher, and its messages to the owners as the dispatcher sends them, but without
//! their signature and TLS.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use umbo_quota::{
    ActualUsage, CostHint, FLEET_TICK, FleetQuota, Limiter, LimiterSettings, OwnerRow, PolicySet,
    QuotaRequest, RowWish, Subject, Unit, Weights,
};
use umbo_types::{Attributes, NamespaceId, Operation, PriceMultiplier};

use super::decision::{Decider, Decision, RATE};
use super::frame;
use crate::failure::Failure;
use crate::random::Random;
use crate::simulate::{Quota, REFILL, one_fleet_quota, one_quota};

/// How often periodic work is due.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// The secret of the store.
const SECRET: [u8; 32] = [7; 32];

/// The limiter of a dispatcher.
pub(super) struct Umbo {
    limiter: Arc<Limiter>,
    random: Random,
    fleet: Option<(Arc<FleetQuota>, u16)>,
}

impl Umbo {
    /// Begins alone.
    pub(super) fn of_pod(at: u32) -> Self {
        Self::new(at, one_quota(Unit::Requests, quota(), REFILL))
    }

    /// Begins as one of the dispatchers on these ports, and joins the owners.
    pub(super) fn of_fleet(at: u32, ports: Vec<u16>, row_port: u16) -> Result<Self, Failure> {
        let own_port = ports[at as usize];
        let mut umbo = Self::new(at, one_fleet_quota(Unit::Requests, quota(), REFILL));
        let id = u64::from(at) + 1;
        let fleet = Arc::new(FleetQuota::new(Arc::clone(&umbo.limiter), id, &SECRET));
        let heard = Arc::clone(&fleet);
        // A message that cannot be read has an empty answer, which the sender cannot read either.
        frame::serve(own_port, move |body| {
            heard.hear(body, Instant::now()).unwrap_or_default()
        })?;
        let ids: Vec<u64> = (1..=ports.len() as u64).collect();
        fleet.set_members(&ids);
        let messages = Messages {
            id,
            fleet: Arc::clone(&fleet),
            ports,
            owners: HashMap::new(),
            row: None,
            row_port,
        };
        thread::spawn(move || messages.send());
        umbo.fleet = Some((fleet, own_port));
        Ok(umbo)
    }

    fn new(at: u32, policies: PolicySet) -> Self {
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max: 10_000,
            buckets_max: 10_000,
            shards: 4,
            seed: u64::from(at),
        };
        let limiter = Arc::new(Limiter::new(settings, policies, Instant::now()));
        let maintained = Arc::clone(&limiter);
        thread::spawn(move || {
            loop {
                maintained.maintain(Instant::now());
                sleep(MAINTENANCE);
            }
        });
        Self {
            limiter,
            random: Random::seeded(u64::from(at)),
            fleet: None,
        }
    }
}

impl Decider for Umbo {
    fn decide(&mut self) -> Decision {
        let request = QuotaRequest {
            subject: Subject {
                caller: "all",
                namespace: "shared",
                namespace_id: NamespaceId(1),
                attributes: Attributes::NONE,
                operation: Operation::Get,
            },
            hint: CostHint::default(),
            ticket: None,
            price_multiplier: PriceMultiplier::NONE,
        };
        let admitted = self
            .limiter
            .admit(&request, Instant::now(), self.random.next());
        let is_admitted = admitted.is_ok();
        if let Ok(mut reservation) = admitted {
            reservation.sent();
            reservation.settle(&ActualUsage {
                rows: 1,
                reads: 1,
                ..ActualUsage::default()
            });
        }
        Decision::of(is_admitted)
    }

    fn owner(&self) -> Option<u16> {
        let (fleet, port) = self.fleet.as_ref()?;
        (fleet.report().owned > 0).then_some(*port)
    }
}

/// The messages of a dispatcher, and the row.
struct Messages {
    id: u64,
    fleet: Arc<FleetQuota>,
    /// Of the dispatchers, whose ids count from 1.
    ports: Vec<u16>,
    owners: HashMap<u64, Option<TcpStream>>,
    row: Option<TcpStream>,
    row_port: u16,
}

impl Messages {
    fn send(mut self) {
        self.ask_row(None);
        loop {
            for message in self.fleet.tick(Instant::now()) {
                let port = self.ports[message.to as usize - 1];
                let connection = self.owners.entry(message.to).or_default();
                // Without an answer the owner is silent, which the tick finds out.
                if let Ok(answer) = frame::ask(connection, port, &message.body) {
                    self.fleet.answered(message.to, &answer, Instant::now());
                }
            }
            match self.fleet.row_wish(Instant::now()) {
                RowWish::Nothing => {}
                RowWish::Read => self.ask_row(None),
                RowWish::Change(row) => self.ask_row(Some(&row)),
            }
            sleep(FLEET_TICK);
        }
    }

    /// Reads the row, or changes it before.
    fn ask_row(&mut self, change: Option<&OwnerRow>) {
        let body = serde_json::to_vec(&change).unwrap_or_default();
        let answer = frame::ask(&mut self.row, self.row_port, &body);
        let row = answer
            .ok()
            .and_then(|body| serde_json::from_slice(&body).ok());
        match row {
            Some(row) => self.fleet.set_row(&row),
            None => eprintln!("dispatcher {} cannot read the row", self.id),
        }
    }
}

fn quota() -> Quota {
    let amount = u64::from(RATE) * Unit::Requests.atoms_per_unit();
    Quota {
        rate: amount,
        burst: amount,
    }
}
