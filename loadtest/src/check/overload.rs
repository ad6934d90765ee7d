//! The checks of overload: what must hold when more is asked for than can be done.

mod simulated;

use super::{Check, Plan};

pub(super) const CHECKS: [Check; 4] = [
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
];
