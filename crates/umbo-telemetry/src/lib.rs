//! Observability of a process of Umbo: logs, counters and their history, spans.
//!
//! Owns the set-up of `tracing`; the table of metrics with the hot-path counters, their Prometheus text and their
//! **history** at three resolutions, in memory of a fixed bound and in files; and the spans of sampled, slow and
//! failed requests. Spans, metrics and the log are exported over OTLP. Depends on no Umbo crate but the vocabulary
//! and the reports of stores, and not on HTTP: the server decides where the text is served.
//!
//! Start with [`metric_names`], [`metrics::RequestMetrics`], [`history::History`], [`trace::Tracer`] and
//! [`logging::init`].

pub mod history;
mod history_files;
mod log_export;
pub mod logging;
pub mod metric;
pub mod metric_names;
pub mod metrics;
pub mod metrics_export;
pub mod otlp;
pub mod recorder;
pub mod series;
pub mod trace;
