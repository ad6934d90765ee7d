//! What a node is asked, as the store contract says it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_store::{DeleteRangeRequest, RangeRequest, ScanRequest, WriteRequest};
use umbo_types::{Criticality, Key, Names, NamespaceId, RequestUnits};

/// One request of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Names the request on its stream, so that answers may come in any order.
    pub id: u64,
    /// Time left when it was sent; none for no deadline. It counts from when it arrives, because
    /// two machines share no clock.
    pub timeout: Option<Duration>,
    /// How much it matters.
    pub criticality: Criticality,
    /// On whose behalf; empty for Umbo's own work. UTF-8.
    pub caller: Bytes,
    /// Estimate of what it costs.
    pub price: RequestUnits,
    /// As a `traceparent` header; empty where it is not traced.
    pub traceparent: Bytes,
    /// Whether it goes on with a request that was charged to the shard before.
    pub is_continued: bool,
    /// Whom the caller calls for, where a quota counts by them.
    pub names: Option<Arc<Names>>,
    /// What is asked.
    pub ask: Ask,
}

/// One request, of what its sender has.
#[derive(Debug, Clone, Copy)]
pub struct RequestRef<'a> {
    /// As in [`Request`].
    pub id: u64,
    /// As in [`Request`].
    pub timeout: Option<Duration>,
    /// As in [`Request`].
    pub criticality: Criticality,
    /// As in [`Request`].
    pub caller: &'a [u8],
    /// As in [`Request`].
    pub price: RequestUnits,
    /// As in [`Request`].
    pub traceparent: &'a [u8],
    /// As in [`Request`].
    pub is_continued: bool,
    /// As in [`Request`].
    pub names: Option<&'a Names>,
    /// As in [`Request`].
    pub ask: &'a Ask,
}

impl RequestRef<'_> {
    /// Says whether it brings what hardly any request does.
    pub(crate) const fn is_rare(&self) -> bool {
        self.is_continued || self.names.is_some()
    }
}

impl<'a> From<&'a Request> for RequestRef<'a> {
    fn from(request: &'a Request) -> Self {
        Self {
            id: request.id,
            timeout: request.timeout,
            criticality: request.criticality,
            caller: &request.caller,
            price: request.price,
            traceparent: &request.traceparent,
            is_continued: request.is_continued,
            names: request.names.as_deref(),
            ask: &request.ask,
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// One row.
    Get(NamespaceId, Key),
    /// Rows of any shards of the node.
    MultiGet(NamespaceId, Vec<Key>),
    /// One chunk of a range.
    Range(RangeRequest),
    /// One chunk of the rows that one shard has of a namespace; `shard` is not none.
    Scan(ScanRequest),
    /// Mutations of any shards of the node.
    Write(WriteRequest),
    /// One step of the removal of a range.
    DeleteRange(DeleteRangeRequest),
    /// One step of the purge of a namespace from all shards of the node: namespace and most rows.
    Purge(NamespaceId, u32),
    /// Nobody waits for the answer to the request of this id any more. Has no answer.
    Cancel(u64),
    /// The state of the node and of its shards.
    Probe,
    /// The map of the cluster that the node goes by.
    ClusterMap,
}
