//! Every metric of Umbo: name, kind, unit, labels and meaning, in this one file.
//!
//! Owns the names and the closed sets of label values. Values are kept elsewhere. Names follow
//! the Prometheus form of the `OpenTelemetry` conventions: base units (seconds, bytes), `_total`
//! on counters. A test holds every name to that form.

/// What kind of series a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, until the process restarts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

impl MetricKind {
    /// Returns the word of the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Name and meaning of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name as scraped.
    pub name: &'static str,
    /// Kind of series.
    pub kind: MetricKind,
    /// Label names, in the order they are written.
    pub labels: &'static [&'static str],
    /// Meaning, one sentence.
    pub help: &'static str,
}

/// Label that names the operation, one of `umbo_types::Operation`.
pub const OPERATION: &str = "operation";
/// Label that holds the HTTP status, one of [`STATUSES`] or [`STATUS_OTHER`].
pub const STATUS: &str = "status";
/// Label that names an error code of the HTTP contract.
pub const CODE: &str = "code";
/// Label that says whether a problem was refused, rejected, shed or failed.
pub const KIND: &str = "kind";
/// Label that names a quota policy.
pub const POLICY: &str = "policy";
/// Label that names a caller; only those who spent most have a series.
pub const CALLER: &str = "caller";
/// Label that holds the upper bound of what was charged over what was estimated.
pub const RATIO: &str = "ratio";
/// Label that names a namespace.
pub const NAMESPACE: &str = "namespace";
/// Label that stands for a key: a hash of it, never the key; only those read most have a series.
pub const KEY: &str = "key";
/// Label that says what holds of a key: `hot`, `pinned` or `blocked`.
pub const STANDING: &str = "standing";
/// Label that names a tier of criticality.
pub const TIER: &str = "tier";
/// Label that names what told that a shard is overloaded, as in the answers of shed requests.
pub const SIGNAL: &str = "signal";
/// Label that names a class of operations that are alike in how long they take.
pub const CLASS: &str = "class";
/// Label that holds the number of a shard.
pub const SHARD: &str = "shard";
/// Label that names what a dispatcher asks of a shard node, one of [`NODE_REQUESTS_ASKED`].
pub const REQUEST: &str = "request";
/// Label that says what a request to a shard node came to, one of [`NODE_OUTCOMES`].
pub const OUTCOME: &str = "outcome";
/// Label that holds the name of a shard node, as in the map of its cluster.
pub const NODE_NAME: &str = "node";
/// Label that holds the version of the program.
pub const VERSION: &str = "version";

/// What a shard node is asked.
pub const NODE_REQUESTS_ASKED: [&str; 9] = [
    "get",
    "multi-get",
    "range",
    "scan",
    "write",
    "delete-range",
    "purge",
    "status",
    "other",
];
/// What a request to a shard node comes to.
pub const NODE_OUTCOMES: [&str; 7] = [
    "done",
    "failed",
    "busy",
    "quota-exceeded",
    "not-owner",
    "deadline-passed",
    "not-understood",
];

/// Statuses that get a series of their own.
pub const STATUSES: [u16; 23] = [
    200, 201, 204, 206, 207, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 414, 419, 429, 431,
    500, 503, 504, 507,
];
/// Label value of every status that is not in [`STATUSES`].
pub const STATUS_OTHER: &str = "other";

