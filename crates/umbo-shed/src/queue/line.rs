//! What a gate holds under its lock: those who wait, and what decides about them.

use std::time::{Duration, Instant};

use umbo_types::{Criticality, RequestUnits};

use super::codel::{Codel, CodelSettings};
use super::floor::Floors;
use super::gate::{GateSettings, PerTier};
use super::lag::{LagControl, LagWords};
use super::lanes::{Lanes, TIERS};
use super::limit::Limit;
use super::slab::Node;
use super::status::{GateStatus, Tally, TierStatus};
use super::verdict::{Entry, Grant, Outcome, Shed, Ticket, Verdict, Why, Woken, tier};

/// Intervals for which the queue of a tier may stand. Whoever has somebody below has more patience: nobody
/// is served any sooner for what is shed of it, and a shard may well pause for a moment.
const INTERVALS: PerTier<u32> = [1, 3, 5, 5];
/// Longest wait that anybody is told.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How many are shed at once, so that the lock is held for a bounded time.
const SHED_AT_ONCE_MAX: usize = 256;
/// How many of an overloaded tier wait, in multiples of the slots: as many as may be needed before
/// the next arrives. Whoever comes beyond is shed at once, which costs nothing.
const OVERLOADED_WAITING: usize = 2;
/// The same, at least.
const OVERLOADED_WAITING_MIN: usize = 16;

/// Longest time in which nobody looks after those who wait, while others come.
const LOOK: Duration = Duration::from_micros(100);

/// The queue of a gate.
#[derive(Debug)]
pub(crate) struct Line<W> {
    settings: GateSettings,
    lanes: Lanes<W>,
    codels: PerTier<Codel>,
    floors: Floors,
    limit: Limit,
    /// Since when somebody of the upper two tiers has waited without a break.
    upper_since: Option<Instant>,
    looked_at: Option<Instant>,
    lag: Duration,
    lag_control: LagControl,
    tallies: PerTier<Tally>,
}

impl<W> Line<W> {
    pub(crate) fn new(settings: GateSettings) -> Self {
        Self {
            settings,
            lanes: Lanes::new(),
            codels: Default::default(),
            floors: Floors::new(settings.floor_percent),
            limit: Limit::new(settings.limit),
            upper_since: None,
            looked_at: None,
            lag: Duration::ZERO,
            lag_control: LagControl::default(),
            tallies: Default::default(),
        }
    }

    pub(crate) const fn slots(&self) -> u32 {
        self.limit.slots()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.lanes.len() == 0
    }

    /// Takes notice of the lag, and sets who is turned away for it.
    pub(crate) fn set_lag(
        &mut self,
        lag: Duration,
        words: &LagWords,
        left: (u64, u64),
        now: Instant,
    ) {
        self.lag = lag;
        let Self { settings, .. } = self;
        let percent = settings.floor_percent;
        let shed = self
            .lag_control
            .tick(words, &settings.codel, percent, lag, left, now);
        for (tally, shed) in self.tallies.iter_mut().zip(shed) {
            tally.shed[Why::Overload as usize] += shed;
        }
    }

    /// Takes notice of how many are in flight, where nobody waits for longer than is normal.
    pub(crate) fn use_in_calm(&mut self, in_flight: u32, now: Instant) {
        let is_calm = |codel: &Codel| !codel.is_pressed() && !codel.is_overloaded();
        if self.codels.iter().all(is_calm) {
            let waiting = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
            let needed = in_flight.saturating_add(waiting);
            self.limit.use_in_calm(needed, now);
        }
    }

    pub(crate) fn shrink(&mut self) {
        self.lanes.shrink();
    }

    /// Learns from one who left while there was room.
    pub(crate) fn learn_calm(&mut self, outcome: Outcome) {
        if let Outcome::Served {
            operation,
            service_time,
        } = outcome
        {
            self.limit.calm(operation, service_time);
        }
    }

    /// Learns from one who left while others wait, and settles with the floor of its tier.
    pub(crate) fn left(&mut self, grant: &Grant, outcome: Outcome, now: Instant) {
        let mut took = None;
        if let Outcome::Served {
            operation,
            service_time,
        } = outcome
        {
            self.limit.full(operation, service_time, now);
            took = Some(service_time);
        }
        self.floors
            .settle(tier(grant.criticality), grant.floor_ns, took);
    }

