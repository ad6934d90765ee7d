//! Seeing what a process of Umbo does: logs, counters and spans.
//!
//! Owns the set-up of `tracing`, the hot-path counters with their Prometheus text, and the spans
//! of sampled, slow and failed requests that go out over OTLP. Knows no Umbo crate but the
//! vocabulary, and no HTTP: whoever serves decides where the text is shown.
//!
//! Start with [`metrics::RequestMetrics`], [`trace::Tracer`] and [`logging::init`].

pub mod logging;
pub mod metric_names;
pub mod metrics;
pub mod trace;
