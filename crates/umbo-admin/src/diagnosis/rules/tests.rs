//! Rules over staged facts, and an ordinary hour in which none of them finds anything.

use std::collections::VecDeque;

use umbo_api::hot::{HotCaller, HotKeyInfo, HotKeyName, HotKind, HotPod, HotReport, HotStanding};
use umbo_api::shed::{ShardQueue, TierOverload};
use umbo_observe::Findings;
use umbo_store::DiskSpace;
use umbo_telemetry::metrics::CallLatency;
use umbo_types::ShardId;

use super::super::facts::{CallerFacts, NodeFacts, PolicyFacts};
use super::*;

/// Seconds after which all is usual.
const WARM: usize = 120;

/// A dispatcher over time.
#[derive(Default)]
struct Stage {
    usual: SlowAverages,
    findings: Findings,
    second: u64,
    latencies: VecDeque<(f64, f64)>,
}

impl Stage {
    /// Lets seconds pass with the same facts, and returns the sentences that stand then.
    fn pass(&mut self, seconds: usize, facts: &Facts) -> Vec<String> {
        for _ in 0..seconds {
            self.second += 1;
            let found = found(facts, &self.usual);
            learn(facts, &found, &mut self.usual);
            self.findings.look(self.second * 1_000, found);
        }
        self.findings.current().map(|one| one.sentence).collect()
    }

    /// Returns a node whose calls of this second had a p99.
    fn node(&mut self, p99_ms: f64) -> NodeFacts {
        self.latencies.push_back((100.0, p99_ms));
        if self.latencies.len() > 5 {
            self.latencies.pop_front();
        }
        node(self.latencies.iter().copied().collect())
    }
}

fn node(seconds: Vec<(f64, f64)>) -> NodeFacts {
    NodeFacts {
        name: "b".to_owned(),
        shards: vec![ShardId(2), ShardId(3)],
        latency: Some(CallLatency {
            p50_ms: 1.0,
            p99_ms: 1.0,
            seconds,
        }),
        ..NodeFacts::default()
    }
}

/// Callers with their requests a second, each of which costs a request unit.
fn of_callers(callers: &[(&str, f64)]) -> Facts {
    let facts = |requests| CallerFacts {
        requests,
        rejected: 0.0,
        ru: requests,
    };
    let requests = callers.iter().map(|one| one.1).sum();
    Facts {
        callers: (callers.iter())
            .map(|(name, requests)| ((*name).to_owned(), facts(*requests)))
            .collect(),
        requests,
        ru: requests,
        ..Facts::default()
    }
}

fn shard(overloaded: bool, waiting: u64, shed: u64) -> ShardOverload {
    ShardOverload {
        shard: 2,
        overloaded,
        queue: ShardQueue {
            waiting,
            ..ShardQueue::default()
        },
        tiers: vec![TierOverload {
            shed: [("latency-ratio".to_owned(), shed)].into(),
            ..TierOverload::default()
        }],
        ..ShardOverload::default()
    }
}

fn busy(share: f64, busy: f64, pk: Option<&str>) -> BusyShardInfo {
    BusyShardInfo {
        shard: 2,
        busy,
        sources: vec![BusySourceInfo {
            share,
            caller: Some("crawler".to_owned()),
            operation: "range".to_owned(),
            namespace: Some("shop".to_owned()),
            pk: pk.map(str::to_owned),
            pk64: None,
        }],
    }
}

fn hot(rate: f64, all: f64) -> HotReport {
    let name = HotKeyName {
        id: String::new(),
        hash: "00ff".to_owned(),
        namespace: "shop".to_owned(),
        kind: HotKind::Row,
        pk: Some("item".to_owned()),
        pk64: None,
        sk: Some("7".to_owned()),
        sk64: None,
    };
    let caller = HotCaller {
        caller: "web".to_owned(),
        share: 1.0,
    };
    let key = HotKeyInfo {
        key: name,
        standing: HotStanding::Hot,
        is_hot: true,
        rate,
        rate_error: 0.0,
        rate_now: rate,
        ru_rate: rate,
        hot_for_ms: 0,
        reads: 0,
        hits: 0,
        hit_ratio: 0.0,
        callers: vec![caller],
        pinned: None,
        blocked: None,
    };
    let pod = HotPod {
        reads_rate: all,
        ..HotPod::default()
    };
    let keys = vec![key];
    HotReport { keys, pod }
}

