//! What a node answers, as the store contract says it.

use std::time::Duration;

use umbo_store::{Deleted, Page, PurgeProgress, ScanPage, ShardStatus, WriteError, Written};
use umbo_types::Row;

use crate::error::NodeError;

/// One answer of a frame, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Id of the request.
    pub id: u64,
    /// How long the node worked on it, from the arrival of the request; of the last part, all of it.
    pub service_time: Duration,
    /// Whether more parts of the same answer follow.
    pub has_more: bool,
    /// Rows touched.
    pub rows: u64,
    /// Bytes of keys and values touched.
    pub bytes: u64,
    /// What it came to.
    pub outcome: Outcome,
}

/// What a request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The row that was asked for; none where there is none.
    Row(Option<Row>),
    /// Rows of a multi-get, in order, or those of them that fit into one part.
    MultiGot(Vec<AnswerPart>),
    /// A chunk of a range.
    Page(Page),
    /// A chunk of a scan.
    Scanned(ScanPage),
    /// Of each mutation.
    Written(Vec<WriteAnswer>),
    /// A step of a removal.
    Deleted(Deleted),
    /// A step of a purge.
    Purged(PurgeProgress),
    /// State of the node: the version of its map and its shards.
    Status(u64, Vec<ShardStatus>),
    /// The map of the cluster, as text.
    ClusterMap(String),
    /// All of it failed.
    Failed(NodeError),
}

/// One row of a multi-get.
pub type AnswerPart = Result<Option<Row>, NodeError>;

/// One mutation of a write. `WriteError::Store` is never used here; it is the outer error.
pub type WriteAnswer = Result<Result<Written, WriteError>, NodeError>;
