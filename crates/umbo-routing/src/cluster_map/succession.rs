//! The rules for one map to follow another.
//!
//! The invariant: in a succession of maps the slots of a shard never change and its `moves` never fall, so
//! that a file which stayed behind can be distinguished from the newest one. The epoch of the home of Umbo's
//! own records never falls, and the home shard changes only together with the epoch. So records of the home of
//! an earlier epoch are distinguished from records of the current one.

use umbo_types::ShardId;

use super::{ClusterMap, ShardPlace};
use crate::home::RecordsHome;

/// Relation of a map to the one in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// The same map.
    Same,
    /// A valid successor.
    Newer,
}

/// Why a map is not a successor of another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuccessionError {
    /// The maps belong to different clusters.
    #[error("it is the map of cluster '{found}', this is cluster '{own}'")]
    OtherCluster {
        /// The cluster in effect.
        own: String,
        /// The cluster of the other map.
        found: String,
    },
    /// The map is older.
    #[error("it has version {found}, version {own} is in effect")]
    Older {
        /// The version in effect.
        own: u64,
        /// The version of the other map.
        found: u64,
    },
    /// A different map with the same version.
    #[error(
        "it has the same version {0} as the map in effect, but different content; a change needs a higher version"
    )]
    SameVersion(u64),
    /// Shards with other slots.
    #[error(
        "it gives shard {0} other slots; the slots of a shard are fixed for the life of a cluster"
    )]
    OtherSlots(ShardId),
    /// More or fewer shards.
    #[error(
        "it has {found} shards, the map in effect has {own}; their number is fixed for the life of a cluster"
    )]
    ShardCount {
        /// Shards of the map in effect.
        own: u16,
        /// Shards of the other map.
        found: u16,
    },
    /// A shard whose node changes without a new count of moves.
    #[error(
        "shard {shard} moves from node '{from}' to '{to}', so it needs moves = {moves} and from = \"{from}\"; umbo cluster plan writes them"
    )]
    UncountedMove {
        /// The shard.
        shard: ShardId,
        /// Node of the shard in the map in effect.
        from: String,
        /// Node of the shard in the other map.
        to: String,
        /// The count of moves that it needs.
        moves: u32,
    },
    /// A count of moves that falls, or grows by more than the difference of versions allows.
    #[error("shard {shard} has moves = {own}, and cannot have {found} in version {version}")]
    BadMoves {
        /// The shard.
        shard: ShardId,
        /// Moves in effect.
        own: u32,
        /// Moves in the other map.
        found: u32,
        /// Version of the other map.
        version: u64,
    },
    /// A home of Umbo's own records with an older epoch.
    #[error(
        "its home of the records has epoch {found}, epoch {own} is in effect; an epoch never goes down"
    )]
    LowerEpoch {
        /// The epoch in effect.
        own: u64,
        /// The epoch of the other map.
        found: u64,
    },
    /// A changed home of Umbo's own records without a new epoch.
    #[error(
        "the home of the records moves from shard {from} to {to}, so it needs epoch = {epoch}; umbo cluster promote-home writes it"
    )]
    UncountedHome {
        /// The home in effect.
        from: ShardId,
        /// The home of the other map.
        to: ShardId,
        /// The epoch that it needs.
        epoch: u64,
    },
    /// An epoch that grows by more than the difference of versions allows.
    #[error(
        "its home of the records has epoch {found}, epoch {own} is in effect, and the versions differ by only {versions}; each version begins one epoch at most"
    )]
    SkippedEpoch {
        /// The epoch in effect.
        own: u64,
        /// The epoch of the other map.
        found: u64,
        /// Difference of the versions.
        versions: u64,
    },
}

impl ClusterMap {
    /// Checks that `newer` may follow this map: the same cluster, the same slots for every shard, a higher
    /// version, a count for every move, and a new epoch for every change of the records' home. Versions in
    /// between may be missing. The same map again is not an error.
    pub fn check_successor(&self, newer: &Self) -> Result<Succession, SuccessionError> {
        if newer.cluster_id != self.cluster_id {
            return Err(SuccessionError::OtherCluster {
                own: self.cluster_id.clone(),
                found: newer.cluster_id.clone(),
            });
        }
        if newer == self {
            return Ok(Succession::Same);
        }
        if newer.version < self.version {
            return Err(SuccessionError::Older {
                own: self.version,
                found: newer.version,
            });
        }
        if newer.version == self.version {
            return Err(SuccessionError::SameVersion(self.version));
        }
        if newer.shards() != self.shards() {
            return Err(SuccessionError::ShardCount {
                own: self.shards(),
                found: newer.shards(),
            });
        }
        if let Some(shard) = self.shard_map.first_difference(&newer.shard_map) {
            return Err(SuccessionError::OtherSlots(shard));
        }
        let versions = newer.version - self.version;
        check_home(self.home, newer.home, versions)?;
        for ((shard, own), found) in self.each_place().zip(&newer.places) {
            check_moves(own, found, versions).map_err(|problem| match problem {
                Uncounted::Move => SuccessionError::UncountedMove {
                    shard,
                    from: own.node.clone(),
                    to: found.node.clone(),
                    moves: own.moves + 1,
                },
                Uncounted::Count => SuccessionError::BadMoves {
                    shard,
                    own: own.moves,
                    found: found.moves,
                    version: newer.version,
                },
            })?;
        }
        Ok(Succession::Newer)
    }
}

enum Uncounted {
    Move,
    Count,
}

fn check_moves(own: &ShardPlace, found: &ShardPlace, versions: u64) -> Result<(), Uncounted> {
    let Some(moves) = found.moves.checked_sub(own.moves) else {
        return Err(Uncounted::Count);
    };
    match moves {
        0 if found.node != own.node => Err(Uncounted::Move),
        // A move away and back counts as two.
        1 if found.node == own.node => Err(Uncounted::Count),
        1 if found.from.as_ref() != Some(&own.node) => Err(Uncounted::Move),
        _ if u64::from(moves) > versions => Err(Uncounted::Count),
        _ => Ok(()),
    }
}

/// Checks that `found` may follow `own` when the versions of their maps differ by `versions`.
fn check_home(own: RecordsHome, found: RecordsHome, versions: u64) -> Result<(), SuccessionError> {
    let Some(epochs) = found.epoch.checked_sub(own.epoch) else {
        return Err(SuccessionError::LowerEpoch {
            own: own.epoch,
            found: found.epoch,
        });
    };
    if epochs == 0 && found.shard != own.shard {
        return Err(SuccessionError::UncountedHome {
            from: own.shard,
            to: found.shard,
            epoch: own.epoch + 1,
        });
    }
    if epochs > versions {
        return Err(SuccessionError::SkippedEpoch {
            own: own.epoch,
            found: found.epoch,
            versions,
        });
    }
    Ok(())
}