#[test]
fn a_caller_that_sends_many_times_its_usual_is_named() {
    let mut stage = Stage::default();
    let usual = of_callers(&[("crawler", 15.0), ("web", 20.0)]);
    let unusual = of_callers(&[("crawler", 315.0), ("web", 20.0)]);
    assert_eq!(stage.pass(WARM, &usual), [""; 0]);
    assert_eq!(stage.pass(3, &unusual), [""; 0], "a burst");
    let sentence = "caller crawler sends 315 requests/s, 21 times its usual 15, and takes 94 % of the request units";
    assert_eq!(stage.pass(1, &unusual), [sentence]);
    assert_eq!(
        stage.pass(1_800, &unusual).len(),
        1,
        "an incident stays unusual"
    );
    assert_eq!(stage.pass(9, &usual).len(), 1);
    assert_eq!(stage.pass(1, &usual), [""; 0]);
    // Without history, with few requests, or with little of the request units no caller is unusual.
    assert_eq!(Stage::default().pass(30, &unusual), [""; 0]);
    for callers in [
        [("crawler", 45.0), ("web", 20.0)],
        [("crawler", 315.0), ("web", 2_000.0)],
    ] {
        let mut stage = Stage::default();
        stage.pass(
            WARM,
            &of_callers(&[("crawler", 5.0), ("web", callers[1].1)]),
        );
        assert_eq!(stage.pass(20, &of_callers(&callers)), [""; 0]);
    }
}

#[test]
fn a_caller_that_was_idle_is_named() {
    let mut stage = Stage::default();
    stage.pass(1, &of_callers(&[("crawler", 0.2)]));
    stage.pass(WARM, &of_callers(&[("web", 20.0)]));
    let told = stage.pass(4, &of_callers(&[("crawler", 400.0), ("web", 20.0)]));
    let sentence = "caller crawler sends 400 requests/s, usually next to none, and takes 95 % of the request units";
    assert_eq!(told, [sentence]);
}

#[test]
fn a_node_that_answers_slowly_is_named() {
    let mut stage = Stage::default();
    let of = |node| Facts {
        nodes: vec![node],
        ..Facts::default()
    };
    for _ in 0..WARM {
        let node = stage.node(7.0);
        assert_eq!(stage.pass(1, &of(node)), [""; 0]);
    }
    let pause = stage.node(254.0);
    assert_eq!(stage.pass(1, &of(pause)), [""; 0]);
    for _ in 0..20 {
        let node = stage.node(7.0);
        assert_eq!(stage.pass(1, &of(node)), [""; 0], "one pause");
    }
    let mut told = Vec::new();
    for _ in 0..5 {
        let node = stage.node(254.0);
        told = stage.pass(1, &of(node));
    }
    assert_eq!(
        told,
        ["node b answers in 254 ms (p99), usually in 7 ms: shards 2, 3"]
    );
    let mut local = stage.node(254.0);
    local.name = LOCAL.to_owned();
    stage.usual.nodes.learn(LOCAL, 7.0, false);
    for _ in 0..WARM {
        stage.usual.nodes.learn(LOCAL, 7.0, false);
    }
    let told = found(&of(local), &stage.usual);
    assert_eq!(
        told[0].sentence,
        "this server answers in 254 ms (p99), usually in 7 ms"
    );
    // A few calls are no latency, and a few milliseconds not slow.
    assert_eq!(node(vec![(2.0, 900.0); 5]).p99_ms(), None);
    let mut fast = Stage::default();
    fast.pass(WARM, &of(node(vec![(100.0, 1.0); 5])));
    assert_eq!(fast.pass(20, &of(node(vec![(100.0, 15.0); 5]))), [""; 0]);
}

