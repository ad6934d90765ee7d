//! Names, units and labels of the series that the history keeps, in this one file.
//!
//! A series has one label at most. Rates are computed before they are recorded: no reader does arithmetic.

use std::sync::Arc;

/// How the values of a second become the value of a longer step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// Rates and gauges: the mean of the seconds with a value.
    Mean,
    /// Quantiles: each step has a value of its own, computed over all requests of the step. Steps that are put
    /// together for a reader show the highest.
    Own,
}

/// A kind of series.
#[derive(Debug, PartialEq, Eq)]
pub struct Series {
    /// Name on the wire.
    pub name: &'static str,
    /// Name of the label; none where there is one series of the name.
    pub label: Option<&'static str>,
    /// Unit of the values.
    pub unit: &'static str,
    /// How seconds become longer steps.
    pub fold: Fold,
}

/// One series: its kind, and the value of its label, empty where it has none.
#[derive(Debug, Clone)]
pub struct SeriesKey {
    /// The kind.
    pub series: &'static Series,
    /// Value of the label.
    pub value: Arc<str>,
}

impl SeriesKey {
    /// Names the series of a kind whose label has this value.
    pub fn new(series: &'static Series, value: impl Into<Arc<str>>) -> Self {
        let value = value.into();
        Self { series, value }
    }

    fn parts(&self) -> (&'static str, &str) {
        (self.series.name, &self.value)
    }
}

impl PartialEq for SeriesKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for SeriesKey {}

impl std::hash::Hash for SeriesKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialOrd for SeriesKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SeriesKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(&other.parts())
    }
}

/// Returns the kind of a name; none where this version keeps no such series.
pub fn by_name(name: &str) -> Option<&'static Series> {
    names::ALL
        .iter()
        .copied()
        .find(|series| series.name == name)
}

macro_rules! series {
    ($($constant:ident $name:literal $label:expr, $unit:literal $fold:ident $meaning:literal;)+) => {
        $(
            #[doc = $meaning]
            pub static $constant: Series = Series {
                name: $name,
                label: $label,
                unit: $unit,
                fold: Fold::$fold,
            };
        )+

        /// All kinds, in the order in which they are shown.
        pub static ALL: &[&Series] = &[$(&$constant),+];
    };
}

/// The kinds of series.
pub mod names {
    use super::{Fold, Series};

    const OPERATION: Option<&str> = Some("operation");
    const TIER: Option<&str> = Some("tier");
    const CALLER: Option<&str> = Some("caller");
    const SHARD: Option<&str> = Some("shard");
    const POLICY: Option<&str> = Some("policy");
    const NODE: Option<&str> = Some("node");

