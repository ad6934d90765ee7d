//! Answers of a node, in terms of the store contract.

use std::sync::Arc;
use std::time::Duration;

use umbo_store::{Deleted, Page, RecordsCopy, ScanPage, ShardStatus, WriteError, Written};
use umbo_types::{Row, ShardId, Timestamp};

use crate::error::NodeError;

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Id of the request.
    pub id: u64,
    /// Service time of the node, from the arrival of the request.
    pub service_time: Duration,
    /// Share of the service time that the request is charged for. In a commit of several writes it is the share of this
    /// write.
    pub busy_time: Duration,
    /// Whether more parts of the same answer follow. Nodes sent the rows of a multi-get in parts before
    /// [`ProtocolVersion::WHOLE_ANSWERS`](crate::ProtocolVersion::WHOLE_ANSWERS). This build sends no parts, and
    /// refuses them.
    pub has_more: bool,
    /// Rows touched. For a get or multi-get, absent rows count too.
    pub rows: u64,
    /// Bytes of keys and values touched, returned or not.
    pub bytes: u64,
    /// The outcome.
    pub outcome: Outcome,
}

impl Answer {
    /// Makes an answer to a request that touched no rows.
    pub const fn without_rows(id: u64, service_time: Duration, outcome: Outcome) -> Self {
        Self {
            id,
            service_time,
            busy_time: service_time,
            has_more: false,
            rows: 0,
            bytes: 0,
            outcome,
        }
    }
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The requested row, or `None` if it is absent.
    Row(Option<Row>),
    /// Rows of a multi-get, in order. There may be fewer than keys.
    MultiGot(Vec<AnswerPart>),
    /// A chunk of a range. Its touched rows and bytes are sent as [`Answer::rows`] and [`Answer::bytes`].
    Page(Page),
    /// A chunk of a scan; likewise.
    Scanned(ScanPage),
    /// The result of each mutation.
    Written(Vec<WriteAnswer>),
    /// The result of a step of a removal.
    Deleted(Deleted),
    /// The status of the node.
    Status(StatusOfNode),
    /// The map of the cluster, as text.
    ClusterMap(String),
    /// For each shard of the node, whether the fences of the copy are on its disk.
    RecordsKept(Vec<ShardResult>),
    /// The newest copy of Umbo's own records that the node keeps, or `None` if it never received one.
    KeptRecords(Option<Arc<RecordsCopy>>),
    /// The whole request failed.
    Failed(NodeError),
}

/// Report of a node about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusOfNode {
    /// Version of its map.
    pub map_version: u64,
    /// Its time of day, or `None` from a node that does not tell it.
    pub wall: Option<Timestamp>,
    /// Its shards.
    pub shards: Vec<ShardStatus>,
}

/// One row of a multi-get.
pub type AnswerPart = Result<Option<Row>, NodeError>;

/// One mutation of a write. `WriteError::Store` is never used here; it is the outer error.
pub type WriteAnswer = Result<Result<Written, WriteError>, NodeError>;

/// Result of raising the fences of a copy in one shard.
pub type ShardResult = (ShardId, Result<(), NodeError>);
