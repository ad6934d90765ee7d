//! Tests of the toll: who passes, the floor, and what a refusal says.

use super::*;

const SECOND: u64 = 1_000_000;

fn work(tier: Criticality, caller: u64) -> Work {
    Work {
        shard: ShardId(0),
        tier,
        caller,
        cost: RequestUnits::from_micros(1_000_000),
    }
}

/// A toll at which some tiers are at the top of the ladder, with the cause of it.
fn toll(tiers: u32) -> Toll {
    let toll = Toll::default();
    toll.begin(1);
    toll.set_cause(Class::Range, 0.25);
    let top = (5 + 4) * 128;
    let word = (0..tiers).fold(0, |word, tier| word | top << (16 * tier));
    toll.set_steps(Steps::of_word(word));
    toll
}

fn terms(ledger: &Ledger, now_micros: u64) -> Terms<'_> {
    Terms {
        ledger,
        now_micros,
        epoch: 0,
        floor: 0.1,
        random: 0,
    }
}

/// Asks a thousand times a second for a while; returns the share that passed.
fn share(toll: &Toll, ledger: &Ledger, tier: Criticality, seconds: u64) -> f64 {
    let asked = seconds * 1_000;
    let passed = (0..asked).filter(|at| {
        let now = SECOND + at * 1_000;
        if at % 100 == 0 {
            toll.fade();
        }
        toll.admit(&work(tier, at % 50), &terms(ledger, now))
            .is_ok()
    });
    passed.count() as f64 / asked as f64
}

#[test]
fn nothing_is_shed_without_a_penalty() {
    let ledger = Ledger::new(64);
    for tier in Criticality::ALL {
        assert!(share(&toll(0), &ledger, tier, 1) > 0.999_9);
        assert!(share(&toll(tier as u32), &ledger, tier, 1) > 0.999_9);
    }
}

#[test]
fn a_tenth_of_what_a_tier_asks_for_passes() {
    // Fifty callers without an account share one that refills a unit a second.
    let ledger = Ledger::new(64);
    for tier in Criticality::ALL {
        let share = share(&toll(4), &ledger, tier, 5);
        assert!((0.1..0.11).contains(&share), "{share}");
    }
}

#[test]
fn a_caller_at_its_baseline_keeps_an_eighth() {
    let ledger = Ledger::new(1_024);
    for _ in 0..300 {
        for caller in 0..50 {
            let id = AccountId::new(caller, ShardId(0), Criticality::Sheddable);
            let cost = RequestUnits::from_micros(20_000_000);
            ledger.find_or_place(id, cost).unwrap().charge(cost);
        }
        ledger.sweep(1.0, 1_000.0, |_| false);
    }
    let share = share(&toll(1), &ledger, Criticality::Sheddable, 5);
    assert!((0.11..0.15).contains(&share), "{share}");
}

#[test]
fn a_refusal_says_who_why_and_until_when() {
    let ledger = Ledger::new(64);
    let toll = toll(2);
    let ask = |random| {
        let work = work(Criticality::SheddablePlus, 7);
        toll.admit(
            &work,
            &Terms {
                random,
                ..terms(&ledger, SECOND)
            },
        )
    };
    let first = (0..20).find_map(|_| ask(0).err()).unwrap();
    assert_eq!(first.shard, ShardId(0));
    assert_eq!((first.class, first.ratio), (Class::Range, 0.25));
    assert_eq!(first.tier, Criticality::SheddablePlus);
    assert!((first.penalty - 8.0).abs() < 1e-9);
    assert_eq!(
        first.wait,
        Duration::from_secs(3),
        "eight units at one a second, and no more than this"
    );
    let longest = (0..20).find_map(|_| ask(u64::MAX).err()).unwrap();
    assert!(
        longest.wait > Duration::from_millis(3_500) && longest.wait < Duration::from_millis(3_600)
    );
    assert_eq!(jittered(0, 0), TICK);
    assert!(jittered(1, u64::MAX) <= TICK + Duration::from_millis(50));
    assert!(toll.shed()[Criticality::SheddablePlus as usize] > 0);
}

#[test]
fn what_is_asked_fades_and_a_new_engagement_forgets_it() {
    let ledger = Ledger::new(64);
    let toll = toll(1);
    assert!(toll.shares().iter().all(|share| *share <= 0.0));
    for at in 0..300 {
        let tier = if at % 3 == 0 {
            Criticality::Critical
        } else {
            Criticality::Sheddable
        };
        let _ = toll.admit(&work(tier, at), &terms(&ledger, SECOND));
    }
    let shares = toll.shares();
    assert!((shares[0] - 2.0 / 3.0).abs() < 1e-9 && (shares[2] - 1.0 / 3.0).abs() < 1e-9);
    for _ in 0..200 {
        toll.fade();
    }
    assert!(toll.tiers[0].asked.load(Relaxed) < FADE);
    toll.begin(2);
    assert_eq!((toll.shed(), toll.shares()), ([0; TIERS], [0.0; TIERS]));
}

#[test]
fn every_request_either_passes_or_is_shed_whichever_thread_asks() {
    let ledger = Ledger::new(64);
    let toll = toll(1);
    let passed: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (toll, ledger) = (&toll, &ledger);
                scope.spawn(move || {
                    let ask =
                        |at| toll.admit(&work(Criticality::Sheddable, thread), &terms(ledger, at));
                    (0..5_000).filter(|at| ask(SECOND + at).is_ok()).count() as u64
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(passed + toll.shed()[0], 20_000);
    assert!((2_000..2_010).contains(&passed), "{passed}");
}
