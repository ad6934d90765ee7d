//! The shards that a node serves: the map assigns them to it, and it has opened them.
//!
//! The invariant: a shard that the map has given away is refused as soon as the map is in effect. A shard that the map
//! has assigned to this node is not served before its file is open. A shard that was on another node between two maps
//! is not served either, because its open file is outdated.

use std::sync::Arc;

use umbo_protocol::NodeError as Refused;
use umbo_routing::{ClusterMap, RecordsHome, ShardMap, SuccessionError};
use umbo_store::{Outcome, RecordsRevision, StoreError};
use umbo_types::{NamespaceId, PartitionKey, ShardId};

/// Why a node cannot be made, or cannot use a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnershipError {
    /// The map does not contain the node.
    #[error("the map of cluster '{cluster_id}' (version {version}) has no node '{node}'")]
    NotInMap {
        /// The cluster.
        cluster_id: String,
        /// Version of its map.
        version: u64,
        /// The name of the node.
        node: String,
    },
    /// The map is not a successor of the one in effect.
    #[error(transparent)]
    NoSuccessor(#[from] SuccessionError),
}

/// The map in effect, from the view of one node.
#[derive(Debug)]
pub(crate) struct Ownership {
    map: Arc<ClusterMap>,
    /// Slots and placements, of the store: the cluster's maps know no placements.
    shard_map: Arc<ShardMap>,
    /// The shard that changes Umbo's own records.
    home: RecordsHome,
    /// Indexed by shard number.
    standings: Box<[ShardStanding]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardStanding {
    Served,
    Unopened,
    Elsewhere,
}

impl Ownership {
    /// Computes the state of each shard for a node whose store has followed the map `followed`, and has
    /// opened these shards under it.
    pub(crate) fn new(
        map: Arc<ClusterMap>,
        shard_map: Arc<ShardMap>,
        node: &str,
        followed: &ClusterMap,
        opened: &[ShardId],
    ) -> Self {
        let own = map.shards_of(node);
        let is_open = |shard: ShardId| {
            opened.contains(&shard) && map.place_of(shard) == followed.place_of(shard)
        };
        let standing = |shard| match (own.contains(&shard), is_open(shard)) {
            (true, true) => ShardStanding::Served,
            (true, false) => ShardStanding::Unopened,
            (false, _) => ShardStanding::Elsewhere,
        };
        let standings = (0..map.shards()).map(|id| standing(ShardId(id))).collect();
        let home = map.home();
        Self {
            map,
            shard_map,
            home,
            standings,
        }
    }

    pub(crate) fn map(&self) -> &Arc<ClusterMap> {
        &self.map
    }

    pub(crate) fn shard_map(&self) -> &ShardMap {
        &self.shard_map
    }

    /// Returns the shards that the map assigns to the node and that it has not opened.
    pub(crate) fn unopened(&self) -> impl Iterator<Item = ShardId> {
        let all = (0..).map(ShardId).zip(&self.standings);
        all.filter_map(|(id, standing)| (*standing == ShardStanding::Unopened).then_some(id))
    }

    /// Returns whether the map assigns a shard to the node.
    pub(crate) fn is_own(&self, shard: ShardId) -> bool {
        let standing = self.standings.get(usize::from(shard.0));
        standing.is_some_and(|&standing| standing != ShardStanding::Elsewhere)
    }

    /// Returns why an operation is not served here. The dispatcher may have placed its dataset differently, or this
    /// node may not know the dataset yet: rows would be read and written in the wrong shard. A dispatcher of a version
    /// that does not tell its placement is served if the node has heard of all `heard` records.
    pub(crate) fn check_placement(
        &self,
        dataset: NamespaceId,
        sent: Option<NamespaceId>,
        (heard, own): (RecordsRevision, RecordsRevision),
    ) -> Result<(), String> {
        let agreed = self.shard_map.placements().agreed(dataset, sent);
        let here = agreed.map_err(|misplaced| misplaced.to_string())?;
        let is_unknown = sent.is_none() && here == dataset && dataset != NamespaceId::SYSTEM;
        if is_unknown && own < heard {
            return Err(format!(
                "the node has revision {} of Umbo's own records, but the dispatcher knows of {}: the node \
                 may not know dataset {dataset} yet",
                own.number, heard.number
            ));
        }
        Ok(())
    }

    /// Returns the shard of partitions that all belong to one shard, or why they are not served here.
    pub(crate) fn locate_all<'a>(
        &self,
        namespace: NamespaceId,
        mut partitions: impl Iterator<Item = &'a PartitionKey>,
    ) -> Result<ShardId, Refused> {
        let bad = |reason: &str| Refused::BadRequest(reason.to_owned());
        let first = partitions.next().ok_or_else(|| bad("it has no rows"))?;
        let shard = self.locate(namespace, first)?;
        if partitions.all(|next| self.shard_map.locate(namespace, next) == shard) {
            return Ok(shard);
        }
        Err(bad(
            "it has rows of several shards, as only dispatchers of an older release send it: upgrade them",
        ))
    }

