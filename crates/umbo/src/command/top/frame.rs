//! One frame of `umbo top`: what happened between two samples, as data.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use umbo_api::admin::ShardInfo;
use umbo_api::hot::{HotKeyInfo, HotPod, HotReport};
use umbo_types::Operation;

use crate::scrape::{ScrapedSeries, growth, quantile};

/// Data of the server at one instant.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) taken_at: Instant,
    pub(super) series: ScrapedSeries,
    /// None if the hot-key layer is off.
    pub(super) hot: Option<HotReport>,
    pub(super) shards: Vec<ShardInfo>,
}

/// Content of the screen. Rates are per second.
#[derive(Debug, Serialize)]
pub(super) struct ScreenFrame {
    /// Seconds between the two samples.
    pub(super) seconds: f64,
    pub(super) pod: ServerFrame,
    /// Keys that are hot, pinned or blocked, most read first.
    pub(super) hot_keys: Vec<HotKeyInfo>,
    /// Counters of the hot-key layer since the server's start; absent if it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hot: Option<HotPod>,
    /// The callers that use most, in descending order.
    pub(super) callers: Vec<CallerFrame>,
    pub(super) shards: Vec<ShardFrame>,
    /// The policies in effect.
    pub(super) policies: Vec<PolicyFrame>,
}

/// The whole server.
#[derive(Debug, Serialize)]
pub(super) struct ServerFrame {
    /// Requests of the data plane that were answered.
    pub(super) requests_rate: f64,
    pub(super) rejected_rate: f64,
    pub(super) shed_rate: f64,
    pub(super) failed_rate: f64,
    pub(super) ru_rate: f64,
    /// Median request time; absent if there was no request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99_ms: Option<f64>,
    /// Reads answered without their own read of the store.
    pub(super) saved_rate: f64,
    /// Reads of the store that concurrent reads could join.
    pub(super) leaders_rate: f64,
    pub(super) connections: f64,
}

/// A caller.
#[derive(Debug, Serialize)]
pub(super) struct CallerFrame {
    pub(super) caller: String,
    pub(super) ru_rate: f64,
}

/// A shard.
#[derive(Debug, Serialize)]
pub(super) struct ShardFrame {
    pub(super) shard: u16,
    pub(super) state: String,
    pub(super) requests_rate: f64,
    pub(super) ru_rate: f64,
    pub(super) queued: u64,
    pub(super) rows: u64,
    pub(super) file_bytes: u64,
    /// How overloaded it is; absent where overload control is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) overload: Option<OverloadFrame>,
}

/// How overloaded a shard is.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OverloadFrame {
    pub(super) is_overloaded: bool,
    /// From 0 to 1, of the class that it is greatest for.
    pub(super) pressure: f64,
    /// Usual p95 over the p95 of the moment, of the class that it is least for; absent while nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_ratio: Option<f64>,
    pub(super) limit: f64,
    pub(super) in_flight: f64,
    pub(super) waiting: f64,
    pub(super) oldest_ms: f64,
}

/// A policy.
#[derive(Debug, Serialize)]
pub(super) struct PolicyFrame {
    pub(super) policy: String,
    /// Highest share of its limit that one of its buckets is asked for.
    pub(super) utilisation: f64,
    pub(super) rejected_rate: f64,
    /// Requests that it would have rejected if it were enforced.
    pub(super) would_reject_rate: f64,
    pub(super) buckets: f64,
}

/// The requests of this command are not counted as load.
fn is_of_data_plane(operation: &str) -> bool {
    ![Operation::Admin, Operation::Service]
        .map(Operation::as_str)
        .contains(&operation)
}

impl ScreenFrame {
    /// Makes a frame of two samples.
    pub(super) fn between(before: &Sample, after: &Sample) -> Self {
        let elapsed = after.taken_at.saturating_duration_since(before.taken_at);
        // Two samples are an interval apart, which is never zero.
        let seconds = elapsed.as_secs_f64().max(0.001);
        let hot = after.hot.as_ref();
        Self {
            seconds,
            pod: ServerFrame::between(&before.series, &after.series, seconds),
            hot_keys: hot.map_or_else(Vec::new, |hot| hot.keys.clone()),
            hot: hot.map(|hot| hot.pod),
            callers: callers(&before.series, &after.series, seconds),
            shards: shards(before, after, seconds),
            policies: policies(&before.series, &after.series, seconds),
        }
    }
}

