//! Settings of the engine that an operator can choose.
//!
//! Owns the settings and their defaults; the binary reads them from a file.

use std::path::PathBuf;
use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_types::ShardId;
use umbo_types::limits::IDEMPOTENCY_BYTES_MAX;

/// Settings of a [`crate::RedbStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Data folder. Created when it does not exist.
    pub folder: PathBuf,
    /// Number of shards, 1 to 512. Fixed when the folder is created. `None` uses the folder's number, or for a new
    /// folder twice the number of cores, at least 4. In a cluster the map has the number.
    pub shards: Option<u16>,
    /// The cluster, if the folder holds some shards of one, or `None` if it holds all shards of a standalone server.
    pub cluster: Option<ClusterMember>,
    /// Whether small writes are answered once they are in a log, before they are in the file of their shard.
    pub has_log: bool,
    /// Memory for cached pages and rows, in bytes, divided evenly among the shards. Allocated as needed.
    pub cache_bytes: usize,
    /// Most mutations that wait for a commit, per shard; more are refused. An empty queue always accepts one
    /// request of any size.
    pub queue_mutations_max: usize,
    /// Most bytes of keys and values that wait for a commit, per shard; more are refused.
    pub queue_bytes_max: usize,
    /// Most bytes of keys and idempotency records that a namespace has in a shard; beyond, new idempotency keys are
    /// refused.
    pub idempotency_bytes_max: u64,
}

/// The cluster node of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMember {
    /// The cluster's map.
    pub map: Arc<ClusterMap>,
    /// Name of the node whose shards the folder holds.
    pub node: String,
    /// Shards that are created empty if their file is missing, even if the shard may have had rows. Without
    /// this only a cluster's first map creates shards, each once.
    pub create_missing: Vec<ShardId>,
    /// Shards whose file is opened even if another node had it last, and regardless of the state that node left it in.
    pub accept: Vec<ShardId>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("data"),
            shards: None,
            cluster: None,
            has_log: true,
            cache_bytes: 1 << 30,
            queue_mutations_max: 32_768,
            queue_bytes_max: 64 << 20,
            idempotency_bytes_max: IDEMPOTENCY_BYTES_MAX,
        }
    }
}