    series! {
        SERVED "served" OPERATION, "requests/s" Mean "Requests served.";
        REJECTED "rejected" OPERATION, "requests/s" Mean "Requests that a quota rejected.";
        SHED "shed" OPERATION, "requests/s" Mean "Requests shed because of an overload.";
        FAILED "failed" OPERATION, "requests/s" Mean "Requests not served for another reason.";
        SERVED_BY_TIER "served_by_tier" TIER, "requests/s" Mean "Requests served.";
        REJECTED_BY_TIER "rejected_by_tier" TIER, "requests/s" Mean "Requests that a quota rejected.";
        SHED_BY_TIER "shed_by_tier" TIER, "requests/s" Mean "Requests shed because of an overload.";
        FAILED_BY_TIER "failed_by_tier" TIER, "requests/s" Mean "Requests not served for another reason.";
        LATENCY_P50 "latency_p50_ms" OPERATION, "ms" Own "Median time of a request.";
        LATENCY_P99 "latency_p99_ms" OPERATION, "ms" Own "99th percentile of the time of a request.";
        LATENCY_P999 "latency_p999_ms" OPERATION, "ms" Own "99.9th percentile of the time of a request.";
        RU "ru" None, "RU/s" Mean "Request units charged.";
        HOT_HITS "hot_hits" None, "reads/s" Mean "Reads answered from the local cache.";
        HOT_COLLAPSED "hot_collapsed" None, "reads/s" Mean "Reads that joined one in flight.";
        IN_FLIGHT "in_flight" None, "requests" Mean "Requests begun and not yet answered.";
        CONNECTIONS "connections" None, "connections" Mean "Open connections.";
        CPU "cpu" None, "cores" Mean "CPU time a second.";
        MEMORY "memory_bytes" None, "bytes" Mean "Resident memory.";
        PENALTY "penalty" TIER, "factor" Mean "Highest price multiplier of any shard.";
        POLICY_UTILISATION "policy_utilisation" POLICY, "ratio" Mean
            "Highest ratio of requested rate to limit among the buckets of the policy.";
        POLICY_REJECTED "policy_rejected" POLICY, "requests/s" Mean "Requests that the policy rejected.";
        POLICY_WOULD_REJECT "policy_would_reject" POLICY, "requests/s" Mean
            "Requests that the policy would have rejected if it were enforced.";
        NODE_UP "node_up" NODE, "bool" Mean "1 while the shard node is reachable, else 0.";
        CALLER_RU "caller_ru" CALLER, "RU/s" Mean "Request units charged to the caller.";
        CALLER_REQUESTS "caller_requests" CALLER, "requests/s" Mean "Requests of the caller that were admitted.";
        CALLER_REJECTED "caller_rejected" CALLER, "requests/s" Mean "Requests of the caller that a quota rejected.";
        CALLER_BYTES "caller_bytes" CALLER, "bytes/s" Mean "Bytes of keys and values that the caller read and wrote.";
        SHARD_RU "shard_ru" SHARD, "RU/s" Mean "Request units charged for the shard's part of its requests.";
        SHARD_REQUESTS "shard_requests" SHARD, "requests/s" Mean "Requests for the shard.";
        SHARD_ROWS "shard_rows" SHARD, "rows" Mean "Rows stored.";
        SHARD_FILE_BYTES "shard_file_bytes" SHARD, "bytes" Mean "Size of the shard's file.";
        SHARD_LIVE_BYTES "shard_live_bytes" SHARD, "bytes" Mean "Bytes of keys and values of the rows stored.";
        SHARD_COMMITS "shard_commits" SHARD, "commits/s" Mean "Commits to the disk.";
        SHARD_QUEUED "shard_queued" SHARD, "mutations" Mean "Mutations waiting for a commit.";
        SHARD_EXPIRED_ROWS "shard_expired_rows" SHARD, "rows" Mean "Expired rows that await reclaiming.";
        LATENCY_RATIO "latency_ratio" SHARD, "ratio" Mean "Lowest latency ratio of any class of the shard.";
        PRESSURE "pressure" SHARD, "ratio" Mean "Highest pressure of any class of the shard, from 0 to 1.";
        QUEUE_DELAY "queue_delay_ms" SHARD, "ms" Mean "Wait so far of the oldest request in the shard's queue.";
        QUEUE_LENGTH "queue_length" SHARD, "requests" Mean "Requests in the shard's queue.";
        SYNCS "syncs" None, "commits/s" Mean "Commits that were waited for until they were on the disk.";
        SYNC_TIME "sync_time" None, "s/s" Mean "Time that the disks took for these commits, of all shards.";
        ROW_CACHE_HITS "row_cache_hits" None, "reads/s" Mean "Reads of a row that a shard's cache of rows answered.";
        ROW_CACHE_MISSES "row_cache_misses" None, "reads/s" Mean "Reads of a row that visited the pages of a file.";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_found() {
        let all: BTreeSet<_> = names::ALL.iter().map(|series| series.name).collect();
        assert_eq!(all.len(), names::ALL.len());
        let told: Vec<_> = names::ALL.iter().map(|series| series.name).collect();
        assert_eq!(told, umbo_api::observe::SERIES_NAMES);
        for name in all {
            assert_eq!(by_name(name).map(|series| series.name), Some(name));
        }
        assert_eq!(by_name("nothing"), None);
    }
}
