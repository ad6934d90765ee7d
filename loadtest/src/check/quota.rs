//! The checks of quotas: what a limiter must hold, and under which circumstances.

mod cost;
mod full_use;
mod neighbour;
mod peers;
mod sockets;
mod throughput;
mod truth;

use super::plan::Check;

pub(super) const CHECKS: [Check; 7] = [
    Check {
        name: "truth",
        about: "admitted of the quota over 60 s: 0.98 to 1.01; in any second: burst + 1.05 x rate",
        run: |plan| Ok(truth::truth(plan)),
    },
    Check {
        name: "full-use",
        about: "64 obedient clients at 4 x demand: 0.97 of the quota, 1.2 rejections a success",
        run: |plan| Ok(full_use::full_use(plan)),
    },
    Check {
        name: "cost",
        about: "admit + settle: 2 x governor's check, a fifth of limitador's, no allocation",
        run: cost::cost,
    },
    Check {
        name: "throughput",
        about: "gets a second of a real server with quotas, of without: 0.97",
        run: throughput::throughput,
    },
    Check {
        name: "neighbour",
        about: "beside a flood of ranges no get of another is refused, and its p99 stays within 1.3",
        run: neighbour::neighbour,
    },
    Check {
        name: "sockets",
        about: "8 real dispatchers, 12 patterns: admitted is off by 0.03 of one bucket at most",
        run: sockets::sockets,
    },
    Check {
        name: "peers",
        about: "a limit of 8 dispatchers by Umbo, Redis and gubernator: errors, costs, after a kill",
        run: peers::peers,
    },
];
