//! The gate of one shard: slots while there are some, and order among those who wait for one.
//!
//! One word holds how many are in flight and whether anybody waits. While nobody does, entering and
//! leaving each change that word and nothing else; only where there is no room, or somebody waits,
//! is the lock taken. Invariants:
//! - nobody waits while there is room: whoever gives a slot back while somebody waits hands it on;
//! - a slot is taken in the same step in which it is seen to be free;
//! - of two tiers in which somebody waits, the higher is served, but for the floor of the lower;
//! - a tier is shed only after it has had somebody waiting for a whole interval, in which no lower
//!   tier was served but by its floor;
//! - whoever has expired gets no slot.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbo_types::RequestUnits;

use super::codel::CodelSettings;
use super::lag::LagWords;
use super::lanes::TIERS;
use super::limit::LimitSettings;
use super::line::Line;
use super::status::GateStatus;
use super::verdict::{Entered, Entry, Grant, Outcome, Shed, Ticket, Why, Woken};

/// Somebody waits.
const WAITING: u64 = 1 << 32;
/// One who has left, counted above the flag.
const LEFT: u64 = 1 << 33;
/// Where their count wraps around.
const LEFT_WRAP: u64 = 1 << (u64::BITS - LEFT.trailing_zeros());
/// Those in flight.
const IN_FLIGHT: u64 = WAITING - 1;
/// Of those who leave while nobody waits, one in so many is learned from.
const SAMPLED: u64 = 16;
/// All of the first are, so that a shard of which little is asked is known too.
const FIRST: u64 = 512;

/// What a gate is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateSettings {
    /// Bounds of the requests in flight.
    pub limit: LimitSettings,
    /// How much delay is normal.
    pub codel: CodelSettings,
    /// Share of the slots, in percent, that each tier keeps however much of higher ones waits; 0 to
    /// 25. Default 10.
    pub floor_percent: u32,
    /// Most that wait. Default 4,096.
    pub waiting_max: usize,
    /// Most that the estimates of those who wait may come to. A request that is more by itself waits
    /// alone. Default one million RU.
    pub work_max: RequestUnits,
}

/// Slots of a store that works on what it has gathered as one.
const GROUP_SLOTS: u32 = 128;

impl GateSettings {
    /// The same for a store that gathers what it is given and does it as one, as it commits writes.
    ///
    /// The more such a store has the more it does, and the longer each takes: no knee is to be found by
    /// service times. So the slots are a fixed number, 128, or fewer where fewer are allowed.
    #[must_use]
    pub const fn for_groups(mut self) -> Self {
        let slots = if self.limit.max < GROUP_SLOTS {
            self.limit.max
        } else {
            GROUP_SLOTS
        };
        self.limit = LimitSettings {
            min: slots,
            max: slots,
            initial: slots,
        };
        self
    }
}

impl Default for GateSettings {
    fn default() -> Self {
        Self {
            limit: LimitSettings::default(),
            codel: CodelSettings::default(),
            floor_percent: 10,
            waiting_max: 4_096,
            work_max: RequestUnits::from_micros(1_000_000_000_000),
        }
    }
}

/// The gate of one shard. `W` is whatever wakes one who waits.
#[derive(Debug)]
pub struct Gate<W> {
    word: AtomicU64,
    slots: AtomicU32,
    lag: LagWords,
    line: Mutex<Line<W>>,
}

impl<W> Gate<W> {
    /// Opens a gate at which nobody is in flight.
    pub fn new(settings: GateSettings) -> Self {
        let line = Line::new(settings);
        Self {
            word: AtomicU64::new(0),
            slots: AtomicU32::new(line.slots()),
            lag: LagWords::default(),
            line: Mutex::new(line),
        }
    }

    /// Asks for a slot. `waiter` is called only where the request has to wait.
    ///
    /// Others may be woken by it: they are added to `woken`.
    #[inline]
    pub fn enter(
        &self,
        entry: &Entry,
        now: Instant,
        waiter: impl FnOnce() -> W,
        woken: &mut Woken<W>,
    ) -> Entered {
        if entry.deadline.has_passed(now) {
            return Entered::Expired;
        }
        if let Some(wait) = self.lag.turns_away(entry) {
            return Entered::Shed(Shed {
                why: Why::Overload,
                criticality: entry.criticality,
                wait,
            });
        }
        if self.take_free() {
            return Entered::Slot(Grant::ordinary(entry.criticality));
        }
        self.enter_line(entry, now, waiter, woken)
    }

    /// Sheds a request that would be shed if it entered now, for whoever has something to prepare
    /// before it can. `None` says only that it would not be turned away at once.
    #[inline]
    pub fn turn_away(&self, entry: &Entry, now: Instant) -> Option<Shed> {
        if !self.is_crowded() || entry.deadline.has_passed(now) {
            return None;
        }
        let mut line = self.lock();
        // Whoever finds that those who wait are to be looked after goes on to do that.
        if line.is_due(now) {
            return None;
        }
        line.turn_away(entry, now)
    }

