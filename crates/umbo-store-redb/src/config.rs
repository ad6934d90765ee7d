//! What an operator may choose of the engine.
//!
//! Owns the settings and their defaults; reading them from a file is the binary's business.

use std::path::PathBuf;
use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_types::ShardId;

/// Settings of a [`crate::RedbStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Data folder. Created when it does not exist.
    pub folder: PathBuf,
    /// Number of shards, 1 to 512. Fixed when the folder is created: none takes what the folder
    /// says, or at creation twice the number of cores, at least 4. In a cluster its map says it.
    pub shards: Option<u16>,
    /// The cluster of which the folder holds some shards; none holds all shards of a server on its
    /// own.
    pub cluster: Option<ClusterMember>,
    /// Memory for cached pages, in bytes, divided evenly among the shards. Taken as it is needed.
    pub cache_bytes: usize,
    /// Most mutations that wait for a commit, per shard; more are refused. A single request is
    /// always let into an empty queue.
    pub queue_mutations_max: usize,
    /// Most bytes of keys and values that wait for a commit, per shard; more are refused.
    pub queue_bytes_max: usize,
}

/// A node of a cluster, as its store needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMember {
    /// The cluster's map.
    pub map: Arc<ClusterMap>,
    /// Name of the node, whose shards the folder holds.
    pub node: String,
    /// Shards that are begun empty where their file is missing, whatever has become of it. Without
    /// that only a cluster's first map begins shards, each once.
    pub create_missing: Vec<ShardId>,
    /// Shards whose file is opened whoever had it last, and however that node has left it.
    pub accept: Vec<ShardId>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("data"),
            shards: None,
            cluster: None,
            cache_bytes: 1 << 30,
            queue_mutations_max: 32_768,
            queue_bytes_max: 64 << 20,
        }
    }
}
