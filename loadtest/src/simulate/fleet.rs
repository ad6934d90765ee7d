//! Dispatchers that share counters: their real messages over a simulated network that loses, repeats and delays them,
//! and the one ownership row.

use std::sync::Arc;
use std::time::Instant;

use umbo_quota::{FLEET_TICK, FleetQuota, Limiter, OwnerRow, RowWish};

use super::arrivals::SECOND_NS;
use crate::random::Random;

/// Shortest and mean further time of a message on its way.
const WAY_NS: (u64, f64) = (200_000, 800_000.0);
/// Time to read or write the row.
const ROW_NS: u64 = 3_000_000;
/// How often the row and the members are read anyway.
const MEMBERS_NS: u64 = 4 * SECOND_NS;
/// How long a presence row outlives its dispatcher.
const PRESENCE_NS: u64 = 20 * SECOND_NS;
/// The secret of the store.
const SECRET: [u8; 32] = [7; 32];

/// What goes wrong in a fleet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Share of the messages that are lost; a third as many come twice.
    pub(crate) lost: f64,
    /// All requests come through the first dispatcher.
    pub(crate) is_on_one: bool,
    /// Second at which the owner of the first counter is killed.
    pub(crate) killed_at_s: Option<u64>,
    /// Seconds after which another dispatcher is killed, and one that was killed begins again.
    pub(crate) churn_s: Option<u64>,
}

/// An event of the fleet.
#[derive(Debug, Clone)]
pub(crate) enum FleetEvent {
    /// A dispatcher looks for due messages.
    Tick(u32),
    /// A dispatcher reads members and row.
    Members(u32),
    /// A message comes to an owner: from, to, body.
    Message(u64, u64, Arc<[u8]>),
    /// An answer comes back: owner, to, body.
    Answer(u64, u64, Arc<[u8]>),
    /// A dispatcher has read the row.
    Read(u64),
    /// A dispatcher changes the row.
    Write(u64, OwnerRow),
}

/// An event and the time until it happens.
pub(crate) type Due = (u64, FleetEvent);

/// The dispatchers.
#[derive(Debug)]
pub(crate) struct Fleet {
    faults: Faults,
    random: Random,
    row: OwnerRow,
    places: Vec<Place>,
    /// Ids of dispatchers that were killed, and when.
    gone: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Place {
    id: u64,
    quota: Option<FleetQuota>,
}

impl Fleet {
    pub(crate) fn new(limiters: &[Arc<Limiter>], faults: Faults, mut random: Random) -> Self {
        let places = limiters.iter().map(|limiter| {
            let id = random.next() | 1;
            let quota = Some(FleetQuota::new(Arc::clone(limiter), id, &SECRET));
            Place { id, quota }
        });
        Self {
            places: places.collect(),
            faults,
            random,
            row: OwnerRow::default(),
            gone: Vec::new(),
        }
    }

    /// Returns the first events.
    pub(crate) fn begin(&mut self) -> Vec<Due> {
        let ticks = (0..self.places.len() as u32).flat_map(|at| {
            let tick_ns = self.random.below(FLEET_TICK.as_nanos() as u64);
            [
                (0, FleetEvent::Members(at)),
                (tick_ns, FleetEvent::Tick(at)),
            ]
        });
        ticks.collect()
    }

    /// Returns whether a dispatcher runs.
    pub(crate) fn is_up(&self, at: u32) -> bool {
        self.places[at as usize].quota.is_some()
    }

    /// Returns the place of the dispatcher that owns most counters.
    pub(crate) fn busiest_owner(&self) -> Option<u32> {
        let owned = |(_, place): &(u32, &Place)| {
            place.quota.as_ref().map_or(0, |quota| quota.report().owned)
        };
        let places = (0..)
            .zip(&self.places)
            .filter(|(_, place)| place.quota.is_some());
        places.max_by_key(owned).map(|(at, _)| at)
    }