    /// Returns the shard of a partition, or why it is not served here.
    pub(crate) fn locate(
        &self,
        namespace: NamespaceId,
        partition: &PartitionKey,
    ) -> Result<ShardId, Refused> {
        let shard = self.shard_map.locate(namespace, partition);
        self.check_for(namespace, shard).map(|()| shard)
    }

    /// Returns why a shard is not served here, or not for this namespace: Umbo's own records are read and
    /// changed in their home shard and nowhere else.
    pub(crate) fn check_for(&self, namespace: NamespaceId, shard: ShardId) -> Result<(), Refused> {
        if namespace == NamespaceId::SYSTEM && shard != self.home.shard {
            let (home, epoch) = (self.home.shard, self.home.epoch);
            let version = self.map.version();
            return Err(Refused::Store(StoreError::Unavailable {
                shard,
                reason: format!(
                    "Umbo's own records are kept in shard {home} (epoch {epoch}, map version {version})"
                ),
                outcome: Outcome::NotApplied,
            }));
        }
        self.check(shard)
    }

    /// Returns the answers of the store for the shards of this node, in order. A shard that is not served
    /// answers with that error, because its open file may be outdated.
    pub(crate) fn answers_for(
        &self,
        answers: Vec<(ShardId, Result<(), StoreError>)>,
    ) -> Vec<(ShardId, Result<(), Refused>)> {
        let served = answers.into_iter();
        let served = served.filter(|(shard, _)| self.check(*shard).is_ok());
        let served = served.map(|(shard, result)| (shard, result.map_err(Refused::Store)));
        let unopened = self.unopened().map(|shard| (shard, Err(unopened(shard))));
        let mut all: Vec<_> = served.chain(unopened).collect();
        all.sort_by_key(|(shard, _)| *shard);
        all
    }

    /// Returns why a shard is not served here.
    pub(crate) fn check(&self, shard: ShardId) -> Result<(), Refused> {
        match self.standings.get(usize::from(shard.0)) {
            Some(ShardStanding::Served) => Ok(()),
            Some(ShardStanding::Unopened) => Err(unopened(shard)),
            Some(ShardStanding::Elsewhere) => Err(Refused::NotOwner {
                shard,
                map_version: self.map.version(),
            }),
            None => Err(Refused::BadRequest(format!("there is no shard {shard}"))),
        }
    }
}

fn unopened(shard: ShardId) -> Refused {
    Refused::Store(StoreError::Unavailable {
        shard,
        reason: UNOPENED.to_owned(),
        outcome: Outcome::NotApplied,
    })
}

/// Reason for a shard that a new map has assigned to a running node.
pub(crate) const UNOPENED: &str = "the map assigns it to this node, which has not opened it yet";

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_routing::ClusterNode;

    fn nodes(names: &[&str]) -> Vec<ClusterNode> {
        let node = |name: &&str| ClusterNode::new(name, &format!("{name}:1")).unwrap();
        names.iter().map(node).collect()
    }

    fn standings(map: &ClusterMap, followed: &ClusterMap, opened: &[u16]) -> Vec<ShardStanding> {
        let opened: Vec<_> = opened.iter().copied().map(ShardId).collect();
        let ownership = Ownership::new(
            Arc::new(map.clone()),
            Arc::clone(map.shard_map()),
            "b",
            followed,
            &opened,
        );
        ownership.standings.to_vec()
    }

    #[test]
    fn a_shard_is_served_where_its_open_file_is_the_last() {
        use ShardStanding::{Elsewhere, Served, Unopened};
        let first = ClusterMap::create("eu", nodes(&["a", "b"]), 4).unwrap();
        let second = first.plan(nodes(&["a"])).unwrap().map;
        let third = second.plan(nodes(&["a", "b"])).unwrap().map;
        let (none, own) = (&[][..], &[2, 3][..]);
        assert_eq!(
            standings(&first, &first, own),
            [Elsewhere, Elsewhere, Served, Served]
        );
        assert_eq!(standings(&second, &first, own), [Elsewhere; 4]);
        // Back from elsewhere: what is open is what the node had before.
        let not_yet = [Elsewhere, Elsewhere, Unopened, Unopened];
        assert_eq!(standings(&third, &first, own), not_yet);
        assert_eq!(standings(&third, &second, none), not_yet);
        assert_eq!(
            standings(&third, &third, own),
            [Elsewhere, Elsewhere, Served, Served]
        );
    }
    #[test]
    fn a_shard_that_is_not_open_keeps_no_records() {
        let first = ClusterMap::create("eu", nodes(&["a", "b"]), 4).unwrap();
        let opened = [ShardId(1), ShardId(2)];
        let ownership = Ownership::new(
            Arc::new(first.clone()),
            Arc::clone(first.shard_map()),
            "b",
            &first,
            &opened,
        );
        let answers = opened.map(|shard| (shard, Ok(()))).to_vec();
        let answers = ownership.answers_for(answers);
        assert_eq!(answers.len(), 2, "{answers:?}");
        assert_eq!(answers[0], (ShardId(2), Ok(())));
        assert!(matches!(&answers[1], (ShardId(3), Err(_))));
    }
}
