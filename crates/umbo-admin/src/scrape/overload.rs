//! Metrics of overload, from the reports of the queues and of the controller.
//!
//! Counts of requests are added up over the shards, and states are not.

use umbo_overload::{OverloadReport, QueueStatus, ShardReport, ShedReason, TierStatus};
use umbo_telemetry::metric::Metric;
use umbo_telemetry::metric_names as names;
use umbo_telemetry::metrics::{Families, MetricValue};
use umbo_types::{Criticality, PriceMultiplier};

/// Shows the state of the queues, by shard as the report has them, and of the controller.
pub(super) fn visit(families: &mut Families<'_>, report: &OverloadReport, queues: &[QueueStatus]) {
    visit_queues(families, &report.shards, queues);
    visit_classes(families, &report.shards);
    let tiers = || Criticality::ALL.into_iter().enumerate();
    let total = |tier: usize, count: &dyn Fn(&TierStatus) -> u64| -> u64 {
        queues.iter().map(|queue| count(&queue.tiers[tier])).sum()
    };
    let waited = |tier| total(tier, &|status| status.counts.queued);
    let samples = tiers().map(|(at, tier)| ([tier.as_str()], waited(at)));
    families.family(&names::QUEUED, samples);
    let expired = |tier| total(tier, &|status| status.counts.expired);
    let samples = tiers().map(|(at, tier)| ([tier.as_str()], expired(at)));
    families.family(&names::QUEUE_EXPIRED, samples);
    families.head(&names::SHED);
    for reason in ShedReason::ALL {
        for (at, tier) in tiers() {
            let shed = total(at, &|status| status.counts.shed[reason as usize]);
            let labels = [tier.as_str(), reason.as_str()];
            families.sample(&names::SHED, &labels, shed);
        }
    }
    let samples = tiers().map(|(at, tier)| ([tier.as_str()], highest_price(&report.shards, at)));
    families.family(&names::PRICE_MULTIPLIER, samples);
    families.single(&names::OVERLOAD_EPISODES, report.episodes);
    let lag = queues.iter().map(|queue| queue.lag).max();
    families.single(&names::RUNTIME_LAG, lag.unwrap_or_default());
}

/// Returns the highest price multiplier of a tier at any shard.
fn highest_price(shards: &[ShardReport], tier: usize) -> f64 {
    let prices = shards.iter().map(|shard| &shard.prices[tier]);
    let prices = prices.flat_map(|price| [price.above_share, price.others]);
    prices.map(PriceMultiplier::as_f64).fold(1.0, f64::max)
}

fn visit_queues(families: &mut Families<'_>, shards: &[ShardReport], queues: &[QueueStatus]) {
    type Pick = fn(&ShardReport, &QueueStatus) -> MetricValue;
    let metrics: [(&'static Metric, Pick); 5] = [
        (&names::SHARD_LIMIT, |_, queue| queue.limit.into()),
        (&names::SHARD_IN_FLIGHT, |_, queue| queue.in_flight.into()),
        (&names::SHARD_WAITING_UNITS, |_, queue| queue.work.into()),
        (&names::SHARD_OLDEST_WAITING, |_, queue| {
            let oldest = queue.tiers.iter().map(|tier| tier.oldest).max();
            oldest.unwrap_or_default().into()
        }),
        (&names::SHARD_OVERLOADED, |shard, queue| {
            (shard.episode.is_some() || queue.is_overloaded()).into()
        }),
    ];
    for (metric, value) in metrics {
        let queues = shards.iter().zip(queues);
        let samples = queues.map(|(shard, queue)| ([shard.shard.to_string()], value(shard, queue)));
        families.family(metric, samples);
    }
    families.head(&names::SHARD_WAITING);
    for (shard, queue) in shards.iter().zip(queues) {
        for (tier, status) in Criticality::ALL.into_iter().zip(&queue.tiers) {
            let labels = [&*shard.shard.to_string(), tier.as_str()];
            families.sample(&names::SHARD_WAITING, &labels, status.waiting);
        }
    }
}

fn visit_classes(families: &mut Families<'_>, shards: &[ShardReport]) {
    let classes = || {
        shards.iter().flat_map(|shard| {
            let number = shard.shard.to_string();
            let classes = shard.classes.iter();
            classes.map(move |class| ([number.clone(), class.class.as_str().to_owned()], class))
        })
    };
    let ratios = classes().filter_map(|(labels, class)| Some((labels, class.ratio?)));
    families.family(&names::SHARD_LATENCY_RATIO, ratios);
    let pressures = classes().map(|(labels, class)| (labels, class.pressure));
    families.family(&names::SHARD_PRESSURE, pressures);
    let latencies = classes().filter_map(|(labels, class)| Some((labels, class.p95_short?)));
    families.family(&names::SHARD_LATENCY, latencies);
}
