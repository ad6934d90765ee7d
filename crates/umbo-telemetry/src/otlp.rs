//! What spans and metrics of a process have in common when they leave over OTLP: the resource, and time-outs.

use std::time::Duration;

use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

/// Longest wait for the collector's answer.
pub(crate) const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

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
}
