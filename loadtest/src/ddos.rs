//! `umbo-loadtest ddos`: an attack on a few keys beside normal traffic, over real sockets.
//!
//! Owns the drill and its report. The server is the `umbo` binary on a core of its own; the attack is
//! a closed loop, as fast as the machine goes, and normal traffic goes on at its rate whatever the
//! answers are, both as processes on the other core. What reached the store is the server's own count
//! of reads of the store, less the reads of normal traffic: each of those is of a key of its own.

mod drill;
mod outcome;
mod traffic;

use clap::{Args, ValueEnum};

pub(crate) use self::drill::{Drill, LAYER_OFF, Phases, STORE_GETS};
pub(crate) use self::outcome::{Outcome, reads_max};
pub(crate) use self::traffic::{Target, Traffic};
use crate::bench::lab::Lab;
use crate::failure::Failure;
use crate::process::Cores;

/// What is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Aim {
    /// Few keys
    Keys,
    /// Few keys that nothing is under
    Absent,
    /// All keys alike: the same load without the attack
    Spread,
}

/// Arguments of `umbo-loadtest ddos`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What the attack reads
    #[arg(long, value_enum, default_value_t = Aim::Keys)]
    aim: Aim,
    /// Keys under attack
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    keys: u64,
    /// Connections of the attack, a request in flight on each
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Requests a second of normal traffic: gets of other keys, puts and ranges
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=50_000))]
    rate: u64,
    /// Seconds of the attack
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Seconds of normal traffic alone, before and after
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    calm: u64,
    /// Run the server without its layer for hot keys
    #[arg(long)]
    off: bool,
    /// Keys in the store, in hundreds
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=100_000))]
    partitions: u64,
}

impl Arguments {
    /// Runs the drill and prints its report.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut lab = Lab::open(None, true)?;
        lab.rows = self.partitions * crate::dataset::PARTITION_ROWS;
        let data = lab.loaded()?;
        let traffic = self.traffic();
        let mut drill = Drill::open(&mut lab, &data, Cores::Server, !self.off, &traffic)?;
        let outcome = drill.run(&Phases {
            before: self.calm,
            attack: self.seconds,
            after: self.calm,
        })?;
        drill.close()?;
        for line in outcome.lines(&traffic) {
            println!("{line}");
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            seed: 1,
            target: match self.aim {
                Aim::Keys => Target::Keys(self.keys),
                Aim::Absent => Target::Absent(self.keys),
                Aim::Spread => Target::Spread,
            },
            connections: self.connections,
            gets_rate: self.rate as f64 * 0.8,
            others_rate: self.rate as f64 * 0.2,
        }
    }
}
