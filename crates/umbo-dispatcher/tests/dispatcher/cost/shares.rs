//! A flood beside others, with the settings that Umbo ships with: only the caller that floods is refused.
//!
//! Each turn is 20 ms of simulated time. In a turn in which the flood has written, the writes of the others take as long as
//! one large commit more, as in a store that commits one after the other.

use std::time::{Duration, Instant};

use umbo_dispatcher::overload::OverloadSettings;
use umbo_overload::TICK;

use crate::cost::support::{Reply, TestDispatcher};

const TURN: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);
/// Commits of a small value and of a large one.
const SMALL: Duration = Duration::from_micros(900);
const LARGE: Duration = Duration::from_millis(5);
const LARGE_LEN: usize = 200_000;
/// Large values that a flood tries to write in a turn.
const TRIES: u32 = 3;

struct World {
    pod: TestDispatcher,
    turns: u32,
    ticked: Instant,
    /// Large values that a small one waits for at most.
    waits_for: u32,
    /// Large values that were written in the last turn.
    flooded: u32,
    refused: Vec<Reply>,
}

impl World {
    async fn open() -> Self {
        let pod = TestDispatcher::open_with(&[], Some(OverloadSettings::default())).await;
        Self {
            ticked: pod.dispatcher.clock.monotonic(),
            pod,
            turns: 0,
            waits_for: 1,
            flooded: 0,
            refused: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.pod.dispatcher.clock.monotonic()
    }

    async fn put(&self, caller: &str, tier: &str, len: usize) -> Reply {
        let fields = [("umbo-quota-user", caller), ("umbo-criticality", tier)];
        let target = format!("/v1/ns/listings/kv/p/{caller}");
        self.pod.ask("PUT", &target, &fields, vec![b'v'; len]).await
    }

    /// Small puts of the two victims, which have to be served at the plain price.
    async fn victims(&self) {
        let time = SMALL + LARGE * self.flooded.min(self.waits_for);
        self.pod.store.set_group_time(time, SMALL);
        for (caller, tier) in [("page", "critical"), ("batch", "sheddable-plus")] {
            for _ in 0..2 {
                let reply = self.put(caller, tier, 100).await;
                assert!(
                    reply.status < 300,
                    "turn {}: {caller} {reply:?}",
                    self.turns
                );
                let units = reply.units().as_f64();
                assert!((4.0..12.0).contains(&units), "turn {}: {units}", self.turns);
            }
        }
    }

    /// One turn, with a flood of these callers in turns.
    async fn turn(&mut self, flood: &[(&str, &str)]) {
        let begun = self.now();
        self.victims().await;
        self.flooded = 0;
        for at in 0..TRIES * u32::from(!flood.is_empty()) {
            let (caller, tier) = flood[(self.turns * TRIES + at) as usize % flood.len()];
            self.pod.store.set_group_time(LARGE, LARGE);
            let reply = self.put(caller, tier, LARGE_LEN).await;
            if reply.status < 300 {
                self.flooded += 1;
            } else {
                self.refused.push(reply);
            }
        }
        let taken = self.now() - begun;
        self.pod.clock.advance(TURN.saturating_sub(taken));
        self.turns += 1;
        self.pod.dispatcher.tick_queues(Duration::ZERO);
        if self.now() - self.ticked >= TICK {
            self.ticked += TICK;
            self.pod.dispatcher.tick();
        }
    }

    /// So many seconds; returns the busy time of the flood in each, in milliseconds.
    async fn seconds(&mut self, seconds: u32, flood: &[(&str, &str)]) -> Vec<u128> {
        let mut busy = Vec::new();
        for _ in 0..seconds {
            let mut written = 0;
            let end = self.now() + SECOND;
            while self.now() < end {
                self.turn(flood).await;
                written += self.flooded;
            }
            busy.push((LARGE * written).as_millis());
        }
        busy
    }

    async fn shard(&self) -> serde_json::Value {
        let fields = [("umbo-quota-user", "page")];
        let reply = self.pod.ask("GET", "/admin/v1/shed", &fields, "").await;
        let shards = reply.json()["shards"].as_array().unwrap().clone();
        let busiest = |shard: &serde_json::Value| shard["busy"]["capacity_ms"].as_f64();
        let ordered = |one: &&_, other: &&_| busiest(one).partial_cmp(&busiest(other)).unwrap();
        shards.iter().max_by(ordered).unwrap().clone()
    }
}

#[tokio::test]
async fn the_caller_that_floods_a_shard_alone_is_refused() {
    for tier in ["sheddable", "sheddable-plus", "critical"] {
        let mut world = World::open().await;
        world.seconds(25, &[]).await;
        let busy = world.seconds(6, &[("flood", tier)]).await;
        let shard = world.shard().await;
        let allowed = shard["busy"]["share_ms"].as_f64().unwrap() * 1.1;
        assert_eq!(shard["busy"]["callers"], 3, "{shard}");
        assert!((110.0..440.0).contains(&allowed), "{shard}");
        // At once as much as it likes, from the second second on its share.
        assert!(busy[0] > 400, "{busy:?}");
        let most = u32::try_from(*busy[2..].iter().max().unwrap()).unwrap();
        assert!(f64::from(most) <= allowed, "{tier}: {busy:?} of {allowed}");
        assert!(busy[2..].iter().all(|busy| *busy > 0), "{busy:?}");
        let problem = world.refused.last().unwrap().problem();
        assert_eq!((problem.status, problem.tier.as_deref()), (503, Some(tier)));
        assert_eq!(problem.signal.as_deref(), Some("latency-ratio"));
        assert_eq!(world.refused.last().unwrap().ru(), "0");
        let held = |shard: &serde_json::Value| {
            let tiers = shard["tiers"].as_array().unwrap().clone();
            let held = |one: &&serde_json::Value| one["held_to_ms"].is_number();
            tiers.iter().filter(held).count()
        };
        assert_eq!(held(&shard), 1, "{shard}");
        // Two seconds after it ends all is as before.
        world.seconds(2, &[]).await;
        let shard = world.shard().await;
        assert_eq!(held(&shard), 0, "{shard}");
        assert_eq!(world.put("flood", tier, LARGE_LEN).await.status, 204);
        // An episode has ended once a second is quiet.
        world.seconds(1, &[]).await;
        assert_eq!(world.shard().await["overloaded"], false);
    }
}

#[tokio::test]
async fn many_callers_that_flood_together_are_held_to_less_than_their_shares() {
    let names: Vec<String> = (0..30).map(|number| format!("flood-{number}")).collect();
    let flood: Vec<_> = names.iter().map(|name| (&**name, "sheddable")).collect();
    // As long as others wait for one of their commits, which cannot be avoided, each may use its share.
    let mut world = World::open().await;
    world.seconds(25, &[]).await;
    world.seconds(8, &flood).await;
    assert!(world.refused.is_empty());
    let mut world = World::open().await;
    world.waits_for = TRIES;
    world.seconds(25, &[]).await;
    let busy = world.seconds(20, &flood).await;
    // They take turns: held to little the latency is normal, and then they are let go to see whether it stays so.
    let held = busy[4..].iter().sum::<u128>() / 16;
    assert!(held * 2 < busy[0], "{busy:?}");
    world.seconds(2, &[]).await;
    assert_eq!(
        world.put("flood-1", "sheddable", LARGE_LEN).await.status,
        204
    );
}

#[tokio::test]
async fn one_caller_alone_and_equal_callers_are_not_refused() {
    let mut world = World::open().await;
    for flood in [
        &[("page", "critical")][..],
        &[("page", "critical"), ("batch", "sheddable")],
    ] {
        world.seconds(25, flood).await;
        assert!(world.refused.is_empty(), "{:?}", world.refused[0]);
    }
}
