//! Counters against an exact reference, and the golden text of a scrape.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use umbo_store::{DiskSpace, NamespaceSize, ShardState, ShardStatus};
use umbo_types::{NamespaceId, ShardId};

use super::*;

const CODES: [Code; 2] = [
    Code {
        name: "invalid-key",
        kind: "refused",
    },
    Code {
        name: "shutting-down",
        kind: "failed",
    },
];

fn text_of<'a>(text: &'a str, series: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

fn value_of(text: &str, series: &str) -> Option<u64> {
    text_of(text, series).map(|value| value.parse().unwrap())
}

/// Parses exact decimal seconds as nanoseconds.
fn nanos_of(text: &str, series: &str) -> Option<u64> {
    let (whole, part) = match text_of(text, series)?.split_once('.') {
        Some(parts) => parts,
        None => (text_of(text, series)?, ""),
    };
    Some(format!("{whole}{part:0<9}").parse().unwrap())
}

#[derive(Debug, Clone)]
struct Request {
    operation: Operation,
    status: u16,
    nanos: u64,
    bytes_in: u64,
    bytes_out: u64,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (
        0..Operation::ALL.len(),
        prop_oneof![Just(200_u16), Just(404), Just(503), Just(999), any::<u16>()],
        0_u64..40_000_000_000,
        0_u64..1_000_000,
        0_u64..1_000_000,
    );
    let one = one.prop_map(|(at, status, nanos, bytes_in, bytes_out)| Request {
        operation: Operation::ALL[at],
        status,
        nanos,
        bytes_in,
        bytes_out,
    });
    prop::collection::vec(one, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At most three of the five threads own a slot, so both kinds of slot are exercised.
    #[test]
    fn nothing_is_lost_when_many_threads_record(requests in requests(), slots in 0_usize..4) {
        let metrics = RequestMetrics::new(CODES, slots);
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for request in &requests {
                        metrics.begin_request(request.operation);
                        let elapsed = Duration::from_nanos(request.nanos);
                        metrics.record(
                            request.operation,
                            request.status,
                            elapsed,
                            request.bytes_in,
                            request.bytes_out,
                        );
                        metrics.end_request(request.operation);
                        metrics.record_store(request.operation, elapsed);
                        metrics.record_refused(request.nanos as usize % 3);
                        let charged = RequestUnits::from_micros(request.bytes_in);
                        metrics.record_admitted(request.operation, charged);
                        metrics.record_rejected(request.operation);
                        metrics.record_repeated(request.operation);
                    }
                });
            }
        });
        let text = scrape(&metrics);
        let mut exact: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |series: String, n: u64| *exact.entry(series).or_default() += 5 * n;
        for request in &requests {
            let name = request.operation.as_str();
            let status = match status_index(request.status) {
                23 => "other".to_owned(),
                _ => request.status.to_string(),
            };
            add(format!("umbo_requests_total{{operation=\"{name}\",status=\"{status}\"}}"), 1);
            for family in ["request", "store"] {
                add(format!("umbo_{family}_duration_seconds_count{{operation=\"{name}\"}}"), 1);
            }
            add(format!("umbo_request_bytes_total{{operation=\"{name}\"}}"), request.bytes_in);
            add(format!("umbo_response_bytes_total{{operation=\"{name}\"}}"), request.bytes_out);
            add(format!("umbo_requests_in_flight{{operation=\"{name}\"}}"), 0);
            for family in ["admitted", "rejected", "repeated"] {
                add(format!("umbo_requests_{family}_total{{operation=\"{name}\"}}"), 1);
            }
            if let Some(code) = CODES.get(request.nanos as usize % 3) {
                let Code { name, kind } = code;
                add(format!("umbo_refused_total{{code=\"{name}\",kind=\"{kind}\"}}"), 1);
            }
        }
        for (series, count) in exact {
            prop_assert_eq!(value_of(&text, &series), Some(count), "{}", series);
        }
        for operation in Operation::ALL {
            let mine = requests.iter().filter(|request| request.operation == operation);
            let nanos: u64 = mine.clone().map(|request| 5 * request.nanos).sum();
            let label = format!("{{operation=\"{}\"}}", operation.as_str());
            let micros: u64 = mine.clone().map(|request| 5 * request.bytes_in).sum();
            let charged = text_of(&text, &format!("umbo_request_units_total{label}"));
            let exact = RequestUnits::from_micros(micros).to_string();
            prop_assert_eq!(charged, (micros > 0).then_some(&*exact));
            let sum = nanos_of(&text, &format!("umbo_request_duration_seconds_sum{label}"));
            prop_assert_eq!(sum, (mine.count() > 0).then_some(nanos));
        }
    }
}

#[test]
fn in_flight_counts_down_on_another_thread() {
    let metrics = Arc::new(RequestMetrics::new(CODES, 4));
    metrics.begin_request(Operation::Scan);
    metrics.begin_request(Operation::Scan);
    let series = "umbo_requests_in_flight{operation=\"scan\"}";
    assert_eq!(value_of(&scrape(&metrics), series), Some(2));
    let other = Arc::clone(&metrics);
    std::thread::spawn(move || other.end_request(Operation::Scan))
        .join()
        .unwrap();
    assert_eq!(value_of(&scrape(&metrics), series), Some(1));
    metrics.end_request(Operation::Scan);
    assert_eq!(value_of(&scrape(&metrics), series), Some(0));
}

