//! Metrics of the queues of shards and of shed requests.
//!
//! Owns the series and their order. The owner of the queues passes the values in; tiers, signals and classes
//! come from closed lists.

use umbo_types::{Criticality, RequestUnits};

use super::visit::{Families, Seconds};
use crate::metric_names as names;

/// Values by tier, in the order of [`Criticality::ALL`].
pub type ByTier<T> = [T; Criticality::ALL.len()];

/// State of the queues and of the pressure at the time of a scrape; totals since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OverloadGauges {
    /// Queues, by shard.
    pub queues: Vec<QueueGauges>,
    /// Latency ratios and pressures, by shard and class.
    pub classes: Vec<ClassGauges>,
    /// Requests that had to wait.
    pub queued: ByTier<u64>,
    /// Requests whose deadline passed while they waited.
    pub expired: ByTier<u64>,
    /// Requests shed, by reason.
    pub shed: Vec<(&'static str, ByTier<u64>)>,
    /// Overloads since the start.
    pub episodes: u64,
    /// Highest price multiplier of any shard.
    pub multipliers: ByTier<f64>,
    /// By how much the runtime ran late, in nanoseconds.
    pub lag_nanos: u64,
}

/// The queue of one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueGauges {
    /// Number of the shard.
    pub shard: u16,
    /// Requests that it may have in flight.
    pub limit: u32,
    /// Requests that the shard has in flight.
    pub in_flight: u32,
    /// Requests that wait.
    pub waiting: ByTier<u64>,
    /// What the estimates of those come to.
    pub waiting_units: RequestUnits,
    /// For how long the oldest of them has waited, in nanoseconds.
    pub oldest_nanos: u64,
    /// Whether requests are shed because of the shard.
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
    /// The greatest of its inputs, from 0 to 1.
    pub pressure: f64,
}

impl OverloadGauges {
    pub(super) fn visit(&self, families: &mut Families<'_>) {
        self.visit_queues(families);
        let label = |class: &ClassGauges| [class.shard.to_string(), class.class.to_owned()];
        let known = self.classes.iter();
        let ratios = known.filter_map(|class| Some((label(class), class.ratio?)));
        families.family(&names::SHARD_LATENCY_RATIO, ratios);
        let pressures = self.classes.iter();
        let pressures = pressures.map(|class| (label(class), class.pressure));
        families.family(&names::SHARD_PRESSURE, pressures);
        families.family(&names::QUEUED, by_tier(&self.queued));
        families.family(&names::QUEUE_EXPIRED, by_tier(&self.expired));
        let shed = self.shed.iter().flat_map(|(signal, shed)| {
            by_tier(shed).map(move |([tier], shed)| ([tier, *signal], shed))
        });
        families.family(&names::SHED, shed);
        families.family(&names::PRICE_MULTIPLIER, by_tier(&self.multipliers));
        families.single(&names::OVERLOAD_EPISODES, self.episodes);
        families.single(&names::RUNTIME_LAG, Seconds(self.lag_nanos));
    }

    fn visit_queues(&self, families: &mut Families<'_>) {
        let label = |queue: &QueueGauges| [queue.shard.to_string()];
        let queues = || self.queues.iter();
        let limit = queues().map(|queue| (label(queue), queue.limit));
        families.family(&names::SHARD_LIMIT, limit);
        let in_flight = queues().map(|queue| (label(queue), queue.in_flight));
        families.family(&names::SHARD_IN_FLIGHT, in_flight);
        let waiting = queues().flat_map(|queue| {
            let shard = queue.shard.to_string();
            by_tier(&queue.waiting)
                .map(move |([tier], waiting)| ([shard.clone(), tier.to_owned()], waiting))
        });
        families.family(&names::SHARD_WAITING, waiting);
        let units = queues().map(|queue| (label(queue), queue.waiting_units));
        families.family(&names::SHARD_WAITING_UNITS, units);
        let oldest = queues().map(|queue| (label(queue), Seconds(queue.oldest_nanos)));
        families.family(&names::SHARD_OLDEST_WAITING, oldest);
        let overloaded = queues().map(|queue| (label(queue), u64::from(queue.is_overloaded)));
        families.family(&names::SHARD_OVERLOADED, overloaded);
    }
}

fn by_tier<T: Copy>(values: &ByTier<T>) -> impl Iterator<Item = ([&'static str; 1], T)> {
    let tiers = Criticality::ALL.into_iter().map(Criticality::as_str);
    tiers.zip(*values).map(|(tier, value)| ([tier], value))
}
