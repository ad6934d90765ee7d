//! Reports of a store for operators: its shards, its nodes, and counters.
//!
//! Nothing here is needed to serve a request.

use std::time::Duration;

use umbo_types::{CLOCK_OFFSET_MAX, NamespaceId, ShardId};

/// Reports of a store for operators. Cheap: no call waits for a disk or a node.
pub trait StoreReport {
    /// Returns the status of each shard, in order of their ids.
    fn status(&self) -> Vec<ShardStatus>;

    /// Returns, for each shard whose file is in this process, the number of failed reads of the file since the process
    /// started.
    fn bad_reads(&self) -> Vec<(ShardId, u64)> {
        Vec::new()
    }

    /// Returns the size and free space of the disk that has the shards, or `None` if they are in other processes or on
    /// no disk.
    fn disk_space(&self) -> Option<DiskSpace> {
        None
    }

    /// Returns the status of each node that has rows, by name: a shard node, or one of another engine. Empty if the
    /// shards are in this process.
    fn nodes(&self) -> Vec<NodeStatus> {
        Vec::new()
    }

    /// Returns the counters of the connections to those nodes, or `None` if the shards are in this process.
    fn remote_stats(&self) -> Option<RemoteStats> {
        None
    }
}

/// A disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Size of the disk.
    pub size: u64,
    /// Free space that this process may use.
    pub free: u64,
}

/// Whether a shard serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardState {
    /// Reads and writes.
    Available,
    /// Reads only, for this reason.
    ReadOnly(String),
    /// Nothing, for this reason.
    Unavailable(String),
}

/// Status of a shard node, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name of the node in the map of the cluster, or its host if the engine has no map.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// Why the node cannot be asked, or `None` if it can.
    pub failure: Option<String>,
    /// Version of the cluster map that the node uses, or `None` until it has reported it.
    pub map_version: Option<u64>,
    /// Shards that the local map assigns to it. Empty in an engine that places rows itself.
    pub shards: Vec<ShardId>,
    /// Requests in flight at it, if this process counts them.
    pub in_flight: Option<u64>,
    /// By how much, at least, the clock of this process is ahead of the clock of the node, in microseconds; negative if
    /// it is behind. `None` until the node has told its time of day.
    pub clock_ahead: Option<i64>,
    /// Version of its program, or `None` until the node has told it.
    pub program_version: Option<String>,
}

impl NodeStatus {
    /// Describes how the clocks of this process and of the node differ, if the node can be asked and they are too far
    /// apart.
    pub fn clock_problem(&self) -> Option<String> {
        let ahead = self.clock_ahead.filter(|_| self.failure.is_none())?;
        let apart = Duration::from_micros(ahead.unsigned_abs());
        let direction = if ahead < 0 { "behind" } else { "ahead of" };
        (apart > CLOCK_OFFSET_MAX).then(|| {
            format!(
                "the clock of this server is {} s {direction} that of node '{}'",
                apart.as_secs(),
                self.name
            )
        })
    }
}

/// Counters of the connections to shard nodes since the store was made, and the requests in flight now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Requests sent, retries included.
    pub requests: u64,
    /// Messages that carried them.
    pub frames: u64,
    /// Messages with answers that were received.
    pub answer_frames: u64,
    /// Requests that were sent again after their connection was lost, or to another node.
    pub retries: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that could not be made, or were refused by the node.
    pub connections_refused: u64,
    /// Connections that were lost, or closed because the node was silent.
    pub connections_lost: u64,
    /// Requests in flight.
    pub in_flight: u64,
}

