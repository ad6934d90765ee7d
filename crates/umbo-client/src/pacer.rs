//! Paces bulk work to what the server advertises, so that it runs at its budget instead of into
//! rejections. Pure: the time is a parameter.
//!
//! Of each policy it keeps a mirror ([`Mirror`]) of the server's bucket, and work may go while all
//! mirrors are positive. What is under way counts with what it is expected to cost. The first
//! request goes alone: its answer says whether there is a quota at all. Who shares a pacer shares
//! the budget.

#![allow(
    clippy::cast_precision_loss,
    reason = "loads and charges are far below 2^52"
)]

use std::time::{Duration, Instant};

use crate::advertised::{Advertised, QuotaUnit};
use crate::mirror::{Limit, Mirror};

/// Most policies that are followed; more would not change when work may go.
const MIRRORS_MAX: usize = 8;
/// Answers without a word about quotas after which none is followed any more.
const SILENT_ANSWERS_MAX: u32 = 3;
/// Longest wait that is asked for at once; asking again costs nothing.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// Weight of the newest answer in the average of what work costs.
const NEWEST: f64 = 0.2;

/// A piece of work, as far as its cost is known before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Whether it writes.
    pub is_write: bool,
    /// Rows asked for or sent; 1 where not known.
    pub rows: u64,
    /// Bytes sent.
    pub bytes: u64,
}

/// When a piece of work may go.
#[derive(Debug)]
pub enum Turn {
    /// At once. What becomes of it must be said with [`Pacer::answered`] or [`Pacer::lost`].
    Now(Sent),
    /// After this wait, or when the next answer is there, whichever is sooner: ask again.
    After(Duration),
    /// When the next answer is there: ask again.
    WithNextAnswer,
}

/// Work that is under way.
#[derive(Debug)]
#[must_use = "work that is forgotten counts as under way for ever"]
pub struct Sent {
    load: Load,
    costs: Costs,
}

/// What an answer says that matters here.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// What it advertises.
    pub advertised: Vec<Advertised>,
    /// Request units it was charged, where it says.
    pub charged: Option<f64>,
    /// What became of the request.
    pub fate: Fate,
}

/// What became of a request, as far as quotas go.
#[derive(Debug, Clone, Default)]
pub enum Fate {
    /// It was taken and charged, whatever the answer says.
    #[default]
    Taken,
    /// The server had too much to do. Nothing was charged.
    Shed,
    /// A quota rejected it. Nothing was charged.
    Rejected(Rejected),
}

/// How a quota rejected a request.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// The policy, where the answer names it.
    pub policy: Option<String>,
    /// Its limit, where the answer names it.
    pub limit: Option<Limit>,
    /// How long to wait.
    pub wait: Duration,
}

/// Paces work. Share one behind a lock.
#[derive(Debug, Default)]
pub struct Pacer {
    mirrors: Vec<Mirror>,
    under_way: u64,
    in_flight: Costs,
    has_answer: bool,
    silent_answers: u32,
    reading: Price,
    writing: Price,
}

/// What is followed, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// The policy.
    pub policy: String,
    /// In what it counts.
    pub unit: QuotaUnit,
    /// Units a second, as far as they are known.
    pub rate: f64,
}

impl Pacer {
    /// Asks whether a piece of work may go now.
    pub fn turn(&mut self, load: Load, now: Instant) -> Turn {
        if !self.has_answer && self.under_way > 0 {
            return Turn::WithNextAnswer;
        }
        self.mirrors.retain(|mirror| !mirror.is_stale(now));
        let waits = self.mirrors.iter_mut().map(|mirror| {
            let in_flight = self.in_flight.of(mirror.unit());
            mirror.wait(in_flight, now)
        });
        match waits.max() {
            None | Some(Duration::ZERO) => Turn::Now(self.sent(load)),
            Some(wait) => Turn::After(wait.min(WAIT_MAX)),
        }
    }

    /// Notes work that goes without asking: the server itself has said that this is its time.
    pub fn sent(&mut self, load: Load) -> Sent {
        let price = if load.is_write {
            &self.writing
        } else {
            &self.reading
        };
        let costs = Costs::of_load(load, price.expected(load));
        self.under_way += 1;
        self.in_flight.add(&costs, 1.0);
        Sent { load, costs }
    }

