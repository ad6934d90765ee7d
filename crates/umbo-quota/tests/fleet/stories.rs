//! Single dispatchers whose owner is silent, and counters without requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use umbo_quota::{
    FLEET_TICK, FleetQuota, Limit, Limiter, OwnerRow, PolicyScope, PolicySet, RowWish,
};
use umbo_types::ShardId;

use crate::support::{SECRET, admit, fleet_quota, limiter, put, written};

/// Price of each request.
const PRICE: u64 = 6_050_000;
const RATE: u64 = 100 * PRICE;

struct Place {
    limiter: Arc<Limiter>,
    quota: FleetQuota,
    now: Instant,
}

impl Place {
    /// Begins a dispatcher in a fleet of these members, with these owners.
    fn new(id: u64, members: &[u64], owners: &[u64], now: Instant) -> Self {
        Self::of_scope(PolicyScope::Fleet, id, members, owners, now)
    }

    fn of_scope(
        scope: PolicyScope,
        id: u64,
        members: &[u64],
        owners: &[u64],
        now: Instant,
    ) -> Self {
        let limit = Limit {
            rate: RATE,
            burst: RATE,
        };
        let limiter = Arc::new(limiter(fleet_quota(limit, scope), id, now));
        let quota = FleetQuota::new(Arc::clone(&limiter), id, &SECRET);
        quota.set_members(members);
        quota.set_row(&OwnerRow {
            revision: 1,
            owners: owners.to_vec(),
        });
        Self {
            limiter,
            quota,
            now,
        }
    }

    /// Asks some times, and returns how much was admitted.
    fn ask(&self, caller: &str, times: u64) -> u64 {
        self.ask_shard(ShardId(0), caller, times)
    }

    fn ask_shard(&self, shard: ShardId, caller: &str, times: u64) -> u64 {
        let mut admitted = 0;
        for _ in 0..times {
            if let Ok(mut reservation) = admit(&self.limiter, &put(caller, 0), shard, self.now, 0) {
                admitted += reservation.settle(&written(0)).as_micros();
            }
        }
        admitted
    }

    /// Lets a tick pass; messages are lost. Returns them.
    fn tick(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.now += FLEET_TICK;
        let messages = self.quota.tick(self.now).into_iter();
        messages.map(|message| (message.to, message.body)).collect()
    }
}

#[test]
fn a_counter_that_is_idle_is_let_go_and_comes_back() {
    let mut place = Place::new(1, &[1], &[1], Instant::now());
    for _ in 0..3 {
        assert!(place.ask("caller", 1) > 0);
        place.tick();
        assert_eq!(place.quota.report().reported, 1);
        for _ in 0..150 {
            place.tick();
        }
        assert_eq!(place.quota.report().reported, 0);
    }
}

#[test]
fn each_shard_has_a_counter_that_the_dispatchers_share() {
    let now = Instant::now();
    let [mut first, mut second] =
        [1, 2].map(|id| Place::of_scope(PolicyScope::Shard, id, &[1, 2], &[1], now));
    let (mut admitted, seconds) = ([0; 2], 20);
    for tick in 0..seconds * 50 {
        assert_eq!(first.tick(), [], "the owner tells itself");
        for (owner, body) in second.tick() {
            let answer = first.quota.hear(&body, first.now).unwrap();
            second.quota.answered(owner, &answer, second.now);
        }
        // Shard 0 is asked for much at one dispatcher, shard 1 at both.
        let got = [
            first.ask_shard(ShardId(0), "caller", 40),
            first.ask_shard(ShardId(1), "caller", 20) + second.ask_shard(ShardId(1), "caller", 20),
        ];
        if tick >= 5 * 50 {
            admitted = [admitted[0] + got[0], admitted[1] + got[1]];
        }
    }
    for (shard, admitted) in admitted.into_iter().enumerate() {
        let part = admitted as f64 / ((seconds - 5) * RATE) as f64;
        assert!((0.97..=1.02).contains(&part), "shard {shard}: {part}");
    }
}

#[test]
fn nothing_is_told_once_no_policy_has_the_scope() {
    let mut place = Place::new(1, &[1, 2], &[2], Instant::now());
    place.ask("caller", 1);
    for _ in 0..50 {
        place.tick();
    }
    assert_eq!(place.quota.report().silent, [2]);
    place.limiter.replace(PolicySet::built_in());
    assert_eq!(place.tick(), []);
    assert_eq!(place.quota.report().reported, 0);
    assert!(place.quota.report().silent.is_empty());
}

#[test]
fn a_row_that_the_home_has_lost_is_written_again() {
    let owners = [1, 2];
    // Another home without the row, or an older backup of it, in which a dispatcher that is gone was an owner.
    let older = OwnerRow {
        revision: 0,
        owners: vec![9],
    };
    for lost in [OwnerRow::default(), older] {
        let place = Place::new(1, &owners, &owners, Instant::now());
        assert_eq!(place.quota.row_wish(place.now), RowWish::Nothing);
        place.quota.set_row(&lost);
        let next = OwnerRow {
            revision: 2,
            owners: owners.to_vec(),
        };
        let later = place.now + Duration::from_secs(1);
        assert_eq!(place.quota.row_wish(later), RowWish::Change(next.clone()));
        // Written by another dispatcher.
        let other = Place::new(2, &owners, &owners, place.now);
        other.quota.set_row(&next);
        assert_eq!(other.quota.row_wish(later), RowWish::Nothing);
    }
}

#[test]
fn without_an_owner_each_dispatcher_has_an_equal_share() {
    let mut place = Place::new(1, &[1, 2, 3, 4], &[2], Instant::now());
    let mut admitted = 0;
    for second in 0..20 {
        for _ in 0..50 {
            let got = place.ask("caller", 10);
            admitted += if second < 10 { 0 } else { got };
            place.tick();
        }
    }
    assert_eq!(place.quota.report().silent, [2]);
    let share = admitted as f64 / (10 * RATE) as f64;
    assert!((0.24..=0.26).contains(&share), "{share}");
}

/// Lets one or both of the dispatchers 2 and 3 ask for a second while the owner 1 is away; both answer. Returns the wish of
/// the second.
fn wish_without_the_first(asking: usize) -> RowWish {
    let ids = [1, 2, 3];
    let now = Instant::now();
    let mut places = [2, 3].map(|id| Place::new(id, &ids, &ids, now));
    for _ in 0..50 {
        for at in 0..asking {
            for caller in 0..16 {
                places[at].ask(&format!("caller-{caller}"), 1);
            }
            for (to, body) in places[at].tick() {
                if to != 1 {
                    let answer = places[1 - at].quota.hear(&body, places[1 - at].now);
                    let answer = answer.expect("it is whole");
                    places[at].quota.answered(to, &answer, places[at].now);
                }
            }
        }
    }
    assert_eq!(places[0].quota.report().silent, [1]);
    places[0].quota.row_wish(places[0].now)
}

#[test]
fn an_owner_leaves_the_row_by_the_words_of_two() {
    let next = OwnerRow {
        revision: 2,
        owners: vec![2, 3],
    };
    assert_eq!(wish_without_the_first(2), RowWish::Change(next));
}

#[test]
fn one_word_is_enough_for_nothing() {
    assert_eq!(wish_without_the_first(1), RowWish::Nothing);
}