#[test]
fn connections_count_up_and_down() {
    let metrics = RequestMetrics::new(CODES, 1);
    metrics.record_connection_opened();
    metrics.record_connection_opened();
    metrics.record_connection_closed();
    assert_eq!(metrics.connections_open(), 1);
    metrics.record_connection_closed();
    let text = scrape(&metrics);
    assert_eq!(value_of(&text, "umbo_connections"), Some(0));
    assert_eq!(value_of(&text, "umbo_connections_accepted_total"), Some(2));
}

/// A rate over a series that begins with its first event does not see that event.
#[test]
fn refusals_are_counted_from_zero() {
    let metrics = RequestMetrics::new(CODES, 1);
    let before = scrape(&metrics);
    metrics.begin_request(Operation::Put);
    metrics.record(Operation::Put, 429, Duration::from_nanos(1), 0, 0);
    metrics.record_rejected(Operation::Put);
    metrics.record_refused(0);
    let after = scrape(&metrics);
    let refusals = [
        "refused_total",
        "requests_rejected_total",
        "request_outcomes_total",
    ];
    let series = |text: &str| -> Vec<String> {
        let is_refusal = |line: &&str| {
            refusals
                .iter()
                .any(|name| line.starts_with(&format!("umbo_{name}{{")))
        };
        let series = text
            .lines()
            .filter(is_refusal)
            .map(|line| line.rsplit_once(' ').unwrap().0);
        series.map(str::to_owned).collect()
    };
    assert_eq!(series(&before), series(&after));
    for outcome in RequestOutcome::ALL {
        let name = format!("outcome=\"{}\"}} 0", outcome.as_str());
        assert!(before.contains(&name), "{name}");
    }
}

#[test]
fn an_unknown_code_is_counted_nowhere() {
    let metrics = RequestMetrics::new(CODES, 1);
    metrics.record_refused(CODES.len());
    let text = scrape(&metrics);
    let counts: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("umbo_refused_total{"))
        .collect();
    assert_eq!(counts.len(), CODES.len());
    assert!(counts.iter().all(|line| line.ends_with(" 0")), "{counts:?}");
}

const PROCESS: ProcessSample = ProcessSample {
    cpu_seconds: 1.25,
    resident_memory_bytes: 30 << 20,
    open_fds: 12,
    max_fds: 1_024,
    start_time_seconds: 1_790_000_000.5,
};

/// Makes the status of a shard with these commits.
pub(super) fn shard_status(shard: u16, commits: u64) -> ShardStatus {
    ShardStatus {
        rows: 7,
        commits,
        ..ShardStatus::new(ShardId(shard), ShardState::Available)
    }
}

fn scrape(metrics: &RequestMetrics) -> String {
    MetricsText::render(|visitor| metrics.visit(&mut Families::new(visitor)))
}

fn shards() -> [ShardStatus; 2] {
    let size = NamespaceSize {
        namespace: NamespaceId(1),
        rows: 10,
        bytes: 1_024,
        bytes_saved: 0,
    };
    let first = ShardStatus {
        rows: 10,
        file_bytes: 4_096,
        sizes: Some(vec![size]),
        queued: 3,
        syncs: 6,
        sync_nanos: 12_500_000,
        cache_hits: 90,
        cache_misses: 10,
        compactions: 2,
        compaction_nanos: 250_000_000,
        held_nanos: 1_500_000_000,
        mutations: 12,
        reclaimed: 2,
        expired: 5,
        purging: 1,
        ..shard_status(0, 7)
    };
    let away = ShardState::Unavailable("away".to_owned());
    [first, ShardStatus::new(ShardId(1), away)]
}

/// A change of this text changes what operators have built on: dashboards and alerts.
#[test]
fn a_scrape_reads_as_written_down() {
    let metrics = RequestMetrics::new(CODES, 2);
    metrics.begin_request(Operation::Get);
    metrics.record(Operation::Get, 200, Duration::from_micros(20), 0, 256);
    metrics.record(Operation::Get, 404, Duration::from_micros(24), 0, 300);
    metrics.record(Operation::Put, 507, Duration::from_mins(1), 1_000, 300);
    metrics.record(Operation::Put, 418, Duration::ZERO, 1, 2);
    metrics.record_store(Operation::Get, Duration::from_micros(2));
    let tier = Some(Criticality::Critical);
    metrics.record_outcome(Operation::Get, tier, RequestOutcome::Served);
    metrics.record_outcome(Operation::Get, tier, RequestOutcome::Served);
    metrics.record_outcome(Operation::Put, None, RequestOutcome::Refused);
    metrics.record_admitted(Operation::Get, RequestUnits::from_micros(1_112_744));
    metrics.record_admitted(Operation::Get, RequestUnits::from_micros(1_000_000));
    metrics.record_rejected(Operation::Put);
    metrics.record_repeated(Operation::Put);
    metrics.record_refused(1);
    metrics.record_stream_aborted();
    metrics.record_tls_handshake_failed();
    metrics.record_connection_opened();
    let text = MetricsText::render(|visitor| {
        let families = &mut Families::new(visitor);
        metrics.visit(families);
        metrics.visit_namespaces(families, &[("n".into(), [2, 1_500_000, 3, 40, 5])]);
        visit_shards(families, &shards(), &[(ShardId(0), 1)]);
        let (size, free) = (1 << 30, 1 << 29);
        visit_disk(families, DiskSpace { size, free });
        PROCESS.visit(families);
    });
    let golden = include_str!("golden_scrape.txt");
    if text != golden {
        let at = text.lines().zip(golden.lines()).position(|(a, b)| a != b);
        panic!("line {at:?} of the scrape changed:\n{text}");
    }
}
