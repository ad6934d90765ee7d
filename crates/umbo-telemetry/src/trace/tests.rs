//! Spans as a collector receives them over OTLP, and the decision to make them.

use std::net::SocketAddr;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span as WireSpan, status::StatusCode};
use tokio::sync::mpsc;
use tonic::transport::server::TcpIncoming;
use umbo_types::{Criticality, Operation, ShardId, Timestamp};

use super::*;

#[derive(Debug)]
struct StoppedClock(Instant);

impl Clock for StoppedClock {
    fn wall(&self) -> Timestamp {
        Timestamp(1_790_000_000_000_000)
    }

    fn monotonic(&self) -> Instant {
        self.0
    }
}

#[derive(Debug)]
struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let _ = self.0.send(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

fn collector() -> (
    SocketAddr,
    mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Collector(sender)))
        .serve_with_incoming(incoming);
    tokio::spawn(server);
    (address, receiver)
}

fn tracer(address: SocketAddr, sample_ratio: f64, clock: StoppedClock) -> Arc<Tracer> {
    let settings = TraceSettings {
        otlp_endpoint: Some(format!("http://{address}")),
        sample_ratio,
        slow: Duration::from_millis(500),
        resource: OtlpResource::new("1.2.3", None),
        seed: 7,
    };
    Arc::new(Tracer::from_settings(&settings, Arc::new(clock)).unwrap())
}

fn summary(status: u16) -> Summary<'static> {
    Summary {
        criticality: None,
        operation: Operation::Put,
        status,
        namespace: Some("geo"),
        shard: Some(ShardId(3)),
        caller: None,
        code: (status >= 400).then_some("storage-full"),
        request_id: "r-1",
        response_bytes: 12,
    }
}

/// Flushes the tracer and returns all spans that reached the collector.
async fn spans_of(
    tracer: Arc<Tracer>,
    mut received: mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
) -> Vec<WireSpan> {
    tokio::task::spawn_blocking(move || tracer.shutdown(Duration::from_secs(10)))
        .await
        .unwrap();
    received.close();
    let mut spans = Vec::new();
    while let Some(request) = received.recv().await {
        for resource in request.resource_spans {
            let about = resource.resource.unwrap().attributes;
            assert!(about.iter().any(|pair| pair.key == "service.version"));
            spans.extend(
                resource
                    .scope_spans
                    .into_iter()
                    .flat_map(|scope| scope.spans),
            );
        }
    }
    spans
}

const INCOMING: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