    /// Notes an answer.
    pub fn answered(&mut self, sent: &Sent, told: &Told, now: Instant) {
        self.land(sent);
        self.has_answer = true;
        if matches!(told.fate, Fate::Taken) {
            let mut costs = sent.costs;
            if let Some(charged) = told.charged {
                let price = if sent.load.is_write {
                    &mut self.writing
                } else {
                    &mut self.reading
                };
                price.learn(sent.load, charged);
                costs.ru = charged;
            }
            for mirror in &mut self.mirrors {
                mirror.charge(costs.of(mirror.unit()), now);
            }
        }
        self.note_silence(told);
        for advertised in &told.advertised {
            let in_flight = self.in_flight.of(advertised.unit);
            if let Some(mirror) = self.mirror(advertised, now) {
                mirror.observe(advertised, in_flight, now);
            }
        }
        if let Fate::Rejected(rejected) = &told.fate {
            for mirror in &mut self.mirrors {
                // A rejection that names no policy may be any of them.
                let named = rejected.policy.as_deref();
                if named.is_none_or(|policy| policy == mirror.policy()) {
                    let in_flight = self.in_flight.of(mirror.unit());
                    mirror.reject(rejected.limit, rejected.wait, in_flight, now);
                }
            }
        }
    }

    /// Notes what a request was charged whose answer did not say it at its beginning.
    pub fn charged_late(&mut self, sent: &Sent, charged: f64, now: Instant) {
        self.price(sent.load).learn(sent.load, charged);
        for mirror in &mut self.mirrors {
            if mirror.unit() == QuotaUnit::Ru {
                mirror.charge(charged - sent.costs.ru, now);
            }
        }
    }

    /// Notes that nothing is known of what was sent: the connection broke, or nobody waits for
    /// the answer any more. It counts as done and paid for.
    pub fn lost(&mut self, sent: &Sent, now: Instant) {
        self.land(sent);
        for mirror in &mut self.mirrors {
            mirror.charge(sent.costs.of(mirror.unit()), now);
        }
    }

    /// Returns the policy that holds work back most, none where there is none.
    pub fn pace(&mut self, now: Instant) -> Option<Pace> {
        let in_flight = self.in_flight;
        let slowest = self
            .mirrors
            .iter_mut()
            .map(|mirror| (mirror.fill(in_flight.of(mirror.unit()), now), mirror))
            .min_by(|(one, _), (other, _)| one.total_cmp(other));
        slowest.map(|(_, mirror)| Pace {
            policy: mirror.policy().to_owned(),
            unit: mirror.unit(),
            rate: mirror.rate(),
        })
    }

    fn price(&mut self, load: Load) -> &mut Price {
        if load.is_write {
            &mut self.writing
        } else {
            &mut self.reading
        }
    }

    fn land(&mut self, sent: &Sent) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            // Nothing is left of what rounding has gathered.
            self.in_flight = Costs::default();
        } else {
            self.in_flight.add(&sent.costs, -1.0);
        }
    }

    /// A policy that was removed is no longer advertised.
    fn note_silence(&mut self, told: &Told) {
        let is_silent = told.advertised.is_empty() && matches!(told.fate, Fate::Taken);
        self.silent_answers = if is_silent {
            self.silent_answers + 1
        } else {
            0
        };
        if self.silent_answers >= SILENT_ANSWERS_MAX {
            self.mirrors.clear();
        }
    }

    fn mirror(&mut self, advertised: &Advertised, now: Instant) -> Option<&mut Mirror> {
        let place = self
            .mirrors
            .iter()
            .position(|mirror| mirror.policy() == advertised.policy);
        if place.is_none() && self.mirrors.len() >= MIRRORS_MAX {
            return None;
        }
        let place = place.unwrap_or_else(|| {
            self.mirrors.push(Mirror::new(advertised, now));
            self.mirrors.len() - 1
        });
        self.mirrors.get_mut(place)
    }
}

/// What a piece of work costs, in each unit.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    ru: f64,
    requests: f64,
    reads: f64,
    writes: f64,
    read_bytes: f64,
    write_bytes: f64,
}

impl Costs {
    fn of_load(load: Load, ru: f64) -> Self {
        let (rows, bytes) = (load.rows as f64, load.bytes as f64);
        let mut costs = Self {
            ru,
            requests: 1.0,
            ..Self::default()
        };
        if load.is_write {
            (costs.writes, costs.write_bytes) = (rows, bytes);
        } else {
            // How many bytes a read finds only the server knows: its next answer says it.
            costs.reads = rows;
        }
        costs
    }

    fn of(&self, unit: QuotaUnit) -> f64 {
        match unit {
            QuotaUnit::Ru => self.ru,
            QuotaUnit::Requests => self.requests,
            QuotaUnit::Reads => self.reads,
            QuotaUnit::Writes => self.writes,
            QuotaUnit::ReadBytes => self.read_bytes,
            QuotaUnit::WriteBytes => self.write_bytes,
            QuotaUnit::Bytes => self.read_bytes + self.write_bytes,
        }
    }

