//! Paces bulk work to what the server advertises, so that it runs at its budget instead of into
//! rejections. Pure: the time is a parameter.
//!
//! It keeps the state of the bucket of each policy ([`BucketState`]), and work may go while all of them are
//! positive. Work under way counts with its expected cost. The first request goes alone: its answer tells
//! whether there is a quota at all. Tasks that share a pacer share the budget. A local limit ([`LocalLimit`])
//! is one more bucket; answers do not change it, and rejected requests are charged to it too.

#![allow(
    clippy::cast_precision_loss,
    reason = "loads and charges are far below 2^52"
)]

use std::time::{Duration, Instant};

use crate::bucket_state::BucketState;
use crate::quota_state::{QuotaState, QuotaUnit};

/// Most policies that are followed; more would not change when work may go.
const BUCKETS_MAX: usize = 8;
/// Answers in a row without a quota state after which the pacer forgets all policies.
const SILENT_ANSWERS_MAX: u32 = 3;
/// Longest wait that is asked for at once; asking again costs nothing.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// Size of the bucket of the local limit. It is small, because work goes while the balance is positive, so a
/// whole batch exceeds it.
const LOCAL_BURST: Duration = Duration::from_millis(100);
/// Name of the local limit in place of a policy.
const LOCAL: &str = "local limit";
/// Weight of the newest answer in the average cost of work.
const NEWEST: f64 = 0.2;

/// A piece of work and the facts about its cost that are known before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkHint {
    /// Whether it writes.
    pub is_write: bool,
    /// Rows asked for or sent; 1 if not known.
    pub rows: u64,
    /// Bytes sent.
    pub bytes: u64,
}

/// Whether a piece of work may be sent.
#[derive(Debug)]
pub enum SendDecision {
    /// At once. Its end must be reported with [`Pacer::answered`] or [`Pacer::lost`].
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
    load: WorkHint,
    costs: Costs,
}

/// The quota fields of an answer.
#[derive(Debug, Clone, Default)]
pub struct ServerFeedback {
    /// The bucket with the lowest balance.
    pub quota: Option<QuotaState>,
    /// Request units that it was charged, if the answer says so.
    pub charged: Option<f64>,
    /// How the request ended.
    pub result: RequestResult,
}

/// The result of a request for its quotas.
#[derive(Debug, Clone, Default)]
pub enum RequestResult {
    /// The request was accepted and charged, with any answer.
    #[default]
    Accepted,
    /// The server had too much to do. Nothing was charged.
    Shed,
    /// A quota rejected it. Nothing was charged.
    Rejected(Rejected),
}

/// How a quota rejected a request.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// The policy, if the answer names it.
    pub policy: Option<String>,
    /// How long to wait.
    pub wait: Duration,
}

/// A limit that a client keeps by itself, whatever the server allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalLimit {
    /// The unit that it counts.
    pub unit: QuotaUnit,
    /// Units a second in the long run; above 0.
    pub rate: f64,
}

/// Paces work. Share one behind a lock.
#[derive(Debug, Default)]
pub struct Pacer {
    buckets: Vec<BucketState>,
    local: Option<BucketState>,
    under_way: u64,
    in_flight: Costs,
    has_answer: bool,
    silent_answers: u32,
    reading: Price,
    writing: Price,
}

/// The limit that is followed, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// The policy.
    pub policy: String,
    /// The unit that it counts.
    pub unit: QuotaUnit,
    /// Units a second.
    pub rate: f64,
}

impl Pacer {
    /// Makes a pacer that keeps a local limit too. `None` if its rate is not a number above 0.
    pub fn with_limit(limit: LocalLimit, now: Instant) -> Option<Self> {
        let LocalLimit { unit, rate } = limit;
        let state = QuotaState {
            policy: LOCAL.to_owned(),
            unit,
            rate,
            burst: (rate * LOCAL_BURST.as_secs_f64()).max(1.0),
            balance: 0.0,
            refill: Duration::ZERO,
        };
        (rate > 0.0 && rate.is_finite()).then(|| Self {
            local: Some(BucketState::new(&state, now)),
            ..Self::default()
        })
    }

    /// Decides whether a piece of work may be sent now.
    pub fn decide(&mut self, load: WorkHint, now: Instant) -> SendDecision {
        if !self.has_answer && self.under_way > 0 {
            return SendDecision::WithNextAnswer;
        }
        self.buckets.retain(|bucket| !bucket.is_stale(now));
        let buckets = self.buckets.iter_mut().chain(&mut self.local);
        let waits = buckets.map(|bucket| {
            let in_flight = self.in_flight.of(bucket.unit());
            bucket.wait(in_flight, now)
        });
        match waits.max() {
            None | Some(Duration::ZERO) => SendDecision::Now(self.sent(load)),
            Some(wait) => SendDecision::After(wait.min(WAIT_MAX)),
        }
    }

