//! The attributes of a request's span. Never a key or a value: namespace and shard are the only parts of the
//! customer's data.

use opentelemetry::KeyValue;
use umbo_types::{Criticality, Operation, ShardId};

/// A request as its span describes it.
#[derive(Debug, Clone, Copy)]
pub struct Summary<'a> {
    /// The operation.
    pub operation: Operation,
    /// HTTP status of the answer.
    pub status: u16,
    /// Namespace, if the request was decoded far enough.
    pub namespace: Option<&'a str>,
    /// Shard, if there was exactly one.
    pub shard: Option<ShardId>,
    /// Caller, once known.
    pub caller: Option<&'a str>,
    /// Tier in effect, once known.
    pub criticality: Option<Criticality>,
    /// Error code of the answer's problem.
    pub code: Option<&'static str>,
    /// Request id, which the log and the caller have too.
    pub request_id: &'a str,
    /// Bytes of the answer's body.
    pub response_bytes: u64,
}

impl Summary<'_> {
    pub(super) fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![
            KeyValue::new("umbo.operation", self.operation.as_str()),
            KeyValue::new("http.response.status_code", i64::from(self.status)),
            KeyValue::new("umbo.request.id", self.request_id.to_owned()),
            KeyValue::new(
                "http.response.body.size",
                i64::try_from(self.response_bytes).unwrap_or(i64::MAX),
            ),
        ];
        let texts = [
            ("umbo.namespace", self.namespace),
            ("umbo.caller", self.caller),
            (
                "umbo.criticality",
                self.criticality.map(Criticality::as_str),
            ),
            ("error.type", self.code),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| KeyValue::new(name, value.to_owned())));
        attributes.extend(texts);
        attributes.extend(
            self.shard
                .map(|shard| KeyValue::new("umbo.shard", i64::from(shard.0))),
        );
        attributes
    }
}