/// Status of a shard, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard.
    pub shard: ShardId,
    /// Whether it serves.
    pub state: ShardState,
    /// Rows stored, expired ones that await reclaiming included.
    pub rows: u64,
    /// Bytes of the disk that its file takes, which may be fewer than the length of the file.
    pub file_bytes: u64,
    /// Mutations waiting for a commit.
    pub queued: u64,
    /// Commits since the process started.
    pub commits: u64,
    /// Mutations committed since the process started.
    pub mutations: u64,
    /// Expired rows reclaimed since the process started.
    pub reclaimed: u64,
    /// Fenced namespaces whose rows may not all be reclaimed yet.
    pub purging: u64,
    /// Expired rows that are known to await reclaiming; a lower bound while the sweeper is behind.
    pub expired: u64,
    /// Highest id of a namespace that has rows in the shard, or had some since it was opened. [`NamespaceId::SYSTEM`]
    /// if there was no such namespace.
    pub namespace_max: NamespaceId,
    /// Sizes of the namespaces that have rows in the shard, by id, or `None` if unknown.
    pub sizes: Option<Vec<NamespaceSize>>,
    /// Number of namespaces that have rows in the shard but are missing from `sizes`. A node reports a limited number
    /// of namespaces and omits those with the fewest bytes.
    pub sizes_omitted: u64,
    /// Commits since the process started that were waited for until they were on the disk.
    pub syncs: u64,
    /// Total time of these commits, in nanoseconds.
    pub sync_nanos: u64,
    /// Reads of a row since the shard was opened that the cache of rows answered.
    pub cache_hits: u64,
    /// Reads of a row since the shard was opened that the cache of rows did not answer.
    pub cache_misses: u64,
    /// Compactions of the file since the process started. The shard pauses for each compaction.
    pub compactions: u64,
    /// Total time of these compactions, in nanoseconds.
    pub compaction_nanos: u64,
    /// Total time that answers of writes were held back, as the rows of the log came faster than they got into the file,
    /// in nanoseconds.
    pub held_nanos: u64,
}

impl ShardStatus {
    /// Returns the bytes of the rows of all namespaces, or `None` if unknown.
    pub fn live_bytes(&self) -> Option<u64> {
        let sizes = self.sizes.as_ref()?;
        Some(sizes.iter().map(|size| size.bytes).sum())
    }

    /// Makes the status of a shard if only its state is known.
    pub const fn new(shard: ShardId, state: ShardState) -> Self {
        Self {
            shard,
            state,
            rows: 0,
            file_bytes: 0,
            queued: 0,
            commits: 0,
            mutations: 0,
            reclaimed: 0,
            purging: 0,
            expired: 0,
            namespace_max: NamespaceId::SYSTEM,
            sizes: None,
            sizes_omitted: 0,
            syncs: 0,
            sync_nanos: 0,
            cache_hits: 0,
            cache_misses: 0,
            compactions: 0,
            compaction_nanos: 0,
            held_nanos: 0,
        }
    }
}

/// Size of a namespace in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceSize {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Rows stored, expired ones that await reclaiming included.
    pub rows: u64,
    /// Bytes of their keys and values, including what the engine adds to each row.
    pub bytes: u64,
    /// Bytes of their values that compression saves; not included in `bytes`.
    pub bytes_saved: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_seconds_off_is_a_problem() {
        let node = |clock_ahead, failure: Option<&str>| NodeStatus {
            name: "a".to_owned(),
            address: "shard-a:7411".to_owned(),
            failure: failure.map(str::to_owned),
            map_version: None,
            shards: Vec::new(),
            in_flight: Some(0),
            clock_ahead,
            program_version: None,
        };
        for ahead in [None, Some(0), Some(1_000_000), Some(-5_000_000)] {
            assert_eq!(node(ahead, None).clock_problem(), None);
        }
        let problem = node(Some(3_600_000_000), None).clock_problem();
        let text = "the clock of this server is 3600 s ahead of that of node 'a'";
        assert_eq!(problem.as_deref(), Some(text));
        let problem = node(Some(-6_000_000), None).clock_problem();
        assert!(problem.is_some_and(|text| text.contains("6 s behind that of")));
        assert_eq!(node(Some(-6_000_000), Some("away")).clock_problem(), None);
    }
}
