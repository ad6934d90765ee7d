//! Requests to a node, in terms of the store contract.

use std::sync::Arc;

use bytes::Bytes;
use umbo_store::{
    BackupRequest, ChunkRequest, DeleteRangeRequest, RangeRequest, RecordsCopy, ScanRequest,
    WriteRequest,
};
use umbo_types::{Criticality, Key, NamespaceId, RequestUnits, ShardId};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Identifies the request on its connection, so that answers may come in any order. Never reused.
    pub id: u64,
    /// Deadline on the clock of the node ([`crate::NodeStamp`]): the node begins no work for the request after it.
    /// `None` for no deadline.
    pub deadline_ns: Option<u64>,
    /// Criticality of the request.
    pub criticality: Criticality,
    /// The caller of a traced request, for its span; empty for others. UTF-8. Dispatchers of earlier releases name the
    /// callers of all requests.
    pub caller: Bytes,
    /// Estimated cost of the request.
    pub price: RequestUnits,
    /// Trace context as a `traceparent` header; empty if the request is not traced.
    pub traceparent: Bytes,
    /// The namespace that the dispatcher used to place the dataset of the operation: its partitions have the slots of
    /// that namespace. `None` from a dispatcher of a version without this field, and for operations without a dataset.
    pub placed_as: Option<NamespaceId>,
    /// The operation.
    pub ask: Ask,
}

/// One request, borrowed from its sender.
#[derive(Debug, Clone, Copy)]
pub struct RequestRef<'a> {
    /// As in [`Request`].
    pub id: u64,
    /// As in [`Request`].
    pub deadline_ns: Option<u64>,
    /// As in [`Request`].
    pub criticality: Criticality,
    /// As in [`Request`].
    pub caller: &'a [u8],
    /// As in [`Request`].
    pub price: RequestUnits,
    /// As in [`Request`].
    pub traceparent: &'a [u8],
    /// As in [`Request`].
    pub placed_as: Option<NamespaceId>,
    /// As in [`Request`].
    pub ask: &'a Ask,
}

impl<'a> From<&'a Request> for RequestRef<'a> {
    fn from(request: &'a Request) -> Self {
        Self {
            id: request.id,
            deadline_ns: request.deadline_ns,
            criticality: request.criticality,
            caller: &request.caller,
            price: request.price,
            traceparent: &request.traceparent,
            placed_as: request.placed_as,
            ask: &request.ask,
        }
    }
}

/// The operation of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// One row.
    Get(NamespaceId, Key),
    /// Read a chunk of a large value of the row of this key. The answer is a row whose value is the chunk.
    Chunk(Key, Box<ChunkRequest>),
    /// Read a piece of a backup of a shard. The answer is a row whose value is the piece, or no row beyond the end.
    Backup(BackupRequest),
    /// Rows of one shard.
    MultiGet(NamespaceId, Vec<Key>),
    /// One chunk of a range.
    Range(RangeRequest),
    /// One chunk of the rows that a shard has of a namespace.
    Scan(ShardId, ScanRequest),
    /// Mutations of one shard.
    Write(WriteRequest),
    /// One step of the removal of a range.
    DeleteRange(DeleteRangeRequest),
    /// The status of the node and of its shards.
    Probe,
    /// The map of the cluster that the node uses.
    ClusterMap,
    /// Keep this copy of Umbo's own records, and raise its fences in every shard of the node.
    KeepRecords(Arc<RecordsCopy>),
    /// The newest copy of Umbo's own records that the node keeps.
    KeptRecords,
    /// Mail of a dispatcher of an earlier release, without its content. A node refuses it.
    Mail,
}

impl Ask {
    /// Returns the dataset whose rows the operation reads or writes, or `None` if it touches no rows.
    pub fn dataset(&self) -> Option<NamespaceId> {
        match self {
            Self::Get(dataset, _) | Self::MultiGet(dataset, _) => Some(*dataset),
            Self::Chunk(_, request) => Some(request.namespace),
            Self::Range(request) => Some(request.namespace),
            Self::Scan(_, request) => Some(request.namespace),
            Self::Write(request) => Some(request.namespace),
            Self::DeleteRange(request) => Some(request.namespace),
            Self::Backup(_)
            | Self::Probe
            | Self::ClusterMap
            | Self::KeepRecords(_)
            | Self::KeptRecords
            | Self::Mail => None,
        }
    }
}
