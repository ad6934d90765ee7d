//! The sources of shards in a story of seconds: who is named, who leaves, and what is kept.

use umbo_types::{CallerId, NamespaceId, Operation, PartitionKey};

use super::*;
use crate::source::majority;

const SHARD: ShardId = ShardId(1);

fn sources() -> BusySources {
    BusySources::new(2)
}

fn source(caller: &str, operation: Operation, partition: Option<&str>) -> CallSource {
    CallSource {
        caller: Some(CallerId::new(caller)),
        operation,
        namespace: NamespaceId(3),
        partition: partition.map(|key| PartitionKey::new(key.to_owned()).unwrap()),
    }
}

fn record(sources: &BusySources, source: &CallSource, millis: u64) {
    sources.record(SHARD, Duration::from_millis(millis), 0, || source.clone());
}

/// The sources of the only busy shard, with their share in thousandths.
fn shares(slot: &BusySlot) -> Vec<(CallSource, u32)> {
    let [shard] = &slot.shards[..] else {
        return Vec::new();
    };
    #[expect(clippy::cast_sign_loss, reason = "busy times are not negative")]
    let thousandths = |one: &BusySource| (one.busy / shard.busy * 1_000.0).round() as u32;
    let sources = shard.sources.iter();
    sources
        .map(|one| (CallSource::clone(&one.source), thousandths(one)))
        .collect()
}

#[test]
fn the_source_of_most_busy_time_is_named_within_a_second_and_leaves_after_two() {
    let sources = sources();
    let culprit = source("job", Operation::Put, Some("hot"));
    for second in 0..4 {
        if second == 1 {
            for _ in 0..8 {
                record(&sources, &culprit, 100);
            }
        }
        for other in 0..200 {
            let other = source("shop", Operation::Get, Some(&format!("p{second}-{other}")));
            record(&sources, &other, 1);
        }
        sources.end_second(second);
        let found = shares(&sources.now());
        let of_culprit = found.iter().find(|(one, _)| *one == culprit);
        let expected = [None, Some(667), Some(667), None][second as usize];
        assert_eq!(of_culprit.map(|(_, share)| *share), expected, "{second}");
        // No partition of the shop is large, and all of them together are named by their caller.
        let rest = source("shop", Operation::Get, None);
        assert!(found.iter().any(|(one, _)| *one == rest), "{found:?}");
    }
}

#[test]
fn operations_callers_and_partitions_are_told_apart_and_add_up() {
    let sources = sources();
    let parts = [
        (source("job", Operation::Range, Some("a")), 400),
        (source("job", Operation::Range, Some("b")), 100),
        (source("job", Operation::BatchWrite, None), 200),
        (source("shop", Operation::Range, Some("a")), 200),
    ];
    for (source, millis) in &parts {
        record(&sources, source, *millis);
    }
    for small in 0..10 {
        record(
            &sources,
            &source("job", Operation::Range, Some(&format!("s{small}"))),
            10,
        );
    }
    sources.end_second(9);
    let slot = sources.now();
    let found = shares(&slot);
    let rest = (source("job", Operation::Range, None), 100);
    assert_eq!(found.len(), 5);
    assert!(found.contains(&rest), "{found:?}");
    assert_eq!(found[0].0, parts[0].0);
    assert!(found.windows(2).all(|two| two[0].1 >= two[1].1));
    assert_eq!(found.iter().map(|(_, share)| share).sum::<u32>(), 1_000);
    assert_eq!((slot.start, slot.seconds), (8, 2));
    assert!((slot.shards[0].busy - 1.0).abs() < 1e-9);
}

#[test]
fn short_calls_are_sampled_by_their_busy_time() {
    let sources = sources();
    let (short, long) = (
        source("a", Operation::Get, None),
        source("b", Operation::Scan, None),
    );
    let quantum = QUANTUM.subsec_nanos();
    // As evenly as random numbers are: each call of a tenth of a quantum is recorded once in ten.
    for number in 0..1_000 {
        let random = quantum / 1_000 * number;
        sources.record(SHARD, QUANTUM / 10, random, || short.clone());
    }
    sources.record(SHARD, 100 * QUANTUM, 0, || long.clone());
    sources.end_second(1);
    assert_eq!(shares(&sources.now()), [(short, 500), (long, 500)]);
}

