//! The decisive figures of a run.

use umbo_overload::QueueSettings;
use umbo_types::Criticality;

use super::account::{Account, SourceAccount, recovery_ns, sum};
use super::door::Discipline;
use super::scenario::Scenario;
use super::world::run;

/// What the same shards do without any trouble.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calm {
    /// Most that is answered in time, over even loads up to all that they can do; in workers.
    pub(crate) peak: f64,
    /// Of reads, in milliseconds, at the load that is none.
    pub(crate) p99: f64,
    /// What the shards that will be in no trouble answer at the usual load, in workers, and its p99.
    pub(crate) sound: (f64, f64),
}

impl Calm {
    /// Finds out.
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let whole =
            |account: &Account| sum(account.sources.iter(), scenario.from_ns, scenario.to_ns);
        let at = |load| {
            run(
                &scenario.calm(load),
                Discipline::Umbo,
                QueueSettings::default(),
            )
        };
        let unloaded = scenario.calm(scenario.unloaded);
        let account = run(&unloaded, Discipline::Umbo, QueueSettings::default());
        let is_read = |at: usize| !unloaded.sources[at].operation.is_write();
        let reads = some(&account.sources, is_read);
        let reads = sum(reads, scenario.from_ns, scenario.to_ns);
        let loads = [0.8, 0.9, 1.0];
        let usual = Scenario {
            incident: None,
            ..scenario.clone()
        };
        let usual = run(&usual, Discipline::Umbo, QueueSettings::default());
        let sound = sum(usual.sound.iter(), scenario.from_ns, scenario.to_ns);
        Self {
            peak: loads
                .map(|load| whole(&at(load)).goodput)
                .into_iter()
                .fold(0.0, f64::max),
            p99: reads.p99,
            sound: (sound.goodput, sound.p99),
        }
    }
}

/// The result of a discipline in a scenario.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// Answered in time during the trouble, of the peak.
    pub(crate) goodput: f64,
    /// Share of `critical` and above that was answered in time.
    pub(crate) success: f64,
    /// Of the reads among those, p99 of the p99 without load. Writes do not wait for reads, whoever is at
    /// the door: where hardly a read is answered, the p99 of all would be theirs.
    pub(crate) p99: f64,
    /// Milliseconds after the end until 95 of 100 are answered in time; none where that takes more
    /// than three seconds.
    pub(crate) recovery_ms: Option<f64>,
    /// Of the shards in no trouble: goodput and p99, each of what it is without trouble.
    pub(crate) sound: (f64, f64),
}

impl Figures {
    /// Makes them of a run.
    pub(crate) fn of(scenario: &Scenario, account: &Account, calm: &Calm) -> Self {
        let (from_ns, to_ns) = (scenario.from_ns, scenario.to_ns);
        let all = sum(account.sources.iter(), from_ns, to_ns);
        let is_high = |at: usize| scenario.sources[at].criticality >= Criticality::Critical;
        let high = sum(some(&account.sources, is_high), from_ns, to_ns);
        let is_high_read = |at: usize| is_high(at) && !scenario.sources[at].operation.is_write();
        let high_reads = sum(some(&account.sources, is_high_read), from_ns, to_ns);
        let sound = sum(account.sound.iter(), from_ns, to_ns);
        let recovery = recovery_ns(&account.sources.iter(), to_ns);
        Self {
            goodput: all.goodput / calm.peak,
            success: high.good as f64 / (high.offered as f64).max(1.0),
            p99: high_reads.p99 / calm.p99,
            recovery_ms: recovery.map(|nanos| nanos as f64 / 1e6),
            sound: (sound.goodput / calm.sound.0, sound.p99 / calm.sound.1),
        }
    }
}

/// Returns the share of all requests that were shed beside a lower tier that was admitted, but for its floor.
pub(crate) fn inversions(scenario: &Scenario, account: &Account) -> f64 {
    let whole = sum(account.sources.iter(), 0, scenario.length_ns);
    account.inverted as f64 / (whole.offered as f64).max(1.0)
}

/// Returns some of the sources.
fn some(
    sources: &[SourceAccount],
    is_meant: impl Fn(usize) -> bool + Clone,
) -> impl Iterator<Item = &SourceAccount> + Clone {
    let meant = sources
        .iter()
        .enumerate()
        .filter(move |(at, _)| is_meant(*at));
    meant.map(|(_, source)| source)
}
