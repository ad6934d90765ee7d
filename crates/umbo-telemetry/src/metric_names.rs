//! Every metric of Umbo: names, kind, unit, labels, help text and series of the history, in this one file.
//!
//! Owns the names and the closed sets of label values. Values are kept elsewhere. A metric has two names, one in
//! the text for Prometheus (base units as suffixes, `_total` on counters) and one over OTLP (dots, and the unit
//! apart from the name). Its last column says what the history keeps of it: `rate`, `sum`, `max` or `min` of its
//! samples, or a quantile, each with the name and unit of the series and its label. A test checks
//! every name.

use crate::metric::{Metric, MetricKind};
use crate::series::{Reading, Series, max, min, quantile, rate, sum};

/// Label that names the operation, one of `umbo_types::Operation`.
pub const OPERATION: &str = "operation";
/// Label that holds the HTTP status, a listed one or `other`.
pub const STATUS: &str = "status";
/// Label that names an error code of the HTTP contract.
pub const CODE: &str = "code";
/// Label for the kind of a problem: refused, rejected, shed or failed.
pub const KIND: &str = "kind";
/// Label that names a quota policy.
pub const POLICY: &str = "policy";
/// Label that names a caller; only the few that use most now have a series.
pub const CALLER: &str = "caller";
/// Label with the upper bound of the ratio of cost to estimate.
pub const RATIO: &str = "ratio";
/// Label that names a namespace.
pub const NAMESPACE: &str = "namespace";
/// Label with the hash of a key, never the key itself; only the keys read most have a series.
pub const KEY: &str = "key";
/// Label with the state of a key: `hot`, `pinned` or `blocked`.
pub const STANDING: &str = "standing";
/// Label that names a tier of criticality.
pub const TIER: &str = "tier";
/// Label that names the signal of an overload, as in the answers of shed requests.
pub const SIGNAL: &str = "signal";
/// Label that names a class of operations of similar duration.
pub const CLASS: &str = "class";
/// Label that holds the number of a shard.
pub const SHARD: &str = "shard";
/// Label that names the kind of a request to a shard node, one of [`NODE_REQUESTS_ASKED`].
pub const REQUEST: &str = "request";
/// Label that names the outcome of a request: at a shard node one of [`NODE_OUTCOMES`], elsewhere `served`,
/// `refused`, `rejected`, `shed` or `failed`; of a message `answered` or `unanswered`.
pub const OUTCOME: &str = "outcome";
/// Label that names the state of a load.
pub const STATE: &str = "state";
/// Label that holds the name of a shard node, as in the map of its cluster.
pub const NODE_NAME: &str = "node";
/// Label that holds the version of the program.
pub const VERSION: &str = "version";

/// Tier of requests that ended before it was known.
pub const TIER_UNKNOWN: &str = "unknown";

/// Kinds of requests to a shard node.
pub const NODE_REQUESTS_ASKED: [&str; 9] = [
    "get",
    "multi-get",
    "range",
    "scan",
    "write",
    "delete-range",
    "records",
    "status",
    "other",
];
/// Outcomes of requests to a shard node.
pub const NODE_OUTCOMES: [&str; 6] = [
    "done",
    "failed",
    "busy",
    "not-owner",
    "deadline-passed",
    "not-understood",
];

const fn ranked(name: &'static str, unit: &'static str) -> Series {
    Series::read(Reading::Ranked, name, unit).by(CALLER)
}

macro_rules! metrics {
    ($all:ident $(
        $constant:ident $name:literal $kind:ident [$($label:ident),*] $otlp_name:literal $unit:literal $help:literal
        $($series:expr),*;
    )+) => {
        $(
            #[doc = $help]
            pub const $constant: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                otlp_name: $otlp_name,
                unit: $unit,
                help: $help,
                history: &[$($series),*],
            };
        )+

        /// All of these metrics, in the order they are written.
        pub const $all: &[Metric] = &[$($constant),+];
    };
}

