//! Dispatchers that share counters, in worlds where everything goes wrong that can.
//!
//! Held in every world without lies, at every instant and for every counter: admitted ≤ sides × (burst + two periods of
//! the rate) + 1.1 × rate × the time of each side + the largest price for each dispatcher that ever began. Sides are
//! groups of dispatchers that reach each other and know the same row. Each side continues with its last shares, has
//! equal shares after five periods, and then another owner, so that each side admits up to the rate.
//!
//! Held after the faults, once the presence of the dead is over: clients that ask for twice the rate get 0.95 of it, but
//! for the debt of the fleet and for 0.3 seconds of the rate. All dispatchers know one row, and no one finds an owner
//! silent. Always: the row has at most eight owners, each once, and grows by one revision at a time.
#![cfg(test)]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "amounts and shares of simulations"
)]

mod counters;
mod lies;
#[path = "../limiter/random.rs"]
mod random;
mod stories;
mod support;
mod world;

use std::env;
use std::ops::Range;
use std::panic::catch_unwind;

use world::{Faults, World};

/// Runs worlds; a world that fails has printed its events, and the others run all the same.
fn run(seeds: Range<u64>, faults: Faults) {
    let one: Option<u64> = env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut bursts, mut prices, mut failed) = (0.0_f64, 0.0_f64, Vec::new());
    for seed in seeds.filter(|seed| one.is_none_or(|one| one == *seed)) {
        match catch_unwind(|| World::run(seed, faults)) {
            Ok(counters) => {
                for counter in counters {
                    bursts = bursts.max(counter.excess.0);
                    prices = prices.max(counter.excess.1);
                }
            }
            Err(_) => failed.push(seed),
        }
    }
    println!("{faults:?}: over by {bursts:.3} bursts, {prices:.3} prices");
    assert!(failed.is_empty(), "seeds {failed:?} failed: see above");
}

#[test]
fn messages_are_lost_late_and_repeated() {
    run(0..50, Faults::default());
}

#[test]
fn requests_are_larger_than_a_burst() {
    run(
        50..100,
        Faults {
            deaths: true,
            large: true,
            ..Faults::default()
        },
    );
}

#[test]
fn dispatchers_die_leave_and_begin() {
    run(
        100..150,
        Faults {
            deaths: true,
            ..Faults::default()
        },
    );
}

#[test]
fn dispatchers_are_cut_off_and_read_old_rows() {
    run(
        200..260,
        Faults {
            cuts: true,
            ..Faults::default()
        },
    );
}

#[test]
fn policies_change_while_dispatchers_come_and_go() {
    run(
        300..340,
        Faults {
            deaths: true,
            policies: true,
            ..Faults::default()
        },
    );
}

#[test]
fn all_goes_wrong_at_once() {
    run(
        400..450,
        Faults {
            deaths: true,
            cuts: true,
            policies: true,
            ..Faults::default()
        },
    );
}

#[test]
fn a_peer_lies() {
    run(
        500..560,
        Faults {
            deaths: true,
            cuts: true,
            policies: true,
            large: true,
            lies: true,
        },
    );
}
