//! Parsing, validation, plans and succession of maps; plans are compared with a slow reference.

use proptest::prelude::*;

use super::ClusterMapError as Bad;
use super::*;
use crate::ShardMapError;

const MAP: &str = r#"
cluster_id = "geo-eu"
version = 3
[nodes]
a = "shard-a:7411"
b = "shard-b:7411"
[[shards]]
id = 0
slots = ["0-2047"]
node = "a"
[[shards]]
id = 1
slots = ["2048-4000", "4002-4095", "4001"]
node = "b"
moves = 1
from = "c"
"#;

fn nodes(names: &[&str]) -> Vec<ClusterNode> {
    let node = |name: &&str| ClusterNode::new(name, &format!("shard-{name}:7411")).unwrap();
    names.iter().map(node).collect()
}

fn refused(from: &str, to: &str) -> ClusterMapError {
    assert!(MAP.contains(from), "{from}");
    ClusterMap::parse(&MAP.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn a_map_is_read() {
    let map = ClusterMap::parse(MAP).unwrap();
    assert_eq!((map.cluster_id(), map.version()), ("geo-eu", 3));
    assert_eq!(map.nodes(), nodes(&["a", "b"]));
    assert_eq!(map.shards(), 2);
    assert_eq!(map.node_of(ShardId(1)).unwrap().address(), "shard-b:7411");
    assert_eq!(map.node_of(ShardId(2)), None);
    assert_eq!(map.shards_of("a"), [ShardId(0)]);
    assert_eq!(map.shards_of("c"), []);
    assert_eq!(map.slots_of(ShardId(1)), 2_048);
    assert_eq!(map.shard_map().shards(), 2);
    let place = map.place_of(ShardId(1)).unwrap();
    assert_eq!((place.moves, place.from.as_deref()), (1, Some("c")));
    // Three adjacent ranges are written as one.
    assert!(map.to_toml().contains("slots = [\"2048-4095\"]"));
}

fn refuses<const N: usize>(cases: [(&str, &str, Bad); N]) {
    for (from, to, named) in cases {
        assert_eq!(refused(from, to), named, "{to}");
    }
}

#[test]
fn bad_slots_are_refused_by_name() {
    refuses([
        (
            "2048-4000",
            "2049-4000",
            Bad::Slots(ShardMapError::Gap(2_048)),
        ),
        (
            "0-2047",
            "0-2048",
            Bad::Slots(ShardMapError::TwoOwners {
                slot: 2_048,
                one: ShardId(0),
                other: ShardId(1),
            }),
        ),
        (
            "0-2047",
            "2047-0",
            Bad::Slots(ShardMapError::BadRange {
                first: 2_047,
                last: 0,
            }),
        ),
        (
            "0-2047",
            "0-+9",
            Bad::BadSlots {
                shard: ShardId(0),
                slots: "0-+9".to_owned(),
            },
        ),
        (
            "0-2047",
            "0-70000",
            Bad::BadSlots {
                shard: ShardId(0),
                slots: "0-70000".to_owned(),
            },
        ),
        ("[\"0-2047\"]", "[]", Bad::NoSlots(ShardId(0))),
    ]);
}

#[test]
fn bad_shards_and_nodes_are_refused_by_name() {
    refuses([
        ("id = 1", "id = 0", Bad::DuplicateShard(ShardId(0))),
        ("id = 1", "id = 2", Bad::MissingShard(ShardId(1))),
        (
            "node = \"b\"",
            "node = \"d\"",
            Bad::UnknownNode {
                shard: ShardId(1),
                node: "d".to_owned(),
                nearest: None,
            },
        ),
        ("shard-b:7411", "", Bad::NoAddress("b".to_owned())),
        (
            "shard-b:7411",
            "shard-b",
            Bad::BadAddress {
                node: "b".to_owned(),
                address: "shard-b".to_owned(),
                reason: "no port",
            },
        ),
        (
            "shard-b",
            "shard-a",
            Bad::OneAddress {
                one: "a".to_owned(),
                other: "b".to_owned(),
                address: "shard-a:7411".to_owned(),
            },
        ),
    ]);
}

#[test]
fn other_bad_texts_are_refused_by_name() {
    refuses([
        (
            "geo-eu",
            "Geo EU",
            Bad::BadName {
                what: "cluster_id",
                name: "Geo EU".to_owned(),
            },
        ),
        ("version = 3", "version = 0", Bad::BadVersion(0)),
        (
            "version = 3",
            "versoin = 3",
            Bad::UnknownKey {
                line: 3,
                key: "versoin".to_owned(),
                nearest: Some("version".to_owned()),
            },
        ),
        (
            "moves = 1",
            "move = 1",
            Bad::UnknownKey {
                line: 15,
                key: "move".to_owned(),
                nearest: Some("moves".to_owned()),
            },
        ),
        (
            "moves = 1\n",
            "",
            Bad::BadHistory {
                shard: ShardId(1),
                moves: 0,
            },
        ),
        (
            "from = \"c\"",
            "from = \"b\"",
            Bad::BadHistory {
                shard: ShardId(1),
                moves: 1,
            },
        ),
    ]);
}

#[test]
fn a_text_that_is_no_map_is_refused_with_its_line() {
    for (from, to, line) in [
        ("version = 3", "version = \"3\"", 3),
        ("version = 3", "version = -3", 3),
        ("version = 3", "version 3", 3),
        ("b = \"shard", "a = \"shard", 6),
        ("id = 0", "id = 70000", 8),
    ] {
        let error = refused(from, to);
        let is_named = matches!(error, ClusterMapError::Syntax { line: at, .. } if at == line);
        assert!(is_named, "{to}: {error:?}");
    }
    let missing = refused("cluster_id = \"geo-eu\"\n", "").to_string();
    assert!(missing.contains("cluster_id"), "{missing}");
    let long = "#".repeat((1 << 20) + 1);
    let refused = ClusterMap::parse(&long).unwrap_err();
    assert!(matches!(refused, ClusterMapError::TooLong { .. }));
}

#[test]
fn what_is_asked_for_must_be_possible() {
    let create = |names: &[&str], shards| ClusterMap::create("eu", nodes(names), shards);
    assert_eq!(
        create(&["a", "b"], 1),
        Err(ClusterMapError::FewShards {
            shards: 1,
            nodes: 2
        })
    );
    assert_eq!(create(&[], 4), Err(ClusterMapError::NodeCount(0)));
    assert_eq!(
        create(&["a", "a"], 4),
        Err(ClusterMapError::DuplicateNode("a".to_owned()))
    );
    assert_eq!(create(&["a"], 513), Err(ClusterMapError::ShardCount(513)));
    let map = create(&["a"], 2).unwrap();
    assert_eq!(
        map.plan(nodes(&["a", "b", "c"])),
        Err(ClusterMapError::FewShards {
            shards: 2,
            nodes: 3
        })
    );
}

#[test]
fn a_plan_counts_moves_and_says_where_files_come_from() {
    let first = ClusterMap::create("eu", nodes(&["a", "b"]), 6).unwrap();
    let plan = first.plan(nodes(&["a", "b", "c"])).unwrap();
    let moves: Vec<_> = plan
        .moves
        .iter()
        .map(|one| (one.shard.0, &*one.from, &*one.to))
        .collect();
    assert_eq!(moves, [(2, "a", "c"), (5, "b", "c")]);
    let place = plan.map.place_of(ShardId(5)).unwrap();
    assert_eq!((place.moves, place.from.as_deref()), (1, Some("b")));
    let unmoved = plan.map.place_of(ShardId(0)).unwrap();
    assert_eq!((unmoved.moves, unmoved.from.as_deref()), (0, None));
    assert_eq!(plan.map.version(), 2);

    let same = plan.map.plan(nodes(&["c", "a", "b"])).unwrap();
    assert_eq!((same.map, same.moves), (plan.map.clone(), vec![]));

    let mut elsewhere = nodes(&["a", "b"]);
    elsewhere.push(ClusterNode::new("c", "10.0.0.9:7411").unwrap());
    let moved_node = plan.map.plan(elsewhere).unwrap();
    assert_eq!((moved_node.map.version(), moved_node.moves), (3, vec![]));
}

#[test]
fn a_plan_by_hand_moves_just_what_it_names() {
    let first = ClusterMap::create("eu", nodes(&["a", "b"]), 4).unwrap();
    let to = |shard, node: &str| (ShardId(shard), node.to_owned());
    let second = first.plan_moves(nodes(&["a", "b"]), &[to(0, "b"), to(2, "b")]);
    let Plan { map: second, moves } = second.unwrap();
    assert_eq!(moves.len(), 1);
    assert_eq!(second.shards_of("b"), [ShardId(0), ShardId(2), ShardId(3)]);
    assert_eq!(first.check_successor(&second), Ok(Succession::Newer));
    let back = second.plan_moves(nodes(&["a", "b"]), &[to(0, "a")]);
    let place = back.unwrap().map.place_of(ShardId(0)).unwrap().clone();
    assert_eq!((place.moves, place.from.as_deref()), (2, Some("b")));

    let same = first.plan_moves(nodes(&["a", "b"]), &[to(0, "a")]).unwrap();
    assert_eq!((same.map, same.moves), (first.clone(), vec![]));
    let refused = |named: &[_], names| first.plan_moves(nodes(names), named).unwrap_err();
    assert_eq!(
        refused(&[to(4, "a")], &["a", "b"]),
        Bad::MissingShard(ShardId(4))
    );
    assert_eq!(
        refused(&[to(0, "b"), to(0, "a")], &["a", "b"]),
        Bad::DuplicateShard(ShardId(0))
    );
    for (named, names) in [(to(0, "c"), &["a", "b"][..]), (to(0, "b"), &["b", "c"])] {
        let error = refused(&[named], names);
        assert!(matches!(error, Bad::UnknownNode { .. }), "{error}");
    }
}

#[test]
fn a_map_follows_only_its_own_past() {
    let first = ClusterMap::create("eu", nodes(&["a", "b"]), 4).unwrap();
    let second = first.plan(nodes(&["a"])).unwrap().map;
    let third = second.plan(nodes(&["a", "b"])).unwrap().map;
    assert_eq!(first.check_successor(&first), Ok(Succession::Same));
    assert_eq!(first.check_successor(&second), Ok(Succession::Newer));
    assert_eq!(second.check_successor(&third), Ok(Succession::Newer));
    assert_eq!(first.check_successor(&third), Ok(Succession::Newer));
    assert_eq!(
        third.check_successor(&first),
        Err(SuccessionError::Older { own: 3, found: 1 })
    );

    let edited = |from: &str, to: &str| {
        let text = second.to_toml();
        assert!(text.contains(from), "{from} in {text}");
        first.check_successor(&ClusterMap::parse(&text.replace(from, to)).unwrap())
    };
    assert!(matches!(
        edited("\"eu\"", "\"us\""),
        Err(SuccessionError::OtherCluster { .. })
    ));
    assert_eq!(
        edited("version = 2", "version = 1"),
        Err(SuccessionError::SameVersion(1))
    );
    assert!(matches!(
        edited("moves = 1\nfrom = \"b\"\n", ""),
        Err(SuccessionError::UncountedMove { moves: 1, .. })
    ));
    assert!(matches!(
        edited("from = \"b\"", "from = \"c\""),
        Err(SuccessionError::UncountedMove { .. })
    ));
    assert!(matches!(
        edited("moves = 1", "moves = 2"),
        Err(SuccessionError::BadMoves { found: 2, .. })
    ));
    let uneven = first.to_toml().replace("1023", "1000");
    let uneven = uneven
        .replace("1024", "1001")
        .replace("version = 1", "version = 2");
    assert_eq!(
        first.check_successor(&ClusterMap::parse(&uneven).unwrap()),
        Err(SuccessionError::OtherSlots(ShardId(0)))
    );
    let more = ClusterMap::create("eu", nodes(&["a", "b"]), 5).unwrap();
    let more = more.to_toml().replace("version = 1", "version = 2");
    assert!(matches!(
        first.check_successor(&ClusterMap::parse(&more).unwrap()),
        Err(SuccessionError::ShardCount { own: 4, found: 5 })
    ));
}

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// A subset of the names.
fn some_nodes(max: usize) -> impl Strategy<Value = Vec<ClusterNode>> {
    prop::sample::subsequence(&NAMES[..], 1..=max).prop_map(|names| nodes(&names))
}

/// A map after some plans.
fn travelled(shards_max: u16, nodes_max: usize) -> impl Strategy<Value = ClusterMap> {
    let journey = prop::collection::vec(some_nodes(nodes_max), 1..4);
    (nodes_max as u16..=shards_max, journey).prop_map(|(shards, journey)| {
        let first = ClusterMap::create("eu", journey[0].clone(), shards).unwrap();
        let step = |map: ClusterMap, nodes: &Vec<_>| map.plan(nodes.clone()).unwrap().map;
        journey[1..].iter().fold(first, step)
    })
}

fn counts(map: &ClusterMap) -> Vec<usize> {
    let nodes = map.nodes().iter();
    nodes.map(|node| map.shards_of(node.name()).len()).collect()
}

fn spread(counts: &[usize]) -> usize {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

/// Tries every assignment of shards to nodes: slow, and certain.
fn fewest_moves(map: &ClusterMap, nodes: &[ClusterNode]) -> usize {
    let shards = usize::from(map.shards());
    let ways = nodes.len().pow(shards as u32);
    let even_ways = (0..ways).filter_map(|way| {
        let choices = (0..shards).map(|shard| way / nodes.len().pow(shard as u32) % nodes.len());
        let choices: Vec<_> = choices.collect();
        let count = |node| choices.iter().filter(|&&choice| choice == node).count();
        let counts: Vec<_> = (0..nodes.len()).map(count).collect();
        (spread(&counts) <= 1).then(|| {
            let stays =
                |(shard, &choice): (usize, &usize)| map.places[shard].node == nodes[choice].name();
            shards
                - choices
                    .iter()
                    .enumerate()
                    .filter(|&pair| stays(pair))
                    .count()
        })
    });
    even_ways.min().unwrap()
}

proptest! {
    #[test]
    fn what_is_written_reads_back(map in travelled(40, 12)) {
        let text = map.to_toml();
        prop_assert_eq!(&ClusterMap::parse(&text).unwrap(), &map);
        prop_assert_eq!(ClusterMap::parse(&text).unwrap().to_toml(), text);
    }

    #[test]
    fn a_plan_is_total_even_and_follows(map in travelled(64, 12), nodes in some_nodes(12)) {
        let Plan { map: planned, moves } = map.plan(nodes.clone()).unwrap();
        prop_assert_eq!(&planned.nodes, &nodes);
        prop_assert!(spread(&counts(&planned)) <= 1);
        prop_assert_eq!(counts(&planned).iter().sum::<usize>(), usize::from(map.shards()));
        prop_assert!(map.check_successor(&planned).is_ok());
        for (shard, place) in planned.each_place() {
            let moved = moves.iter().find(|one| one.shard == shard);
            let before = map.place_of(shard).unwrap();
            let Some(one) = moved else {
                prop_assert_eq!(before, place);
                continue;
            };
            prop_assert_eq!((&one.from, &one.to), (&before.node, &place.node));
            prop_assert_ne!(&one.from, &one.to);
        }
        // As even by slots as whole shards allow: within one shard, and one slot for each of the others.
        let slots = |node: &ClusterNode| -> u32 {
            planned.shards_of(node.name()).iter().map(|&shard| planned.slots_of(shard)).sum()
        };
        let slots: Vec<_> = nodes.iter().map(slots).collect();
        let shard_slots = planned.slots_of(ShardId(0)) + 1;
        let share = u32::from(map.shards()) / nodes.len() as u32 + 1;
        let between = slots.iter().max().unwrap() - slots.iter().min().unwrap();
        prop_assert!(between <= shard_slots + share, "{slots:?}");
    }

    #[test]
    fn no_even_map_takes_fewer_moves(map in travelled(7, 4), nodes in some_nodes(4)) {
        let plan = map.plan(nodes.clone()).unwrap();
        prop_assert_eq!(plan.moves.len(), fewest_moves(&map, &nodes));
    }

    #[test]
    fn hostile_texts_do_not_panic(
        cut in 0..MAP.len(),
        at in 0..MAP.len(),
        byte in prop::sample::select(&b"\"[]=0-.\n\xffz"[..]),
    ) {
        let mut bytes = MAP.as_bytes()[..cut].to_vec();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(map) = ClusterMap::parse(&text) {
            prop_assert_eq!(ClusterMap::parse(&map.to_toml()), Ok(map));
        }
    }
}
