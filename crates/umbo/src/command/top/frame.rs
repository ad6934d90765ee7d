//! One frame of `umbo top`: what happened between two samples, as data.

use std::time::Instant;

use serde::Serialize;
use umbo_api::admin::ShardInfo;
use umbo_api::hot::{HotKeyInfo, HotPod, HotReport};
use umbo_types::Operation;

use crate::scrape::{ByLabel, Growth, ScrapedSeries};

/// Data of the server at one instant.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) taken_at: Instant,
    pub(super) scrape: ScrapedSeries,
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

/// Returns the value of a label, 0 if it has none.
fn at(values: &ByLabel, label: &str) -> f64 {
    values.get(label).copied().unwrap_or_default()
}

impl ScreenFrame {
    /// Makes a frame of two samples.
    pub(super) fn between(before: &Sample, after: &Sample) -> Self {
        let elapsed = after.taken_at.saturating_duration_since(before.taken_at);
        let growth = Growth {
            before: &before.scrape,
            after: &after.scrape,
            // Two samples are an interval apart, which is never zero.
            seconds: elapsed.as_secs_f64().max(0.001),
        };
        let hot = after.hot.as_ref();
        Self {
            seconds: growth.seconds,
            pod: ServerFrame::of(growth),
            hot_keys: hot.map_or_else(Vec::new, |hot| hot.keys.clone()),
            hot: hot.map(|hot| hot.pod),
            callers: callers(growth),
            shards: shards(growth, &after.shards),
            policies: policies(growth),
        }
    }
}

impl ServerFrame {
    fn of(growth: Growth<'_>) -> Self {
        let of_data_plane = |name: &str| {
            let mut rates = growth.rates(name, "operation");
            rates.retain(|operation, _| is_of_data_plane(operation));
            rates.into_values().sum()
        };
        let refused = growth.rates("umbo_refused_total", "kind");
        let duration = "umbo_request_duration_seconds";
        let quantiles = growth.quantiles(duration, "operation", is_of_data_plane, [0.5, 0.99]);
        let [p50_ms, p99_ms] = quantiles.map(|quantile| quantile.map(|seconds| seconds * 1_000.0));
        let hits = growth.rate("umbo_hotkey_hits_total");
        Self {
            requests_rate: of_data_plane("umbo_requests_total"),
            rejected_rate: at(&refused, "rejected"),
            shed_rate: at(&refused, "shed"),
            failed_rate: at(&refused, "failed"),
            ru_rate: of_data_plane("umbo_request_units_total"),
            p50_ms,
            p99_ms,
            saved_rate: hits + growth.rate("umbo_hotkey_followers_total"),
            leaders_rate: growth.rate("umbo_hotkey_leaders_total"),
            connections: growth.after.single("umbo_connections"),
        }
    }
}

fn callers(growth: Growth<'_>) -> Vec<CallerFrame> {
    let name = "umbo_caller_request_units_total";
    // A caller whose series has just appeared used most of its total before; it has no rate yet.
    let known = growth.before.by(name, "caller");
    let rates = growth.rates(name, "caller").into_iter();
    let mut callers: Vec<_> = rates
        .filter(|(caller, _)| known.contains_key(caller))
        .map(|(caller, ru_rate)| CallerFrame { caller, ru_rate })
        .collect();
    callers.sort_by(|one, other| other.ru_rate.total_cmp(&one.ru_rate));
    callers
}

fn shards(growth: Growth<'_>, shards: &[ShardInfo]) -> Vec<ShardFrame> {
    let requests = growth.rates("umbo_shard_requests_total", "shard");
    let units = growth.rates("umbo_shard_request_units_total", "shard");
    let overload = overload(growth.after);
    let frame = |info: &ShardInfo| {
        let number = info.shard.to_string();
        ShardFrame {
            shard: info.shard,
            state: info.state.clone(),
            requests_rate: at(&requests, &number),
            ru_rate: at(&units, &number),
            queued: info.queued,
            rows: info.rows,
            file_bytes: info.file_bytes,
            overload: overload(&number),
        }
    };
    shards.iter().map(frame).collect()
}

/// Returns how overloaded each shard is.
fn overload(scrape: &ScrapedSeries) -> impl Fn(&str) -> Option<OverloadFrame> + use<> {
    let sum = |name| scrape.by(name, "shard");
    let overloaded = sum("umbo_shard_overloaded");
    let pressures = scrape.fold_by("umbo_shard_pressure", "shard", f64::max);
    let ratios = scrape.fold_by("umbo_shard_latency_ratio", "shard", f64::min);
    let (limits, in_flight) = (sum("umbo_shard_limit"), sum("umbo_shard_in_flight"));
    let waiting = sum("umbo_shard_waiting");
    let oldest = sum("umbo_shard_oldest_waiting_seconds");
    move |shard| {
        Some(OverloadFrame {
            is_overloaded: *overloaded.get(shard)? > 0.0,
            pressure: at(&pressures, shard),
            latency_ratio: ratios.get(shard).copied(),
            limit: at(&limits, shard),
            in_flight: at(&in_flight, shard),
            waiting: at(&waiting, shard),
            oldest_ms: at(&oldest, shard) * 1e3,
        })
    }
}

fn policies(growth: Growth<'_>) -> Vec<PolicyFrame> {
    let rejected = growth.rates("umbo_policy_rejected_total", "policy");
    let would_reject = growth.rates("umbo_policy_shadow_rejected_total", "policy");
    let buckets = growth.after.by("umbo_policy_buckets", "policy");
    let utilisation = growth.after.by("umbo_policy_utilisation_ratio", "policy");
    let mut policies: Vec<_> = utilisation
        .into_iter()
        .map(|(policy, utilisation)| PolicyFrame {
            rejected_rate: at(&rejected, &policy),
            would_reject_rate: at(&would_reject, &policy),
            buckets: at(&buckets, &policy),
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
            scrape: ScrapedSeries::parse(text),
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
