//! Runs Umbo's own code with simulated time, disk, network and random numbers, all from one seed.
//!
//! A world is a part of Umbo with clients that overwrite few rows, random faults, and oracles ([`history`])
//! that compare the observations of clients with the promises of the store contract. A run is one thread;
//! equal seeds give equal traces, so a failing seed is a test case. A server uses nothing of this crate.
//!
//! The worlds: `store` (one engine on a simulated disk), `records` (dispatchers over a store whose shards fail),
//! `moves` (shards that move between nodes, with the operator's steps left out), `hop` (stores of dispatchers and nodes
//! over a simulated network), `loads` (whole dispatchers that run loads and change versions, over such a network, with all
//! of it at once: paused runners, wrong clocks, shards that move, large values, disks that fail).
//! `cargo run --release -p umbo-simulation -- --seeds 2000` runs seeds of all of them, `--world hop --seed 0x7 --trace`
//! replays one. `mutants/` holds patches that break mends in Umbo's code, and
//! `tests/mutants --run NAME` shows that a world finds one.
//!
//! Start with [`worlds`] and [`simulation`].

pub mod chance;
pub mod clock;
pub mod command;
pub mod disk;
pub mod history;
pub mod records_world;
pub mod simulation;
pub mod store_world;
pub mod value;
pub mod watched_value;
pub mod worlds;
