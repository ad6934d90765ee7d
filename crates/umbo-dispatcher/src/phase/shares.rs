//! How the work of a request falls on the shards, for the quotas of shards and usage by shard.
//!
//! A request that names rows is divided by rows, any other by slots: both spread over the shards
//! alike.

use std::ops::RangeInclusive;

use umbo_quota::ShardShare;
use umbo_routing::ShardMap;
use umbo_types::{Key, NamespaceId, ShardId};

/// Divides a request by the shards of its keys.
pub(crate) fn by_keys<'a>(
    map: &ShardMap,
    namespace: NamespaceId,
    keys: impl Iterator<Item = &'a Key>,
) -> Vec<ShardShare> {
    let mut counts: Vec<u32> = Vec::new();
    for key in keys {
        let at = usize::from(map.locate(namespace, &key.partition).0);
        if at >= counts.len() {
            counts.resize(at + 1, 0);
        }
        counts[at] += 1;
    }
    let shares = (0..).zip(counts).map(|(shard, parts)| ShardShare {
        shard: ShardId(shard),
        parts,
    });
    shares.filter(|share| share.parts > 0).collect()
}

/// Divides a scan by the slots of each shard. Shards are visited one after the other, in the order
/// of their first slots: those before `resumed` are done.
pub(crate) fn by_slots(
    map: &ShardMap,
    slots: RangeInclusive<u16>,
    resumed: Option<ShardId>,
) -> Vec<ShardShare> {
    let mut shares: Vec<ShardShare> = Vec::new();
    for range in map.ranges() {
        let (first, last) = (
            range.first.max(*slots.start()),
            range.last.min(*slots.end()),
        );
        if first > last {
            continue;
        }
        let parts = u32::from(last - first) + 1;
        match shares.iter_mut().find(|share| share.shard == range.shard) {
            Some(share) => share.parts += parts,
            None => shares.push(ShardShare {
                shard: range.shard,
                parts,
            }),
        }
    }
    let done = resumed.and_then(|shard| shares.iter().position(|share| share.shard == shard));
    shares.drain(..done.unwrap_or(0));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(shares: &[ShardShare]) -> Vec<(u16, u32)> {
        shares
            .iter()
            .map(|share| (share.shard.0, share.parts))
            .collect()
    }

    #[test]
    fn slots_are_divided_as_the_map_says() {
        let map = ShardMap::even(4).unwrap();
        let all = by_slots(&map, 0..=4_095, None);
        assert_eq!(
            parts(&all),
            [(0, 1_024), (1, 1_024), (2, 1_024), (3, 1_024)]
        );
        let some = by_slots(&map, 1_000..=1_099, None);
        assert_eq!(parts(&some), [(0, 24), (1, 76)]);
        let rest = by_slots(&map, 0..=4_095, Some(ShardId(2)));
        assert_eq!(parts(&rest), [(2, 1_024), (3, 1_024)]);
    }

    #[test]
    fn keys_are_counted_where_they_live() {
        let map = ShardMap::even(4).unwrap();
        let namespace = NamespaceId(7);
        let keys: Vec<Key> = (0..100_u8)
            .map(|n| Key::new(vec![n], vec![]).unwrap())
            .collect();
        let shares = by_keys(&map, namespace, keys.iter());
        for share in &shares {
            let own = keys
                .iter()
                .filter(|key| map.locate(namespace, &key.partition) == share.shard);
            assert_eq!(own.count(), share.parts as usize);
        }
        assert_eq!(shares.iter().map(|share| share.parts).sum::<u32>(), 100);
        assert!(by_keys(&map, namespace, [].iter()).is_empty());
    }
}