    /// Kills a dispatcher.
    pub(crate) fn kill(&mut self, at: u32, now_ns: u64) {
        let place = &mut self.places[at as usize];
        place.quota = None;
        self.gone.push((place.id, now_ns));
    }

    /// Begins a dispatcher that was killed, with a new limiter.
    pub(crate) fn begin_again(&mut self, at: u32, limiter: &Arc<Limiter>) -> Vec<Due> {
        let id = self.random.next() | 1;
        let quota = Some(FleetQuota::new(Arc::clone(limiter), id, &SECRET));
        self.places[at as usize] = Place { id, quota };
        vec![(0, FleetEvent::Members(at)), (0, FleetEvent::Tick(at))]
    }

    /// Lets an event happen, and returns those that follow.
    pub(crate) fn happen(&mut self, event: FleetEvent, now_ns: u64, now: Instant) -> Vec<Due> {
        match event {
            FleetEvent::Tick(at) => self.tick(at, now),
            FleetEvent::Members(at) => self.members(at, now_ns),
            FleetEvent::Message(from, to, body) => {
                let Some(quota) = self.quota(to) else {
                    return Vec::new();
                };
                let answer = quota.hear(&body, now).expect("messages are whole");
                self.on_way(&FleetEvent::Answer(to, from, answer.into()))
            }
            FleetEvent::Answer(owner, to, body) => {
                if let Some(quota) = self.quota(to) {
                    quota.answered(owner, &body, now);
                }
                Vec::new()
            }
            FleetEvent::Read(id) => {
                if let Some(quota) = self.quota(id) {
                    quota.set_row(&self.row);
                }
                Vec::new()
            }
            FleetEvent::Write(id, row) => {
                if row.revision == self.row.revision + 1 {
                    self.row = row;
                }
                vec![(ROW_NS, FleetEvent::Read(id))]
            }
        }
    }

    fn tick(&mut self, at: u32, now: Instant) -> Vec<Due> {
        let place = &self.places[at as usize];
        let (id, Some(quota)) = (place.id, &place.quota) else {
            return Vec::new();
        };
        let messages = quota.tick(now);
        let mut due = vec![(FLEET_TICK.as_nanos() as u64, FleetEvent::Tick(at))];
        match quota.row_wish(now) {
            RowWish::Nothing => {}
            RowWish::Read => due.push((ROW_NS, FleetEvent::Read(id))),
            RowWish::Change(row) => due.push((ROW_NS, FleetEvent::Write(id, row))),
        }
        for message in messages {
            due.extend(self.on_way(&FleetEvent::Message(id, message.to, message.body.into())));
        }
        due
    }

    fn members(&mut self, at: u32, now_ns: u64) -> Vec<Due> {
        let is_listed = |(_, since_ns): &&(u64, u64)| now_ns - since_ns < PRESENCE_NS;
        let gone = self.gone.iter().filter(is_listed).map(|(id, _)| *id);
        let up = self.places.iter().filter(|place| place.quota.is_some());
        let ids: Vec<u64> = up.map(|place| place.id).chain(gone).collect();
        let Some(quota) = &self.places[at as usize].quota else {
            return Vec::new();
        };
        quota.set_members(&ids);
        quota.set_row(&self.row);
        vec![(MEMBERS_NS, FleetEvent::Members(at))]
    }

    fn quota(&self, id: u64) -> Option<&FleetQuota> {
        let place = self.places.iter().find(|place| place.id == id)?;
        place.quota.as_ref()
    }

    /// Sends a message: it may be lost, and may come twice.
    fn on_way(&mut self, event: &FleetEvent) -> Vec<Due> {
        let lot = self.random.unit();
        let copies = match lot {
            lot if lot < self.faults.lost => 0,
            lot if lot < self.faults.lost * 4.0 / 3.0 => 2,
            _ => 1,
        };
        let way = |_| {
            let more_ns = (self.random.exponential() * WAY_NS.1) as u64;
            (WAY_NS.0 + more_ns, event.clone())
        };
        (0..copies).map(way).collect()
    }
}
