//! The home of Umbo's own records in a map: its shard, and its promotion.

use umbo_types::ShardId;

use super::{ClusterMap, ClusterMapError, VERSION_MAX, check_home};
use crate::home::RecordsHome;

impl ClusterMap {
    /// Returns the home shard of Umbo's own records, and its epoch. Shard 0 in epoch 1 for a map without a
    /// home.
    pub fn home(&self) -> RecordsHome {
        self.home
    }

    /// Returns the map of the next version with `shard` as the home of Umbo's own records, under the next
    /// epoch. Nothing else changes. The shard may be the current home: a home that was created empty needs a
    /// new epoch too.
    pub fn promote_home(&self, shard: ShardId) -> Result<Self, ClusterMapError> {
        if self.version >= VERSION_MAX || self.home.epoch >= VERSION_MAX {
            return Err(ClusterMapError::LastVersion);
        }
        let home = RecordsHome {
            shard,
            epoch: self.home.epoch + 1,
        };
        check_home(home, self.places.len())?;
        Ok(Self {
            version: self.version + 1,
            home,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterNode, Succession, SuccessionError};

    const MAP: &str = r#"
cluster_id = "eu"
version = 3
[nodes]
a = "a:1"
b = "b:1"
[[shards]]
id = 0
slots = ["0-2047"]
node = "a"
[[shards]]
id = 1
slots = ["2048-4095"]
node = "b"
"#;

    fn nodes(names: &[&str]) -> Vec<ClusterNode> {
        let node = |name: &&str| ClusterNode::new(name, &format!("{name}:1")).unwrap();
        names.iter().map(node).collect()
    }

    #[test]
    fn the_home_of_the_records_is_named_where_it_has_changed() {
        let first = ClusterMap::parse(MAP).unwrap();
        assert_eq!(first.home(), RecordsHome::default());
        assert!(!first.to_toml().contains("[records]"));
        let second = first.promote_home(ShardId(1)).unwrap();
        let home = RecordsHome {
            shard: ShardId(1),
            epoch: 2,
        };
        assert_eq!((second.version(), second.home()), (4, home));
        assert_eq!(second.place_of(ShardId(0)), first.place_of(ShardId(0)));
        assert_eq!(ClusterMap::parse(&second.to_toml()), Ok(second.clone()));
        // A home that was created empty is promoted itself.
        assert_eq!(second.promote_home(ShardId(1)).unwrap().home().epoch, 3);
        assert_eq!(
            first.promote_home(ShardId(2)),
            Err(ClusterMapError::UnknownHome {
                shard: ShardId(2),
                shards: 2
            })
        );
        // Another distribution of the shards does not change the home.
        assert_eq!(second.plan(nodes(&["a"])).unwrap().map.home(), home);

        let with = |records: &str| {
            let text = MAP.replacen("[nodes]", &format!("[records]\n{records}\n[nodes]"), 1);
            ClusterMap::parse(&text)
        };
        assert_eq!(
            with("home = 2\nepoch = 2"),
            Err(ClusterMapError::UnknownHome {
                shard: ShardId(2),
                shards: 2
            })
        );
        assert_eq!(
            with("home = 1\nepoch = 0"),
            Err(ClusterMapError::BadEpoch(0))
        );
        assert!(matches!(
            with("home = 1"),
            Err(ClusterMapError::Syntax { line: 4, .. })
        ));
        assert!(matches!(
            with("home = 1\nepochs = 2"),
            Err(ClusterMapError::UnknownKey { line: 6, .. })
        ));
    }

    #[test]
    fn the_home_changes_only_together_with_its_epoch() {
        let first = ClusterMap::create("eu", nodes(&["a", "b"]), 4).unwrap();
        let second = first.promote_home(ShardId(3)).unwrap();
        let third = second.promote_home(ShardId(1)).unwrap();
        for (older, newer) in [(&first, &second), (&second, &third), (&first, &third)] {
            assert_eq!(older.check_successor(newer), Ok(Succession::Newer));
        }
        let edited = |older: &ClusterMap, from: &str, to: &str| {
            let text = third.to_toml();
            assert!(text.contains(from), "{from} in {text}");
            older.check_successor(&ClusterMap::parse(&text.replace(from, to)).unwrap())
        };
        assert_eq!(
            edited(&second, "epoch = 3", "epoch = 1"),
            Err(SuccessionError::LowerEpoch { own: 2, found: 1 })
        );
        assert_eq!(
            edited(&second, "epoch = 3", "epoch = 2"),
            Err(SuccessionError::UncountedHome {
                from: ShardId(3),
                to: ShardId(1),
                epoch: 3
            })
        );
        assert_eq!(
            edited(&second, "epoch = 3", "epoch = 4"),
            Err(SuccessionError::SkippedEpoch {
                own: 2,
                found: 4,
                versions: 1
            })
        );
    }
}
