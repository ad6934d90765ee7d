//! The checks of hot keys: what must hold when many want the same.

mod cost;
mod drill;
mod throughput;

use super::plan::Check;

pub(super) const CHECKS: [Check; 4] = [
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