    fn add(&mut self, other: &Self, sign: f64) {
        let add = |one: &mut f64, other: f64| *one = (*one + sign * other).max(0.0);
        add(&mut self.ru, other.ru);
        add(&mut self.requests, other.requests);
        add(&mut self.reads, other.reads);
        add(&mut self.writes, other.writes);
        add(&mut self.read_bytes, other.read_bytes);
        add(&mut self.write_bytes, other.write_bytes);
    }
}

/// What work costs in request units: the shape of the server's default weights, times a factor
/// that answers teach.
#[derive(Debug)]
struct Price {
    factor: f64,
}

impl Default for Price {
    fn default() -> Self {
        Self { factor: 1.0 }
    }
}

impl Price {
    fn shape(load: Load) -> f64 {
        let base = if load.is_write { 6.0 } else { 1.0 };
        base + load.rows as f64 / 20.0 + load.bytes as f64 / 4_096.0
    }

    fn expected(&self, load: Load) -> f64 {
        self.factor * Self::shape(load)
    }

    fn learn(&mut self, load: Load, charged: f64) {
        let factor = charged / Self::shape(load);
        if factor.is_finite() && factor >= 0.0 {
            self.factor += NEWEST * (factor - self.factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Load = Load {
        is_write: true,
        rows: 20,
        bytes: 4_096,
    };

    fn advertised(policy: &str, remaining: f64) -> Advertised {
        Advertised {
            policy: policy.to_owned(),
            unit: QuotaUnit::Requests,
            quota: 10.0,
            window: 1.0,
            remaining,
            full_after: Some(1.0),
        }
    }

    fn told(advertised: Vec<Advertised>) -> Told {
        Told {
            advertised,
            ..Told::default()
        }
    }

    fn go(pacer: &mut Pacer, now: Instant) -> Sent {
        match pacer.turn(WRITE, now) {
            Turn::Now(sent) => sent,
            turn => panic!("{turn:?}"),
        }
    }

    #[test]
    fn the_first_goes_alone_and_without_quotas_nobody_waits() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        assert!(matches!(pacer.turn(WRITE, now), Turn::WithNextAnswer));
        pacer.answered(&first, &told(Vec::new()), now);
        for _ in 0..1_000 {
            let _ = go(&mut pacer, now);
        }
        assert_eq!(pacer.pace(now), None);
    }

    #[test]
    fn where_the_first_is_lost_the_next_is_the_first() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        pacer.lost(&first, now);
        let _ = go(&mut pacer, now);
        assert!(matches!(pacer.turn(WRITE, now), Turn::WithNextAnswer));
    }

    #[test]
    fn every_policy_must_have_room() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        pacer.answered(
            &first,
            &told(vec![advertised("a", 9.0), advertised("b", 0.0)]),
            now,
        );
        assert!(matches!(pacer.turn(WRITE, now), Turn::After(_)));
        assert_eq!(
            pacer.pace(now).map(|pace| pace.policy),
            Some("b".to_owned())
        );
        let _ = go(&mut pacer, now + Duration::from_millis(300));
    }

    #[test]
    fn what_is_under_way_counts() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        pacer.answered(&first, &told(vec![advertised("a", 4.0)]), now);
        let going = (0..99).take_while(|_| matches!(pacer.turn(WRITE, now), Turn::Now(_)));
        assert_eq!(going.count(), 3);
    }

    #[test]
    fn a_policy_that_is_gone_holds_nothing_back() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        pacer.answered(&first, &told(vec![advertised("a", 0.0)]), now);
        for _ in 0..3 {
            let told_to = pacer.sent(WRITE);
            pacer.answered(&told_to, &told(Vec::new()), now);
        }
        let _ = go(&mut pacer, now);
    }

    #[test]
    fn policies_beyond_the_most_that_are_followed_are_not_kept() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        let many = (0..99).map(|at| advertised(&at.to_string(), 9.0)).collect();
        pacer.answered(&first, &told(many), now);
        assert_eq!(pacer.mirrors.len(), MIRRORS_MAX);
    }

    #[test]
    fn the_price_of_work_is_learned() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let before = pacer.sent(WRITE);
        assert!((before.costs.ru - 8.0).abs() < 1e-9);
        for _ in 0..99 {
            let sent = pacer.sent(WRITE);
            let told = Told {
                charged: Some(24.0),
                ..Told::default()
            };
            pacer.answered(&sent, &told, now);
        }
        assert!((pacer.sent(WRITE).costs.ru - 24.0).abs() < 1e-3);
        let sent = pacer.sent(WRITE);
        pacer.charged_late(&sent, 64.0, now);
        assert!((pacer.sent(WRITE).costs.ru - 32.0).abs() < 1e-3);
        let read = pacer.sent(Load {
            rows: 1,
            ..Load::default()
        });
        assert!((read.costs.ru - 1.05).abs() < 1e-9);
    }
}
