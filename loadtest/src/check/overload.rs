//! The checks of overload: what must hold when more is asked for than can be done.

mod noise;
mod record;
mod service;
mod simulated;
mod step;
mod windows;

use super::{Check, Plan};

pub(super) const CHECKS: [Check; 8] = [
    Check {
        name: "spike",
        about: "ten times the load: 0.9 of the goodput, critical answered, over within 200 ms",
        run: |plan| Ok(simulated::spike(plan)),
    },
    Check {
        name: "stall",
        about: "a shard sleeps: the others keep 0.98 of their goodput and 1.2 of their p99",
        run: |plan| Ok(simulated::stall(plan)),
    },
    Check {
        name: "trouble",
        about: "all scenarios: critical answered wherever there is a shard, over within 200 ms",
        run: |plan| Ok(simulated::trouble(plan)),
    },
    Check {
        name: "inversions",
        about: "a higher tier shed beside a lower one admitted but for its floor: 0.1 %",
        run: |plan| Ok(simulated::inversions(plan)),
    },
    Check {
        name: "windows",
        about: "p95 of windows against exact ones, six distributions: 3 % in the median, 10 % at p99",
        run: |plan| Ok(windows::windows(plan)),
    },
    Check {
        name: "record",
        about: "a service time: recorded in twice the time of reading the clock, a kibibyte a class",
        run: |plan| Ok(record::record(plan)),
    },
    Check {
        name: "step",
        about: "a 4 x step of latency: engaged within 1 s, released within 3 s, one pair of both",
        run: |plan| Ok(step::step(plan)),
    },
    Check {
        name: "noise",
        about: "24 hours of noise, diurnal load, changing mixes and lulls: nothing is engaged",
        run: |plan| Ok(noise::noise(plan)),
    },
];