metrics! { ALL
    BUILD_INFO "umbo_build_info" Gauge [VERSION] "umbo.build" "1"
        "Always 1; the label is the version of the program.";
    REQUESTS "umbo_requests_total" Counter [OPERATION, STATUS] "umbo.request.count" "{request}"
        "Requests answered.";
    REQUEST_OUTCOMES "umbo_request_outcomes_total" Counter [OPERATION, TIER, OUTCOME] "umbo.request.outcomes" "{request}"
        "Requests by what became of them: served, refused as invalid, rejected, shed or failed."
        rate("served", "requests/s").by(OPERATION).of(&["served"]),
        rate("rejected", "requests/s").by(OPERATION).of(&["rejected"]),
        rate("shed", "requests/s").by(OPERATION).of(&["shed"]),
        rate("refused", "requests/s").by(OPERATION).of(&["refused"]),
        rate("failed", "requests/s").by(OPERATION).of(&["failed"]),
        rate("served_by_tier", "requests/s").by(TIER).of(&["served"]),
        rate("rejected_by_tier", "requests/s").by(TIER).of(&["rejected"]),
        rate("shed_by_tier", "requests/s").by(TIER).of(&["shed"]),
        rate("refused_by_tier", "requests/s").by(TIER).of(&["refused"]),
        rate("failed_by_tier", "requests/s").by(TIER).of(&["failed"]);
    REQUEST_DURATION "umbo_request_duration_seconds" Histogram [OPERATION] "http.server.request.duration" "s"
        "Time from the request's head to the end of the answer."
        quantile("latency_p50_ms", 0.5).by(OPERATION),
        quantile("latency_p99_ms", 0.99).by(OPERATION),
        quantile("latency_p999_ms", 0.999).by(OPERATION);
    STORE_DURATION "umbo_store_duration_seconds" Histogram [OPERATION] "umbo.store.operation.duration" "s"
        "Service time of the store, without any queue of the dispatcher.";
    REQUEST_BYTES "umbo_request_bytes_total" Counter [OPERATION] "umbo.request.body.io" "By"
        "Bytes of request bodies read.";
    RESPONSE_BYTES "umbo_response_bytes_total" Counter [OPERATION] "umbo.response.body.io" "By"
        "Bytes of answer bodies written.";
    REQUESTS_IN_FLIGHT "umbo_requests_in_flight" UpDownCounter [OPERATION] "http.server.active_requests" "{request}"
        "Requests begun and not yet answered."
        sum("in_flight", "requests");
    REQUEST_UNITS "umbo_request_units_total" Counter [OPERATION] "umbo.request.cost" "{RU}"
        "Request units charged."
        rate("ru", "RU/s");
    REQUESTS_ADMITTED "umbo_requests_admitted_total" Counter [OPERATION] "umbo.request.admitted" "{request}"
        "Requests that every quota admitted.";
    REQUESTS_REJECTED "umbo_requests_rejected_total" Counter [OPERATION] "umbo.request.rejected" "{request}"
        "Requests that a quota rejected.";
    REQUESTS_REPEATED "umbo_requests_repeated_total" Counter [OPERATION] "umbo.request.repeated" "{request}"
        "Requests that their client marked as retries.";
    ESTIMATES "umbo_estimates_total" Counter [OPERATION, RATIO] "umbo.estimate.count" "{request}"
        "One request in eight, by the ratio of its cost to its estimate; the label is the upper bound.";
    ESTIMATED_REQUEST_UNITS "umbo_estimated_request_units_total" Counter [OPERATION] "umbo.estimate.estimated_cost" "{RU}"
        "Estimated cost of the requests whose estimates are counted, in request units.";
    SAMPLED_REQUEST_UNITS "umbo_sampled_request_units_total" Counter [OPERATION] "umbo.estimate.actual_cost" "{RU}"
        "Actual cost of the same requests, in request units; the difference to the estimate is the error.";
    POLICY_REJECTED "umbo_policy_rejected_total" Counter [POLICY] "umbo.policy.rejected" "{request}"
        "Requests that the policy rejected."
        rate("policy_rejected", "requests/s").by(POLICY);
    POLICY_SHADOW_REJECTED "umbo_policy_shadow_rejected_total" Counter [POLICY] "umbo.policy.shadow_rejected" "{request}"
        "Requests that the policy would have rejected if it were enforced."
        rate("policy_would_reject", "requests/s").by(POLICY);
    POLICY_FORGIVEN "umbo_policy_forgiven_total" Counter [POLICY] "umbo.policy.forgiven" "{unit}"
        "Debt beyond what a bucket of the policy may owe, written off; in the policy's unit.";
    POLICY_BUCKETS "umbo_policy_buckets" UpDownCounter [POLICY] "umbo.policy.buckets" "{bucket}"
        "Token buckets of the policy.";
    POLICY_UTILISATION "umbo_policy_utilisation_ratio" Gauge [POLICY] "umbo.policy.utilization" "1"
        "Highest ratio of requested rate to limit among the buckets of the policy."
        max("policy_utilisation", "ratio").by(POLICY);
    FLEET_QUOTA_MESSAGES "umbo_fleet_quota_messages_total" Counter [OUTCOME] "umbo.fleet_quota.messages" "{message}"
        "Messages to the owners of counters of quotas of the scopes fleet and shard: answered or unanswered.";
    FLEET_QUOTA_SILENT_OWNERS "umbo_fleet_quota_silent_owners" Gauge [] "umbo.fleet_quota.silent_owners" "{owner}"
        "Owners of such counters that give this dispatcher no answer.";
    FLEET_QUOTA_REVISION "umbo_fleet_quota_revision" Gauge [] "umbo.fleet_quota.revision" "{revision}"
        "Revision of the ownership row that this dispatcher knows.";
    FLEET_QUOTA_REPORTED "umbo_fleet_quota_reported_counters" Gauge [] "umbo.fleet_quota.reported" "{counter}"
        "Counters of quotas of the scopes fleet and shard that this dispatcher reports to their owners.";
    FLEET_QUOTA_OWNED "umbo_fleet_quota_owned_counters" Gauge [] "umbo.fleet_quota.owned" "{counter}"
        "Counters of quotas of the scopes fleet and shard that this dispatcher owns.";
    CALLER_REQUEST_UNITS "umbo_caller_request_units_total" Counter [CALLER] "umbo.caller.cost" "{RU}"
        "Request units charged to the callers that use most now."
        ranked("caller_ru", "RU/s"),
        ranked("caller_requests", "requests/s"),
        ranked("caller_rejected", "requests/s"),
        ranked("caller_bytes", "bytes/s");
    NAMESPACE_REQUESTS "umbo_namespace_requests_total" Counter [NAMESPACE] "umbo.namespace.requests" "{request}"
        "Requests of the namespace that were admitted, batches of loads too. Only a bounded number of namespaces has series; all others share one.";
    NAMESPACE_ERRORS "umbo_namespace_errors_total" Counter [NAMESPACE, OUTCOME] "umbo.namespace.errors" "{request}"
        "Requests of the namespace that were not served: refused as invalid, rejected, shed or failed. Lacks batches of loads, and requests refused for their token, grants or headers or because too many were in flight.";
    NAMESPACE_REQUEST_UNITS "umbo_namespace_request_units_total" Counter [NAMESPACE] "umbo.namespace.cost" "{RU}"
        "Request units charged for the namespace.";
    NAMESPACE_ROWS "umbo_namespace_rows_total" Counter [NAMESPACE] "umbo.namespace.rows" "{row}"
        "Rows of the namespace that were read or written.";
    NAMESPACE_READ_BYTES "umbo_namespace_read_bytes_total" Counter [NAMESPACE] "umbo.namespace.read.io" "By"
        "Bytes of keys and values of the namespace that were read.";
    NAMESPACE_WRITTEN_BYTES "umbo_namespace_written_bytes_total" Counter [NAMESPACE] "umbo.namespace.written.io" "By"
        "Bytes of keys and values of the namespace that were written.";
    HOTKEY_READS "umbo_hotkey_reads_total" Counter [] "umbo.hotkey.reads" "{read}"
        "Reads that the detection of hot keys has counted.";
    HOTKEY_HITS "umbo_hotkey_hits_total" Counter [] "umbo.hotkey.hits" "{read}"
        "Reads answered from the local cache."
        rate("hot_hits", "reads/s");
    HOTKEY_NEGATIVE_HITS "umbo_hotkey_negative_hits_total" Counter [] "umbo.hotkey.negative_hits" "{read}"
        "Those of the hits that found nothing.";
    HOTKEY_LEADERS "umbo_hotkey_leaders_total" Counter [] "umbo.hotkey.leaders" "{read}"
        "Reads of the store that concurrent reads could join.";
    HOTKEY_FOLLOWERS "umbo_hotkey_followers_total" Counter [] "umbo.hotkey.followers" "{read}"
        "Reads that joined one in flight."
        rate("hot_collapsed", "reads/s");
    HOTKEY_ELECTIONS "umbo_hotkey_elections_total" Counter [] "umbo.hotkey.elections" "{read}"
        "Reads whose leader failed, and that were made again.";
    HOTKEY_CROWDED "umbo_hotkey_crowded_total" Counter [] "umbo.hotkey.crowded" "{read}"
        "Reads refused because too many waited.";
    HOTKEY_OVERTAKEN "umbo_hotkey_overtaken_total" Counter [] "umbo.hotkey.overtaken" "{read}"
        "Reads in flight that others stopped joining because of a write or their deadline.";
    HOTKEY_STALE "umbo_hotkey_stale_total" Counter [] "umbo.hotkey.stale" "{read}"
        "Results not cached because a write came in between.";
    HOTKEY_UNCOUNTED "umbo_hotkey_uncounted_total" Counter [] "umbo.hotkey.uncounted" "{read}"
        "Reads not counted, because the detector held the sketch at that moment.";
    HOTKEY_KEYS "umbo_hotkey_keys" UpDownCounter [STANDING] "umbo.hotkey.keys" "{key}"
        "Keys that are hot, pinned or blocked; each counts once.";
    HOTKEY_READ_RATE "umbo_hotkey_reads_per_second" Gauge [] "umbo.hotkey.read_rate" "{read}/s"
        "Reads a second of the dispatcher, decayed with a half-life of two seconds.";
    HOTKEY_THRESHOLD_RATE "umbo_hotkey_threshold_reads_per_second" Gauge [] "umbo.hotkey.threshold_rate" "{read}/s"
        "Current threshold of a hot key, in reads a second.";
    HOTKEY_FLIGHTS "umbo_hotkey_flights" UpDownCounter [] "umbo.hotkey.flights" "{read}"
        "Current reads of the store that other reads can join.";
    HOTKEY_CACHE_ENTRIES "umbo_hotkey_cache_entries" UpDownCounter [] "umbo.hotkey.cache.entries" "{entry}"
        "Results in the local cache.";
    HOTKEY_CACHE_BYTES "umbo_hotkey_cache_bytes" UpDownCounter [] "umbo.hotkey.cache.size" "By"
        "Memory of the answers in the local cache.";
    HOTKEY_DETECTION_BYTES "umbo_hotkey_detection_bytes" UpDownCounter [] "umbo.hotkey.detection.size" "By"
        "Memory of the hot-key detection.";
    HOTKEY_KEY_READ_RATE "umbo_hotkey_key_reads_per_second" Gauge [NAMESPACE, KEY] "umbo.hotkey.key.read_rate" "{read}/s"
        "Reads a second of the keys that are read most, over the last three seconds.";
    HOTKEY_KEY_HIT_RATIO "umbo_hotkey_key_hit_ratio" Gauge [NAMESPACE, KEY] "umbo.hotkey.key.hit_ratio" "1"
        "Share of the reads of these keys that the local cache answered since they became hot or listed.";
    SHARD_LIMIT "umbo_shard_limit" Gauge [SHARD] "umbo.shard.concurrency_limit" "{request}"
        "Concurrency limit of the shard; adapts to its latency.";
    SHARD_IN_FLIGHT "umbo_shard_in_flight" UpDownCounter [SHARD] "umbo.shard.active_requests" "{request}"
        "Requests in flight at the shard; may exceed the limit for a while after it fell.";
    SHARD_WAITING "umbo_shard_waiting" UpDownCounter [SHARD, TIER] "umbo.shard.queue.length" "{request}"
        "Requests in the queue of the shard."
        sum("queue_length", "requests").by(SHARD);
    SHARD_WAITING_UNITS "umbo_shard_waiting_request_units" UpDownCounter [SHARD] "umbo.shard.queue.cost" "{RU}"
        "Estimated cost of the requests in the queue of the shard.";
    SHARD_OLDEST_WAITING "umbo_shard_oldest_waiting_seconds" Gauge [SHARD] "umbo.shard.queue.oldest" "s"
        "Wait so far of the oldest request in the queue."
        max("queue_delay_ms", "ms").by(SHARD).times(1_000.0);
    SHARD_OVERLOADED "umbo_shard_overloaded" Gauge [SHARD] "umbo.shard.overloaded" "1"
        "1 while the shard is under pressure or its queue sheds requests, else 0.";
    SHARD_LATENCY_RATIO "umbo_shard_latency_ratio" Gauge [SHARD, CLASS] "umbo.shard.latency_ratio" "1"
        "Usual p95 of the shard's service time divided by that of the last seconds; 1 is healthy, 0.3 is overloaded."
        min("latency_ratio", "ratio").by(SHARD);
    SHARD_LATENCY "umbo_shard_latency_seconds" Gauge [SHARD, CLASS] "umbo.shard.latency" "s"
        "95th percentile of the shard's service time over the last second or two, as its dispatcher sees it.";
    SHARD_CALL_P50 "umbo_shard_call_p50_seconds" Gauge [SHARD, NODE_NAME] "umbo.shard.call.p50" "s"
        "Median time of the shard's calls that are not heavy over the last five seconds, from the permit to the answer; node `local` is the dispatcher itself.";
    SHARD_CALL_P99 "umbo_shard_call_p99_seconds" Gauge [SHARD, NODE_NAME] "umbo.shard.call.p99" "s"
        "99th percentile of the same times."
        max("node_p99_ms", "ms").by(NODE_NAME).times(1e3);
    SHARD_PRESSURE "umbo_shard_pressure" Gauge [SHARD, CLASS] "umbo.shard.pressure" "1"
        "How overloaded the shard is, from 0 to 1: the greatest of latency ratio, queue delay and runtime lag. It raises the price of low tiers."
        max("pressure", "ratio").by(SHARD);
    QUEUED "umbo_queued_total" Counter [TIER] "umbo.queue.queued" "{request}"
        "Requests that had to wait in the queue of a shard.";
    QUEUE_EXPIRED "umbo_queue_expired_total" Counter [TIER] "umbo.queue.expired" "{request}"
        "Requests whose deadline passed in the queue of a shard.";
    SHED "umbo_shed_total" Counter [TIER, SIGNAL] "umbo.request.shed" "{request}"
        "Parts of requests shed because of a shard; a request for several shards can count at each.";
    PRICE_MULTIPLIER "umbo_price_multiplier_ratio" Gauge [TIER] "umbo.price.multiplier" "1"
        "Highest price of the tier at any shard, over its plain price; 1 without an overload."
        max("penalty", "factor").by(TIER);
    OVERLOAD_EPISODES "umbo_overload_episodes_total" Counter [] "umbo.overload.episodes" "{episode}"
        "Overloads of shards that began.";
    RUNTIME_LAG "umbo_runtime_lag_seconds" Gauge [] "umbo.runtime.lag" "s"
        "Delay of the server's tasks.";
    REFUSED "umbo_refused_total" Counter [CODE, KIND] "umbo.request.refused" "{request}"
        "Requests answered with a problem: refused as invalid, rejected, shed, or failed.";
    STREAMS_ABORTED "umbo_streams_aborted_total" Counter [] "umbo.stream.aborted" "{stream}"
        "Streamed answers that ended before their end line.";
    LOAD_ROWS "umbo_load_rows_total" Counter [OUTCOME] "umbo.load.rows" "{row}"
        "Rows of loads: applied, skipped because the namespace has newer data or they have expired, or rejected.";
    LOAD_BYTES "umbo_load_bytes_total" Counter [] "umbo.load.io" "By"
        "Bytes of keys and values of rows of loads that were applied.";
    LOADS_ENDED "umbo_loads_ended_total" Counter [OUTCOME] "umbo.load.ended" "{load}"
        "Loads whose rows this process has all applied, so that they are live or ready, or that failed.";
    LOADS "umbo_loads" UpDownCounter [STATE] "umbo.load.count" "{load}"
        "Loads that are remembered, by state; every dispatcher of a cluster tells the same.";
    LOADS_STUCK "umbo_loads_stuck" UpDownCounter [] "umbo.load.stuck" "{load}"
        "Loads that have waited in this process for more than ten minutes, without getting on.";
    CONNECTIONS "umbo_connections" UpDownCounter [] "umbo.connection.count" "{connection}"
        "Open connections of clients."
        sum("connections", "connections");
    CONNECTIONS_ACCEPTED "umbo_connections_accepted_total" Counter [] "umbo.connection.accepted" "{connection}"
        "Connections accepted.";
    CONNECTIONS_EVICTED "umbo_connections_evicted_total" Counter [] "umbo.connection.evicted" "{connection}"
        "Idle connections closed to make room for another one.";
    CONNECTIONS_TURNED_AWAY "umbo_connections_turned_away_total" Counter [] "umbo.connection.turned_away" "{connection}"
        "Connections refused because their address had reached its limit.";
    TLS_HANDSHAKES_FAILED "umbo_tls_handshakes_failed_total" Counter [] "umbo.connection.tls_failed" "{connection}"
        "Connections whose TLS handshake failed.";
    RECORDS_EPOCH "umbo_records_epoch" Gauge [] "umbo.records.epoch" "{epoch}"
        "Epoch of Umbo's own records that are in effect; grows when an operator promotes another home.";
    RECORDS_REVISION "umbo_records_revision" Gauge [] "umbo.records.revision" "{revision}"
        "Revision of Umbo's own records that is in effect.";
    RECORDS_AGE "umbo_records_age_seconds" Gauge [] "umbo.records.age" "s"
        "Time since that revision was last found to be the newest.";
    RECORDS_UNREADABLE "umbo_records_unreadable" Gauge [] "umbo.records.unreadable" "1"
        "1 while a newer revision exists and cannot be read, else 0.";
    NAMESPACES_REMOVING "umbo_namespaces_removing" UpDownCounter [] "umbo.namespace.removing" "{namespace}"
        "Namespaces whose removal some shards have not confirmed.";
    ANSWER_BYTES "umbo_answer_memory_bytes" UpDownCounter [] "umbo.response.memory" "By"
        "Bytes of answers over 4 KiB that their clients have not read yet.";
    BODY_BYTES "umbo_body_memory_bytes" UpDownCounter [] "umbo.request.memory" "By"
        "Bytes of request bodies over 4 KiB that are being read or written, and of what they are inflated to.";
    SHARD_AVAILABLE "umbo_shard_available" Gauge [SHARD] "umbo.shard.available" "1"
        "1 while the shard serves reads and writes, else 0.";
    SHARD_REQUESTS "umbo_shard_requests_total" Counter [SHARD] "umbo.shard.requests" "{request}"
        "Requests for the shard; a request for several shards counts at each."
        rate("shard_requests", "requests/s").by(SHARD);
    SHARD_LIVE_BYTES "umbo_shard_live_bytes" UpDownCounter [SHARD] "umbo.shard.live.size" "By"
        "Bytes of the rows in the shard's file, with what is stored beside their keys and values."
        sum("shard_live_bytes", "bytes").by(SHARD);
    SHARD_ROWS "umbo_shard_rows" UpDownCounter [SHARD] "umbo.shard.rows" "{row}"
        "Rows stored, expired ones that await reclaiming included."
        sum("shard_rows", "rows").by(SHARD);
    SHARD_FILE_BYTES "umbo_shard_file_bytes" UpDownCounter [SHARD] "umbo.shard.file.size" "By"
        "Bytes of the disk that the shard's file takes."
        sum("shard_file_bytes", "bytes").by(SHARD);
    SHARD_QUEUED_MUTATIONS "umbo_shard_queued_mutations" UpDownCounter [SHARD] "umbo.shard.queued_mutations" "{mutation}"
        "Mutations waiting for a commit."
        sum("shard_queued", "mutations").by(SHARD);
    SHARD_COMMITS "umbo_shard_commits_total" OlderCounter [SHARD] "umbo.shard.commits" "{commit}"
        "Commits to the disk."
        rate("shard_commits", "commits/s").by(SHARD);
    SHARD_SYNCS "umbo_shard_syncs_total" OlderCounter [SHARD] "umbo.shard.sync.count" "{commit}"
        "Commits that were waited for until they were on the disk."
        rate("syncs", "commits/s");
    SHARD_SYNC_TIME "umbo_shard_sync_seconds_total" OlderCounter [SHARD] "umbo.shard.sync.time" "s"
        "Time that commits took until they were on the disk; divided by the number of syncs it is that of one."
        rate("sync_time", "s/s");
    SHARD_COMPACTIONS "umbo_shard_compactions_total" Counter [SHARD] "umbo.shard.compaction.count" "{compaction}"
        "Compactions of the shard's file, which give room back to the disk; the shard pauses for each.";
    SHARD_COMPACTION_TIME "umbo_shard_compaction_seconds_total" Counter [SHARD] "umbo.shard.compaction.time" "s"
        "Time that the shard has paused for compactions.";
    SHARD_HELD_TIME "umbo_shard_held_answer_seconds_total" Counter [SHARD] "umbo.shard.held_answer.time" "s"
        "Time that answers of writes were held back: rows of the log come faster than they get into the file.";
    ROW_CACHE_HITS "umbo_row_cache_hits_total" OlderCounter [SHARD] "umbo.row_cache.hits" "{read}"
        "Reads of a row that the shard's cache of rows answered."
        rate("row_cache_hits", "reads/s");
    ROW_CACHE_MISSES "umbo_row_cache_misses_total" OlderCounter [SHARD] "umbo.row_cache.misses" "{read}"
        "Reads of a row that visited the pages of the shard's file."
        rate("row_cache_misses", "reads/s");
    SHARD_MUTATIONS "umbo_shard_mutations_total" OlderCounter [SHARD] "umbo.shard.mutations" "{mutation}"
        "Mutations committed.";
    SHARD_RECLAIMED_ROWS "umbo_shard_reclaimed_rows_total" OlderCounter [SHARD] "umbo.shard.reclaimed_rows" "{row}"
        "Expired rows whose space was reclaimed.";
    STORE_BAD_READS "umbo_store_bad_reads_total" OlderCounter [SHARD] "umbo.shard.bad_reads" "{read}"
        "Reads of a shard's file that failed, or needed a part that is known to be unreadable.";
    SHARD_EXPIRED_ROWS "umbo_shard_expired_rows" UpDownCounter [SHARD] "umbo.shard.expired_rows" "{row}"
        "Expired rows that are known to await reclaiming."
        sum("shard_expired_rows", "rows").by(SHARD);
    SHARD_PURGING_NAMESPACES "umbo_shard_purging_namespaces" UpDownCounter [SHARD] "umbo.shard.purging_namespaces" "{namespace}"
        "Removed namespaces whose rows may not all be reclaimed yet.";
    SHARD_REQUEST_UNITS "umbo_shard_request_units_total" Counter [SHARD] "umbo.shard.cost" "{RU}"
        "Request units charged for the shard's part of its requests."
        rate("shard_ru", "RU/s").by(SHARD);
    DISK_SIZE "umbo_disk_size_bytes" Gauge [] "umbo.disk.size" "By"
        "Size of the disk that has the shards.";
    DISK_FREE "umbo_disk_free_bytes" Gauge [] "umbo.disk.free" "By"
        "Space of that disk that this process may still use.";
    PROCESS_CPU "process_cpu_seconds_total" OlderCounter [] "process.cpu.time" "s"
        "CPU time spent, user and system."
        rate("cpu", "cores");
    PROCESS_RESIDENT_MEMORY "process_resident_memory_bytes" UpDownCounter [] "process.memory.usage" "By"
        "Resident memory."
        sum("memory_bytes", "bytes");
    PROCESS_OPEN_FDS "process_open_fds" UpDownCounter [] "process.unix.file_descriptor.count" "{file_descriptor}"
        "Open file descriptors.";
    PROCESS_MAX_FDS "process_max_fds" Gauge [] "umbo.process.file_descriptor.limit" "{file_descriptor}"
        "Most file descriptors the process may open.";
    PROCESS_START_TIME "process_start_time_seconds" Gauge [] "umbo.process.start_time" "s"
        "Start of the process, seconds since the Unix epoch.";
}

