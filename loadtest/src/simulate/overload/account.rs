//! What is measured of a run: what each source got, when, and whether the order was kept.

use umbo_types::Criticality;

const TIERS: usize = Criticality::ALL.len();
/// Length of a slice of time, for lines and for recovery.
pub(crate) const SLICE_NS: u64 = 50_000_000;
/// Length of the time in which a higher tier must not be shed beside a lower one that is admitted.
const TICK_NS: u64 = 100_000_000;

/// What a source offered and got in a slice of time, by when its requests arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Slice {
    pub(crate) offered: u64,
    /// Answered in time.
    pub(crate) good: u64,
    /// What was answered in time, in nanoseconds of one worker; writes take none.
    pub(crate) work_ns: f64,
}

/// One source.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceAccount {
    pub(crate) slices: Vec<Slice>,
    /// Of what was answered in time: when it arrived, and the time to its answer.
    latencies: Vec<(u64, u32)>,
}

impl SourceAccount {
    fn slice(&mut self, at_ns: u64) -> &mut Slice {
        let at = (at_ns / SLICE_NS) as usize;
        if self.slices.len() <= at {
            self.slices.resize(at + 1, Slice::default());
        }
        &mut self.slices[at]
    }
}

/// Sheds of a tier and admissions, at one door in one tick.
#[derive(Debug, Clone, Copy, Default)]
struct Tick {
    number: u64,
    shed: [u64; TIERS],
    admitted: [u64; TIERS],
}

/// All of a run.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) sources: Vec<SourceAccount>,
    /// Sources restricted to shards that were in no trouble.
    pub(crate) sound: Vec<SourceAccount>,
    ticks: Vec<Tick>,
    /// Shed beside a lower tier that was admitted but for its floor.
    pub(crate) inverted: u64,
}

/// A request, as far as it is accounted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who {
    pub(crate) source: usize,
    pub(crate) shard: usize,
    pub(crate) is_sound: bool,
    pub(crate) is_write: bool,
    pub(crate) arrived_ns: u64,
    pub(crate) work_ns: f64,
}

impl Who {
    /// Returns the number of its door: each shard has one for reads and one for writes.
    pub(crate) const fn door(&self) -> usize {
        2 * self.shard + self.is_write as usize
    }
}

impl Account {
    pub(crate) fn new(sources: usize, shards: usize) -> Self {
        Self {
            sources: vec![SourceAccount::default(); sources],
            sound: vec![SourceAccount::default(); sources],
            ticks: vec![Tick::default(); 2 * shards],
            inverted: 0,
        }
    }

    fn slices(&mut self, who: &Who, note: impl Fn(&mut Slice)) {
        note(self.sources[who.source].slice(who.arrived_ns));
        if who.is_sound {
            note(self.sound[who.source].slice(who.arrived_ns));
        }
    }

    pub(crate) fn offered(&mut self, who: &Who) {
        self.slices(who, |slice| slice.offered += 1);
    }

    pub(crate) fn admitted(&mut self, who: &Who, tier: usize, is_by_floor: bool, now_ns: u64) {
        if !is_by_floor {
            self.tick(who.door(), now_ns).admitted[tier] += 1;
        }
    }

    pub(crate) fn shed(&mut self, who: &Who, tier: usize, now_ns: u64) {
        self.tick(who.door(), now_ns).shed[tier] += 1;
    }

    pub(crate) fn good(&mut self, who: &Who, now_ns: u64) {
        let work_ns = if who.is_write { 0.0 } else { who.work_ns };
        self.slices(who, |slice| {
            slice.good += 1;
            slice.work_ns += work_ns;
        });
        let micros = ((now_ns - who.arrived_ns) / 1_000) as u32;
        let latency = (who.arrived_ns, micros);
        self.sources[who.source].latencies.push(latency);
        if who.is_sound {
            self.sound[who.source].latencies.push(latency);
        }
    }

    fn tick(&mut self, door: usize, now_ns: u64) -> &mut Tick {
        let number = now_ns / TICK_NS;
        if self.ticks[door].number != number {
            self.close(door);
            self.ticks[door].number = number;
        }
        &mut self.ticks[door]
    }

    /// Ends all ticks.
    pub(crate) fn close_all(&mut self) {
        for door in 0..self.ticks.len() {
            self.close(door);
        }
    }

    fn close(&mut self, door: usize) {
        let tick = std::mem::take(&mut self.ticks[door]);
        for tier in 1..TIERS {
            if tick.admitted[..tier].iter().any(|admitted| *admitted > 0) {
                self.inverted += tick.shed[tier];
            }
        }
    }
}

/// What some sources got over some time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) offered: u64,
    pub(crate) good: u64,
    /// In workers: how many were busy with reads that were answered in time.
    pub(crate) goodput: f64,
    /// In milliseconds.
    pub(crate) p99: f64,
}

/// Sums up sources over what arrived within a time.
pub(crate) fn sum<'a>(
    sources: impl Iterator<Item = &'a SourceAccount> + Clone,
    from_ns: u64,
    to_ns: u64,
) -> Sum {
    let mut sum = Sum::default();
    let mut work_ns = 0.0;
    let slices = (from_ns / SLICE_NS) as usize..(to_ns / SLICE_NS) as usize;
    for source in sources.clone() {
        let all = source.slices.len();
        for slice in &source.slices[slices.start.min(all)..slices.end.min(all)] {
            sum.offered += slice.offered;
            sum.good += slice.good;
            work_ns += slice.work_ns;
        }
    }
    sum.goodput = work_ns / (to_ns - from_ns) as f64;
    sum.p99 = quantile_ms(sources, (from_ns, to_ns), 0.99);
    sum
}

/// Returns the milliseconds that a share of what arrived within a time and was answered in time took at most.
pub(crate) fn quantile_ms<'a>(
    sources: impl Iterator<Item = &'a SourceAccount>,
    (from_ns, to_ns): (u64, u64),
    share: f64,
) -> f64 {
    let latencies = sources.flat_map(|source| source.latencies.iter());
    let within = latencies.filter(|(at_ns, _)| (from_ns..to_ns).contains(at_ns));
    let mut micros: Vec<u32> = within.map(|(_, micros)| *micros).collect();
    micros.sort_unstable();
    let at = (micros.len() as f64 * share) as usize;
    let last = micros.len().saturating_sub(1);
    micros
        .get(at.min(last))
        .map_or(0.0, |&micros| f64::from(micros) / 1e3)
}

/// Returns the nanoseconds from `end_ns` until what arrives is answered in time, 95 of 100, over
/// every fifth of a second from then on for two seconds; none where that does not happen.
pub(crate) fn recovery_ns<'a>(
    sources: &(impl Iterator<Item = &'a SourceAccount> + Clone),
    end_ns: u64,
) -> Option<u64> {
    let first = (end_ns / SLICE_NS) as usize;
    let share = |at: usize| {
        let window = sources.clone().flat_map(|source| {
            let all = source.slices.len();
            source.slices[at.min(all)..(at + 4).min(all)].iter()
        });
        let (good, offered) = window.fold((0, 0), |sum, slice| {
            (sum.0 + slice.good, sum.1 + slice.offered)
        });
        good as f64 / (offered as f64).max(1.0)
    };
    // Up to two seconds before the end of what is known.
    (0..60)
        .find(|&late| (late..late + 40).all(|at| share(first + at) >= 0.95))
        .map(|late| late as u64 * SLICE_NS)
}