#[test]
fn a_slow_disk_is_the_cause_of_a_slow_node() {
    let mut stage = Stage::default();
    let mut total = [0, 0];
    let mut pass = |count, seconds, p99_ms, commit_ms: u64| {
        let mut told = Vec::new();
        for _ in 0..seconds {
            total = [total[0] + count, total[1] + count * commit_ms * 1_000_000];
            let node = NodeFacts {
                commits: total,
                ..stage.node(p99_ms)
            };
            let facts = Facts {
                nodes: vec![node],
                ..Facts::default()
            };
            told = stage.pass(1, &facts);
        }
        told
    };
    assert_eq!(pass(10, WARM, 7.0, 3), [""; 0]);
    let slow = "node b answers in 254 ms (p99), usually in 7 ms: shards 2, 3";
    let disk = "; its disk takes 250 ms for a commit, usually 3.1 ms";
    assert_eq!(pass(10, 5, 254.0, 250), [format!("{slow}{disk}")]);
    // In seconds without commits the last ones count, and nothing is learned of them.
    assert_eq!(pass(0, 1, 254.0, 0), [format!("{slow}{disk}")]);
    assert_eq!(pass(10, 15, 7.0, 3), [""; 0]);
    let told = pass(10, 5, 254.0, 3);
    assert!(!told[0].contains("disk"), "another cause: {told:?}");
}

#[test]
fn an_overloaded_shard_names_who_causes_it() {
    let mut stage = Stage::default();
    let mut facts = Facts {
        shards: vec![shard(true, 3, 100)],
        busy: vec![busy(0.914, 0.4, Some("listing:17"))],
        ..Facts::default()
    };
    stage.pass(1, &facts);
    facts.shards = vec![shard(true, 3, 140)];
    let cause =
        "91 % of its time goes to range by caller crawler, namespace shop, partition listing:17";
    let sentence = format!("shard 2 is overloaded and sheds 40 requests/s: {cause}");
    assert_eq!(stage.pass(1, &facts), [sentence]);
    let waiting = Facts {
        shards: vec![shard(false, 140, 0)],
        ..Facts::default()
    };
    assert_eq!(
        Stage::default().pass(4, &waiting),
        ["140 requests wait for shard 2"]
    );
    let few = Facts {
        shards: vec![shard(false, 60, 0)],
        ..Facts::default()
    };
    assert_eq!(Stage::default().pass(20, &few), [""; 0]);
}

#[test]
fn a_hot_partition_and_a_hot_key_are_named() {
    let of = |busy: BusyShardInfo| Facts {
        busy: vec![busy],
        ..Facts::default()
    };
    let sentence = "partition listing:17 keeps shard 2 busy 82 % of the time: 91 % of it is range by caller crawler, \
                    namespace shop";
    let told = Stage::default().pass(4, &of(busy(0.91, 0.82, Some("listing:17"))));
    assert_eq!(told, [sentence]);
    for quiet in [
        busy(0.91, 0.3, Some("a")),
        busy(0.4, 0.9, Some("a")),
        busy(0.9, 0.9, None),
    ] {
        assert_eq!(Stage::default().pass(20, &of(quiet)), [""; 0]);
    }
    let of = |hot| Facts {
        hot: Some(hot),
        ..Facts::default()
    };
    let told = Stage::default().pass(4, &of(hot(800.0, 850.0)));
    let sentence = "key shop/item/7 gets 800 reads/s, 94 % of all, 100 % of them by caller web";
    assert_eq!(told, [sentence]);
    for quiet in [hot(800.0, 4_000.0), hot(90.0, 100.0)] {
        assert_eq!(Stage::default().pass(20, &of(quiet)), [""; 0]);
    }
}

#[test]
fn a_policy_that_rejects_names_its_caller() {
    let of = |rejected: f64, requests: f64| {
        let mut facts = of_callers(&[("crawler", requests), ("web", 50.0)]);
        facts.callers.get_mut("crawler").unwrap().rejected = rejected;
        facts.policies = vec![PolicyFacts {
            name: "crawler-cap".to_owned(),
            rejected,
            bucket: "caller=crawler".to_owned(),
            asked: rejected + requests,
            limit: 5.0,
            unit: "requests",
        }];
        facts
    };
    let sentence = "policy crawler-cap rejects 16 requests/s of caller crawler: 21 requests/s are asked for and \
                    5 requests/s allowed";
    assert_eq!(Stage::default().pass(4, &of(16.0, 5.0)), [sentence]);
    for quiet in [of(0.5, 0.5), of(16.0, 300.0)] {
        assert_eq!(Stage::default().pass(20, &quiet), [""; 0]);
    }
}

