//! One frame of `umbo top`: the state of a server in one interval, as data.

use std::time::Duration;

use serde::Serialize;
use umbo_api::ErrorCode;
use umbo_api::admin::ShardInfo;
use umbo_api::hot::{HotKeyInfo, HotPod};
use umbo_api::quota::PolicyCounters;
use umbo_api::shed::ShardOverload;
use umbo_client::{Client, Error};

use crate::connection::allowed;
use crate::history::{ByLabel, RecentHistory};

/// Series of the history that a frame shows.
const SERIES: &str = "served rejected shed refused failed latency_p50_ms latency_p99_ms ru hot_hits hot_collapsed connections \
    policy_rejected policy_would_reject caller_ru caller_requests caller_rejected shard_ru shard_requests";

/// Content of the screen. Rates are per second.
#[derive(Debug, Serialize)]
pub(super) struct ScreenFrame {
    /// Seconds of the interval; absent without the permission to see the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    pub(super) pod: ServerFrame,
    /// Keys that are hot, pinned or blocked, most read first.
    pub(super) hot_keys: Vec<HotKeyInfo>,
    /// Counters of the hot-key layer since the server's start; absent if it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hot: Option<HotPod>,
    /// The callers that use most, in descending order.
    pub(super) callers: Vec<CallerFrame>,
    pub(super) shards: Vec<ShardFrame>,
    /// The policies in effect, the one with the highest utilisation first.
    pub(super) policies: Vec<PolicyFrame>,
}

/// The whole server.
#[derive(Debug, Serialize)]
pub(super) struct ServerFrame {
    /// Requests of the data plane that were answered.
    pub(super) requests_rate: f64,
    pub(super) rejected_rate: f64,
    pub(super) shed_rate: f64,
    /// Mistakes of clients.
    pub(super) refused_rate: f64,
    pub(super) failed_rate: f64,
    pub(super) ru_rate: f64,
    /// The operation of most requests that were served, whose times follow; absent if there was no request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operation: Option<String>,
    /// Median request time, of the slowest step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99_ms: Option<f64>,
    /// Reads answered without their own read of the store.
    pub(super) saved_rate: f64,
    pub(super) connections: f64,
}

/// A caller.
#[derive(Debug, Serialize)]
pub(super) struct CallerFrame {
    pub(super) caller: String,
    pub(super) ru_rate: f64,
    pub(super) requests_rate: f64,
    pub(super) rejected_rate: f64,
}

/// A shard.
#[derive(Debug, Serialize)]
pub(super) struct ShardFrame {
    #[serde(flatten)]
    pub(super) info: ShardInfo,
    pub(super) requests_rate: f64,
    pub(super) ru_rate: f64,
    /// Overload of the shard; absent if overload control is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) overload: Option<OverloadFrame>,
}

/// The overload of a shard.
#[derive(Debug, Serialize)]
pub(super) struct OverloadFrame {
    pub(super) is_overloaded: bool,
    /// From 0 to 1, of the class with the greatest pressure.
    pub(super) pressure: f64,
    /// Normal p95 over the p95 of the moment, of the class with the lowest ratio; absent while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_ratio: Option<f64>,
    pub(super) limit: u32,
    pub(super) in_flight: u32,
    pub(super) waiting: u64,
    pub(super) oldest_ms: f64,
}

/// A policy.
#[derive(Debug, Serialize)]
pub(super) struct PolicyFrame {
    pub(super) policy: String,
    /// Its counters since the server's start, and its utilisation of the moment.
    #[serde(flatten)]
    pub(super) counters: PolicyCounters,
    pub(super) rejected_rate: f64,
    /// Requests that it would have rejected if it were enforced.
    pub(super) would_reject_rate: f64,
}

/// Returns the value of a label, 0 if it has none.
fn at(values: &ByLabel, label: &str) -> f64 {
    values.get(label).copied().unwrap_or_default()
}

