//! The scenarios of overload: who asks for how much, what happens, and when.
//!
//! All rates are in parts of what the shards can do together, so that a scenario means the same on
//! any simulated hardware.

use umbo_types::{Criticality, Operation};

use super::behaviour::{Incident, Sharing, Spread, Trouble};

/// The scenarios, by the names that the real ones have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ten times what the shards can do
    Spike,
    /// One shard sleeps
    Stall,
    /// Everything takes eight times as long
    SlowDisk,
    /// A caller scans as fast as possible
    ScanStorm,
    /// One caller of the usual tier asks for ten times what the shards can do
    NoisyNeighbour,
    /// An import at the busiest hour
    BulkAtPeak,
    /// A short spike of what may wait, and what is left of it
    Recovery,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Spike,
        Self::Stall,
        Self::SlowDisk,
        Self::ScanStorm,
        Self::NoisyNeighbour,
        Self::BulkAtPeak,
        Self::Recovery,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Spike => "spike",
            Self::Stall => "stall",
            Self::SlowDisk => "slow-disk",
            Self::ScanStorm => "scan-storm",
            Self::NoisyNeighbour => "noisy-neighbour",
            Self::BulkAtPeak => "bulk-at-peak",
            Self::Recovery => "recovery",
        }
    }
}

/// A kind of client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) criticality: Criticality,
    pub(crate) operation: Operation,
    /// A request of its takes so many times the usual one.
    pub(crate) times: f64,
    /// So many callers share its load.
    pub(crate) callers: u64,
    /// Load in parts of what the shards can do, outside the trouble and within.
    pub(crate) load: [f64; 2],
}

/// A scenario.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) shards: usize,
    /// Workers of a shard.
    pub(crate) workers: usize,
    /// What a usual request takes, in nanoseconds.
    pub(crate) service_ns: f64,
    pub(crate) spread: Spread,
    pub(crate) sharing: Sharing,
    pub(crate) degradation: f64,
    /// Load at which latencies are what they are without any, in parts of what the shards can do.
    pub(crate) unloaded: f64,
    /// What clients give a request, in nanoseconds.
    pub(crate) timeout_ns: u64,
    pub(crate) sources: Vec<Source>,
    /// Of the trouble.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) length_ns: u64,
    pub(crate) incident: Option<Incident>,
    /// The shards below this one are in trouble, the others should not notice.
    pub(crate) troubled: usize,
}

/// Parts of the usual traffic, lowest tier first.
const MIX: [f64; 4] = [0.40, 0.56, 0.03, 0.01];
/// Usual load of reads, in parts of what the shards can do.
const USUAL_LOAD: f64 = 0.6;
/// Writes to a read, of the usual traffic.
const WRITES: f64 = 0.25;

impl Scenario {
    /// Makes a scenario whose trouble lasts so many seconds, with eight before and five after it.
    pub(crate) fn new(kind: Kind, seed: u64, trouble_s: f64) -> Self {
        let from_ns = 8_000_000_000;
        let to_ns = from_ns + (trouble_s * 1e9) as u64;
        let shards = 4;
        let incident = |trouble, shards| {
            Some(Incident {
                trouble,
                shards,
                from_ns,
                to_ns,
            })
        };
        let mut scenario = Self {
            kind,
            seed,
            shards,
            workers: 8,
            service_ns: 4e6,
            spread: Spread::Usual,
            sharing: Sharing::InTurn,
            degradation: 0.02,
            unloaded: 1.0 / 3.0,
            timeout_ns: 500_000_000,
            sources: usual([USUAL_LOAD, USUAL_LOAD]),
            from_ns,
            to_ns,
            length_ns: to_ns + 5_000_000_000,
            incident: None,
            troubled: 0,
        };
        match kind {
            Kind::Spike => scenario.sources = usual([USUAL_LOAD, 10.0]),
            Kind::Stall => {
                scenario.troubled = 1;
                scenario.incident = incident(Trouble::Stall, 1);
            }
            Kind::SlowDisk => {
                scenario.troubled = shards;
                scenario.incident = incident(Trouble::Slow(8.0), shards);
            }
            Kind::ScanStorm => scenario.sources.push(Source {
                operation: Operation::Scan,
                times: 5.0,
                ..one(Criticality::Sheddable, [0.0, 5.0])
            }),
            Kind::NoisyNeighbour => {
                let noisy = one(Criticality::SheddablePlus, [0.0, 10.0]);
                scenario.sources.push(noisy);
            }
            Kind::BulkAtPeak => {
                scenario.sources = usual([USUAL_LOAD, 0.9]);
                // Twice what the slots for writes can do.
                scenario.sources.push(Source {
                    operation: Operation::BatchWrite,
                    times: 3.0,
                    ..one(Criticality::Sheddable, [0.0, 32.0])
                });
            }
            Kind::Recovery => {
                let crowd = Source {
                    callers: 50,
                    ..one(Criticality::Sheddable, [0.0, 10.0])
                };
                scenario.sources.push(crowd);
            }
        }
        scenario
    }

    /// Makes a scenario on the shards that `umbo-loadtest modelled` has, of its usual traffic: each has
    /// four workers, and a call takes 27 ms with all that belongs to it. At ten times the load `critical`
    /// needs more than half of them by itself. Where all go on at once, as over sockets, latencies are
    /// compared with those of the usual traffic, as there.
    pub(crate) fn slow(kind: Kind, sharing: Sharing, seed: u64, trouble_s: f64) -> Self {
        let times = if kind == Kind::Spike { 10.0 } else { 1.0 };
        let parts: [(Criticality, f64); 3] = [
            (Criticality::Sheddable, 0.16),
            (Criticality::SheddablePlus, 0.33),
            (Criticality::Critical, 0.054),
        ];
        let sources = parts.into_iter();
        let sources =
            sources.flat_map(|(criticality, load)| pair(criticality, [load, times * load]));
        let slow = Self {
            workers: 4,
            service_ns: 27e6,
            sharing,
            timeout_ns: 1_000_000_000,
            sources: sources.collect(),
            ..Self::new(kind, seed, trouble_s)
        };
        match sharing {
            Sharing::InTurn => slow,
            Sharing::AtOnce => Self {
                spread: Spread::Even,
                unloaded: parts.iter().map(|(_, load)| load).sum(),
                ..slow
            },
        }
    }

    /// Returns the same shards under an even load without any trouble.
    pub(crate) fn calm(&self, load: f64) -> Self {
        Self {
            sources: usual([load, load]),
            incident: None,
            ..self.clone()
        }
    }

    /// Returns what the shards can do together, in usual requests a second.
    pub(crate) fn capacity(&self) -> f64 {
        (self.shards * self.workers) as f64 * 1e9 / self.service_ns
    }
}

/// The usual traffic of all tiers, with so much load altogether.
fn usual(load: [f64; 2]) -> Vec<Source> {
    let tiers = Criticality::ALL.into_iter().zip(MIX);
    tiers
        .flat_map(|(criticality, part)| pair(criticality, load.map(|load| load * part)))
        .collect()
}

/// Reads of a tier with so much load, and the writes beside them.
fn pair(criticality: Criticality, load: [f64; 2]) -> [Source; 2] {
    let of = |operation, share: f64| Source {
        operation,
        callers: 20,
        ..one(criticality, load.map(|load| load * share))
    };
    [of(Operation::Get, 1.0), of(Operation::Put, WRITES)]
}

fn one(criticality: Criticality, load: [f64; 2]) -> Source {
    Source {
        criticality,
        operation: Operation::Get,
        times: 1.0,
        callers: 1,
        load,
    }
}