impl ServerFrame {
    fn between(before: &ScrapedSeries, after: &ScrapedSeries, seconds: f64) -> Self {
        let rate = |name: &str, label: &str, passes: &dyn Fn(&str) -> bool| {
            let sums = [before, after].map(|series| series.sum(name, label, passes));
            growth(sums[0], sums[1]) / seconds
        };
        let of_kind = |kind: &'static str| {
            rate("umbo_refused_total", "kind", &move |value: &str| {
                value == kind
            })
        };
        let single = |name: &str| growth(before.single(name), after.single(name)) / seconds;
        let duration = "umbo_request_duration_seconds";
        let counts =
            [before, after].map(|series| series.counts(duration, "operation", is_of_data_plane));
        let milliseconds = |share: f64| {
            let quantile = quantile(&counts[0], &counts[1], share);
            quantile.map(|seconds| seconds * 1_000.0)
        };
        Self {
            requests_rate: rate("umbo_requests_total", "operation", &is_of_data_plane),
            rejected_rate: of_kind("rejected"),
            shed_rate: of_kind("shed"),
            failed_rate: of_kind("failed"),
            ru_rate: rate("umbo_request_units_total", "operation", &is_of_data_plane),
            p50_ms: milliseconds(0.5),
            p99_ms: milliseconds(0.99),
            saved_rate: single("umbo_hotkey_hits_total") + single("umbo_hotkey_followers_total"),
            leaders_rate: single("umbo_hotkey_leaders_total"),
            connections: after.single("umbo_connections"),
        }
    }
}

fn callers(before: &ScrapedSeries, after: &ScrapedSeries, seconds: f64) -> Vec<CallerFrame> {
    let name = "umbo_caller_request_units_total";
    let known = before.by(name, "caller");
    let spent = after.by(name, "caller").into_iter();
    let mut callers: Vec<CallerFrame> = spent
        .filter_map(|(caller, after)| {
            // A caller whose series has just appeared used most of its total before; it has no rate yet.
            let before = known.get(&caller)?;
            let ru_rate = growth(*before, after) / seconds;
            Some(CallerFrame { caller, ru_rate })
        })
        .collect();
    callers.sort_by(|one, other| other.ru_rate.total_cmp(&one.ru_rate));
    callers
}

fn shards(before: &Sample, after: &Sample, seconds: f64) -> Vec<ShardFrame> {
    let rates = |name: &str| {
        let known = before.series.by(name, "shard");
        let grown = after.series.by(name, "shard");
        move |shard: u16| {
            let shard = shard.to_string();
            let values = [&known, &grown].map(|values| values.get(&shard).copied().unwrap_or(0.0));
            growth(values[0], values[1]) / seconds
        }
    };
    let requests = rates("umbo_shard_requests_total");
    let units = rates("umbo_shard_request_units_total");
    let overload = overload(&after.series);
    let shards = after.shards.iter();
    shards
        .map(|info| ShardFrame {
            shard: info.shard,
            state: info.state.clone(),
            requests_rate: requests(info.shard),
            ru_rate: units(info.shard),
            queued: info.queued,
            rows: info.rows,
            file_bytes: info.file_bytes,
            overload: overload(info.shard),
        })
        .collect()
}

/// Returns how overloaded each shard is.
fn overload(series: &ScrapedSeries) -> impl Fn(u16) -> Option<OverloadFrame> + use<> {
    let sum = |name| series.by(name, "shard");
    let overloaded = sum("umbo_shard_overloaded");
    let pressures = series.fold_by("umbo_shard_pressure", "shard", f64::max);
    let ratios = series.fold_by("umbo_shard_latency_ratio", "shard", f64::min);
    let (limits, in_flight) = (sum("umbo_shard_limit"), sum("umbo_shard_in_flight"));
    let waiting = sum("umbo_shard_waiting");
    let oldest = sum("umbo_shard_oldest_waiting_seconds");
    move |shard| {
        let shard = shard.to_string();
        let of = |values: &BTreeMap<String, f64>| values.get(&shard).copied().unwrap_or(0.0);
        Some(OverloadFrame {
            is_overloaded: *overloaded.get(&shard)? > 0.0,
            pressure: of(&pressures),
            latency_ratio: ratios.get(&shard).copied(),
            limit: of(&limits),
            in_flight: of(&in_flight),
            waiting: of(&waiting),
            oldest_ms: of(&oldest) * 1e3,
        })
    }
}

