//! Observability of a process of Umbo: logs, counters and spans.
//!
//! Owns the set-up of `tracing`, the hot-path counters with their Prometheus text and their history, and the spans of sampled,
//! slow and failed requests that are exported over OTLP, as metrics are. Depends on no Umbo crate but the vocabulary and the history, and not
//! on HTTP: the server decides where the text is served.
//!
//! Start with [`metrics::RequestMetrics`], [`trace::Tracer`] and [`logging::init`].

pub mod logging;
pub mod metric_names;
pub mod metrics;
pub mod metrics_export;
pub mod otlp;
pub mod recorder;
pub mod trace;
