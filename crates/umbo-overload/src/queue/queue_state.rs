//! The state of a queue under its lock: the waiting requests, and the parts that decide about them.

use std::time::{Duration, Instant};

use umbo_types::{Criticality, RequestUnits};

use super::PerTier;
use super::admission::{
    Admission, Entry, Permit, QueueTicket, ServiceOutcome, Shed, ShedReason, Wakeups, tier,
};
use super::codel::{Codel, patience};
use super::floor::Floors;
use super::late_runtime::{LateRuntime, LateRuntimeControl};
use super::limit::{ConcurrencyLimit, INITIAL};
use super::settings::QueueSettings;
use super::slab::QueuedRequest;
use super::status::{QueueStatus, TierCounts, TierStatus};
use super::tier_queues::{TIERS, TierQueues};

/// The queue of a tier may stand for this many intervals longer than the queue of the tier below, up to the critical
/// tier; the lowest may stand for one. Shedding from a higher tier serves no request sooner, and a shard may pause for
/// a moment.
const INTERVALS_MORE: u32 = 2;
/// Longest wait that an answer names.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Most requests that are shed at once, so that the lock is held for a bounded time.
const SHED_AT_ONCE_MAX: usize = 256;
/// Most waiting requests of an overloaded tier, in multiples of the permits ([`INITIAL`] at least): enough for all
/// permits until the next one arrives. A request beyond is shed at once, which costs nothing.
const OVERLOADED_WAITING: u32 = 2;

/// The state of a queue.
#[derive(Debug)]
pub(crate) struct QueueState<W> {
    settings: QueueSettings,
    tiers: TierQueues<W>,
    codels: PerTier<Codel>,
    floors: Floors,
    limit: ConcurrencyLimit,
    /// Since when requests of the upper two tiers have waited without a break.
    upper_since: Option<Instant>,
    lag: Duration,
    late_control: LateRuntimeControl,
    counts: PerTier<TierCounts>,
}