    /// Adds one who waits.
    pub(crate) fn push(&mut self, entry: &Entry, waiter: W, now: Instant) -> Ticket {
        self.tallies[tier(entry.criticality)].queued += 1;
        self.lanes.push(entry, waiter, now)
    }

    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Instant) -> Option<W> {
        let waiter = self.lanes.cancel(ticket)?;
        self.observe(now);
        Some(waiter)
    }

    /// Sheds an entry for which nobody else would be: its callers have as much waiting as others.
    pub(crate) fn turn_away(&mut self, entry: &Entry, now: Instant) -> Option<Shed> {
        let own = tier(entry.criticality);
        let is_lowest = || self.lanes.lowest().is_none_or(|lowest| lowest >= own);
        let why = if self.has_enough(own) {
            Why::Overload
        } else {
            let why = self.fullness(entry)?;
            is_lowest().then_some(why)?
        };
        if self.lanes.is_modest(entry) {
            return None;
        }
        Some(self.shed(own, why, now))
    }

    /// Says whether as many of an overloaded tier wait as may be needed.
    fn has_enough(&self, tier: usize) -> bool {
        let enough = OVERLOADED_WAITING * self.slots() as usize;
        self.codels[tier].is_overloaded()
            && self.lanes.len_of(tier) >= enough.max(OVERLOADED_WAITING_MIN)
    }

    /// Says why there is no room for one more, where there is none.
    fn fullness(&self, entry: &Entry) -> Option<Why> {
        if self.lanes.len() >= self.settings.waiting_max.max(1) {
            Some(Why::Length)
        } else if self.is_too_much(entry) {
            Some(Why::Work)
        } else {
            None
        }
    }

    /// Makes room for one more, if need be at the cost of others, or says why there is none.
    pub(crate) fn make_room(
        &mut self,
        entry: &Entry,
        now: Instant,
        woken: &mut Woken<W>,
    ) -> Result<(), Shed> {
        let own = tier(entry.criticality);
        if self.has_enough(own) {
            self.replace_own(entry, Why::Overload, now, woken)?;
        }
        while let Some(why) = self.fullness(entry) {
            let lowest = self.lanes.lowest().unwrap_or(own);
            if lowest >= own {
                self.replace_own(entry, why, now, woken)?;
                // What is left of its own tier is too much by work: it is not emptied for one.
                if self.is_too_much(entry) {
                    return Err(self.shed(own, Why::Work, now));
                }
            } else if let Some(node) = self.lanes.take_newest(lowest) {
                self.dismiss(node, Why::Displaced, now, woken);
            }
        }
        Ok(())
    }

    fn is_too_much(&self, entry: &Entry) -> bool {
        let work = self.lanes.work().saturating_add(entry.price.as_micros());
        work > self.settings.work_max.as_micros() && self.lanes.len() > 0
    }

    /// Sheds one of an entry's own tier in its favour, where its callers have less waiting than
    /// others; else it is the entry that is shed.
    fn replace_own(
        &mut self,
        entry: &Entry,
        why: Why,
        now: Instant,
        woken: &mut Woken<W>,
    ) -> Result<(), Shed> {
        let own = tier(entry.criticality);
        let other = if self.lanes.is_modest(entry) {
            self.lanes.take_of_most(own)
        } else {
            None
        };
        match other {
            Some(node) => {
                self.dismiss(node, why, now, woken);
                Ok(())
            }
            None => Err(self.shed(own, why, now)),
        }
    }

    /// Says whether nobody has looked after those who wait for long.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.looked_at
            .is_none_or(|at| now.saturating_duration_since(at) >= LOOK)
    }

    /// Sheds who has waited too long in overloaded tiers, lowest first. While somebody waits below, as many
    /// of a tier are left as there are slots: what comes free is theirs, however soon, and not of one below
    /// beside whom they have just been shed.
    pub(crate) fn shed_old(&mut self, now: Instant, woken: &mut Woken<W>) {
        self.looked_at = Some(now);
        self.observe(now);
        let patience = self.codel().patience().saturating_sub(self.lag);
        let Some(before) = now.checked_sub(patience) else {
            return;
        };
        let mut left = SHED_AT_ONCE_MAX;
        for tier in 0..TIERS {
            let is_above = self.lanes.lowest().is_some_and(|lowest| lowest < tier);
            let kept = if is_above { self.slots() as usize } else { 0 };
            while left > 0 && self.codels[tier].is_overloaded() && self.lanes.len_of(tier) > kept {
                let Some(node) = self.lanes.take_older(tier, before) else {
                    break;
                };
                self.dismiss(node, Why::Overload, now, woken);
                left -= 1;
            }
        }
        self.observe(now);
    }

    /// Gives slots to those who are next; returns how many found somebody.
    pub(crate) fn serve(&mut self, free: u32, now: Instant, woken: &mut Woken<W>) -> u32 {
        self.observe(now);
        let mut granted = 0;
        let starved = self.starved();
        self.floors.earn(starved, self.slots(), now);
        while granted < free {
            let Some(highest) = self.lanes.highest() else {
                break;
            };
            let entitled = self.entitled(now);
            let tier = entitled.unwrap_or(highest);
            let newest_first = self.codels[tier].is_overloaded();
            let Some(node) = self.lanes.take_next(tier, newest_first) else {
                break;
            };
            if now >= node.expires {
                self.tallies[tier].expired += 1;
                woken.push((node.waiter, Verdict::Expired));
                continue;
            }
            self.tallies[tier].served += 1;
            let mut grant = Grant::ordinary(Criticality::ALL[tier]);
            if entitled.is_some() {
                self.tallies[tier].served_by_floor += 1;
                grant.floor_ns = self.floors.charge(tier);
            }
            woken.push((node.waiter, Verdict::Slot(grant)));
            granted += 1;
        }
        granted
    }

    /// Returns the tier that its floor gives the next slot. Floors wait while an upper tier does, for an
    /// interval at most, and while its delay may be a moment's: one that has room now and then leaves
    /// enough to the others, and one that has none is overloaded by itself, and is to leave them that.
    fn entitled(&self, now: Instant) -> Option<usize> {
        let interval = self.codel().interval;
        let is_brief = |since| now.saturating_duration_since(since) < interval;
        let mut upper = self.codels[tier(Criticality::Critical)..].iter();
        if self.upper_since.is_some_and(is_brief) || upper.any(Codel::is_pressed) {
            return None;
        }
        self.floors.entitled(self.starved())
    }

    /// Returns which tiers wait behind a higher one.
    fn starved(&self) -> PerTier<bool> {
        let highest = self.lanes.highest().unwrap_or(0);
        std::array::from_fn(|tier| tier < highest && self.lanes.len_of(tier) > 0)
    }

    fn codel(&self) -> CodelSettings {
        self.settings.codel.for_service_time(self.floors.usual())
    }

    fn observe(&mut self, now: Instant) {
        let settings = self.codel();
        for (tier, codel) in self.codels.iter_mut().enumerate() {
            let since = self.lanes.oldest_since(tier);
            let delay = since.map(|since| now.saturating_duration_since(since) + self.lag);
            codel.observe(settings, INTERVALS[tier], delay, now);
        }
        let upper = tier(Criticality::Critical);
        if self.lanes.highest().is_some_and(|highest| highest >= upper) {
            self.upper_since.get_or_insert(now);
        } else {
            self.upper_since = None;
        }
        if self.codels[upper..]
            .iter()
            .any(|codel| codel.has_stood(settings.interval, now))
        {
            self.limit.relent(now);
        }
    }

    fn dismiss(&mut self, node: Node<W>, why: Why, now: Instant, woken: &mut Woken<W>) {
        let tier = usize::from(node.tier);
        let verdict = if now >= node.expires {
            self.tallies[tier].expired += 1;
            Verdict::Expired
        } else {
            Verdict::Shed(self.shed(tier, why, now))
        };
        woken.push((node.waiter, verdict));
    }

    /// Counts one as shed.
    fn shed(&mut self, tier: usize, why: Why, now: Instant) -> Shed {
        self.tallies[tier].shed[why as usize] += 1;
        if why == Why::Overload {
            self.codels[tier].shed(now);
        }
        let lasted = self.codels[tier].overloaded_for(now);
        Shed {
            why,
            criticality: Criticality::ALL[tier],
            wait: lasted.clamp(self.settings.codel.interval, WAIT_MAX),
        }
    }

    pub(crate) fn status(&self, in_flight: u32, now: Instant) -> GateStatus {
        let tier = |tier: usize| TierStatus {
            waiting: self.lanes.len_of(tier),
            oldest: self
                .lanes
                .oldest_since(tier)
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            overloaded_for: self.codels[tier]
                .is_overloaded()
                .then(|| self.codels[tier].overloaded_for(now)),
            tally: self.tallies[tier],
        };
        GateStatus {
            limit: self.slots(),
            in_flight,
            work: RequestUnits::from_micros(self.lanes.work()),
            lag: self.lag,
            tiers: std::array::from_fn(tier),
        }
    }
}

impl Grant {
    /// A slot that no floor pays for.
    pub(crate) const fn ordinary(criticality: Criticality) -> Self {
        Self {
            floor_ns: 0,
            criticality,
        }
    }
}
