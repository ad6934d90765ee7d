//! Versions: at least the proposed one, and above every version given before on the shard or, where the engine
//! declares no more, the partition.

use std::time::Duration;

use umbo_types::{Clock, NamespaceId, Timestamp, Version};

use crate::suite::seeded::Seeded;
use crate::suite::subject::{CALL, START, TestSubject, applied, delete, key, put, put_until};
use crate::suite::versions::Versions;
use crate::suite::{Engine, Restart};
use crate::{ByKey as _, Condition, Mutation, SortRange, WriteRequest};

impl Versions {
    /// Writes, and checks the versions that are given.
    async fn write<E: Engine>(
        &mut self,
        t: &TestSubject<E>,
        mutation: Mutation,
        proposed: Version,
    ) {
        let request = WriteRequest {
            proposed,
            ..t.request(vec![mutation])
        };
        self.send(t, request).await;
    }

    async fn send<E: Engine>(&mut self, t: &TestSubject<E>, request: WriteRequest) {
        let answers = t.store.write_rows(&CALL, request.clone()).await;
        assert!(answers.iter().all(Result::is_ok));
        self.check(&*t.store, &request, &answers);
    }
}

fn now<E>(t: &TestSubject<E>) -> Version {
    Version::proposed_at(t.clock.wall())
}

/// Versions grow along a shard, whatever is proposed: equal, lower, higher, zero, far ahead.
pub async fn versions_grow_whatever_is_proposed<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let mut last = Versions::default();
    let mut random = Seeded::new(2);
    for round in 0..400 {
        let base = START.0 + round;
        let proposed = *random.pick(&[0, 1, base, base - 5_000, base + 5_000]);
        let namespace = NamespaceId(1 + random.below(3) as u32);
        let count = 1 + random.below(4);
        let mutations = (0..count).map(|_| {
            let at = key(format!("p{}", random.below(9)), [random.below(3) as u8]);
            if random.one_in(3) {
                delete(&at)
            } else {
                put(&at, "v")
            }
        });
        let request = WriteRequest {
            namespace,
            proposed: Version(proposed),
            ..t.request(mutations.collect())
        };
        last.send(&t, request).await;
    }
    let far = Version::latest_at(t.clock.wall());
    last.write(&t, put(&key("p", "s"), "far"), far).await;
    last.write(&t, put(&key("p", "s"), "back"), now(&t)).await;
}

/// A proposal from far ahead of the clock cannot wear the versions of a shard out.
pub async fn versions_stay_near_the_clock<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let latest = Version::latest_at(t.clock.wall());
    let mut before = Version(0);
    for proposed in [u64::MAX, latest.0 + 1, u64::MAX - 1, 1 << 62, 1] {
        let request = WriteRequest {
            proposed: Version(proposed),
            ..t.request(vec![put(&at, "v")])
        };
        let answer = t.store.write_rows(&CALL, request).await.pop();
        let version = applied(answer.expect("one answer")).version;
        assert!(version > before && version.0 < latest.0 + 10, "{version:?}");
        before = version;
    }
}

/// Versions grow while the time of day goes back.
pub async fn versions_grow_while_the_clock_goes_back<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let mut last = Versions::default();
    for n in 0..50_u64 {
        t.clock.set_wall(Timestamp(START.0 - n * 1_000_000));
        last.write(&t, put(&key("p", "s"), "v"), now(&t)).await;
    }
}

/// A key that was removed in any way, or has expired, begins again above all its versions.
pub async fn versions_outlive_their_rows<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let mut last = Versions::default();
    let low = Version(1);
    for way in 0..3 {
        let soon = t.clock.wall().saturating_add(Duration::from_millis(1));
        let far = Version(now(&t).0 + 1_000_000 * (way + 1));
        last.write(&t, put_until(&at, "v", Some(soon)), far).await;
        match way {
            0 => last.write(&t, delete(&at), low).await,
            1 => {
                let all = t.removal("p", SortRange::default());
                assert_eq!(t.remove(all).await.rows, 1);
            }
            _ => t.clock.advance(Duration::from_millis(1)),
        }
        assert_eq!(t.get(&at).await, None);
        last.write(&t, put(&at, "again"), low).await;
    }
}

/// A mutation that was refused, alone or with its group, changes no version that can be seen.
pub async fn refused_mutations_give_no_version<E: Engine>() {
    let t = TestSubject::<E>::fresh().await;
    let at = key("p", "s");
    let before = t.put(&at, "v").await.version;
    let refused = || put(&at, "w").when(Condition::Absent);
    assert!(t.write_one(refused()).await.is_err());
    let group = vec![put(&at, "x"), refused()];
    assert!(t.write_atomic(group).await.iter().all(Result::is_err));
    assert_eq!(t.get(&at).await.expect("it stays").version, before);
    assert!(t.put(&at, "y").await.version > before);
}

/// After a restart versions go on above all before, though the clock has gone back and the rows
/// that carried the highest ones are gone.
pub async fn versions_grow_across_restarts<E: Restart>() {
    let mut t = TestSubject::<E>::fresh().await;
    let mut last = Versions::default();
    let partitions: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
    for round in 0..5 {
        for partition in &partitions {
            let at = key(partition, "s");
            let far = Version::latest_at(t.clock.wall());
            last.write(&t, put(&at, "v"), far).await;
        }
        match round {
            // The highest version of each shard is that of a removal.
            1 => {
                for partition in &partitions {
                    let at = key(partition, "s");
                    last.write(&t, delete(&at), Version(1)).await;
                }
            }
            2 => {
                for partition in &partitions {
                    let all = t.removal(partition, SortRange::default());
                    assert_eq!(t.remove(all).await.rows, 1);
                }
            }
            _ => {}
        }
        t.clock.set_wall(Timestamp(START.0 - round * 10_000_000));
        t = if round % 2 == 0 {
            t.restart().await
        } else {
            t.close_and_restart().await
        };
        for partition in &partitions {
            let at = key(partition, "s");
            last.write(&t, put(&at, "v"), now(&t)).await;
        }
    }
}