impl<W> QueueState<W> {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            tiers: TierQueues::new(),
            codels: Default::default(),
            floors: Floors::new(settings.floor_percent, settings.codel.interval),
            limit: ConcurrencyLimit::new(settings.limit),
            upper_since: None,
            lag: Duration::ZERO,
            late_control: LateRuntimeControl::default(),
            counts: Default::default(),
        }
    }

    pub(crate) const fn permits(&self) -> u32 {
        self.limit.permits()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.tiers.len() == 0
    }

    /// Records the lag of the runtime; `left` counts the requests that have ended.
    pub(crate) fn set_lag(&mut self, lag: Duration, late: &LateRuntime, left: u32, now: Instant) {
        self.lag = lag;
        let settings = (&self.settings.codel, self.settings.floor_percent);
        let shed = self.late_control.tick(late, settings, lag, left, now);
        for (counts, shed) in self.counts.iter_mut().zip(shed) {
            counts.shed[ShedReason::Overload as usize] += shed;
        }
    }

    /// Returns the shed of a request at its entry while the runtime is late; it is counted already.
    pub(crate) fn shed_for_lag(&self, criticality: Criticality, now: Instant) -> Shed {
        let lasted = self.late_control.lasted(now).unwrap_or_default();
        Shed {
            reason: ShedReason::Overload,
            criticality,
            wait: self.wait_after(lasted),
        }
    }

    /// Counts a request that is shed because its caller has more than its share.
    pub(crate) fn shed_for_share(&mut self, criticality: Criticality, wait: Duration) -> Shed {
        self.counts[tier(criticality)].shed[ShedReason::Share as usize] += 1;
        Shed {
            reason: ShedReason::Share,
            criticality,
            wait: wait.clamp(self.settings.codel.interval, WAIT_MAX),
        }
    }

    pub(crate) fn set_permits(&mut self, permits: u32) {
        self.limit.set(permits);
    }

    /// Returns how long a client should stay away after an overload of this length: the same time, within bounds.
    fn wait_after(&self, lasted: Duration) -> Duration {
        lasted.clamp(self.settings.codel.interval, WAIT_MAX)
    }

    pub(crate) fn shrink(&mut self) {
        self.tiers.shrink();
    }

    /// Learns from a request that left while there was room.
    pub(crate) fn learn_calm(&mut self, outcome: ServiceOutcome) {
        if let ServiceOutcome::Served {
            operation,
            service_time,
        } = outcome
        {
            self.limit.calm(operation, service_time);
        }
    }

    /// Learns from a request that left while others wait, and settles with the floor of its tier.
    pub(crate) fn left(&mut self, permit: &Permit, outcome: ServiceOutcome, now: Instant) {
        let mut took = None;
        if let ServiceOutcome::Served {
            operation,
            service_time,
        } = outcome
        {
            self.limit.full(operation, service_time, now);
            took = Some(service_time);
        }
        self.floors
            .settle(tier(permit.criticality), permit.floor_ns, took);
    }

    /// Adds a request that waits.
    pub(crate) fn push(&mut self, entry: &Entry, waiter: W, now: Instant) -> QueueTicket {
        self.counts[tier(entry.criticality)].queued += 1;
        self.tiers.push(entry, waiter, now)
    }

    pub(crate) fn cancel(&mut self, ticket: QueueTicket, now: Instant) -> Option<W> {
        let waiter = self.tiers.cancel(ticket)?;
        self.observe(now);
        Some(waiter)
    }

    /// Sheds an entry that finds no room, if no other request would be shed in its favour: its callers have no fewer
    /// waiting requests than others.
    pub(crate) fn turn_away(&mut self, entry: &Entry, now: Instant) -> Option<Shed> {
        let own = tier(entry.criticality);
        let is_lowest = || self.tiers.lowest().is_none_or(|lowest| lowest >= own);
        let reason = if self.has_enough(own) {
            ShedReason::Overload
        } else {
            let reason = self.fullness(entry)?;
            is_lowest().then_some(reason)?
        };
        if self.tiers.is_modest(entry) {
            return None;
        }
        Some(self.shed(own, reason, now))
    }

    /// Returns whether enough requests of an overloaded tier wait.
    fn has_enough(&self, tier: usize) -> bool {
        let enough = OVERLOADED_WAITING * self.permits().max(INITIAL);
        self.codels[tier].is_overloaded() && self.tiers.len_of(tier) >= enough as usize
    }

    /// Returns why the queue is full for an entry, or `None` if there is room.
    fn fullness(&self, entry: &Entry) -> Option<ShedReason> {
        if self.tiers.len() >= self.settings.waiting_max.max(1) {
            Some(ShedReason::Length)
        } else if self.is_too_much(entry) {
            Some(ShedReason::Work)
        } else {
            None
        }
    }

    /// Makes room for an entry, if need be by shedding others. If it finds no room, sheds the entry and returns that as
    /// the error.
    pub(crate) fn make_room(
        &mut self,
        entry: &Entry,
        now: Instant,
        wakeups: &mut Wakeups<W>,
    ) -> Result<(), Shed> {
        let own = tier(entry.criticality);
        if self.has_enough(own) {
            self.replace_own(entry, ShedReason::Overload, now, wakeups)?;
        }
        while let Some(reason) = self.fullness(entry) {
            let lowest = self.tiers.lowest().unwrap_or(own);
            if lowest >= own {
                self.replace_own(entry, reason, now, wakeups)?;
                // If the rest of the tier is too much work, the tier is not emptied for one entry.
                if self.is_too_much(entry) {
                    return Err(self.shed(own, ShedReason::Work, now));
                }
            } else if let Some(node) = self.tiers.take_newest(lowest) {
                self.dismiss(node, ShedReason::Displaced, now, wakeups);
            }
        }
        Ok(())
    }

    fn is_too_much(&self, entry: &Entry) -> bool {
        let work = self.tiers.work().saturating_add(entry.price.as_micros());
        work > self.settings.work_max.as_micros() && self.tiers.len() > 0
    }

    /// Sheds another request of the entry's tier in its favour, if its callers have fewer waiting requests than others;
    /// else sheds the entry.
    fn replace_own(
        &mut self,
        entry: &Entry,
        reason: ShedReason,
        now: Instant,
        wakeups: &mut Wakeups<W>,
    ) -> Result<(), Shed> {
        let own = tier(entry.criticality);
        let other = if self.tiers.is_modest(entry) {
            self.tiers.take_of_most(own)
        } else {
            None
        };
        match other {
            Some(node) => {
                self.dismiss(node, reason, now, wakeups);
                Ok(())
            }
            None => Err(self.shed(own, reason, now)),
        }
    }

    /// Sheds requests that have waited too long in overloaded tiers, lowest first. While requests of lower tiers wait,
    /// a tier keeps one request for each permit: the next permit is for this tier and not for a lower one.
    pub(crate) fn shed_old(&mut self, now: Instant, wakeups: &mut Wakeups<W>) {
        self.observe(now);
        let mut left = SHED_AT_ONCE_MAX;
        for tier in 0..TIERS {
            let is_above = self.tiers.lowest().is_some_and(|lowest| lowest < tier);
            let kept = if is_above { self.permits() as usize } else { 0 };
            while left > 0 && self.codels[tier].is_overloaded() && self.tiers.len_of(tier) > kept {
                if !self.has_lost_patience(tier, now) {
                    break;
                }
                let Some(node) = self.tiers.take_oldest(tier) else {
                    break;
                };
                self.dismiss(node, ShedReason::Overload, now, wakeups);
                left -= 1;
            }
        }
        self.observe(now);
    }

    /// Gives permits to the next requests; returns how many were given.
    pub(crate) fn serve(&mut self, free: u32, now: Instant, wakeups: &mut Wakeups<W>) -> u32 {
        self.observe(now);
        let mut issued = 0;
        let starved = self.starved();
        self.floors.earn(starved, self.permits(), now);
        while issued < free {
            let Some(highest) = self.tiers.highest() else {
                break;
            };
            let entitled = self.entitled(now);
            let tier = entitled.unwrap_or(highest);
            let newest_first = self.codels[tier].is_overloaded();
            let Some(node) = self.tiers.take_next(tier, newest_first) else {
                break;
            };
            if now >= node.expires {
                self.counts[tier].expired += 1;
                wakeups.push((node.waiter, Admission::Expired));
                continue;
            }
            self.counts[tier].served += 1;
            let mut permit = Permit::ordinary(Criticality::ALL[tier]);
            if entitled.is_some() {
                self.counts[tier].served_by_floor += 1;
                permit.floor_ns = self.floors.charge(tier);
            }
            wakeups.push((node.waiter, Admission::Permit(permit)));
            issued += 1;
        }
        issued
    }

    /// Returns the tier that its floor gives the next permit. Floors pause while requests of an upper tier wait, for an
    /// interval at most, and while the delay of an upper tier may last only a moment. An upper tier that has room now
    /// and then leaves enough to the others. An upper tier without room becomes overloaded, and has to leave the others
    /// their floors.
    fn entitled(&self, now: Instant) -> Option<usize> {
        let interval = self.settings.codel.interval;
        let is_brief = |since| now.saturating_duration_since(since) < interval;
        let mut upper = self.codels[tier(Criticality::Critical)..].iter();
        if self.upper_since.is_some_and(is_brief) || upper.any(Codel::is_pressed) {
            return None;
        }
        self.floors.entitled(self.starved())
    }

    /// Returns which tiers wait behind a higher one.
    fn starved(&self) -> PerTier<bool> {
        let highest = self.tiers.highest().unwrap_or(0);
        std::array::from_fn(|tier| tier < highest && self.tiers.len_of(tier) > 0)
    }

    /// Returns the delay of the oldest request of a tier, and its target; `None` if no request of the tier waits.
    fn delay_of(&self, tier: usize, now: Instant) -> Option<(Duration, Duration)> {
        let (entered, deadline) = self.tiers.oldest(tier)?;
        let delay = now.saturating_duration_since(entered) + self.lag;
        let target = self.settings.codel.target_until(deadline, entered);
        Some((delay, target))
    }

    fn has_lost_patience(&self, tier: usize, now: Instant) -> bool {
        let oldest = self.delay_of(tier, now);
        oldest.is_some_and(|(delay, target)| delay > patience(target))
    }

    fn observe(&mut self, now: Instant) {
        let interval = self.settings.codel.interval;
        let upper = tier(Criticality::Critical);
        for tier in 0..TIERS {
            let intervals = 1 + INTERVALS_MORE * tier.min(upper) as u32;
            let oldest = self.delay_of(tier, now);
            self.codels[tier].observe(intervals * interval, oldest, now);
        }
        if self.tiers.highest().is_some_and(|highest| highest >= upper) {
            self.upper_since.get_or_insert(now);
        } else {
            self.upper_since = None;
        }
    }

    fn dismiss(
        &mut self,
        node: QueuedRequest<W>,
        reason: ShedReason,
        now: Instant,
        wakeups: &mut Wakeups<W>,
    ) {
        let tier = usize::from(node.tier);
        let admission = if now >= node.expires {
            self.counts[tier].expired += 1;
            Admission::Expired
        } else {
            Admission::Shed(self.shed(tier, reason, now))
        };
        wakeups.push((node.waiter, admission));
    }

    /// Counts a request as shed.
    fn shed(&mut self, tier: usize, reason: ShedReason, now: Instant) -> Shed {
        self.counts[tier].shed[reason as usize] += 1;
        if reason == ShedReason::Overload {
            self.codels[tier].shed(now);
        }
        let lasted = self.codels[tier].overloaded_for(now);
        Shed {
            reason,
            criticality: Criticality::ALL[tier],
            wait: self.wait_after(lasted),
        }
    }

    fn delay_times(&self, now: Instant) -> f64 {
        let overloaded = (0..TIERS).filter(|&tier| self.codels[tier].is_overloaded());
        let delays = overloaded.filter_map(|tier| self.delay_of(tier, now));
        let delays = delays.map(|(delay, target)| times(delay, target));
        delays.fold(0.0, f64::max)
    }

    pub(crate) fn status(&self, in_flight: u32, now: Instant) -> QueueStatus {
        let tier = |tier: usize| TierStatus {
            waiting: self.tiers.len_of(tier),
            oldest: self
                .tiers
                .oldest(tier)
                .map_or(Duration::ZERO, |(since, _)| {
                    now.saturating_duration_since(since)
                }),
            overloaded_for: self.codels[tier]
                .is_overloaded()
                .then(|| self.codels[tier].overloaded_for(now)),
            counts: self.counts[tier],
        };
        QueueStatus {
            limit: self.permits(),
            in_flight,
            work: RequestUnits::from_micros(self.tiers.work()),
            lag: self.lag,
            delay_times: self.delay_times(now),
            lag_times: if self.late_control.is_shedding() {
                times(self.lag, self.settings.codel.target)
            } else {
                0.0
            },
            tiers: std::array::from_fn(tier),
        }
    }
}

impl Permit {
    /// A permit that no floor pays for.
    pub(crate) const fn ordinary(criticality: Criticality) -> Self {
        Self {
            floor_ns: 0,
            criticality,
        }
    }
}

fn times(delay: Duration, target: Duration) -> f64 {
    delay.as_secs_f64() / target.as_secs_f64().max(f64::MIN_POSITIVE)
}