// Metrics of a shard node, which also has those under `SHARD_` and `PROCESS_`.
metrics! { NODE
    NODE_REQUESTS "umbo_node_requests_total" Counter [REQUEST, OUTCOME] "umbo.node.requests" "{request}"
        "Answered requests of dispatchers, by kind and outcome."
        rate("served", "requests/s").by(REQUEST).called(OPERATION).of(&["done"]),
        rate("shed", "requests/s").by(REQUEST).called(OPERATION).of(&["busy"]),
        rate("failed", "requests/s").by(REQUEST).called(OPERATION)
            .of(&["failed", "not-owner", "deadline-passed", "not-understood"]);
    NODE_SERVICE_TIME "umbo_node_service_seconds_total" Counter [REQUEST] "umbo.node.service_time" "s"
        "Service time of requests at the node.";
    NODE_IN_FLIGHT "umbo_node_requests_in_flight" UpDownCounter [] "umbo.node.active_requests" "{request}"
        "Requests that wait for the store."
        sum("in_flight", "requests");
    NODE_REQUEST_MEMORY "umbo_node_request_memory_bytes" UpDownCounter [] "umbo.node.request.memory" "By"
        "Bytes of requests that arrive or wait for the store.";
    NODE_FRAMES "umbo_node_frames_total" Counter [] "umbo.node.received.frames" "{frame}"
        "Frames received; requests divided by frames is the mean batch size.";
    NODE_RECEIVED "umbo_node_received_bytes_total" Counter [] "umbo.node.received.io" "By"
        "Bytes of frames received.";
    NODE_SENT_FRAMES "umbo_node_sent_frames_total" Counter [] "umbo.node.sent.frames" "{frame}"
        "Frames sent.";
    NODE_SENT "umbo_node_sent_bytes_total" Counter [] "umbo.node.sent.io" "By"
        "Bytes of frames sent.";
    NODE_CONNECTIONS "umbo_node_connections" UpDownCounter [] "umbo.node.connection.count" "{connection}"
        "Open connections of dispatchers."
        sum("connections", "connections");
    NODE_CONNECTIONS_REFUSED "umbo_node_connections_refused_total" Counter [] "umbo.node.connection.refused" "{connection}"
        "Connections of peers that expected another cluster or node, or use another version.";
    NODE_CONNECTIONS_BROKEN "umbo_node_connections_broken_total" Counter [] "umbo.node.connection.broken" "{connection}"
        "Connections that the node closed because their peer broke the protocol, was silent or read nothing.";
    NODE_MAP_VERSION "umbo_node_map_version" Gauge [] "umbo.node.map_version" "{version}"
        "Version of the cluster map in effect.";
}

