//! The checks of overload: what must hold when more is asked for than can be done.

mod closed_loops;
mod memory;
mod record;
mod simulated;
mod sockets;

use super::plan::Check;

pub(super) const CHECKS: [Check; 10] = [
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
        name: "record",
        about: "a service time: recorded in twice the time of reading the clock, 1.5 KiB a class",
        run: |plan| Ok(record::record(plan)),
    },
    Check {
        name: "memory",
        about: "100,000 who wait, and as many slow connections as can be had: the bounds of the settings",
        run: memory::memory,
    },
    Check {
        name: "closed-loops",
        about: "1 to 2,000 connections that ask in turn, alone and beside busy processes: none is refused",
        run: closed_loops::closed_loops,
    },
    Check {
        name: "sockets-spike",
        about: "the spike over real sockets: goodput 0.9, critical 0.999 at 2 x the p99, over in 200 ms",
        run: sockets::spike,
    },
    Check {
        name: "sockets-stall",
        about: "the stall over real sockets: 0.98 of the goodput and 1.2 x the p99 of the other shards",
        run: sockets::stall,
    },
    Check {
        name: "sockets",
        about: "the other scenarios over real sockets: critical 0.99, over in 200 ms (not with --quick)",
        run: sockets::trouble,
    },
];
