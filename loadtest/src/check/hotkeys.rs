//! The checks of hot keys: what must hold when many want the same.

mod cost;
mod drill;
mod pod;
mod runner;
mod sketch;
mod stampede;
mod throughput;
mod zipf;

use super::plan::Check;

pub(super) const CHECKS: [Check; 6] = [
    Check {
        name: "sketch",
        about: "1 M keys, Zipf and a flood: recall 1, precision 0.99; hot in 0.2 s, cool in 5 s; 1 MB",
        run: |plan| Ok(sketch::sketch(plan)),
    },
    Check {
        name: "stampede",
        about: "1 M reads a second of 10 keys, simulated: a read a hot key and time to live, 10,000 : 1",
        run: |plan| Ok(stampede::stampede(plan)),
    },
    Check {
        name: "cost",
        about: "counting a read: 1.5 x a probe of a hash map, no allocation",
        run: |plan| Ok(cost::cost(plan)),
    },
    Check {
        name: "spread",
        about: "gets a second of a real server with the layer, keys spread evenly, of without: 0.98",
        run: throughput::spread,
    },
    Check {
        name: "hit",
        about: "hits a second of a real server, of a bare handler: 0.9",
        run: throughput::hit,
    },
    Check {
        name: "drill",
        about: "10 keys as fast as the machine goes: reads of the store, errors, p99 of others: 1.2",
        run: drill::drill,
    },
];
