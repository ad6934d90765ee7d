//! What a scrape says of reports that are known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use umbo_hotkey::{FlightTotals, Report};
use umbo_overload::{
    Class, ClassReport, OverloadEpisode, OverloadReport, PressureInput, PriceReport, QueueStatus,
    ShardReport, ShareReport, TierCounts, TierStatus,
};
use umbo_quota::{PolicyReport, PolicySet, Residual};
use umbo_types::{Criticality, Operation, PriceMultiplier, RequestUnits, ShardId};

use super::*;

fn assert_lines(visit: impl FnOnce(&mut Families<'_>), lines: &[&str]) {
    let text = MetricsText::render(|visitor| visit(&mut Families::new(visitor)));
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples, lines);
}

#[test]
fn quotas_show_their_policies_and_how_good_estimates_are() {
    let policy = PolicySet::built_in();
    let policy = Arc::clone(policy.iter().next().unwrap());
    let policies = [PolicyReport {
        policy,
        rejected: 4,
        shadow_rejected: 0,
        forgiven: 12_500_000,
        buckets: 2,
        utilisation: 1.25,
    }];
    assert_lines(
        |families| quota::visit_policies(families, &policies),
        &[
            "umbo_policy_rejected_total{policy=\"default-caller\"} 4",
            "umbo_policy_shadow_rejected_total{policy=\"default-caller\"} 0",
            "umbo_policy_buckets{policy=\"default-caller\"} 2",
            "umbo_policy_forgiven_total{policy=\"default-caller\"} 12.5",
            "umbo_policy_utilisation_ratio{policy=\"default-caller\"} 1.25",
        ],
    );
    let estimates = [Residual {
        operation: Operation::Get,
        counts: [0, 0, 0, 2, 0, 0, 0, 0, 1],
        estimated: RequestUnits::from_micros(3_000_000),
        actual: RequestUnits::from_micros(3_250_000),
    }];
    let text = MetricsText::render(|visitor| {
        quota::visit_estimates(&mut Families::new(visitor), &estimates);
    });
    for line in [
        "umbo_estimates_total{operation=\"get\",ratio=\"0.707\"} 2\n",
        "umbo_estimates_total{operation=\"get\",ratio=\"+Inf\"} 1\n",
        "umbo_estimated_request_units_total{operation=\"get\"} 3\n",
        "umbo_sampled_request_units_total{operation=\"get\"} 3.25\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

fn overloaded(shard: ShardId) -> ShardReport {
    let class = |class, ratio: Option<f64>, pressure| ClassReport {
        class,
        p95_short: ratio.map(|_| Duration::from_millis(2)),
        short_window: Duration::from_secs(1),
        short_samples: 0,
        p95_long: None,
        ratio,
        pressure,
        is_engaged: false,
    };
    let price = |tier, hundredths| PriceReport {
        tier,
        above_share: PriceMultiplier::from_hundredths(hundredths),
        others: PriceMultiplier::NONE,
    };
    let tiers = Criticality::ALL;
    ShardReport {
        shard,
        // Too few observations for a ratio of scans.
        classes: vec![
            class(Class::PointRead, Some(0.25), 0.5),
            class(Class::Scan, None, 0.0),
        ],
        shares: ShareReport {
            capacity: Duration::ZERO,
            busy: Duration::ZERO,
            callers: 0,
            share: None,
            held_to: [None; 4],
        },
        heavy: [None; 2],
        prices: [
            price(tiers[0], 800),
            price(tiers[1], 150),
            price(tiers[2], 100),
            price(tiers[3], 100),
        ],
        episode: Some(OverloadEpisode {
            number: 2,
            shard,
            class: Class::PointRead,
            input: PressureInput::Latency,
            pressure_max: 0.5,
            tier_max: None,
            ratio: 0.25,
            ratio_min: 0.25,
            p95_short: Duration::ZERO,
            p95_long: Duration::ZERO,
            started: Instant::now(),
            ended: None,
            shed: [0; 4],
        }),
    }
}

#[test]
fn overload_shows_its_queues_classes_and_prices() {
    let report = OverloadReport {
        shards: vec![overloaded(ShardId(0))],
        episodes: 2,
        memory: 0,
    };
    let tier = |waiting, queued, shed| TierStatus {
        waiting,
        oldest: Duration::from_micros(12_500 * u64::from(waiting > 20)),
        overloaded_for: None,
        counts: TierCounts {
            queued,
            shed: [shed, 0, 0, 0, 0],
            expired: queued / 200,
            ..TierCounts::default()
        },
    };
    let queue = QueueStatus {
        limit: 24,
        in_flight: 25,
        work: RequestUnits::from_micros(81_500_000),
        lag: Duration::from_micros(1_250),
        delay_times: 0.0,
        lag_times: 0.0,
        tiers: [
            tier(30, 900, 100),
            tier(20, 800, 20),
            tier(1, 70, 0),
            tier(0, 6, 0),
        ],
    };
    let text = MetricsText::render(|visitor| {
        overload::visit(&mut Families::new(visitor), &report, &[queue]);
    });
    for line in [
        "umbo_shard_limit{shard=\"0\"} 24",
        "umbo_shard_in_flight{shard=\"0\"} 25",
        "umbo_shard_waiting{shard=\"0\",tier=\"sheddable\"} 30",
        "umbo_shard_waiting{shard=\"0\",tier=\"critical-plus\"} 0",
        "umbo_shard_waiting_request_units{shard=\"0\"} 81.5",
        "umbo_shard_oldest_waiting_seconds{shard=\"0\"} 0.0125",
        "umbo_shard_overloaded{shard=\"0\"} 1",
        "umbo_shard_latency_ratio{shard=\"0\",class=\"point-read\"} 0.25",
        "umbo_shard_pressure{shard=\"0\",class=\"point-read\"} 0.5",
        "umbo_shard_latency_seconds{shard=\"0\",class=\"point-read\"} 0.002",
        "umbo_shard_pressure{shard=\"0\",class=\"scan\"} 0",
        "umbo_queued_total{tier=\"sheddable\"} 900",
        "umbo_queue_expired_total{tier=\"sheddable-plus\"} 4",
        "umbo_shed_total{tier=\"sheddable\",signal=\"queue-delay\"} 100",
        "umbo_price_multiplier_ratio{tier=\"sheddable\"} 8",
        "umbo_price_multiplier_ratio{tier=\"sheddable-plus\"} 1.5",
        "umbo_price_multiplier_ratio{tier=\"critical\"} 1",
        "umbo_overload_episodes_total 2",
        "umbo_runtime_lag_seconds 0.00125",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
    }
    assert!(!text.contains("umbo_shard_latency_ratio{shard=\"0\",class=\"scan\"}"));
}

#[test]
fn hot_keys_show_their_totals() {
    let report = Report {
        keys: Vec::new(),
        reads_rate: 1_000.25,
        threshold_rate: 200.0,
        reads: 200,
        hits: 100,
        negative_hits: 3,
        uncounted: 6,
        flight_totals: FlightTotals {
            leaders: 20,
            followers: 40,
            orphans: 1,
            crowded: 2,
            overtaken: 4,
            stale: 5,
        },
        flights: 8,
        cache_entries: 3,
        cache_bytes: 4_096,
        held_bytes: 0,
        detection_bytes: 500_000,
    };
    assert_lines(
        |families| hot_keys::visit_totals(families, &report),
        &[
            "umbo_hotkey_reads_total 200",
            "umbo_hotkey_hits_total 100",
            "umbo_hotkey_negative_hits_total 3",
            "umbo_hotkey_leaders_total 20",
            "umbo_hotkey_followers_total 40",
            "umbo_hotkey_elections_total 1",
            "umbo_hotkey_crowded_total 2",
            "umbo_hotkey_overtaken_total 4",
            "umbo_hotkey_stale_total 5",
            "umbo_hotkey_uncounted_total 6",
            "umbo_hotkey_keys{standing=\"hot\"} 0",
            "umbo_hotkey_keys{standing=\"pinned\"} 0",
            "umbo_hotkey_keys{standing=\"blocked\"} 0",
            "umbo_hotkey_reads_per_second 1000.25",
            "umbo_hotkey_threshold_reads_per_second 200",
            "umbo_hotkey_flights 8",
            "umbo_hotkey_cache_entries 3",
            "umbo_hotkey_cache_bytes 4096",
            "umbo_hotkey_detection_bytes 500000",
        ],
    );
}