impl ScreenFrame {
    /// Asks a server about the interval that ends now. Also returns the history for the next frame. An admin of a
    /// namespace sees its hot keys, and nothing of the server.
    pub(super) async fn ask(
        client: &Client,
        interval: Duration,
        last: &RecentHistory,
    ) -> Result<(Self, RecentHistory), Error> {
        let hot = match client.hot().await {
            Ok(report) => Some(report),
            Err(error) if error.code() == Some(ErrorCode::HotKeysDisabled) => None,
            Err(error) => return Err(error),
        };
        let history = RecentHistory::ask(client, interval, SERIES, last.next_since_ms()).await;
        let history = allowed(history)?;
        let seconds = history.as_ref().map(RecentHistory::seconds);
        let history = history.unwrap_or_default();
        let shards = allowed(client.shards().await)?.unwrap_or_default().shards;
        let shed = allowed(client.shed_status().await)?.unwrap_or_default();
        let policies = allowed(client.quotas().await)?.unwrap_or_default().policies;
        let [rejected, would_reject] =
            ["policy_rejected", "policy_would_reject"].map(|name| history.means(name));
        let policy = |info: umbo_api::quota::PolicyInfo| PolicyFrame {
            rejected_rate: at(&rejected, &info.policy.name),
            would_reject_rate: at(&would_reject, &info.policy.name),
            policy: info.policy.name,
            counters: info.counters,
        };
        let mut policies: Vec<_> = policies.into_iter().map(policy).collect();
        let utilisation = |policy: &PolicyFrame| policy.counters.utilisation;
        policies.sort_by(|one, other| utilisation(other).total_cmp(&utilisation(one)));
        let (hot_keys, hot) = hot.map_or_else(Default::default, |hot| (hot.keys, Some(hot.pod)));
        let frame = Self {
            seconds,
            pod: ServerFrame::of(&history),
            hot_keys,
            hot,
            callers: callers(&history),
            shards: with_load(shards, &shed.shards, &history),
            policies,
        };
        Ok((frame, history))
    }
}

impl ServerFrame {
    fn of(history: &RecentHistory) -> Self {
        let outcomes = ["served", "rejected", "shed", "refused", "failed"];
        let outcomes = outcomes.map(|name| history.sum(name));
        let times = ["latency_p50_ms", "latency_p99_ms"].map(|name| history.maxima(name));
        let served = history.means("served").into_iter();
        let with_times = served.filter(|(operation, _)| times[0].contains_key(operation));
        let operation = with_times.max_by(|one, other| one.1.total_cmp(&other.1));
        let operation = operation.map(|(operation, _)| operation);
        let [p50_ms, p99_ms] = times.map(|times| times.get(operation.as_ref()?).copied());
        Self {
            requests_rate: outcomes.iter().sum(),
            rejected_rate: outcomes[1],
            shed_rate: outcomes[2],
            refused_rate: outcomes[3],
            failed_rate: outcomes[4],
            ru_rate: history.sum("ru"),
            operation,
            p50_ms,
            p99_ms,
            saved_rate: history.sum("hot_hits") + history.sum("hot_collapsed"),
            connections: history.last("connections"),
        }
    }
}

fn callers(history: &RecentHistory) -> Vec<CallerFrame> {
    let [requests, rejected] =
        ["caller_requests", "caller_rejected"].map(|name| history.means(name));
    let by_caller = history.means("caller_ru").into_iter();
    let mut callers: Vec<_> = by_caller
        .map(|(caller, ru_rate)| CallerFrame {
            ru_rate,
            requests_rate: at(&requests, &caller),
            rejected_rate: at(&rejected, &caller),
            caller,
        })
        .collect();
    callers.sort_by(|one, other| other.ru_rate.total_cmp(&one.ru_rate));
    callers
}

fn with_load(
    shards: Vec<ShardInfo>,
    overloads: &[ShardOverload],
    history: &RecentHistory,
) -> Vec<ShardFrame> {
    let [requests, units] = ["shard_requests", "shard_ru"].map(|name| history.means(name));
    let frame = |info: ShardInfo| {
        let number = info.shard.to_string();
        let overload = overloads.iter().find(|one| one.shard == info.shard);
        ShardFrame {
            requests_rate: at(&requests, &number),
            ru_rate: at(&units, &number),
            overload: overload.map(OverloadFrame::of),
            info,
        }
    };
    shards.into_iter().map(frame).collect()
}

impl OverloadFrame {
    fn of(overload: &ShardOverload) -> Self {
        let ratios = overload.classes.iter().filter_map(|class| class.ratio);
        let pressures = overload.classes.iter().map(|class| class.pressure);
        let oldest = overload.tiers.iter().map(|tier| tier.oldest_ms);
        Self {
            is_overloaded: overload.overloaded,
            pressure: pressures.fold(0.0, f64::max),
            latency_ratio: ratios.min_by(f64::total_cmp),
            limit: overload.queue.limit,
            in_flight: overload.queue.in_flight,
            waiting: overload.queue.waiting,
            oldest_ms: oldest.fold(0.0, f64::max),
        }
    }
}
