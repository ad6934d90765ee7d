//! The checks of the price: what the store's time costs on a real server.

mod callers;
mod cold_pages;
mod formula;
mod latency;

use super::plan::Check;

pub(super) const CHECKS: [Check; 2] = [
    Check {
        name: "latency",
        about: "price of the store's time by regression, pages cold and hot: within 5 % of 0.1 RU/ms",
        run: latency::latency,
    },
    Check {
        name: "callers",
        about: "two callers with equal RU/s, one reads from memory, one from disk: busy time as priced",
        run: callers::callers,
    },
];