    /// Gives a slot back. Whoever gets it, or is shed meanwhile, is added to `woken`.
    #[inline]
    #[expect(clippy::needless_pass_by_value)] // so that it is given back once
    pub fn leave(&self, grant: Grant, outcome: Outcome, now: Instant, woken: &mut Woken<W>) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & WAITING == 0 {
            debug_assert!(word & IN_FLIGHT > 0, "a slot is given back once");
            let next = word.wrapping_add(LEFT) - 1;
            let ordering = (Ordering::Release, Ordering::Relaxed);
            match self
                .word
                .compare_exchange_weak(word, next, ordering.0, ordering.1)
            {
                Ok(_) => {
                    let left = next / LEFT;
                    if left < FIRST || left.is_multiple_of(SAMPLED) {
                        self.sample(outcome, next & IN_FLIGHT);
                    }
                    return;
                }
                Err(current) => word = current,
            }
        }
        let mut line = self.lock();
        self.word.fetch_sub(1, Ordering::AcqRel);
        line.left(&grant, outcome, now);
        self.slots.store(line.slots(), Ordering::Relaxed);
        self.attend(&mut line, now, woken);
    }

    /// Takes somebody out of the queue, and returns what would have woken it. `None` where it does not
    /// wait any more: a verdict is on its way, and a slot in it has to be given back.
    pub fn cancel(&self, ticket: Ticket, now: Instant) -> Option<W> {
        let mut line = self.lock();
        let waiter = line.cancel(ticket, now);
        self.note_empty(&line);
        waiter
    }

    /// Looks after those who wait: sheds who has waited too long, at a shard that stands still too.
    ///
    /// To be called every few milliseconds. `lag` is by how much the runtime runs late: it is counted
    /// as if everybody had waited that much longer, and where it stays high, the lowest tiers are
    /// turned away, also while there are slots.
    pub fn tick(&self, now: Instant, lag: Duration, woken: &mut Woken<W>) {
        let mut line = self.lock();
        let word = self.word.load(Ordering::Relaxed);
        line.use_in_calm((word & IN_FLIGHT) as u32, now);
        line.set_lag(lag, &self.lag, (word / LEFT, LEFT_WRAP), now);
        self.attend(&mut line, now, woken);
        line.shrink();
    }

    /// Says whether a request would find a slot now. Another one may be faster.
    #[inline]
    pub fn has_room(&self) -> bool {
        let slots = u64::from(self.slots.load(Ordering::Relaxed));
        let word = self.word.load(Ordering::Relaxed);
        word & WAITING == 0 && word & IN_FLIGHT < slots
    }

    /// Says whether anybody waits.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WAITING != 0
    }

    /// Says how things stand.
    pub fn status(&self, now: Instant) -> GateStatus {
        let line = self.lock();
        let in_flight = (self.word.load(Ordering::Relaxed) & IN_FLIGHT) as u32;
        line.status(in_flight, now)
    }

    /// Takes a slot where there is one and nobody waits.
    #[inline]
    fn take_free(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let slots = u64::from(self.slots.load(Ordering::Relaxed));
            if word & WAITING != 0 || word & IN_FLIGHT >= slots {
                return false;
            }
            let ordering = (Ordering::Acquire, Ordering::Relaxed);
            match self
                .word
                .compare_exchange_weak(word, word + 1, ordering.0, ordering.1)
            {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
    }

    #[cold]
    fn enter_line(
        &self,
        entry: &Entry,
        now: Instant,
        waiter: impl FnOnce() -> W,
        woken: &mut Woken<W>,
    ) -> Entered {
        let mut line = self.lock();
        // What is turned away must cost little, and changes nothing: those who wait are looked after now
        // and then.
        if let Some(shed) = line.turn_away(entry, now) {
            if line.is_due(now) {
                self.attend(&mut line, now, woken);
            }
            return Entered::Shed(shed);
        }
        // Who waits is seen from here on, and who leaves comes to this lock. What became free a
        // moment ago is seen here.
        if line.is_empty() && !self.begin_waiting(line.slots()) {
            return Entered::Slot(Grant::ordinary(entry.criticality));
        }
        let entered = match line.make_room(entry, now, woken) {
            Ok(()) => Entered::Queued(line.push(entry, waiter(), now)),
            Err(shed) => Entered::Shed(shed),
        };
        self.attend(&mut line, now, woken);
        entered
    }

    /// Notes that somebody waits, or takes a slot where there is one after all and returns false.
    fn begin_waiting(&self, slots: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let has_room = word & IN_FLIGHT < u64::from(slots);
            let next = if has_room { word + 1 } else { word | WAITING };
            let ordering = (Ordering::AcqRel, Ordering::Relaxed);
            match self
                .word
                .compare_exchange_weak(word, next, ordering.0, ordering.1)
            {
                Ok(_) => return !has_room,
                Err(current) => word = current,
            }
        }
    }

    /// Gives what slots there are to those who wait, and sheds who has to be of the others: in this
    /// order, so that no slot goes to a lower tier because a higher one has just been shed.
    fn attend(&self, line: &mut Line<W>, now: Instant, woken: &mut Woken<W>) {
        // While somebody waits nobody takes a slot but here.
        let in_flight = (self.word.load(Ordering::Acquire) & IN_FLIGHT) as u32;
        let free = line.slots().saturating_sub(in_flight);
        let granted = line.serve(free, now, woken);
        if granted > 0 {
            self.word.fetch_add(u64::from(granted), Ordering::AcqRel);
        }
        line.shed_old(now, woken);
        self.slots.store(line.slots(), Ordering::Relaxed);
        self.note_empty(line);
    }

    fn note_empty(&self, line: &Line<W>) {
        if line.is_empty() {
            self.word.fetch_and(!WAITING, Ordering::AcqRel);
        }
    }

    /// Learns from one who left while nobody waited, where that can be had without waiting, and
    /// where there was so much room that nobody was in the way.
    fn sample(&self, outcome: Outcome, in_flight: u64) {
        let slots = u64::from(self.slots.load(Ordering::Relaxed));
        if in_flight * 2 <= slots
            && let Ok(mut line) = self.line.try_lock()
        {
            line.learn_calm(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line<W>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For the figures of each tier.
pub(crate) type PerTier<T> = [T; TIERS];

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "gate_books_tests.rs"]
mod books_tests;
