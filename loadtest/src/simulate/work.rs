//! What a simulated request does, so that it costs what it is to cost.

use std::time::Duration;

use umbo_quota::{ActualUsage, CostHint, Weights};
use umbo_types::Operation;

use super::settle_error::Costs;

/// Bytes that the weights of volume are for.
const VOLUME_LEN: u64 = 4_096;

/// How a cost can be hint beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Knowledge {
    /// Puts whose body says how long it is (and is wrong by the error)
    Declared,
    /// Ranges that say nothing: what is hint is what earlier ones have cost
    Learned,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// What it does.
    pub(crate) operation: Operation,
    /// What it says beforehand.
    pub(crate) hint: CostHint,
    /// What it turns out to do.
    pub(crate) work: ActualUsage,
}

impl Job {
    /// Makes a request of these costs, less what its service time adds. A cost below that of one
    /// empty row becomes that.
    pub(crate) fn new(
        weights: &Weights,
        knowledge: Knowledge,
        costs: Costs,
        service_ns: u64,
    ) -> Self {
        let mut hint = CostHint::default();
        let mut work = ActualUsage {
            rows: 1,
            read_bytes: 0,
            write_bytes: 0,
            reads: 0,
            writes: 0,
            service_time: Duration::from_nanos(service_ns),
        };
        let row = weights.row.as_micros();
        match knowledge {
            Knowledge::Declared => {
                let base = weights.write_base.as_micros() + row;
                let len = |cost: u64| volume(cost, base, weights.write_bytes.as_micros());
                hint.body_len = Some(len(costs.declared));
                work.writes = 1;
                work.write_bytes = len(costs.settled);
            }
            Knowledge::Learned => {
                let base = weights.read_base.as_micros() + row;
                work.reads = 1;
                work.read_bytes = volume(costs.settled, base, weights.read_bytes.as_micros());
            }
        }
        let operation = match knowledge {
            Knowledge::Declared => Operation::Put,
            Knowledge::Learned => Operation::Range,
        };
        Self {
            operation,
            hint,
            work,
        }
    }
}

/// Returns the bytes that make up what a cost exceeds its base by.
fn volume(cost: u64, base: u64, weight: u64) -> u64 {
    let bytes = u128::from(cost.saturating_sub(base)) * u128::from(VOLUME_LEN);
    (bytes / u128::from(weight.max(1))) as u64
}
