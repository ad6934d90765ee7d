//! What a pod knows of the load of its shards: two gates for each, and the signal over all of them.
//!
//! Owns both, and brings them up to date. How a request passes a gate is the business of `wait`; who
//! is shed because of the signal is asked when its shard is known.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use umbo_shed::{
    Gate, GateSettings, GateStatus, Overload as Signal, ShedByPenalty, SignalSettings, Verdict,
    Why, Woken, Work,
};
use umbo_types::{Criticality, Operation, ShardId};

use crate::digits::Digits;

/// Wakes a request that waits at a gate.
pub(crate) type Waiter = oneshot::Sender<Verdict>;

/// How gates and signal are made.
#[derive(Debug, Clone, Default)]
pub struct OverloadSettings {
    /// Of the gate of each shard for reads; that for writes has a fixed number of slots.
    pub gate: GateSettings,
    /// Of the signal.
    pub signal: SignalSettings,
}

/// Why a request was shed, as its answer says it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShedReport {
    /// The shard that is overloaded.
    pub shard: ShardId,
    /// The tier that was shed.
    pub tier: Criticality,
    /// What told that.
    pub signal: ShedSignal,
    /// For how long to stay away; that of a queue is without jitter.
    pub wait: Duration,
}

/// The signal that is not a queue's, in answers and metrics.
pub(crate) const LATENCY_RATIO: &str = "latency-ratio";

/// What told that a shard is overloaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ShedSignal {
    /// Its queue.
    Queue(Why),
    /// Its latency ratio.
    LatencyRatio {
        /// The class of operations.
        class: &'static str,
        /// The ratio.
        ratio: f64,
        /// What the price was multiplied with.
        penalty: f64,
    },
}

impl ShedSignal {
    /// Returns the name used in answers and metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Queue(why) => why.as_str(),
            Self::LatencyRatio { .. } => LATENCY_RATIO,
        }
    }
}

impl ShedReport {
    /// Says what happened, piece by piece.
    pub(crate) fn describe(&self, mut say: impl FnMut(&str)) {
        say("shard ");
        say(Digits::of(self.shard.0.into()).as_str());
        say(" is overloaded and tier ");
        say(self.tier.as_str());
        say(" is shed: ");
        match self.signal {
            ShedSignal::Queue(why) => say(match why {
                Why::Overload => "its queue has been slow for a while",
                Why::Length => "as many requests wait as may",
                Why::Work => "as many request units wait as may",
                Why::Displaced => "a higher tier took its place",
            }),
            ShedSignal::LatencyRatio {
                class,
                ratio,
                penalty,
            } => {
                say("the latency ratio of class ");
                say(class);
                say(" fell to ");
                let hundredths = rounded(ratio * 100.0);
                say(Digits::of(hundredths / 100).as_str());
                say(".");
                say(Digits::of(hundredths / 10 % 10).as_str());
                say(Digits::of(hundredths % 10).as_str());
                say(", and the price of this tier counts ");
                let tenths = rounded(penalty * 10.0);
                say(Digits::of(tenths / 10).as_str());
                say(".");
                say(Digits::of(tenths % 10).as_str());
                say(" times");
            }
        }
    }
}

/// Returns the nearest whole number; nought of what is below it or no number.
#[expect(clippy::cast_sign_loss)] // it saturates
fn rounded(number: f64) -> u64 {
    number.round() as u64
}

impl std::fmt::Display for ShedReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut written = Ok(());
        self.describe(|text| {
            if written.is_ok() {
                written = f.write_str(text);
            }
        });
        written
    }
}

/// One shard. Reads and writes do not wait for each other: writes are done in groups, by one after the
/// other, and reads are not held up when a disk is.
#[derive(Debug)]
struct Shard {
    reads: Way,
    writes: Way,
}

/// One way into a shard.
#[derive(Debug)]
struct Way {
    gate: Gate<Waiter>,
    /// Store calls that have ended, modulo 2³².
    ended: AtomicU32,
}

impl Shard {
    const fn way(&self, operation: Operation) -> &Way {
        if operation.is_write() {
            &self.writes
        } else {
            &self.reads
        }
    }
}

/// The load of all shards.
#[derive(Debug)]
pub(crate) struct Overload {
    shards: Box<[Shard]>,
    signal: Signal,
    /// Of both ways into each shard.
    progress: Mutex<Vec<[Progress; 2]>>,
}

/// Since when a way into a shard has held requests without ending any.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    ended: u32,
    stuck_since: Option<Instant>,
}

