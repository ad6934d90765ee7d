//! What an operator may choose of the engine.
//!
//! Owns the settings and their defaults; reading them from a file is the binary's business.

use std::path::PathBuf;

/// Settings of a [`crate::RedbStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Data folder. Created when it does not exist.
    pub folder: PathBuf,
    /// Number of shards, 1 to 512. Fixed when the folder is created: none takes what the folder
    /// says, or at creation twice the number of cores, at least 4.
    pub shards: Option<u16>,
    /// Memory for cached pages, in bytes, divided evenly among the shards. Taken as it is needed.
    pub cache_bytes: usize,
    /// Most mutations that wait for a commit, per shard; more are refused. A single request is
    /// always let into an empty queue.
    pub queue_mutations_max: usize,
    /// Most bytes of keys and values that wait for a commit, per shard; more are refused.
    pub queue_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("data"),
            shards: None,
            cache_bytes: 1 << 30,
            queue_mutations_max: 32_768,
            queue_bytes_max: 64 << 20,
        }
    }
}
