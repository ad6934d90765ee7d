//! The worlds by name.

use crate::simulation::{RunReport, run};

/// The events of the loads world that must have occurred in a run of many seeds.
const LOADS_MUST_MEET: [&str; 33] = [
    "node paused",
    "power failure",
    "slow disk",
    "dispatcher killed",
    "dispatcher drained",
    "loads let go",
    "copy of the records lost",
    "runner paused",
    "two runs at once",
    "shard moved",
    "new folder",
    "upload left",
    "large value touched",
    "large value in a load",
    "large value continued by another run",
    "large value of a load given up",
    "upload-given-up",
    "clock jump",
    "key twice in a load",
    "full disk",
    "backup restored",
    "load ready",
    "load live",
    "file imported",
    "load merged",
    "load of a crowd live",
    "load waits for its turn",
    "load aborted",
    "version activated",
    "rollback",
    "version dropped",
    "range removed",
    "write of unknown outcome",
];

/// A world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// One engine on a simulated disk.
    Store,
    /// One engine whose process or power ends at each change of its disk in turn.
    Kills,
    /// Dispatchers and Umbo's own records, over a store whose shards fail.
    Records,
    /// Shards that move between nodes, with steps left out.
    Moves,
    /// Dispatchers' stores and nodes over a simulated network.
    Hop,
    /// Loads, activations and rollbacks by whole dispatchers, over such a network, with everything at once.
    Loads,
}

impl World {
    /// All worlds.
    pub const ALL: [Self; 6] = [
        Self::Store,
        Self::Kills,
        Self::Records,
        Self::Moves,
        Self::Hop,
        Self::Loads,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Kills => "kills",
            Self::Records => "records",
            Self::Moves => "moves",
            Self::Hop => "hop",
            Self::Loads => "loads",
        }
    }

    /// Returns the events that must have occurred in a run of many seeds.
    pub const fn must_meet(self) -> &'static [&'static str] {
        match self {
            Self::Store => &[
                "power failure",
                "power failure amid a commit",
                "failed sync",
                "failed read",
                "failed write",
                "full disk",
                "bad sector",
                "flipped bit",
                "clock jump",
                "orderly restart",
                "slow disk",
                "asynchronous write lost with the power",
                "condition refused",
                "group aborted",
                "deadline passed",
                "unknown outcome",
            ],
            Self::Kills => &[
                "kill amid a commit",
                "power failure amid a commit",
                "end amid a recovery",
                "asynchronous write lost with the power",
                "condition refused",
                "group aborted",
            ],
            Self::Hop => &[
                "node paused",
                "requests held",
                "answers held",
                "connection stuck",
                "connection reset",
                "link cut",
                "power failure",
                "orderly restart",
                "deadline passed",
                "unknown outcome",
                "unavailable",
            ],
            Self::Loads => &LOADS_MUST_MEET,
            Self::Moves => &[
                "move planned",
                "step of a move left out",
                "file copied",
                "map refused",
                "node restarted with some map",
            ],
            Self::Records => &[
                "shard away",
                "shard full",
                "lost answer",
                "dispatcher killed",
                "dispatcher killed with a call under way",
                "namespace put",
                "namespace removed",
                "fences folded",
                "removal refused",
                "change refused",
                "change of unknown outcome",
                "first token",
                "first token refused",
                "namespace gone",
                "write of unknown outcome",
            ],
        }
    }

    /// Runs a seed on a thread of its own, so that no state of an earlier seed remains.
    pub fn run(self, seed: u64, is_printed: bool) -> RunReport {
        let run = move || match self {
            Self::Store => run(seed, is_printed, crate::store_world::run),
            Self::Kills => run(seed, is_printed, crate::store_world::kills::run),
            Self::Records => run(seed, is_printed, crate::records_world::run),
            Self::Moves => run(seed, is_printed, crate::store_world::moves::run),
            Self::Hop => run(seed, is_printed, crate::store_world::hop::run),
            Self::Loads => run(seed, is_printed, crate::store_world::loads::run),
        };
        std::thread::spawn(run)
            .join()
            .unwrap_or_else(|panic| RunReport::of_panic(seed, &*panic))
    }
}