fn policies(before: &ScrapedSeries, after: &ScrapedSeries, seconds: f64) -> Vec<PolicyFrame> {
    let rates = |name: &str| {
        let (known, grown) = (before.by(name, "policy"), after.by(name, "policy"));
        move |policy: &String| {
            let values = [&known, &grown].map(|values| values.get(policy).copied().unwrap_or(0.0));
            growth(values[0], values[1]) / seconds
        }
    };
    let rejected = rates("umbo_policy_rejected_total");
    let would_reject = rates("umbo_policy_shadow_rejected_total");
    let buckets = after.by("umbo_policy_buckets", "policy");
    let utilisation = after.by("umbo_policy_utilisation_ratio", "policy");
    let mut policies: Vec<_> = utilisation
        .into_iter()
        .map(|(policy, utilisation)| PolicyFrame {
            rejected_rate: rejected(&policy),
            would_reject_rate: would_reject(&policy),
            buckets: buckets.get(&policy).copied().unwrap_or(0.0),
            utilisation,
            policy,
        })
        .collect();
    policies.sort_by(|one, other| other.utilisation.total_cmp(&one.utilisation));
    policies
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(taken_at: Instant, text: &str) -> Sample {
        Sample {
            taken_at,
            series: ScrapedSeries::parse(text),
            hot: None,
            shards: vec![ShardInfo {
                shard: 3,
                node: None,
                state: "available".to_owned(),
                reason: None,
                slots: 4_096,
                rows: 7,
                file_bytes: 4_096,
                queued: 1,
            }],
        }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let now = Instant::now();
        let before = sample(
            now,
            "umbo_requests_total{operation=\"get\",status=\"200\"} 100\n\
             umbo_requests_total{operation=\"admin\",status=\"200\"} 1\n\
             umbo_caller_request_units_total{caller=\"a\"} 50\n\
             umbo_shard_requests_total{shard=\"3\"} 10\n",
        );
        let after = sample(
            now + Duration::from_secs(2),
            "umbo_requests_total{operation=\"get\",status=\"200\"} 140\n\
             umbo_requests_total{operation=\"admin\",status=\"200\"} 900\n\
             umbo_refused_total{code=\"quota-exceeded\",kind=\"rejected\"} 6\n\
             umbo_refused_total{code=\"write-queue-full\",kind=\"shed\"} 2\n\
             umbo_caller_request_units_total{caller=\"a\"} 60\n\
             umbo_caller_request_units_total{caller=\"new\"} 1000\n\
             umbo_hotkey_hits_total 8\n\
             umbo_shard_requests_total{shard=\"3\"} 30\n\
             umbo_shard_overloaded{shard=\"3\"} 1\n\
             umbo_shard_pressure{shard=\"3\",class=\"point-read\"} 0.25\n\
             umbo_shard_pressure{shard=\"3\",class=\"point-write\"} 0.5\n\
             umbo_shard_waiting{shard=\"3\",tier=\"critical\"} 2\n\
             umbo_shard_waiting{shard=\"3\",tier=\"sheddable\"} 5\n\
             umbo_policy_utilisation_ratio{policy=\"p\"} 0.75\n\
             umbo_policy_rejected_total{policy=\"p\"} 8\n",
        );
        let frame = ScreenFrame::between(&before, &after);
        let pod = &frame.pod;
        let rates = [
            pod.requests_rate,
            pod.rejected_rate,
            pod.shed_rate,
            pod.failed_rate,
            pod.saved_rate,
        ];
        let texts = rates.map(|rate| format!("{rate:.1}"));
        assert_eq!(texts, ["20.0", "3.0", "1.0", "0.0", "4.0"]);
        assert_eq!((pod.p50_ms, frame.hot.is_none()), (None, true));
        assert_eq!(frame.callers.len(), 1);
        assert_eq!(
            (&*frame.callers[0].caller, frame.callers[0].ru_rate),
            ("a", 5.0)
        );
        assert_eq!(
            (frame.shards[0].requests_rate, frame.shards[0].rows),
            (10.0, 7)
        );
        let overload = frame.shards[0].overload.as_ref().unwrap();
        let found = (overload.is_overloaded, overload.pressure, overload.waiting);
        assert_eq!(found, (true, 0.5, 7.0));
        let policy = &frame.policies[0];
        assert_eq!((policy.utilisation, policy.rejected_rate), (0.75, 4.0));
    }
}
