//! The export over OTLP of spans, logs and metrics: the resource, the timeout, and how failures are logged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

/// Longest wait for the collector's answer.
pub(crate) const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most spans, or lines of the log, in the queue of their export, some 4 MiB; more are dropped.
pub(crate) const QUEUE_MAX: usize = 8_192;
/// Most of them in one message.
pub(crate) const BATCH_MAX: usize = 512;
/// Longest wait for a message to fill.
pub(crate) const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Timeout for the last export of a process that stops, each of spans, log and metrics.
pub const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// Shortest interval between two log lines about failing exports.
const COMPLAINT_INTERVAL: Duration = Duration::from_mins(1);

/// The address of the collector is not valid.
#[derive(Debug, thiserror::Error)]
#[error("nothing can be sent to '{endpoint}' (expected like http://127.0.0.1:4317)")]
pub struct ExporterError {
    /// The address as configured.
    pub endpoint: String,
    /// The error.
    source: ExporterBuildError,
}

impl ExporterError {
    pub(crate) fn new(endpoint: &str, source: ExporterBuildError) -> Self {
        let endpoint = endpoint.to_owned();
        Self { endpoint, source }
    }
}

/// A process as its collector sees it: the attributes of its resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpResource {
    /// Version of the program.
    version: String,
    /// Random id of the process: a collector keeps processes apart by it.
    instance: String,
    /// Name of the shard node, if it is one.
    node: Option<String>,
}

impl OtlpResource {
    /// Makes the resource of a process with a new random id.
    pub fn new(version: impl Into<String>, node: Option<String>) -> Self {
        let random = RandomIdGenerator::default().new_trace_id();
        Self {
            version: version.into(),
            instance: random.to_string(),
            node,
        }
    }

    /// Returns the attributes: names of the semantic conventions, and the name of the node.
    pub(crate) fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = vec![
            ("service.name", "umbo".to_owned()),
            ("service.version", self.version.clone()),
            ("service.instance.id", self.instance.clone()),
        ];
        let node = self.node.iter();
        attributes.extend(node.map(|name| ("umbo.node", name.clone())));
        attributes
    }

    /// Returns the resource for exporters of the SDK.
    pub(crate) fn sdk(&self) -> Resource {
        let attributes = self.attributes().into_iter();
        let attributes = attributes.map(|(name, value)| KeyValue::new(name, value));
        Resource::builder_empty()
            .with_attributes(attributes)
            .build()
    }
}

/// An exporter whose failures are logged at most once a minute.
#[derive(Debug)]
pub(crate) struct Quiet<E> {
    pub(crate) inner: E,
    complaints: Complaints,
}

impl<E> Quiet<E> {
    pub(crate) fn new(inner: E) -> Self {
        Self {
            inner,
            complaints: Complaints::default(),
        }
    }

    /// Judges the export of a message with this many spans or lines. If a failure is due to be logged, returns it and
    /// the number of all that were lost since the last one.
    pub(crate) fn failure(
        &self,
        exported: OTelSdkResult,
        count: u64,
    ) -> Option<(OTelSdkError, u64)> {
        let error = exported.err()?;
        let lost = self.complaints.add(count, Instant::now())?;
        Some((error, lost))
    }
}

/// Adds up losses between two log lines.
#[derive(Debug, Default)]
struct Complaints {
    lost: AtomicU64,
    last: Mutex<Option<Instant>>,
}

impl Complaints {
    /// Counts losses; returns all since the last log line if the next one is due.
    fn add(&self, count: u64, now: Instant) -> Option<u64> {
        self.lost.fetch_add(count, Relaxed);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| now.duration_since(at) >= COMPLAINT_INTERVAL);
        is_due.then(|| {
            *last = Some(now);
            self.lost.swap(0, Relaxed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_once_a_minute_with_all_that_was_lost() {
        let (complaints, start) = (Complaints::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(complaints.add(3, at(0)), Some(3));
        assert_eq!(complaints.add(4, at(1)), None);
        assert_eq!(complaints.add(5, at(59)), None);
        assert_eq!(complaints.add(6, at(60)), Some(15));
        assert_eq!(complaints.add(7, at(61)), None);
    }
}
