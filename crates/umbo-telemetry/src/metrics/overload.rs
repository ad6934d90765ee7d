//! Who waits for which shard and who is shed, in a scrape.
//!
//! Owns the series and their order. The figures are handed in by whoever has the gates; tiers,
//! signals and classes come from closed lists.

use umbo_types::{Criticality, RequestUnits};

use super::text::{Seconds, Text};
use crate::metric_names as names;

/// Values by tier, in the order of [`Criticality::ALL`].
pub type ByTier<T> = [T; Criticality::ALL.len()];

/// State of the gates and of the signal at the time of a scrape; totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OverloadGauges<'a> {
    /// Gates, by shard.
    pub gates: &'a [GateGauges],
    /// What the signal knows, by shard and class.
    pub classes: &'a [ClassGauges],
    /// Requests that had to wait.
    pub queued: ByTier<u64>,
    /// Requests whose deadline passed while they waited.
    pub expired: ByTier<u64>,
    /// Requests shed, by what told that.
    pub shed: &'a [(&'static str, ByTier<u64>)],
    /// Overloads seen by the latency ratio.
    pub engagements: u64,
    /// By how much the runtime ran late, in nanoseconds.
    pub lag_nanos: u64,
}

/// The gate of one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GateGauges {
    /// Number of the shard.
    pub shard: u16,
    /// Requests that it may have in flight.
    pub slots: u32,
    /// Those that it has.
    pub in_flight: u32,
    /// Requests that wait.
    pub waiting: ByTier<u64>,
    /// What the estimates of those come to.
    pub waiting_units: RequestUnits,
    /// For how long the oldest of them has waited, in nanoseconds.
    pub oldest_nanos: u64,
    /// Whether anybody is shed because of the shard.
    pub is_overloaded: bool,
}

/// One shard and class of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClassGauges {
    /// Number of the shard.
    pub shard: u16,
    /// The class.
    pub class: &'static str,
    /// Usual p95 over the one of late, where both are known.
    pub ratio: Option<f64>,
    /// Whether that is an overload.
    pub is_engaged: bool,
}

impl OverloadGauges<'_> {
    pub(super) fn render(&self, text: &mut Text) {
        self.render_gates(text);
        let label = |class: &ClassGauges| [class.shard.to_string(), class.class.to_owned()];
        let known = self.classes.iter();
        let ratios = known.filter_map(|class| Some((label(class), class.ratio?)));
        text.family(&names::SHARD_LATENCY_RATIO, ratios);
        let engaged = self.classes.iter();
        let engaged = engaged.map(|class| (label(class), u64::from(class.is_engaged)));
        text.family(&names::SHARD_ENGAGED, engaged);
        text.family(&names::QUEUED, by_tier(&self.queued));
        text.family(&names::QUEUE_EXPIRED, by_tier(&self.expired));
        let shed = self.shed.iter().flat_map(|(signal, shed)| {
            by_tier(shed).map(move |([tier], shed)| ([tier, *signal], shed))
        });
        text.family(&names::SHED, shed);
        text.single(&names::OVERLOAD_ENGAGEMENTS, self.engagements);
        text.single(&names::RUNTIME_LAG, Seconds(self.lag_nanos));
    }

    fn render_gates(&self, text: &mut Text) {
        let label = |gate: &GateGauges| [gate.shard.to_string()];
        let gates = || self.gates.iter();
        let slots = gates().map(|gate| (label(gate), gate.slots));
        text.family(&names::SHARD_SLOTS, slots);
        let in_flight = gates().map(|gate| (label(gate), gate.in_flight));
        text.family(&names::SHARD_IN_FLIGHT, in_flight);
        let waiting = gates().flat_map(|gate| {
            let shard = gate.shard.to_string();
            by_tier(&gate.waiting)
                .map(move |([tier], waiting)| ([shard.clone(), tier.to_owned()], waiting))
        });
        text.family(&names::SHARD_WAITING, waiting);
        let units = gates().map(|gate| (label(gate), gate.waiting_units));
        text.family(&names::SHARD_WAITING_UNITS, units);
        let oldest = gates().map(|gate| (label(gate), Seconds(gate.oldest_nanos)));
        text.family(&names::SHARD_OLDEST_WAITING, oldest);
        let overloaded = gates().map(|gate| (label(gate), u64::from(gate.is_overloaded)));
        text.family(&names::SHARD_OVERLOADED, overloaded);
    }
}

fn by_tier(values: &ByTier<u64>) -> impl Iterator<Item = ([&'static str; 1], u64)> {
    let tiers = Criticality::ALL.into_iter().map(Criticality::as_str);
    tiers.zip(*values).map(|(tier, value)| ([tier], value))
}