// Metrics of a dispatcher in front of shard nodes, in addition to all others.
metrics! { REMOTE
    REMOTE_NODE_UP "umbo_remote_node_up" Gauge [NODE_NAME] "umbo.remote.node_up" "1"
        "1 while the node is reachable, else 0."
        sum("node_up", "bool").by(NODE_NAME);
    REMOTE_NODE_MAP_VERSION "umbo_remote_node_map_version" Gauge [NODE_NAME] "umbo.remote.node_map_version" "{version}"
        "Version of the cluster map that the shard node uses.";
    REMOTE_NODE_CLOCK_OFFSET "umbo_remote_node_clock_offset_seconds" Gauge [NODE_NAME] "umbo.remote.node_clock_offset" "s"
        "How far the clock of the dispatcher is ahead of that of the shard node; negative where it is behind.";
    REMOTE_IN_FLIGHT "umbo_remote_requests_in_flight" UpDownCounter [NODE_NAME] "umbo.remote.active_requests" "{request}"
        "Requests in flight at the shard node.";
    REMOTE_REQUESTS "umbo_remote_requests_total" Counter [] "umbo.remote.requests" "{request}"
        "Requests sent to shard nodes, retries included.";
    REMOTE_SENT_FRAMES "umbo_remote_sent_frames_total" Counter [] "umbo.remote.sent.frames" "{frame}"
        "Messages sent to shard nodes; requests divided by messages is the mean batch size.";
    REMOTE_FRAMES "umbo_remote_frames_total" Counter [] "umbo.remote.received.frames" "{frame}"
        "Messages received from shard nodes.";
    REMOTE_RETRIES "umbo_remote_retries_total" Counter [] "umbo.remote.retries" "{request}"
        "Requests sent again after their connection was lost, or to another node.";
    REMOTE_CONNECTIONS "umbo_remote_connections_total" Counter [] "umbo.remote.connection.made" "{connection}"
        "Connections made to shard nodes.";
    REMOTE_CONNECTIONS_REFUSED "umbo_remote_connections_refused_total" Counter [] "umbo.remote.connection.refused" "{connection}"
        "Connections to shard nodes that failed or were refused.";
    REMOTE_CONNECTIONS_LOST "umbo_remote_connections_lost_total" Counter [] "umbo.remote.connection.lost" "{connection}"
        "Connections to shard nodes that were lost, or closed because the node was silent.";
}