#[test]
fn failing_requests_are_told() {
    let of = |failed| Facts {
        requests: 940.0,
        failed,
        ..Facts::default()
    };
    assert_eq!(
        Stage::default().pass(4, &of(47.0)),
        ["47 requests/s fail, 5 % of all"]
    );
    assert_eq!(Stage::default().pass(20, &of(5.0)), [""; 0]);
}

#[test]
fn a_disk_that_is_nearly_full_or_fills_is_told() {
    let gib = 1 << 30;
    let of = |free: u64, size: u64| Facts {
        disk: Some(DiskSpace { size, free }),
        ..Facts::default()
    };
    let told = Stage::default().pass(2, &of(2 * gib, 100 * gib));
    assert_eq!(told, ["the disk has 2 GiB free, 2 % of it"]);
    assert_eq!(
        Stage::default().pass(2, &of(60 * gib, 1_000 * gib)),
        [""; 0]
    );
    let mut stage = Stage::default();
    let mut free = 60 * gib;
    let mut told = Vec::new();
    for _ in 0..700 {
        free -= gib / 20;
        told = stage.pass(1, &of(free, 100 * gib));
        assert!(stage.second > 590 || told.is_empty(), "{told:?}");
    }
    let is_told =
        told.len() == 1 && told[0].contains("is full in") && told[0].contains("at this rate");
    assert!(is_told, "{told:?}");
}

#[test]
fn sentences_are_short_whatever_the_names_are() {
    let long = "x".repeat(500);
    let mut stage = Stage::default();
    stage.pass(WARM, &of_callers(&[(&long, 15.0)]));
    let told = stage.pass(4, &of_callers(&[(&long, 315.0)]));
    assert!(told[0].chars().count() < 160, "{told:?}");
}

/// Callers of many sizes whose rates go up and down by half and that send a burst now and then; a cluster whose disks
/// pause; a key that is read more than others; a queue that fills for a moment; a request that fails now and then; and a
/// disk that fills.
#[test]
fn an_ordinary_hour_finds_nothing() {
    for seed in 0..5 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut stage = Stage::default();
        let names: Vec<String> = (0..8).map(|at| format!("caller-{at}")).collect();
        let bases: Vec<f64> = (0..8).map(|_| 2.0 + 300.0 * random.f64().powi(3)).collect();
        let mut bursts = [0_u32; 8];
        let mut free = 200_u64 << 30;
        for second in 0..3_600 {
            let mut callers = Vec::new();
            for ((name, base), burst) in names.iter().zip(&bases).zip(&mut bursts) {
                *burst = burst.saturating_sub(1);
                if random.u32(..120) == 0 {
                    *burst = random.u32(1..=2);
                }
                let times = if *burst > 0 { 8.0 } else { 1.0 };
                callers.push((&**name, base * times * (0.5 + random.f64())));
            }
            let mut facts = of_callers(&callers);
            facts.failed = if random.u32(..50) == 0 { 1.0 } else { 0.0 };
            let pause = random.u32(..60) == 0;
            let p99_ms = if pause {
                150.0
            } else {
                6.0 * (0.5 + random.f64())
            };
            facts.nodes = vec![stage.node(p99_ms)];
            facts.hot = Some(hot(facts.requests * 0.3 * random.f64(), facts.requests));
            facts.busy = vec![busy(random.f64(), 0.4 * random.f64(), Some("listing:17"))];
            let waiting = if random.u32(..30) == 0 { 150 } else { 0 };
            facts.shards = vec![shard(false, waiting, 0)];
            free -= random.u64(..1 << 20);
            facts.disk = Some(DiskSpace {
                size: 500 << 30,
                free,
            });
            let told = stage.pass(1, &facts);
            assert_eq!(told, [""; 0], "seed {seed}, second {second}");
        }
    }
}