#[tokio::test(flavor = "multi_thread")]
async fn a_sampled_request_arrives_as_a_span_with_a_child_for_each_phase() {
    let (address, received) = collector();
    let end = Instant::now();
    let start = end.checked_sub(Duration::from_millis(10)).unwrap();
    let at = |millis| start + Duration::from_millis(millis);
    let tracer = tracer(address, 0.0, StoppedClock(end));
    let mut trace = tracer.begin(Some(INCOMING), start).unwrap();
    let outgoing = trace.traceparent();
    trace.phase(Phase::Classify, at(1));
    trace.phase(Phase::Fetch, at(3));
    trace.phase(Phase::Encode, at(9));
    tracer.finish(trace, &summary(507), start, end);
    let spans = spans_of(tracer, received).await;

    let root = spans.iter().find(|span| span.name == "put").unwrap();
    assert_eq!(root.trace_id, &outgoing.trace_id[..]);
    assert_eq!(root.span_id, &outgoing.parent_id[..]);
    assert_eq!(
        root.parent_span_id,
        [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]
    );
    let end_nanos = 1_790_000_000_000_000_000;
    assert_eq!(root.end_time_unix_nano, end_nanos);
    assert_eq!(root.start_time_unix_nano, end_nanos - 10_000_000);
    assert_eq!(root.status.as_ref().unwrap().code, StatusCode::Error as i32);
    let text = |key: &str| {
        let pair = root.attributes.iter().find(|pair| pair.key == key)?;
        match pair.value.clone()?.value? {
            Value::StringValue(text) => Some(text),
            Value::IntValue(number) => Some(number.to_string()),
            _ => None,
        }
    };
    assert_eq!(text("umbo.namespace").as_deref(), Some("geo"));
    assert_eq!(text("umbo.shard").as_deref(), Some("3"));
    assert_eq!(text("error.type").as_deref(), Some("storage-full"));
    assert_eq!(text("umbo.caller"), None);

    let children: Vec<_> = spans
        .iter()
        .filter(|span| span.parent_span_id == root.span_id)
        .map(|span| {
            assert_eq!(span.trace_id, root.trace_id);
            let millis = |nanos| (nanos - root.start_time_unix_nano) / 1_000_000;
            let began = millis(span.start_time_unix_nano);
            (span.name.as_str(), began, millis(span.end_time_unix_nano))
        })
        .collect();
    let expected = [
        ("decode", 0, 1),
        ("classify", 1, 3),
        ("fetch", 3, 9),
        ("encode", 9, 10),
    ];
    assert_eq!(children, expected);
    assert_eq!(spans.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_did_stands_below_the_span_of_its_dispatcher() {
    let (address, received) = collector();
    let end = Instant::now();
    let start = end.checked_sub(Duration::from_millis(3)).unwrap();
    let tracer = tracer(address, 1.0, StoppedClock(end));
    assert_eq!(tracer.parent(UNSAMPLED), None);
    assert_eq!(tracer.parent(b"nonsense"), None);
    let parent = tracer.parent(INCOMING).unwrap();
    let mut summary = NodeSummary {
        node: "a",
        request: "range",
        outcome: "done",
        is_failed: false,
        shard: Some(ShardId(2)),
        caller: None,
        criticality: Criticality::Sheddable,
        service_time: Duration::from_micros(1_500),
        rows: 7,
        bytes: 70,
    };
    tracer.at_node(&parent, &summary, start, end);
    (summary.outcome, summary.is_failed, summary.shard) = ("failed", true, None);
    tracer.at_node(&parent, &summary, start, end);
    let spans = spans_of(tracer, received).await;
    let [good, bad] = &spans[..] else {
        panic!("{spans:?}")
    };
    for span in [good, bad] {
        assert_eq!(span.name, "node range");
        assert_eq!(span.trace_id, parent.trace_id);
        assert_eq!(span.parent_span_id, parent.parent_id);
        assert_eq!(
            span.end_time_unix_nano - span.start_time_unix_nano,
            3_000_000
        );
    }
    assert_ne!(good.span_id, bad.span_id);
    let number = |span: &WireSpan, key: &str| {
        let mut pairs = span.attributes.iter();
        let pair = pairs.find(|pair| pair.key == key)?;
        match pair.value.clone()?.value? {
            Value::IntValue(number) => Some(number),
            _ => None,
        }
    };
    assert_eq!(number(good, "umbo.service_time_us"), Some(1_500));
    assert_eq!(number(good, "umbo.shard"), Some(2));
    assert_eq!(number(bad, "umbo.shard"), None);
    let code = |span: &WireSpan| span.status.as_ref().map(|status| status.code);
    assert_eq!(code(bad), Some(StatusCode::Error as i32));
    assert_ne!(code(good), Some(StatusCode::Error as i32));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_failed_requests_get_one_span_though_nobody_sampled_them() {
    let (address, received) = collector();
    let end = Instant::now();
    let before = |millis| end.checked_sub(Duration::from_millis(millis)).unwrap();
    let tracer = tracer(address, 0.0, StoppedClock(end));
    assert!(tracer.begin(None, end).is_none());
    assert!(tracer.begin(Some(UNSAMPLED), end).is_none());
    tracer.late(None, &summary(204), before(499), end);
    tracer.late(None, &summary(429), before(1), end);
    tracer.late(Some(UNSAMPLED), &summary(204), before(500), end);
    tracer.late(None, &summary(500), before(1), end);
    let spans = spans_of(tracer, received).await;
    let said: Vec<_> = spans
        .iter()
        .map(|span| (span.name.as_str(), span.parent_span_id.is_empty()))
        .collect();
    assert_eq!(said, [("put", false), ("put", true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ratio_decides_where_no_caller_did() {
    let (address, _received) = collector();
    let now = Instant::now();
    for (ratio, expected) in [(0.0, 0..=0), (1.0, 10_000..=10_000), (0.1, 800..=1_200)] {
        let tracer = tracer(address, ratio, StoppedClock(now));
        let sampled = (0..10_000)
            .filter(|_| tracer.begin(None, now).is_some())
            .count();
        assert!(expected.contains(&sampled), "{ratio}: {sampled}");
        assert!(tracer.begin(Some(UNSAMPLED), now).is_none());
        assert!(tracer.begin(Some(INCOMING), now).is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_are_bounded() {
    let (address, received) = collector();
    let now = Instant::now();
    let tracer = tracer(address, 1.0, StoppedClock(now));
    let mut trace = tracer.begin(None, now).unwrap();
    for _ in 0..1_000 {
        trace.phase(Phase::Fetch, now);
    }
    tracer.finish(trace, &summary(200), now, now);
    assert_eq!(spans_of(tracer, received).await.len(), MARKS_MAX + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_costs_spans_and_nothing_else() {
    // Bound and dropped: no process listens there.
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let now = Instant::now();
    let tracer = tracer(address, 1.0, StoppedClock(now));
    for _ in 0..20_000 {
        let trace = tracer.begin(None, now).unwrap();
        tracer.finish(trace, &summary(200), now, now);
    }
    tokio::task::spawn_blocking(move || tracer.shutdown(Duration::from_millis(100)))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_refused_with_its_name() {
    let settings = TraceSettings {
        otlp_endpoint: Some("not an address".into()),
        ..TraceSettings::default()
    };
    let clock = Arc::new(StoppedClock(Instant::now()));
    let error = Tracer::from_settings(&settings, clock).unwrap_err();
    assert!(error.to_string().contains("'not an address'"), "{error}");
}

#[test]
fn without_an_endpoint_nothing_is_traced() {
    let now = Instant::now();
    let tracer = Tracer::disabled(Arc::new(StoppedClock(now)));
    assert!(tracer.begin(Some(INCOMING), now).is_none());
    tracer.late(None, &summary(500), now, now);
    tracer.shutdown(Duration::ZERO);
}

#[test]
fn ratios_outside_their_bounds_count_as_the_nearer_bound() {
    assert_eq!(threshold(-1.0), 0);
    assert_eq!(threshold(f64::NAN), 0);
    assert_eq!(threshold(1.0), 1 << 64);
    assert_eq!(threshold(7.5), 1 << 64);
    assert_eq!(threshold(0.5), 1 << 63);
}

#[test]
fn phases_have_names_of_their_own() {
    let mut names: Vec<_> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10);
}