    /// Records work that goes without a decision: the server has named this time for it.
    pub fn sent(&mut self, load: WorkHint) -> Sent {
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

    /// Records an answer.
    pub fn answered(&mut self, sent: &Sent, feedback: &ServerFeedback, now: Instant) {
        self.land(sent);
        self.has_answer = true;
        if let Some(local) = &mut self.local {
            let mut costs = sent.costs;
            costs.ru = feedback.charged.unwrap_or(costs.ru);
            local.charge(costs.of(local.unit()), now);
        }
        if matches!(feedback.result, RequestResult::Accepted) {
            let mut costs = sent.costs;
            if let Some(charged) = feedback.charged {
                let price = if sent.load.is_write {
                    &mut self.writing
                } else {
                    &mut self.reading
                };
                price.learn(sent.load, charged);
                costs.ru = charged;
            }
            for bucket in &mut self.buckets {
                bucket.charge(costs.of(bucket.unit()), now);
            }
        }
        self.note_silence(feedback);
        if let Some(state) = &feedback.quota {
            let in_flight = self.in_flight.of(state.unit);
            if let Some(bucket) = self.bucket(state, now) {
                bucket.observe(state, in_flight, now);
            }
        }
        if let RequestResult::Rejected(rejected) = &feedback.result {
            for bucket in &mut self.buckets {
                // A rejection that names no policy may be any of them.
                let named = rejected.policy.as_deref();
                if named.is_none_or(|policy| policy == bucket.policy()) {
                    let in_flight = self.in_flight.of(bucket.unit());
                    bucket.reject(rejected.wait, in_flight, now);
                }
            }
        }
    }

    /// Records a charge that the answer told only at its end.
    pub fn charged_late(&mut self, sent: &Sent, charged: f64, now: Instant) {
        self.price(sent.load).learn(sent.load, charged);
        for bucket in self.buckets.iter_mut().chain(&mut self.local) {
            if bucket.unit() == QuotaUnit::Ru {
                bucket.charge(charged - sent.costs.ru, now);
            }
        }
    }

    /// Records work without an answer: the connection broke, or the caller no longer waits. It counts as done
    /// and paid for.
    pub fn lost(&mut self, sent: &Sent, now: Instant) {
        self.land(sent);
        for bucket in self.buckets.iter_mut().chain(&mut self.local) {
            bucket.charge(sent.costs.of(bucket.unit()), now);
        }
    }

    /// Returns the policy that slows work most, or `None` without one.
    pub fn pace(&mut self, now: Instant) -> Option<Pace> {
        let in_flight = self.in_flight;
        let slowest = self
            .buckets
            .iter_mut()
            .chain(&mut self.local)
            .map(|bucket| (bucket.fill(in_flight.of(bucket.unit()), now), bucket))
            .min_by(|(one, _), (other, _)| one.total_cmp(other));
        slowest.map(|(_, bucket)| Pace {
            policy: bucket.policy().to_owned(),
            unit: bucket.unit(),
            rate: bucket.rate(),
        })
    }

    fn price(&mut self, load: WorkHint) -> &mut Price {
        if load.is_write {
            &mut self.writing
        } else {
            &mut self.reading
        }
    }

    fn land(&mut self, sent: &Sent) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            // Removes the rounding errors that have gathered.
            self.in_flight = Costs::default();
        } else {
            self.in_flight.add(&sent.costs, -1.0);
        }
    }

    /// A policy that was removed is no longer advertised.
    fn note_silence(&mut self, feedback: &ServerFeedback) {
        let is_silent =
            feedback.quota.is_none() && matches!(feedback.result, RequestResult::Accepted);
        self.silent_answers = if is_silent {
            self.silent_answers + 1
        } else {
            0
        };
        if self.silent_answers >= SILENT_ANSWERS_MAX {
            self.buckets.clear();
        }
    }

    fn bucket(&mut self, state: &QuotaState, now: Instant) -> Option<&mut BucketState> {
        let same = |bucket: &BucketState| bucket.policy() == state.policy;
        let place = self.buckets.iter().position(same);
        if place.is_none() && self.buckets.len() >= BUCKETS_MAX {
            return None;
        }
        let place = place.unwrap_or_else(|| {
            self.buckets.push(BucketState::new(state, now));
            self.buckets.len() - 1
        });
        self.buckets.get_mut(place)
    }
}

