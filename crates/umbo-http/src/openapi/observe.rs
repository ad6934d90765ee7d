//! The admin API of the history, the heat map and events in the `OpenAPI` document.

use serde_json::{Value, json};
use umbo_api::ErrorCode;
use umbo_api::observe::SERIES_NAMES;

use super::admin::{ADMIN, GET, word};
use super::operation::{ApiOperation, In, Parameter, answer};

const RANGE: Parameter = Parameter {
    name: "range",
    place: In::Query,
    schema: || json!({"type": "string", "enum": ["5m", "1h", "24h", "30d"], "default": "1h"}),
    about: "How far back: five minutes by second, an hour by ten seconds, a day by two minutes, thirty days by the \
            hour.",
};
fn series() -> Value {
    let names = SERIES_NAMES.join("|");
    json!({"type": "string", "pattern": format!("^({names})(,({names}))*$")})
}

const SERIES: Parameter = Parameter {
    name: "series",
    place: In::Query,
    schema: series,
    about: "Names of series, separated by commas; all where it is absent.",
};
const SINCE_MS: Parameter = Parameter {
    name: "since_ms",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991_u64, "default": 0}),
    about: "Only steps from the one on that holds this time, in milliseconds since the Unix epoch: for readers that \
            have the others.",
};
const ROW: Parameter = Parameter {
    name: "row",
    place: In::Path,
    schema: word,
    about: "The row, as the heat map names it.",
};

/// The past time whose busy time is shown.
pub(super) const AT: Parameter = Parameter {
    name: "at",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991_u64}),
    about: "The time that is looked at, in milliseconds since the Unix epoch; now where it is absent. What happened \
            longer ago is kept in longer steps: seconds for five minutes, ten seconds for an hour, two minutes for a \
            day, an hour for thirty days.",
};

const SINCE: Parameter = Parameter {
    name: "since",
    place: In::Query,
    schema: || json!({"type": "string", "pattern": "^(0|[0-9]+-[0-9]+)$", "default": "0"}),
    about: "Only events after this place: the `next` of an earlier answer. Another server continues with all changes \
            that follow, and with what has happened to it since.",
};
const WAIT: Parameter = Parameter {
    name: "wait",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 0, "maximum": 25, "default": 0}),
    about: "How many seconds to wait for an event where there is none after `since`.",
};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/admin/v1/history",
        id: "showHistory",
        summary: "Show how series went",
        about: "Of the server that answers. Seconds are kept for ten minutes, steps of ten seconds for a day, steps \
                of ten minutes for thirty days, of at most 512 series. In steps of over ten seconds a quantile is the \
                highest of the steps within; every other value is their mean. Names: `served`, `rejected`, `shed`, \
                `failed`, `latency_p50_ms`, `_p99_ms`, `_p999_ms` by operation; the first four with `_by_tier`, \
                `penalty` by tier; `ru`, `hot_hits`, \
                `hot_collapsed`, `in_flight`, `connections`, `cpu`, `memory_bytes`; `policy_rejected`, \
                `policy_would_reject`, `policy_utilisation` by policy; `node_up` by shard node; `caller_ru`, \
                `caller_requests`, `caller_rejected`, `caller_bytes` of the 20 callers that use most; \
                `shard_ru`, `shard_requests`, `shard_rows`, `shard_file_bytes`, `shard_live_bytes`, `shard_commits`, \
                `shard_queued`, `shard_expired_rows`, `latency_ratio`, `pressure`, `queue_delay_ms`, `queue_length` \
                by shard.",
        parameters: &[&RANGE, &SERIES, &SINCE_MS],
        answers: &[answer(200, "The series.", "HistoryReport")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/heat",
        id: "showHeat",
        summary: "Show the heat map",
        about: "Request units a second of each place over time, from the history of the server that answers.",
        parameters: &[&RANGE],
        answers: &[answer(200, "The places.", "HeatReport")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/heat/{row}",
        id: "describeHeatRow",
        summary: "Show who is behind a row of the heat map",
        about: "Whose work keeps the shard busy: callers, operations and partitions, of requests to the server that \
                answers since its start; and its hot keys and their callers at this moment. With `at`, the step of \
                the map over `range` that holds this time, without hot keys.",
        parameters: &[&ROW, &RANGE, &AT],
        answers: &[answer(200, "The place.", "HeatRowReport")],
        errors: &[ADMIN, &[ErrorCode::RouteNotFound]],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/events",
        id: "listEvents",
        summary: "List what was changed and what happened",
        about: "Oldest first. Changes by operators are kept with Umbo's own records, so that every server shows them: \
                the last 500, and 500 of loads and versions, 64 of a namespace. What happened \
                is of this server: its last 1,000.",
        parameters: &[&SINCE, &WAIT],
        answers: &[answer(200, "The events.", "EventList")],
        ..GET
    },
];