#[test]
fn a_locked_sketch_and_an_unknown_shard_are_passed_by() {
    let sources = sources();
    let one = source("a", Operation::Get, None);
    let held = sources.shards[1].lock().unwrap();
    record(&sources, &one, 5);
    drop(held);
    sources.record(ShardId(2), Duration::from_millis(5), 0, || one.clone());
    sources.end_second(1);
    assert_eq!(sources.now().shards, []);
}

#[test]
fn the_past_is_kept_in_steps_that_become_longer() {
    let sources = sources();
    let names = ["a", "b"].map(|caller| source(caller, Operation::Scan, None));
    // Half an hour of one, and half an hour of the other.
    for second in 36_000..39_600 {
        let name = &names[usize::from(second >= 37_800)];
        record(&sources, name, 10);
        sources.end_second(second);
    }
    let only = |slot: BusySlot| {
        let [(name, 1_000)] = &shares(&slot)[..] else {
            panic!("{slot:?}");
        };
        (slot.start, slot.seconds, name.caller.clone().unwrap())
    };
    let [a, b] = ["a", "b"].map(CallerId::new);
    assert_eq!(only(sources.at(39_599)), (39_599, 1, b.clone()));
    assert_eq!(only(sources.at(39_000)), (39_000, 10, b.clone()));
    assert_eq!(only(sources.at(36_005)), (36_000, 10, a.clone()));
    assert_eq!(only(sources.over(37_680, 120)), (37_680, 120, a));
    assert_eq!(only(sources.over(37_800, 120)), (37_800, 120, b));
    let hour = shares(&sources.over(36_000, 3_600));
    assert_eq!(hour.iter().map(|one| one.1).collect::<Vec<_>>(), [500, 500]);
    assert_eq!(sources.at(35_999).shards, []);
    // What is under way is put together of shorter steps.
    record(&sources, &names[0], 10);
    sources.end_second(39_600);
    assert_eq!(
        shares(&sources.over(39_600, 10)),
        [(names[0].clone(), 1_000)]
    );
}

#[test]
fn a_clock_that_goes_back_forgets_what_is_after_and_adds_to_the_second() {
    let sources = sources();
    let one = source("a", Operation::Get, None);
    for second in [100, 101, 102, 101] {
        record(&sources, &one, 10);
        sources.end_second(second);
    }
    assert_eq!(sources.at(102).shards, []);
    assert_eq!(sources.at(101).shards.len(), 1);
    assert!((sources.now().shards[0].busy - 0.03).abs() < 1e-9);
}

#[test]
fn the_past_and_the_names_are_bounded() {
    let sources = BusySources::new(16);
    for second in 0..600 {
        for shard in 0..16 {
            for number in 0..12 {
                let key = format!("{second}-{number}-{}", "k".repeat(1_000));
                let one = source("a", Operation::Get, Some(&key));
                sources.record(ShardId(shard), QUANTUM, 0, || one.clone());
            }
        }
        sources.end_second(second);
    }
    let memory = sources.past().memory();
    assert!(memory <= past::MEMORY_MAX, "{memory}");
    assert!(sources.at(599).shards.len() == 16);
    let shards = sources.shards.iter();
    let names =
        |shard: &Mutex<Option<ShardSources>>| shard.lock().unwrap().as_ref().unwrap().names.len();
    assert!(shards.map(names).all(|names| names <= COUNTERS));
}

#[test]
fn the_partition_of_most_keys_is_found_where_there_is_one() {
    let keys = |text: &str| -> Vec<PartitionKey> {
        let keys = text
            .chars()
            .map(|key| PartitionKey::new(key.to_string()).unwrap());
        keys.collect()
    };
    for (text, expected) in [
        ("aab", Some("a")),
        ("baa", Some("a")),
        ("abab", None),
        ("abc", None),
        ("abacada", Some("a")),
        ("abcc", None),
        ("a", Some("a")),
        ("", None),
    ] {
        let found = majority(keys(text).iter()).map(|key| key.as_bytes().to_vec());
        assert_eq!(found, expected.map(|key| key.as_bytes().to_vec()), "{text}");
    }
}