/// The cost of a piece of work, in each unit.
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
    fn of_load(load: WorkHint, ru: f64) -> Self {
        let (rows, bytes) = (load.rows as f64, load.bytes as f64);
        let mut costs = Self {
            ru,
            requests: 1.0,
            ..Self::default()
        };
        if load.is_write {
            (costs.writes, costs.write_bytes) = (rows, bytes);
        } else {
            // Only the server knows how many bytes a read finds: its next answer tells them.
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

/// The cost of work in request units: the shape of the server's default weights, times a factor that answers
/// teach.
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
    fn shape(load: WorkHint) -> f64 {
        let base = if load.is_write { 6.0 } else { 1.0 };
        base + load.rows as f64 / 20.0 + load.bytes as f64 / 4_096.0
    }

    fn expected(&self, load: WorkHint) -> f64 {
        self.factor * Self::shape(load)
    }

    fn learn(&mut self, load: WorkHint, charged: f64) {
        let factor = charged / Self::shape(load);
        if factor.is_finite() && factor >= 0.0 {
            self.factor += NEWEST * (factor - self.factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: WorkHint = WorkHint {
        is_write: true,
        rows: 20,
        bytes: 4_096,
    };

    fn feedback(policy: &str, balance: f64) -> ServerFeedback {
        ServerFeedback {
            quota: Some(QuotaState {
                policy: policy.to_owned(),
                unit: QuotaUnit::Requests,
                rate: 10.0,
                burst: 10.0,
                balance,
                refill: Duration::from_millis(50),
            }),
            ..ServerFeedback::default()
        }
    }

    fn go(pacer: &mut Pacer, now: Instant) -> Sent {
        match pacer.decide(WRITE, now) {
            SendDecision::Now(sent) => sent,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_goes_alone_and_without_quotas_nobody_waits() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        assert!(matches!(
            pacer.decide(WRITE, now),
            SendDecision::WithNextAnswer
        ));
        pacer.answered(&first, &ServerFeedback::default(), now);
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
        assert!(matches!(
            pacer.decide(WRITE, now),
            SendDecision::WithNextAnswer
        ));
    }

    #[test]
    fn every_policy_must_have_room() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        pacer.answered(&first, &feedback("a", 9.0), now);
        let second = pacer.sent(WRITE);
        pacer.answered(&second, &feedback("b", 0.0), now);
        assert!(matches!(pacer.decide(WRITE, now), SendDecision::After(_)));
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
        pacer.answered(&first, &feedback("a", 4.0), now);
        let going =
            (0..99).take_while(|_| matches!(pacer.decide(WRITE, now), SendDecision::Now(_)));
        assert_eq!(going.count(), 3);
    }

    #[test]
    fn a_policy_that_is_gone_holds_nothing_back() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        pacer.answered(&first, &feedback("a", 0.0), now);
        for _ in 0..3 {
            let sent = pacer.sent(WRITE);
            pacer.answered(&sent, &ServerFeedback::default(), now);
        }
        let _ = go(&mut pacer, now);
    }

    #[test]
    fn a_limit_of_its_own_is_kept_whatever_the_server_says() {
        let start = Instant::now();
        let limit = LocalLimit {
            unit: QuotaUnit::Writes,
            rate: 100.0,
        };
        let mut pacer = Pacer::with_limit(limit, start).unwrap();
        let (mut now, mut rows) = (start, 0);
        while now < start + Duration::from_secs(20) {
            match pacer.decide(WRITE, now) {
                SendDecision::Now(sent) => {
                    rows += sent.load.rows;
                    // Silence, a generous server and one that sheds are all the same to it.
                    let mut feedback = feedback("a", 1e9);
                    match rows % 60 {
                        0 => feedback.quota = None,
                        20 => feedback.result = RequestResult::Shed,
                        _ => {}
                    }
                    pacer.answered(&sent, &feedback, now);
                }
                SendDecision::After(wait) => now += wait,
                SendDecision::WithNextAnswer => panic!("nothing is under way"),
            }
        }
        // 100 a second, of which the last batch may go beyond.
        assert!((1_980..=2_030).contains(&rows), "{rows}");
        assert_eq!(pacer.pace(now).unwrap().policy, LOCAL);
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let limit = LocalLimit { rate, ..limit };
            assert!(Pacer::with_limit(limit, start).is_none(), "{rate}");
        }
    }

    #[test]
    fn policies_beyond_the_most_that_are_followed_are_not_kept() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let first = go(&mut pacer, now);
        pacer.answered(&first, &feedback("first", 9.0), now);
        for number in 0..99 {
            let sent = pacer.sent(WRITE);
            pacer.answered(&sent, &feedback(&number.to_string(), 9.0), now);
        }
        assert_eq!(pacer.buckets.len(), BUCKETS_MAX);
    }

    #[test]
    fn the_price_of_work_is_learned() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        let before = pacer.sent(WRITE);
        assert!((before.costs.ru - 8.0).abs() < 1e-9);
        for _ in 0..99 {
            let sent = pacer.sent(WRITE);
            let feedback = ServerFeedback {
                charged: Some(24.0),
                ..ServerFeedback::default()
            };
            pacer.answered(&sent, &feedback, now);
        }
        assert!((pacer.sent(WRITE).costs.ru - 24.0).abs() < 1e-3);
        let sent = pacer.sent(WRITE);
        pacer.charged_late(&sent, 64.0, now);
        assert!((pacer.sent(WRITE).costs.ru - 32.0).abs() < 1e-3);
        let read = pacer.sent(WorkHint {
            rows: 1,
            ..WorkHint::default()
        });
        assert!((read.costs.ru - 1.05).abs() < 1e-9);
    }
}
