//! Whether one map may follow another.
//!
//! The invariant: along a succession of maps the slots of a shard never change and its `moves`
//! never fall, so that a file which stayed behind can be told from the one that went on.

use umbo_types::ShardId;

use super::{ClusterMap, ShardPlace};

/// What a map is to the one that is in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// The same map.
    Same,
    /// It follows.
    Newer,
}

/// Says why a map does not follow another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuccessionError {
    /// The map of another cluster.
    #[error("it is the map of cluster '{found}', this is cluster '{own}'")]
    OtherCluster {
        /// The cluster in effect.
        own: String,
        /// The cluster of the other map.
        found: String,
    },
    /// A map from before.
    #[error("it has version {found}, version {own} is in effect")]
    Older {
        /// The version in effect.
        own: u64,
        /// The version of the other map.
        found: u64,
    },
    /// Another map that says it is this one.
    #[error(
        "it has version {0} as the map in effect has, and says something else; a change needs a higher version"
    )]
    SameVersion(u64),
    /// Shards that were cut anew.
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
    /// A shard whose node changes, but not the count of its moves.
    #[error(
        "shard {shard} goes from node '{from}' to '{to}', so it needs moves = {moves} and from = \"{from}\"; umbo cluster plan writes them"
    )]
    UncountedMove {
        /// The shard.
        shard: ShardId,
        /// Its node in effect.
        from: String,
        /// Its node in the other map.
        to: String,
        /// The moves it would have after one.
        moves: u32,
    },
    /// A count of moves that falls, or grows by more than the versions between allow.
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
}

impl ClusterMap {
    /// Checks that `newer` may follow this map: the same cluster, the same slots for every shard, a
    /// higher version, and every move counted. Versions in between may be missing. The same map
    /// once more is no error.
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
        // Back where it was takes two.
        1 if found.node == own.node => Err(Uncounted::Count),
        1 if found.from.as_ref() != Some(&own.node) => Err(Uncounted::Move),
        _ if u64::from(moves) > versions => Err(Uncounted::Count),
        _ => Ok(()),
    }
}