impl Progress {
    /// Returns for how long nothing has ended that is in flight.
    fn look(&mut self, way: &Way, now: Instant) -> Duration {
        let ended = way.ended.load(Ordering::Relaxed);
        if way.gate.status(now).in_flight == 0 {
            self.stuck_since = None;
        } else if self.stuck_since.is_none() || self.ended != ended {
            self.stuck_since = Some(now);
        }
        self.ended = ended;
        let since = self.stuck_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl Overload {
    /// Begins with all shards idle.
    pub(crate) fn new(settings: OverloadSettings, shards: usize, now: Instant) -> Self {
        let way = |gate| Way {
            gate: Gate::new(gate),
            ended: AtomicU32::new(0),
        };
        let shard = || Shard {
            reads: way(settings.gate),
            writes: way(settings.gate.for_groups()),
        };
        let count = u16::try_from(shards).unwrap_or(u16::MAX);
        Self {
            shards: (0..count).map(|_| shard()).collect(),
            signal: Signal::new(settings.signal, count, now),
            progress: Mutex::new(vec![Default::default(); usize::from(count)]),
        }
    }

    /// Returns the gate of a shard for an operation; none for a shard that does not exist.
    pub(crate) fn gate(&self, shard: ShardId, operation: Operation) -> Option<&Gate<Waiter>> {
        let shard = self.shards.get(usize::from(shard.0))?;
        Some(&shard.way(operation).gate)
    }

    /// Returns how things stand at both gates of each shard together, by number.
    pub(crate) fn statuses(&self, now: Instant) -> Vec<GateStatus> {
        let both = |shard: &Shard| {
            let writes = shard.writes.gate.status(now);
            shard.reads.gate.status(now).and(&writes)
        };
        self.shards.iter().map(both).collect()
    }

    /// Returns the signal.
    pub(crate) const fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Notes that a store call has ended.
    #[inline]
    pub(crate) fn ended(&self, shard: ShardId, operation: Operation) {
        if let Some(shard) = self.shards.get(usize::from(shard.0)) {
            shard.way(operation).ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets work through, or says why it is shed.
    #[inline]
    pub(crate) fn admit(&self, work: &Work, now: Instant, random: u64) -> Result<(), ShedReport> {
        let shed = |shed: ShedByPenalty| ShedReport {
            shard: shed.shard,
            tier: shed.tier,
            signal: ShedSignal::LatencyRatio {
                class: shed.class.as_str(),
                ratio: shed.ratio,
                penalty: shed.penalty,
            },
            wait: shed.wait,
        };
        self.signal.admit(work, now, random).map_err(shed)
    }

    /// Sheds who has waited too long. `lag` is by how much the runtime runs late.
    pub(crate) fn tick_gates(&self, now: Instant, lag: Duration) {
        let ways = self
            .shards
            .iter()
            .flat_map(|shard| [&shard.reads, &shard.writes]);
        for way in ways {
            let mut woken = Woken::new();
            way.gate.tick(now, lag, &mut woken);
            deliver(&way.gate, woken, now);
        }
    }

    /// Judges all shards.
    pub(crate) fn tick_signal(&self, now: Instant) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, (shard, progress)) in (0..).zip(self.shards.iter().zip(progress.iter_mut())) {
            let ways = [&shard.reads, &shard.writes].into_iter().zip(progress);
            let ages = ways.map(|(way, progress)| progress.look(way, now));
            let oldest = ages.max().unwrap_or_default();
            self.signal.note_oldest(ShardId(number), oldest);
        }
        drop(progress);
        let changes = self.signal.tick(now);
        for engagement in changes.begun {
            tracing::warn!(
                shard = engagement.shard.0,
                class = engagement.class.as_str(),
                "a shard is overloaded; what can wait is shed"
            );
        }
        for engagement in changes.ended {
            tracing::info!(
                shard = engagement.shard.0,
                class = engagement.class.as_str(),
                shed = engagement.shed_total(),
                "a shard has recovered"
            );
        }
    }
}

/// Wakes who waited. A slot that nobody is left to take goes to the next one.
pub(crate) fn deliver(gate: &Gate<Waiter>, mut woken: Woken<Waiter>, now: Instant) {
    while let Some((waiter, verdict)) = woken.pop() {
        if let Err(Verdict::Slot(grant)) = waiter.send(verdict) {
            gate.leave(grant, umbo_shed::Outcome::Unknown, now, &mut woken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_shard_tier_and_why() {
        let said = |signal| {
            let report = ShedReport {
                shard: ShardId(12),
                tier: Criticality::SheddablePlus,
                signal,
                wait: Duration::ZERO,
            };
            report.to_string()
        };
        assert_eq!(
            said(ShedSignal::Queue(Why::Length)),
            "shard 12 is overloaded and tier sheddable-plus is shed: as many requests wait as may"
        );
        let ratio = |ratio, penalty| {
            said(ShedSignal::LatencyRatio {
                class: "write",
                ratio,
                penalty,
            })
        };
        for (fell, counts, shown) in [
            (
                0.126,
                2.0,
                "0.13, and the price of this tier counts 2.0 times",
            ),
            (
                0.049_9,
                4.26,
                "0.05, and the price of this tier counts 4.3 times",
            ),
            (
                1.0,
                16.0,
                "1.00, and the price of this tier counts 16.0 times",
            ),
        ] {
            let said = ratio(fell, counts);
            let expected = format!("the latency ratio of class write fell to {shown}");
            assert!(said.ends_with(&expected), "{said}");
        }
    }
}