/// Returns the series of the history, in the order of the table. A name is there twice if dispatchers and shard nodes
/// make the series of different metrics.
fn series() -> impl Iterator<Item = &'static Series> {
    let metrics = [ALL, REMOTE, NODE].into_iter().flatten();
    metrics.flat_map(|metric| metric.history)
}

/// Returns the names of the series, each once, in the order in which they are shown.
pub fn series_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for series in series() {
        if !names.contains(&series.name) {
            names.push(series.name);
        }
    }
    names
}

/// Returns the series of a name, or `None` if this version keeps no such series.
pub fn series_by_name(name: &str) -> Option<&'static Series> {
    series().find(|series| series.name == name)
}

/// Returns the name of a label as an attribute over OTLP, which spans use too.
pub fn otlp_attribute(label: &'static str) -> &'static str {
    match label {
        OPERATION => "umbo.operation",
        STATUS => "http.response.status_code",
        CODE => "error.type",
        KIND => "umbo.kind",
        POLICY => "umbo.policy",
        CALLER => "umbo.caller",
        RATIO => "umbo.ratio",
        NAMESPACE => "umbo.namespace",
        KEY => "umbo.key_hash",
        STANDING => "umbo.standing",
        TIER => "umbo.criticality",
        SIGNAL => "umbo.signal",
        CLASS => "umbo.class",
        SHARD => "umbo.shard",
        REQUEST => "umbo.request",
        OUTCOME => "umbo.outcome",
        STATE => "umbo.state",
        NODE_NAME => "umbo.node",
        VERSION => "service.version",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let all = [ALL, NODE, REMOTE].concat();
        for (at, metric) in all.iter().enumerate() {
            let name = metric.name;
            assert!(all[..at].iter().all(|other| other.name != name), "{name}");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
            assert!(name.starts_with("umbo_") || name.starts_with("process_"));
            assert_eq!(name.ends_with("_total"), metric.kind.is_counter(), "{name}");
            assert!(metric.help.ends_with('.'), "{name}");
            let otlp = metric.otlp_name;
            assert!(
                all[..at].iter().all(|other| other.otlp_name != otlp),
                "{otlp}"
            );
            let prefixes = ["umbo.", "http.server.", "process."];
            assert!(
                prefixes.iter().any(|prefix| otlp.starts_with(prefix)),
                "{otlp}"
            );
            let suffixes = [("_seconds", "s"), ("_bytes", "By"), ("_units", "{RU}")];
            let plain = name.trim_end_matches("_total");
            for (suffix, unit) in suffixes {
                assert_eq!(plain.ends_with(suffix), metric.unit == unit, "{name}");
                assert!(!otlp.ends_with(suffix), "{otlp}");
            }
            assert!(!plain.ends_with("_ratio") || metric.unit == "1", "{name}");
            assert_eq!(
                name.ends_with("_per_second"),
                metric.unit == "{read}/s",
                "{name}"
            );
            for label in metric.labels {
                assert!(otlp_attribute(label).contains('.'), "{label}");
            }
            if metric.kind == MetricKind::Histogram {
                assert!(name.ends_with("_seconds") || name.ends_with("_bytes"));
            }
        }
    }

    #[test]
    fn every_series_has_one_form_whatever_it_is_made_of() {
        assert_eq!(series_names().len(), 46);
        for metric in [ALL, NODE, REMOTE].into_iter().flatten() {
            for series in metric.history {
                let by = series.by.is_none_or(|by| metric.labels.contains(&by));
                assert!(by, "{} of {}", series.name, metric.name);
                assert_eq!(series.by.is_some(), series.label.is_some());
                let same = series_by_name(series.name).unwrap();
                let shown = |series: &Series| (series.label, series.unit, series.is_quantile());
                assert_eq!(shown(series), shown(same), "{}", series.name);
                let is_sum = matches!(series.reading, Reading::Rate | Reading::Ranked);
                assert_eq!(is_sum, metric.kind.is_counter(), "{}", series.name);
            }
        }
        assert_eq!(series_by_name("nothing"), None);
    }
}