macro_rules! metrics {
    ($all:ident $($constant:ident $name:literal $kind:ident [$($label:ident),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )+

        /// All of these metrics, in the order they are written.
        pub const $all: &[Metric] = &[$($constant),+];
    };
}

metrics! { ALL
    BUILD_INFO "umbo_build_info" Gauge [VERSION]
        "Always 1; says which version runs.";
    REQUESTS "umbo_requests_total" Counter [OPERATION, STATUS]
        "Requests answered.";
    REQUEST_DURATION "umbo_request_duration_seconds" Histogram [OPERATION]
        "Time from the request's head to the end of the answer.";
    STORE_DURATION "umbo_store_duration_seconds" Histogram [OPERATION]
        "Service time of the store, without any queue of the dispatcher.";
    REQUEST_BYTES "umbo_request_bytes_total" Counter [OPERATION]
        "Bytes of request bodies read.";
    RESPONSE_BYTES "umbo_response_bytes_total" Counter [OPERATION]
        "Bytes of answer bodies written.";
    REQUESTS_IN_FLIGHT "umbo_requests_in_flight" Gauge [OPERATION]
        "Requests begun and not yet answered.";
    REQUEST_UNITS "umbo_request_units_total" Counter [OPERATION]
        "Request units charged.";
    REQUESTS_ADMITTED "umbo_requests_admitted_total" Counter [OPERATION]
        "Requests that every quota admitted.";
    REQUESTS_REJECTED "umbo_requests_rejected_total" Counter [OPERATION]
        "Requests that a quota rejected.";
    REQUESTS_REPEATED "umbo_requests_repeated_total" Counter [OPERATION]
        "Requests that their client marked as sent again.";
    ESTIMATES "umbo_estimates_total" Counter [OPERATION, RATIO]
        "One request in eight, by what it was charged over what was estimated; the label is the upper bound.";
    ESTIMATED_REQUEST_UNITS "umbo_estimated_request_units_total" Counter [OPERATION]
        "Request units estimated before the work, of those requests whose estimates are counted.";
    SAMPLED_REQUEST_UNITS "umbo_sampled_request_units_total" Counter [OPERATION]
        "Request units charged to those same requests; less what was estimated it is the error.";
    POLICY_REJECTED "umbo_policy_rejected_total" Counter [POLICY]
        "Requests that the policy rejected.";
    POLICY_SHADOW_REJECTED "umbo_policy_shadow_rejected_total" Counter [POLICY]
        "Requests that the policy would have rejected were it enforced.";
    POLICY_BUCKETS "umbo_policy_buckets" Gauge [POLICY]
        "Buckets of the policy, one for each it tells apart.";
    POLICY_UTILISATION "umbo_policy_utilisation_ratio" Gauge [POLICY]
        "Highest rate asked of any bucket of the policy over its limit.";
    CALLER_REQUEST_UNITS "umbo_caller_request_units_total" Counter [CALLER]
        "Request units charged to those callers who spent most.";
    HOTKEY_HITS "umbo_hotkey_hits_total" Counter []
        "Reads answered from the local cache.";
    HOTKEY_NEGATIVE_HITS "umbo_hotkey_negative_hits_total" Counter []
        "Those of the hits that said that the key is absent.";
    HOTKEY_LEADERS "umbo_hotkey_leaders_total" Counter []
        "Reads of the store that others could join.";
    HOTKEY_FOLLOWERS "umbo_hotkey_followers_total" Counter []
        "Reads that joined one under way.";
    HOTKEY_AFTERGLOWS "umbo_hotkey_afterglows_total" Counter []
        "Reads answered by one that had just ended, of a key that may become hot.";
    HOTKEY_ELECTIONS "umbo_hotkey_elections_total" Counter []
        "Leaders that failed and were replaced.";
    HOTKEY_CROWDED "umbo_hotkey_crowded_total" Counter []
        "Reads turned away because too many waited.";
    HOTKEY_OVERTAKEN "umbo_hotkey_overtaken_total" Counter []
        "Reads under way that others could join no longer, because of a write or their deadline.";
    HOTKEY_STALE "umbo_hotkey_stale_total" Counter []
        "Answers not kept because a write came in between.";
    HOTKEY_UNCOUNTED "umbo_hotkey_uncounted_total" Counter []
        "Reads that the detection did not count, for want of room at that moment.";
    HOTKEY_KEYS "umbo_hotkey_keys" Gauge [STANDING]
        "Keys that are hot, pinned or blocked; each counts once.";
    HOTKEY_READ_RATE "umbo_hotkey_reads_per_second" Gauge []
        "Reads a second of the pod, decayed with a half-life of two seconds.";
    HOTKEY_THRESHOLD_RATE "umbo_hotkey_threshold_reads_per_second" Gauge []
        "Reads a second that make a key hot at this moment.";
    HOTKEY_FLIGHTS "umbo_hotkey_flights" Gauge []
        "Reads of the store that others can join at this moment.";
    HOTKEY_CACHE_ENTRIES "umbo_hotkey_cache_entries" Gauge []
        "Answers in the local cache.";
    HOTKEY_CACHE_BYTES "umbo_hotkey_cache_bytes" Gauge []
        "Bytes that they take.";
    HOTKEY_DETECTION_BYTES "umbo_hotkey_detection_bytes" Gauge []
        "Memory of the detection.";
    HOTKEY_KEY_READ_RATE "umbo_hotkey_key_reads_per_second" Gauge [NAMESPACE, KEY]
        "Reads a second of those keys that are read most, over the last three seconds.";
    HOTKEY_KEY_HIT_RATIO "umbo_hotkey_key_hit_ratio" Gauge [NAMESPACE, KEY]
        "Share of the reads of those keys that the local cache answered since they are hot or listed.";
    SHARD_SLOTS "umbo_shard_slots" Gauge [SHARD]
        "Requests that the shard may have in flight; adapts to what it can do.";
    SHARD_IN_FLIGHT "umbo_shard_in_flight" Gauge [SHARD]
        "Requests that the shard has in flight; more than it has slots for a while after those became fewer.";
    SHARD_WAITING "umbo_shard_waiting" Gauge [SHARD, TIER]
        "Requests that wait for a slot of the shard.";
    SHARD_WAITING_UNITS "umbo_shard_waiting_request_units" Gauge [SHARD]
        "Request units that those are estimated at.";
    SHARD_OLDEST_WAITING "umbo_shard_oldest_waiting_seconds" Gauge [SHARD]
        "For how long the oldest of them has waited.";
    SHARD_OVERLOADED "umbo_shard_overloaded" Gauge [SHARD]
        "1 while the queue of the shard or its latency ratio says that requests are to be shed, else 0.";
    SHARD_LATENCY_RATIO "umbo_shard_latency_ratio" Gauge [SHARD, CLASS]
        "Usual p95 of the shard's service time over the one of the last seconds; 1 is healthy, 0.3 is trouble.";
    SHARD_ENGAGED "umbo_shard_engaged" Gauge [SHARD, CLASS]
        "1 while that ratio makes what can wait dearer, else 0.";
    QUEUED "umbo_queued_total" Counter [TIER]
        "Requests that had to wait for a slot of a shard.";
    QUEUE_EXPIRED "umbo_queue_expired_total" Counter [TIER]
        "Those of them whose deadline passed before they had one.";
    SHED "umbo_shed_total" Counter [TIER, SIGNAL]
        "Parts of requests shed because of a shard; one that concerned several can count at each.";
    OVERLOAD_ENGAGEMENTS "umbo_overload_engagements_total" Counter []
        "Overloads that a latency ratio has told of.";
    RUNTIME_LAG "umbo_runtime_lag_seconds" Gauge []
        "By how much tasks of the server run late.";
    REFUSED "umbo_refused_total" Counter [CODE, KIND]
        "Requests answered with a problem: refused as they are, rejected, shed, or failed.";
    STREAMS_ABORTED "umbo_streams_aborted_total" Counter []
        "Streamed answers that ended before their end line.";
    CONNECTIONS "umbo_connections" Gauge []
        "Open connections of clients.";
    CONNECTIONS_ACCEPTED "umbo_connections_accepted_total" Counter []
        "Connections accepted.";
    TLS_HANDSHAKES_FAILED "umbo_tls_handshakes_failed_total" Counter []
        "Connections that ended in their TLS handshake.";
    SHARD_AVAILABLE "umbo_shard_available" Gauge [SHARD]
        "1 while the shard serves reads and writes, else 0.";
    SHARD_REQUESTS "umbo_shard_requests_total" Counter [SHARD]
        "Requests that concerned the shard; one that concerned several counts at each.";
    SHARD_ROWS "umbo_shard_rows" Gauge [SHARD]
        "Rows stored, expired ones that await reclaiming included.";
    SHARD_FILE_BYTES "umbo_shard_file_bytes" Gauge [SHARD]
        "Size of the shard's file.";
    SHARD_QUEUED_MUTATIONS "umbo_shard_queued_mutations" Gauge [SHARD]
        "Mutations waiting for a commit.";
    SHARD_COMMITS "umbo_shard_commits_total" Counter [SHARD]
        "Commits to the disk.";
    SHARD_MUTATIONS "umbo_shard_mutations_total" Counter [SHARD]
        "Mutations committed.";
    SHARD_RECLAIMED_ROWS "umbo_shard_reclaimed_rows_total" Counter [SHARD]
        "Expired rows whose space was reclaimed.";
    SHARD_REQUEST_UNITS "umbo_shard_request_units_total" Counter [SHARD]
        "Request units charged for the shard's part of its requests.";
    PROCESS_CPU "process_cpu_seconds_total" Counter []
        "CPU time spent, user and system.";
    PROCESS_RESIDENT_MEMORY "process_resident_memory_bytes" Gauge []
        "Resident memory.";
    PROCESS_OPEN_FDS "process_open_fds" Gauge []
        "Open file descriptors.";
    PROCESS_MAX_FDS "process_max_fds" Gauge []
        "Most file descriptors the process may open.";
    PROCESS_START_TIME "process_start_time_seconds" Gauge []
        "Start of the process, seconds since the Unix epoch.";
}

// Of a shard node; what stands under `SHARD_` and `PROCESS_` it has too.
metrics! { NODE
    NODE_REQUESTS "umbo_node_requests_total" Counter [REQUEST, OUTCOME]
        "Requests of dispatchers answered, by what was asked and what it came to.";
    NODE_SERVICE_TIME "umbo_node_service_seconds_total" Counter [REQUEST]
        "Time that the node worked on requests.";
    NODE_IN_FLIGHT "umbo_node_requests_in_flight" Gauge []
        "Requests that wait for the store.";
    NODE_REQUEST_MEMORY "umbo_node_request_memory_bytes" Gauge []
        "Bytes of requests that wait for the store.";
    NODE_FRAMES "umbo_node_frames_total" Counter []
        "Messages received; requests over messages is how many come together.";
    NODE_RECEIVED "umbo_node_received_bytes_total" Counter []
        "Bytes of messages received.";
    NODE_SENT_FRAMES "umbo_node_sent_frames_total" Counter []
        "Messages sent.";
    NODE_SENT "umbo_node_sent_bytes_total" Counter []
        "Bytes of messages sent.";
    NODE_STREAMS "umbo_node_streams" Gauge []
        "Open streams of dispatchers.";
    NODE_STREAMS_REFUSED "umbo_node_streams_refused_total" Counter []
        "Streams of peers that meant another cluster or node, or speak another version.";
    NODE_STREAMS_BROKEN "umbo_node_streams_broken_total" Counter []
        "Streams that ended because the peer sent what is no message.";
    NODE_MAP_VERSION "umbo_node_map_version" Gauge []
        "Version of the cluster map in effect.";
    NODE_CEILINGS "umbo_node_ceilings" Gauge []
        "Policies of shards that the node keeps for all dispatchers.";
}

// Of a dispatcher in front of shard nodes, beside all others.
metrics! { REMOTE
    REMOTE_NODE_UP "umbo_remote_node_up" Gauge [NODE_NAME]
        "1 while the shard node can be asked, else 0.";
    REMOTE_NODE_MAP_VERSION "umbo_remote_node_map_version" Gauge [NODE_NAME]
        "Version of the cluster map that the shard node goes by.";
    REMOTE_IN_FLIGHT "umbo_remote_requests_in_flight" Gauge [NODE_NAME]
        "Requests that the shard node has been asked and has not answered.";
    REMOTE_REQUESTS "umbo_remote_requests_total" Counter []
        "Requests sent to shard nodes, retries and hedges included.";
    REMOTE_SENT_FRAMES "umbo_remote_sent_frames_total" Counter []
        "Messages that they were sent in; requests over messages is how many go together.";
    REMOTE_FRAMES "umbo_remote_frames_total" Counter []
        "Messages received, with the answers.";
    REMOTE_RETRIES "umbo_remote_retries_total" Counter []
        "Requests sent again after their connection was lost, or to another node.";
    REMOTE_HEDGES "umbo_remote_hedges_total" Counter []
        "Reads sent a second time because they were slow.";
    REMOTE_HEDGES_WON "umbo_remote_hedges_won_total" Counter []
        "Those of them that the second one answered.";
    REMOTE_CONNECTIONS "umbo_remote_connections_total" Counter []
        "Connections to shard nodes that were made.";
    REMOTE_CONNECTIONS_REFUSED "umbo_remote_connections_refused_total" Counter []
        "Connections that could not be made, or that the node refused.";
    REMOTE_CONNECTIONS_LOST "umbo_remote_connections_lost_total" Counter []
        "Connections that were lost or given up.";
}

/// Index of the series of a status: its place in [`STATUSES`], or their number for any other.
pub const fn status_index(status: u16) -> usize {
    if status < 600 {
        INDEX_BY_STATUS[status as usize] as usize
    } else {
        STATUSES.len()
    }
}

// One load instead of a search: statuses are looked up once a request.
static INDEX_BY_STATUS: [u8; 600] = {
    let mut table = [STATUSES.len() as u8; 600];
    let mut index = 0;
    while index < STATUSES.len() {
        table[STATUSES[index] as usize] = index as u8;
        index += 1;
    }
    table
};

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
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert!(name.starts_with("umbo_") || name.starts_with("process_"));
            assert_eq!(
                name.ends_with("_total"),
                metric.kind == MetricKind::Counter,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
            if metric.kind == MetricKind::Histogram {
                assert!(name.ends_with("_seconds") || name.ends_with("_bytes"));
            }
        }
    }

    #[test]
    fn every_status_has_its_index() {
        for status in 0..=u16::MAX {
            match STATUSES.iter().position(|&listed| listed == status) {
                Some(at) => assert_eq!(status_index(status), at),
                None => assert_eq!(status_index(status), STATUSES.len()),
            }
        }
    }
}
